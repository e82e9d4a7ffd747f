"""What is directly in a checkpoint root. It is read once; which steps are in the root follows from this alone."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from healthd.checkpoints.formats import Format, recognises
from healthd.checkpoints.formats.layouts.custom import Custom
from healthd.checkpoints.formats.torch.pretrained import CONFIGURATION
from healthd.checkpoints.formats.trainers.lightning import is_last, read_step
from healthd.checkpoints.step_names import final_name, is_temporary, number_of
from healthd.checkpoints.stores.store import Name
from healthd.checkpoints.stores.urls import Location, store_of
from healthd.checkpoints.tree import kind_of

UNFINISHED = "-unfinished"
"""Stands beside a step under its name with this at the end, until the step is finished."""
MOST_NAMES = 1_000_000
"""The limit of names directly in a root. Most may be logs or samples, which are read and not kept."""
MOST_CHECKPOINTS = 100_000
"""The limit of names in a root that may belong to checkpoints."""
_MOST_KINDS = 10_000
"""The number of kinds of names for which it is remembered whether they matter."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The names in *root* that may belong to checkpoints, and the format that its user *declared*."""

    root: Location
    declared: Format | None
    names: Mapping[str, Name]
    inside: Mapping[str, int]
    """The steps of what has none in its name, by that name."""

    def step_of(self, name: str) -> int | None:
        """The step that it has, or will have when it is finished, however large."""
        return self.inside.get(name) if is_last(name) else number_of(final_name(name))

    def owns(self, name: str) -> bool:
        """Whether the declared format or any other has files of this name."""
        return recognises(name) or (self.declared is not None and self.declared.owns(name))

    def files(self) -> Iterator[str]:
        """Those with final names."""
        return (name for name, listed in self.names.items() if not (listed.is_folder or is_temporary(name)))


def read_listing(root: Location, declared: Format | None, most: int) -> Listing:
    """Only a `last.ckpt` is opened: it may be the newest. Raises OSError, also for more than *most* names."""
    names: dict[str, Name] = {}
    for count, listed in enumerate(store_of(root).names(root), start=1):
        if count > most:
            why = f"more than {most:,} names in it, too many to list: give checkpoints a folder of their own"
            raise OSError(errno.E2BIG, why)
        if _matters(kind_of(listed.name)) or (declared is not None and _is_declared(declared, listed.name)):
            names[listed.name] = listed
        if len(names) > MOST_CHECKPOINTS:
            raise OSError(errno.E2BIG, f"more than {MOST_CHECKPOINTS:,} names of checkpoints in it, too many to sort")
    return Listing(root, declared, names, _steps_inside(root, names))


def _steps_inside(root: Location, names: Mapping[str, Name]) -> dict[str, int]:
    """Not of a link: its target stands beside it under its own name."""
    last = [listed for listed in names.values() if is_last(listed.name) and not listed.is_link]
    steps = {listed.name: read_step(root / listed.name, is_folder=listed.is_folder) for listed in last}
    return {name: step for name, step in steps.items() if step is not None}


@lru_cache(_MOST_KINDS)
def _matters(kind: str) -> bool:
    """Whether a file or folder with a name of this kind belongs to a checkpoint, or says something about one."""
    if kind == CONFIGURATION or kind.endswith(UNFINISHED) or is_last(kind) or recognises(kind):
        return True
    return number_of(final_name(kind)) is not None


def _is_declared(declared: Format, name: str) -> bool:
    return declared.owns(name) or (isinstance(declared, Custom) and declared.step_of(name) is not None)
