"""
Folders with checkpoints below a location that has none itself: for a user who named a folder one level too high.

Nothing that is found here is ever loaded automatically.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice

from healthd.checkpoints.formats import recognises
from healthd.checkpoints.listing import MOST_NAMES
from healthd.checkpoints.step_names import is_temporary
from healthd.checkpoints.steps import Candidate, find
from healthd.checkpoints.stores.urls import Location, store_of

MOST_FOLDERS = 200
"""At most this number of folders is searched for checkpoints that are not at the given location."""
_MOST_NAMES_INSIDE = 10_000
"""The largest number of names read in each of those folders."""
_MOST_LEVELS = 3
"""The depth of the search: a root `out` of Lightning has them in `out/lightning_logs/version_0/checkpoints`."""


def nested(root: Location) -> list[Candidate]:
    """
    The folders below *root* that hold checkpoints, each with its newest step: the location is one level too high.

    For a person, never to be loaded automatically: two runs may save below the same folder. Links are not followed.
    Hidden and temporary folders are left out. The search ends after `MOST_FOLDERS`. A folder that cannot be read
    counts as empty.
    """
    found: list[Candidate] = []
    waiting = _folders(root.absolute())
    visited = 0
    for level in range(_MOST_LEVELS):
        below: list[Location] = []
        for folder in islice(waiting, MOST_FOLDERS - visited):
            visited += 1
            if holds := _newest_inside(folder):
                found.append(Candidate(path=folder, step=holds.step))
            elif level + 1 < _MOST_LEVELS:
                below += _folders(folder)
        waiting = below
    return sorted(found, key=lambda c: (c.step, str(c.path)), reverse=True)


def _newest_inside(folder: Location) -> Candidate | None:
    """The newest step in *folder*. The name of a step alone is not enough: data sets also have numbered folders."""
    try:
        holds = (candidate for candidate in find(folder, most=_MOST_NAMES_INSIDE) if not candidate.unfinished)
        return next((candidate for candidate in islice(holds, 3) if _has_content(candidate)), None)
    except OSError:
        return None


def _has_content(candidate: Candidate) -> bool:
    path = candidate.path
    try:
        inside = islice(store_of(path).names(path), _MOST_NAMES_INSIDE)
        return bool(candidate.beside) or any(recognises(listed.name) for listed in inside)
    except NotADirectoryError:
        return True


def _folders(folder: Location) -> list[Location]:
    try:
        listed = islice(store_of(folder).names(folder), MOST_NAMES)
        inside = (each.name for each in listed if each.is_folder and not each.is_link)
        first = nsmallest(MOST_FOLDERS, (name for name in inside if not is_temporary(name)))
    except OSError:
        return []
    return [folder / name for name in first]
