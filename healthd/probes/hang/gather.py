"""
Asks every witness on this machine once about the ranks that run here, within one deadline.

A witness that cannot be asked leaves its field empty and a line in `troubles`. NCCL RAS is asked apart from that: one
process answers for the whole gang (`nccl_ras`). The activity of ranks comes from samples that were taken before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from healthd.core.hang.suspects.evidence import (
    LONGEST_LINE,
    MOST_TROUBLES,
    ProcessEvidence,
    RankEvidence,
    Stack,
    bounded,
)
from healthd.probes.errors import CannotRead
from healthd.probes.hang.flight_recorder import read_flight_recorder
from healthd.probes.hang.log_tail import last_lines
from healthd.probes.hang.network import read_networks
from healthd.probes.hang.processes import read_processes
from healthd.probes.hang.stacks import DEADLINE_S as STACK_DEADLINE_S
from healthd.probes.hang.stacks import read_stack

DEADLINE_S = 10.0

T = TypeVar("T")


class LocalRank(NamedTuple):
    """A rank on this machine. *pid* is its main process, in the namespace of this one. Empty paths are not read."""

    rank: int
    pid: int
    pod: str = ""
    node: str = ""
    gpus: tuple[str, ...] = ()
    dump: str = ""
    """The file into which torch dumps its flight recorder."""
    log: str = ""


def gather(
    ranks: Sequence[LocalRank],
    *,
    newer_than: float = 0.0,
    deadline_s: float = DEADLINE_S,
    now: Callable[[], float] = time.monotonic,
    keep: Callable[[Sequence[RankEvidence]], None] = lambda _: None,
    is_over: Callable[[], bool] = lambda: False,
) -> list[RankEvidence]:
    """
    What is known of each of *ranks*, in their order.

    Dumps that were written before *newer_than* (seconds of the epoch) are left out. Stacks are left out where
    *deadline_s* is over; all else is quick, unless a file system holds it. So *keep* gets the evidence whenever one
    witness has been asked about all ranks, files of users last: a rank that was not asked about yet must not look like
    one that has nothing to say. No further question is asked once *is_over* returns true.
    """
    until = now() + deadline_s
    pids, processes = [each.pid for each in ranks], dict[int, ProcessEvidence]()
    networks = read_networks(pids, until=until, now=now, meanwhile=lambda: processes.update(read_processes(pids)))
    known = [
        RankEvidence(
            each.rank,
            each.pod,
            each.node,
            each.gpus,
            process=processes[each.pid],
            network=networks.get(each.pid),
        )
        for each in ranks
    ]
    keep(known)
    for ask in (_with_stack, _with_dump, _with_log):
        more: list[RankEvidence] = []
        for before, each in zip(known, ranks, strict=True):
            if is_over():
                return known
            more.append(ask(before, each, _Terms(newer_than, until - now())))
        known = more
        keep(known)
    return known


class _Terms(NamedTuple):
    newer_than: float
    left_s: float


def _with_stack(known: RankEvidence, each: LocalRank, terms: _Terms) -> RankEvidence:
    stack, troubles = _asked(lambda: _stack(each.pid, terms.left_s))
    return replace(known, stack=stack, troubles=_more(known, troubles))


def _with_dump(known: RankEvidence, each: LocalRank, terms: _Terms) -> RankEvidence:
    if not each.dump:
        return known
    groups, troubles = _asked(lambda: read_flight_recorder(each.dump, newer_than=terms.newer_than))
    return replace(known, groups=groups or (), troubles=_more(known, troubles))


def _with_log(known: RankEvidence, each: LocalRank, _: _Terms) -> RankEvidence:
    if not each.log:
        return known
    log, troubles = _asked(lambda: last_lines(each.log))
    return replace(known, log=log or (), troubles=_more(known, troubles))


def _more(known: RankEvidence, troubles: tuple[str, ...]) -> tuple[str, ...]:
    return (*known.troubles, *troubles)[:MOST_TROUBLES]


def _stack(pid: int, left_s: float) -> Stack:
    if left_s <= 0:
        raise CannotRead(f"the stack of process {pid}", "there was no time left", "ask again with fewer ranks")
    return read_stack(pid, deadline_s=min(left_s, STACK_DEADLINE_S))


def _asked(ask: Callable[[], T]) -> tuple[T | None, tuple[str, ...]]:
    try:
        return ask(), ()
    except CannotRead as error:
        return None, (bounded(str(error), LONGEST_LINE),)
