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

from healthd.core.hang.suspects.outliers import wait_of
from healthd.core.hang.suspects.places import package_function
from healthd.local.processes.main_process import main_process
from healthd.local.processes.runner import RunningRank
from healthd.probes.errors import CannotRead
from healthd.probes.hang.stacks import read_stack
from healthd.probes.usage.looks import pause
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

LOOKS = 4
"""At each rank, before anything is handed on."""
EVERY_S = 0.2


class Seen(NamedTuple):
    """The main thread of *rank* was in this *function* of a package, and did not wait for other ranks there."""

    rank: str
    function: Hashable


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
    """Without the looks that showed nothing, or were not possible."""
    found = []
    for _ in range(LOOKS):
        time.sleep(pause(EVERY_S))
        found += [Seen(rank.name, function) for rank in ranks if (function := _computes_in(rank)) is not None]
    return found


def _computes_in(rank: RunningRank) -> Hashable | None:
    """None: where its main thread is shows no computation, or that is not known."""
    pid = main_process(rank.pid, rank.shim)
    try:
        stack = read_stack(pid) if pid else None
    except CannotRead:
        return None
    return package_function(stack) if stack is not None and wait_of(stack) is None else None
