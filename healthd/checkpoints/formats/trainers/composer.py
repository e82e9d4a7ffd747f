"""
MosaicML Composer: `ep1-ba10-rank0.pt`, or a folder `ep1-ba10` with a `torch_dcp`, or with one file per rank.

The archives are checked as `torch_zip` and `torch_dcp`. A file must also have what Composer resumes from, and must be
of the batch in its name. Files of several ranks must have no gap, and their number must match the one in rank 0's
file. Source: composer/utils/checkpoint.py and composer/core/state.py.
"""

from __future__ import annotations

import re

from healthd.checkpoints.bundles import rank_of
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.torch_state import TorchState, open_state
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of

_FILE = re.compile(r"(?:ep\d+-)?ba(?P<batch>\d{1,18})-rank\d{1,6}\.pt")
_PARTS = ("model", "optimizers", "timestamp")


class Composer:
    """Rank 0's file has model, optimizers and the timestamp of its batch. No rank's file is missing."""

    name = "composer"

    def owns(self, filename: str) -> bool:
        """Files of ranks with the default name."""
        return _FILE.fullmatch(filename) is not None

    def detect(self, tree: Tree) -> bool:
        """Any such file."""
        return any(self.owns(filename_of(name)) for name in tree.entries)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:  # noqa: ARG002 - the archives are read as `torch_zip`
        """The same at both levels. Raises Damaged."""
        ranks: dict[int, str] = {}
        for name in sorted(tree.entries):
            place = rank_of(filename_of(name))
            if place and self.owns(filename_of(name)):
                ranks[place[1]] = name
        if 0 not in ranks:
            raise Damaged("the file of rank 0 is missing; it is the one from which Composer resumes")
        with open_state(tree, ranks[0]) as state:
            _verify_state(state, ranks[0])
            world = _world_size(state) if len(ranks) > 1 else 1
        _refuse_missing(ranks, max(world, max(ranks) + 1), folder_of(ranks[0]))


def _verify_state(state: TorchState, name: str) -> None:
    if not isinstance(state.value, dict):
        return  # not readable as data; the archive check decides
    if state.at("state") is None:
        raise Damaged(f"{name}: not a checkpoint of Composer (no state in it)")
    absent = next((part for part in _PARTS if state.at("state", part) is None), None)
    if absent is not None:
        raise Damaged(f"{name}: without {absent}: weights only, from which Composer does not resume")
    match = _FILE.fullmatch(filename_of(name))
    batch = state.number("state", "timestamp", "Timestamp", "batch")
    if match and batch is not None and batch != int(match["batch"]):
        raise Damaged(f"{name}: of batch {batch:.0f}, under the name of {int(match['batch'])} (of another save?)")


def _world_size(state: TorchState) -> int:
    """The world size of the run: rank 0's file has the random state of each rank."""
    rng = state.at("rng")
    return len(rng) if isinstance(rng, list | tuple) else 0


def _refuse_missing(ranks: dict[int, str], world: int, folder: str) -> None:
    absent = next((rank for rank in range(world) if rank not in ranks), None)
    if absent is not None:
        where = f"{folder}: " if folder else ""
        raise Damaged(f"{where}the file of rank {absent} is missing; {len(ranks):,} of {world:,} are here")
