"""
Where the writers' own pointers lead: told to people, never followed.

Loaders that healthd does not start, such as a script of the user, go by them: `latest` of DeepSpeed, and Megatron's
`latest_checkpointed_iteration.txt`. A pointer to a torn checkpoint lets such a loader fail, or end with exit code 0.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple

from healthd.checkpoints.tree import Damaged, Location, survey

LARGEST = 4096
_ITERATIONS = "latest_checkpointed_iteration.txt"
_FILES = ("latest", _ITERATIONS)


class Pointer(NamedTuple):
    """One pointer of a checkpoint root."""

    file: str
    names: str
    """The folder that it leads to, beside it; empty when it is torn."""


def read_pointers(root: Location) -> list[Pointer]:
    """Those that are there and can be read; only regular files of a few bytes are opened."""
    found = []
    for file in _FILES:
        try:
            text = survey(root / file).read(file, at_most=LARGEST).decode("utf-8", "replace").strip()
        except Damaged:
            continue
        found.append(Pointer(file, f"iter_{int(text):07}" if file == _ITERATIONS and _is_number(text) else text))
    return found


def misled(root: Location, found: str | None) -> list[str]:
    """One line for each pointer under *root* that does not lead to the checkpoint *found*, for a person."""
    lines = []
    for pointer in read_pointers(root):
        leads_to = repr(pointer.names[:80]) if pointer.names else "nothing (it is empty)"
        if found is None or pointer.names != PurePosixPath(found).name:
            lines.append(f"{pointer.file} leads to {leads_to}: a loader that goes by it loads that one")
    return lines


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
