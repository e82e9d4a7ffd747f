"""
Looks at the main threads of ranks that use a processor and nothing else, several times in a second.

They are taken in a thread, as far as py-spy is there: one costs 15 ms of a processor, and pauses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import structlog

from healthd.core.hang.suspects.outliers import waits_for_others_alone
from healthd.core.hang.suspects.places import package_function
from healthd.local.processes.main_process import main_process
from healthd.local.processes.runner import RunningRank
from healthd.probes.errors import CannotRead
from healthd.probes.hang.stacks import look_at
from healthd.probes.process_stat import ProcessStat, read_stat
from healthd.probes.usage.looks import pause
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

LOOKS = 4
"""At each rank, before anything is handed on."""
EVERY_S = 0.2
MOST_IN_KERNEL = 0.25
"""Of the processor time of a process that computes."""


class Seen(NamedTuple):
    """A look at *rank*, whose main thread did not wait for other ranks alone."""

    rank: str
    function: Hashable | None = None
    """Of a package, in which the main thread was. None: in one of the program, or of the standard library."""
    is_native: bool = False
    """What used a processor was compiled code, and not the kernel."""


LookAt = Callable[[Sequence[RunningRank]], Sequence[Seen]]
"""Takes the looks. It blocks for seconds at most, and raises nothing."""


class StackLooks:
    """At some ranks at a time. What was seen is taken later, so no sample waits for it."""

    def __init__(self, look_at: LookAt | None = None) -> None:
        self._look_at = look_at or look_at_stacks
        self._looking: asyncio.Task[Sequence[Seen]] | None = None

    def begin(self, ranks: Sequence[RunningRank]) -> None:
        """Look at *ranks*, unless earlier looks have not come back yet."""
        if ranks and self._looking is None:
            self._looking = asyncio.create_task(in_thread(lambda: self._look_at(ranks), "looks at stacks"))

    def take(self) -> Sequence[Seen]:
        """What was seen since. Empty while it is not known."""
        if self._looking is None or not self._looking.done():
            return ()
        looking, self._looking = self._looking, None
        if error := looking.exception():  # a run must not end because a look failed
            log.info("hang.look_failed", error=repr(error))
            return ()
        return looking.result()

    def forget(self) -> None:
        """The ranks are no more, and what is seen of them counts for none of the next ones."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None


def look_at_stacks(ranks: Sequence[RunningRank]) -> Sequence[Seen]:
    """Without the looks that were not possible, or show a wait for other ranks."""
    pids = {rank.name: pid for rank in ranks if (pid := main_process(rank.pid, rank.shim))}
    before = {name: read_stat(pid) for name, pid in pids.items()}
    found: list[Seen] = []
    for _ in range(LOOKS):
        time.sleep(pause(EVERY_S))
        found += [seen for name, pid in pids.items() if (seen := _seen(name, pid)) is not None]
    in_kernel = {name for name, pid in pids.items() if _was_in_kernel(before[name], read_stat(pid))}
    return [each._replace(is_native=each.is_native and each.rank not in in_kernel) for each in found]


def _seen(name: str, pid: int) -> Seen | None:
    try:
        look = look_at(pid)
    except CannotRead:
        return None
    if waits_for_others_alone(look.stack):
        return None
    return Seen(name, package_function(look.stack), look.is_native)


def _was_in_kernel(before: ProcessStat | None, after: ProcessStat | None) -> bool:
    """Whether a good part of what a process did are system calls, as of one that polls. Also where it is not known."""
    if before is None or after is None:
        return True
    return after.in_kernel - before.in_kernel > MOST_IN_KERNEL * (after.cpu - before.cpu)
