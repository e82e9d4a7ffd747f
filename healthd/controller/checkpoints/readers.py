"""
How many processes read what users saved, and how much memory they may take beside the controller.

There are three pools: one for the verifications that recoveries wait for, one for quick looks, and one of few large
processes for what the small ones have no room for. A pool never has more processes than it says, those that cannot be
ended included; one namespace gets half of them at most, so the slow or hostile storage of one tenant is not in the way
of another. A look that nobody waits for any more is ended, and its place is free when its process is gone.

The controller's container has a limit of 1,536 MiB (deploy/controller.yaml). It holds, when all take the most they may:

    the controller with 10,000 nodes and 100,000 pods       243 MiB   (docs/measured.md: 37.5 + 217 MB)
    4 small processes that verify, 4 that look     8 x 64   512 MiB
    2 large processes                             2 x 300   600 MiB
    code that all processes share                            13 MiB
                                                          1,368 MiB
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from healthd.checkpoints.child import MEMORY as LARGE
from healthd.checkpoints.processes import PROGRAM, Asking, Ended, Processes
from healthd.checkpoints.report import Inquiry
from healthd.core.checkpoint.verification import Report
from healthd.core.fair_shares import may_begin
from healthd.threads import in_thread

SMALL = 64 << 20
"""Bytes of data for one small process. It has 17 MiB when it rests, and 25 after a checkpoint of 10,000 files."""
VERIFIERS, LOOKERS, LARGE_ONES = 2, 2, 1
"""Processes for one namespace alone, as `core.fair_shares` counts them; a pool has up to twice as many."""
CONTROLLER = 243 << 20
"""Bytes that the controller itself takes in the largest cluster that it is tried with."""
SHARED = 13 << 20
"""Bytes of code and tables that all processes share."""
MOST = CONTROLLER + SHARED + 2 * (VERIFIERS + LOOKERS) * SMALL + 2 * LARGE_ONES * LARGE
"""Bytes that all of them take together at the very most."""
_AGAIN = 1.0
"""Seconds until it is seen that a process which could not be ended is gone at last."""


class Readers:
    """Looks at what users saved, for `Inquiry`s of namespaces."""

    def __init__(self, environment: Mapping[str, str] | None = None, program: Sequence[str] = PROGRAM) -> None:
        make = partial(Processes, environment=environment, program=program)
        self._verifiers = Pool(VERIFIERS, make(idle=VERIFIERS, memory=SMALL))
        self._lookers = Pool(LOOKERS, make(idle=LOOKERS, memory=SMALL))
        self._large = Pool(LARGE_ONES, make(idle=0, memory=LARGE))

    async def verify(self, inquiry: Inquiry, seconds: float, who: str) -> Report:
        """What a recovery waits for. It has *seconds* from when it begins. Raises TimeoutError and other OSErrors."""
        return await self._ask(self._verifiers, inquiry, seconds, who)

    async def look(self, inquiry: Inquiry, seconds: float, who: str) -> Report:
        """Quickly: in *seconds*, also while others come first. Raises TimeoutError and other OSErrors."""
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(self._lookers, inquiry, seconds, who)
        except TimeoutError as error:
            where = inquiry.location
            raise TimeoutError(str(error) or f"{where} has not answered within {seconds:.0f} s") from error

    async def _ask(self, pool: Pool, inquiry: Inquiry, seconds: float, who: str) -> Report:
        try:
            return await pool.ask(inquiry, seconds, who)
        except Ended:  # most likely it took more memory than it may
            return await self._large.ask(inquiry, seconds, who)


class Pool:
    """A bounded number of *processes*, in even shares; one namespace alone gets *at_once*."""

    def __init__(self, at_once: int, processes: Processes) -> None:
        self.most = 2 * at_once
        self._at_once = at_once
        self._processes = processes
        self._running: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def ask(self, inquiry: Inquiry, seconds: float, who: str) -> Report:
        """What one of the processes answers, once it is the turn of *who*. Ends it when the waiting is cancelled."""
        while not self._may_begin(who):
            await self._change()
        self._running.append(who)
        asking, loop = Asking(), asyncio.get_running_loop()

        def work() -> Report:
            try:
                return self._processes.ask(inquiry, seconds, who, asking)
            finally:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._leave, who)

        try:
            return await in_thread(work, "read checkpoints")
        except asyncio.CancelledError:
            asking.end()
            raise
        except RuntimeError as error:  # no thread could be started
            self._leave(who)
            raise OSError(f"{inquiry.location}: nothing can be read now: {error}") from error

    def _may_begin(self, who: str) -> bool:
        return may_begin(who, [*self._running, *self._processes.stuck()], self._at_once)

    async def _change(self) -> None:
        """Until somebody has left; or a moment, for processes that could not be ended leave without a word."""
        left = asyncio.get_running_loop().create_future()
        self._waiting.append(left)
        try:
            await asyncio.wait([left], timeout=_AGAIN)
        finally:
            self._waiting.remove(left)

    def _leave(self, who: str) -> None:
        self._running.remove(who)
        for each in self._waiting:
            if not each.done():
                each.set_result(None)
