"""
The answer of NCCL's RAS subsystem: how many collectives each rank has enqueued in each communicator. Pure.

RAS counts what was enqueued, not what has ended, and does not count sends and receives. Ranks are numbers within a
communicator. The largest communicator, which has all ranks of the gang, says which process and GPU is which rank.
Source of the fields: `src/ras/client_support.cc` of NCCL 2.28 to 2.30.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from healthd.core.hang.suspects.evidence import MOST_GROUPS, GroupProgress, Source, bounded

Version = tuple[int, int, int]

FIRST_SAFE: Version = (2, 30, 8)
"""
The first release that may be asked. A question has crashed jobs before 2.29.2 (an overrun while the report is written)
and up to 2.30.7 at least (a communicator that is being made). No release since is known to do so.
"""
LARGEST_ANSWER = 16 << 20
"""Bytes. The answer for 4,096 ranks with three communicators each has about nine million."""
_VERSION = re.compile(r"NCCL version (\d{1,2})\.(\d{1,3})\.(\d{1,3})\b")
_Count = Annotated[int, msgspec.Meta(ge=0)]


class NoAnswer(Exception):
    """The answer is not one of RAS, or does not cover the gang. The message says why."""


class RasRank(NamedTuple):
    """What RAS says of one rank of the gang."""

    groups: tuple[GroupProgress, ...]
    lost: str
    """*dead* or *unresponsive*. Empty: it answered."""


class _Lost(msgspec.Struct):
    unresponsive: bool = False
    considered_dead: bool = False


class _Member(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    cuda_dev: int = -1
    collective_counts: dict[str, _Count] = {}

    @property
    def place(self) -> _Place:
        return self.host, self.pid, self.cuda_dev


class _Missing(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    cuda_dev: int = -1
    status: _Lost = msgspec.field(default_factory=_Lost)

    @property
    def place(self) -> _Place:
        return self.host, self.pid, self.cuda_dev


class _Communicator(msgspec.Struct):
    hash: str
    size: int
    secondary_hash: str = ""
    ranks: list[_Member] = []
    missing_ranks: list[_Missing] = []


class _Answer(msgspec.Struct):
    communicators: list[_Communicator]


_Place = tuple[str, int, int]


def find_version(text: str) -> Version | None:
    """The version in what NCCL prints, or has as text in its library. None: there is none."""
    found = _VERSION.search(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def refusal(version: Version | None, first_safe: Version = FIRST_SAFE) -> str:
    """Why a job with NCCL *version* must not be asked. Empty: it may be asked, once."""
    if version is None:
        return "the version of NCCL is not known"
    if version < first_safe:
        return (
            f"NCCL {_spoken(version)} may crash when it is asked; {_spoken(first_safe)} is the first that may be asked"
        )
    return ""


def read_answer(answer: bytes, ranks: int) -> dict[int, RasRank]:
    """
    What *answer*, in JSON, says of each rank of a gang of *ranks* ranks. Ranks that it does not name are left out.

    Raises NoAnswer also where no communicator has all ranks of the gang.
    """
    try:
        communicators = msgspec.json.decode(answer, type=_Answer).communicators
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoAnswer(f"it is not an answer of RAS: {bounded(str(error), 120)}") from error
    whole = next((each for each in communicators if each.size == ranks), None)
    if whole is None:
        raise NoAnswer(f"no communicator has all {ranks:,} ranks of the gang")
    everyone: list[_Member | _Missing] = [*whole.ranks, *whole.missing_ranks]
    places = {each.place: each.rank for each in everyone if 0 <= each.rank < ranks}
    progress = _progress(communicators, places)
    lost = dict(_lost(communicators, places))
    return {rank: RasRank(tuple(progress.get(rank, ())), lost.get(rank, "")) for rank in {*progress, *lost}}


def _progress(
    communicators: Sequence[_Communicator], places: Mapping[_Place, int]
) -> Mapping[int, Sequence[GroupProgress]]:
    progress: dict[int, list[GroupProgress]] = defaultdict(list)
    for communicator in communicators:
        group = _title(communicator)
        for member in communicator.ranks:
            rank = places.get(member.place)
            if rank is not None and len(progress[rank]) < MOST_GROUPS:
                counted = min(sum(member.collective_counts.values()), 2**63 - 1)
                progress[rank].append(GroupProgress(group, counted, Source.RAS, size=max(communicator.size, 0)))
    return progress


def _lost(communicators: Sequence[_Communicator], places: Mapping[_Place, int]) -> Iterator[tuple[int, str]]:
    """A missing rank that is neither has answered, but not for this communicator, which it has left or not yet made."""
    for communicator in communicators:
        for missing in communicator.missing_ranks:
            if (rank := places.get(missing.place)) is not None and (state := _state(missing.status)):
                yield rank, state


def _state(status: _Lost) -> str:
    if status.considered_dead:
        return "dead"
    return "unresponsive" if status.unresponsive else ""


def _title(communicator: _Communicator) -> str:
    """The second hash tells apart communicators whose first one is the same."""
    return bounded(f"communicator {communicator.hash[:20]} {communicator.secondary_hash[:40]}".strip())


def _spoken(version: Version) -> str:
    return ".".join(map(str, version))
