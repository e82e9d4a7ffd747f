"""
Files at a location without a checkpoint that look like some, though neither name nor format says so: a row of files
that differ in one number alone (`snap-10.dat`, `snap-20.dat`).

For a person, as `nested` is. They may be data: none is ever loaded, and no run waits because of them.
"""

from __future__ import annotations

from itertools import islice

from healthd.checkpoints.formats import recognises
from healthd.checkpoints.step_names import is_temporary, may_be_saved, series
from healthd.checkpoints.steps import DECLARE, UNKNOWN_STEP, Candidate
from healthd.checkpoints.stores.urls import Location, store_of

MOST_NAMES = 1000
"""A location with more names holds data."""


def lookalike(root: Location) -> Candidate | None:
    """The newest file of the longest such row. Raises OSError."""
    listed = list(islice(store_of(root).names(root), MOST_NAMES + 1))
    files = (each.name for each in listed if not (each.is_folder or is_temporary(each.name) or recognises(each.name)))
    rows = series(filter(may_be_saved, files)) if len(listed) <= MOST_NAMES else []
    row = max(rows, key=len, default=None)
    if row is None:
        return None
    name = max(row, key=row.__getitem__)
    why = f"{name} and {len(row) - 1} more numbered files may be checkpoints of no known format: if they are, {DECLARE}"
    return Candidate(path=root.absolute() / name, step=UNKNOWN_STEP, unfinished=why, is_undeclared=True)
