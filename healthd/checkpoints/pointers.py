"""
The targets of the writers' own pointers: they are reported to people, never followed.

Loaders that healthd does not start, such as a user's script, use them: `latest` of DeepSpeed, Megatron's
`latest_checkpointed_iteration.txt`, and `checkpoint` of TensorFlow. With a pointer to a torn checkpoint, such a loader
fails, or exits with 0.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from healthd.checkpoints.tree import Damaged, Location, survey

LARGEST = 4096
_ITERATIONS = "latest_checkpointed_iteration.txt"
_STATE = "checkpoint"
_NEWEST = re.compile(r'^model_checkpoint_path: "(?P<path>[^"\n]*)"', re.MULTILINE)
_FILES = ("latest", _ITERATIONS, _STATE)


class Pointer(NamedTuple):
    """One pointer of a checkpoint root."""

    file: str
    names: str
    """The folder beside the pointer that it names. Empty when the pointer is torn."""


def read_pointers(root: Location) -> list[Pointer]:
    """The pointers that exist and can be read. Only regular files of a few bytes are opened."""
    found = []
    for file in _FILES:
        try:
            text = survey(root / file).read(file, at_most=LARGEST).decode("utf-8", "replace").strip()
        except Damaged:
            continue
        if file == _STATE and not _NEWEST.search(text):
            continue  # other tools also use that file name
        found.append(Pointer(file, _parse(file, text)))
    return found


def misled(root: Location, found: str | None) -> list[str]:
    """One line, for a person, for each pointer under *root* that does not name the checkpoint *found*."""
    lines = []
    for pointer in read_pointers(root):
        leads_to = repr(pointer.names[:80]) if pointer.names else "nothing (it is empty)"
        if found is None or pointer.names != PurePosixPath(found).name:
            lines.append(f"{pointer.file} leads to {leads_to}: a loader that goes by it loads that one")
    return lines


def _parse(file: str, text: str) -> str:
    if file == _ITERATIONS and _is_number(text):
        return f"iter_{int(text):07}"
    newest = _NEWEST.search(text) if file == _STATE else None
    return PurePosixPath(newest["path"]).name if newest else text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
