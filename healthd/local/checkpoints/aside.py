"""
Move the checkpoints of an earlier run out of the way of a run that starts from step 0.

Without the move, the new run would take them for its own: its first recovery would resume from the newest of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

OWN = ".healthd"
"""Files and folders in a checkpoint folder whose names start with this belong to healthd. They stay."""


def why_not_aside(folder: Path, command: Sequence[str], here: Path) -> str:
    """Why the content of *folder* may not be moved: it is more than checkpoints. Empty when it may be moved."""
    place = folder.resolve()
    if here.resolve().is_relative_to(place):
        return f"{folder} is where the run is started: name a folder that holds its checkpoints alone"
    for word in command:
        inside = Path(os.path.realpath(here / word))  # unlike `resolve` it takes links that lead in a circle
        if inside != place and inside.is_relative_to(place) and inside.exists():
            return f"{folder} holds {word}, which the command names: name a folder that holds its checkpoints alone"
    if place.is_dir() and any(_movable(place)) and not os.access(place.parent, os.W_OK):
        return f"what is in {folder} cannot be moved aside: {place.parent} cannot be written"
    return ""


def move_aside(folder: Path) -> Path | None:
    """
    Move everything in *folder* into a new folder beside it.

    Returns the new folder, or None when there is nothing to move. Raises OSError.
    """
    place = folder.resolve()
    names = _movable(place) if place.is_dir() else []
    if not names:
        return None
    aside = next(path for number in count(1) if not (path := place.with_name(f"{place.name}.before-{number}")).exists())
    aside.mkdir(mode=place.stat().st_mode & 0o777)
    for name in names:
        (place / name).rename(aside / name)
    return aside


def _movable(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(OWN))
