"""
The processes that read what users saved: how many there are, and how much memory they may use beside the controller.

There are three pools: one for the verifications that recoveries wait for, one for quick checks, and one of few large
processes for checkpoints that need more memory than a small process has. A pool never exceeds its size, processes that
cannot be ended included. One namespace gets at most half of a pool, so slow or hostile storage of one tenant does not
block another tenant. A read is ended when its caller stops waiting; its slot is free when its process is gone.

The controller's container has a memory limit of 1,536 MiB (deploy/controller.yaml). At the maximum use it holds:

    the controller with 10,000 nodes and 100,000 pods       243 MiB   (docs/measured.md: 37.5 + 217 MB)
    4 small processes to verify, 4 for checks      8 x 64   512 MiB
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
from healthd.checkpoints.processes import PROGRAM, Asking, Processes, ReaderEnded
from healthd.checkpoints.report import Inquiry
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.fair_shares import may_begin
from healthd.threads import in_thread

SMALL = 64 << 20
"""Bytes of data for one small process. It uses 17 MiB when idle, and 25 after a checkpoint of 10,000 files."""
VERIFIERS, STEP_READERS, LARGE_ONES = 2, 2, 1
"""Processes for one namespace alone, as `core.fair_shares` counts them; a pool has up to twice as many."""
CONTROLLER = 243 << 20
"""Bytes that the controller itself uses in the largest cluster that it is tested with."""
SHARED = 13 << 20
"""Bytes of code and tables that all processes share."""
MOST = CONTROLLER + SHARED + 2 * (VERIFIERS + STEP_READERS) * SMALL + 2 * LARGE_ONES * LARGE
"""Bytes that all of them use together at most."""
_AGAIN = 1.0
"""Seconds between checks whether a process that could not be ended is gone at last."""


class Readers:
    """Reads what users saved, for `Inquiry`s of namespaces."""

    def __init__(self, environment: Mapping[str, str] | None = None, program: Sequence[str] = PROGRAM) -> None:
        make = partial(Processes, environment=environment, program=program)
        self._verifiers = Pool(VERIFIERS, make(idle=VERIFIERS, memory=SMALL))
        self._step_readers = Pool(STEP_READERS, make(idle=STEP_READERS, memory=SMALL))
        self._large = Pool(LARGE_ONES, make(idle=0, memory=LARGE))

    async def verify(self, inquiry: Inquiry, seconds: float, who: str) -> VerificationReport:
        """Verify for a recovery that waits; *seconds* count from the begin. Raises TimeoutError and other OSErrors."""
        return await self._ask(self._verifiers, inquiry, seconds, who)

    async def read(self, inquiry: Inquiry, seconds: float, who: str) -> VerificationReport:
        """Check in *seconds*, the wait for a free process included. Raises TimeoutError and other OSErrors."""
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(self._step_readers, inquiry, seconds, who)
        except TimeoutError as error:
            where = inquiry.location
            raise TimeoutError(str(error) or f"{where} has not answered within {seconds:.0f} s") from error

    async def _ask(self, pool: Pool, inquiry: Inquiry, seconds: float, who: str) -> VerificationReport:
        try:
            return await pool.ask(inquiry, seconds, who)
        except ReaderEnded:  # most likely it used more memory than allowed
            return await self._large.ask(inquiry, seconds, who)


class Pool:
    """A bounded number of *processes*, in even shares; one namespace alone gets *at_once*."""

    def __init__(self, at_once: int, processes: Processes) -> None:
        self.most = 2 * at_once
        self._at_once = at_once
        self._processes = processes
        self._running: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def ask(self, inquiry: Inquiry, seconds: float, who: str) -> VerificationReport:
        """The answer of one process, when it is the turn of *who*. Ends the process when the wait is cancelled."""
        while not self._may_begin(who):
            await self._change()
        self._running.append(who)
        asking, loop = Asking(), asyncio.get_running_loop()

        def work() -> VerificationReport:
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
        """Wait for the end of a read, or a moment: a process that could not be ended gives no signal at its end."""
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
