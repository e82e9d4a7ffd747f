"""
Doubts about a checkpoint that is valid. They prove nothing; a person should check them.

A recovery does not use them: it has no better checkpoint, or it would have taken that one.
"""

from __future__ import annotations

from healthd.checkpoints.encodings.safetensors_headers import parse_header, read_header
from healthd.checkpoints.formats.torch.zero_tails import Layout, describe, find_tail
from healthd.checkpoints.stores.urls import Location
from healthd.checkpoints.tree import Damaged, Tree, survey

MOST = 5
"""The largest number of lines about one checkpoint."""


def doubts(path: Location) -> list[str]:
    """One line for each doubt about the checkpoint at *path*, which was fully verified."""
    found: list[str] = []
    try:
        tree = survey(path)
        for name in sorted(name for name in tree.entries if name.endswith(".safetensors")):
            found += _zeros(tree, name)
    except Damaged:  # it has changed since
        return found
    left = len(found) - MOST
    return found if left <= 0 else [*found[:MOST], f"{left:,} more such files"]


def _zeros(tree: Tree, name: str) -> list[str]:
    size = tree.size(name)
    with tree.open(name) as file:
        raw = read_header(file, name, size)
        layout = Layout(8 + len(raw), size, parse_header(raw, name))
        tail = find_tail(file, name, layout)
    if tail is None:
        return []
    return [f"{name}: {describe(tail, layout)}: as after a power cut, unless they were saved so"]
