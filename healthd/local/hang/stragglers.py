"""Compares the ranks of a run from their samples, and reports those that the others wait for. Nothing acts on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from healthd.core.api.health import GpuClocks
from healthd.core.config.gangs import HangPolicy, StragglerMode
from healthd.core.hang.silence import GangRhythm
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.gpus.slow_gpus import SlowGpus
from healthd.core.hang.work.slow_ranks import SlowRanks
from healthd.core.hang.work.work_share import ShareWindows, of_gpus
from healthd.core.recovery.hangs.gang_stragglers import KEPT

NO_CLOCKS: Mapping[str, GpuClocks] = MappingProxyType({})


class StragglerWatch:
    """*report* gets each straggler when it is first seen, and again with its end."""

    def __init__(self, policy: HangPolicy, report: Callable[[Straggler], Awaitable[None]]) -> None:
        self.is_on = policy.stragglers is not StragglerMode.IGNORE
        self._report = report
        self._windows = ShareWindows()
        self._ranks = SlowRanks()
        self._gpu_windows = ShareWindows(of_gpus)
        self._gpus = SlowGpus()
        self._hangs_since: datetime | None = None

    async def observe(
        self,
        gang: GangRhythm,
        at: datetime,
        *,
        hangs_since: datetime | None = None,
        clocks: Mapping[str, GpuClocks] = NO_CLOCKS,
    ) -> None:
        """
        After each sample of *gang*. One that hangs, or whose rhythm is not known yet, has no stragglers. *hangs_since*:
        None where it does not. *clocks*: how fast the GPUs of each rank run, by its name, as far as they are known.
        """
        if not self.is_on:
            return
        self._hangs_since = hangs_since
        if hangs_since is not None or not gang.is_known:
            self._windows.restart()
            self._gpu_windows.restart()
            return
        window, of_their_gpus = self._windows.next_window(gang, at), self._gpu_windows.next_window(gang, at)
        by_work = self._ranks.add(window, of_their_gpus) if window is not None else []
        for straggler in [*by_work, *self._gpus.observe(clocks, at)]:
            await self._report(straggler)

    async def restart(self, at: datetime) -> None:
        """The ranks were stopped, or another attempt of them begins."""
        self._windows.restart()
        self._gpu_windows.restart()
        ended = [*self._ranks.restart(at), *self._gpus.stopped(at)]
        self._gpus = SlowGpus()
        hung, self._hangs_since = self._hangs_since, None
        for straggler in ended:
            await self._report(straggler if hung is None else _until_it_hung(straggler, hung))


def _until_it_hung(straggler: Straggler, at: datetime) -> Straggler:
    """What is *straggler* in a gang that hung before it was stopped: it was slow until then."""
    return msgspec.structs.replace(straggler, ended_at=max(at, straggler.since), hung=True)


class StragglerRecord:
    """The newest stragglers of a run."""

    def __init__(self) -> None:
        self._newest: list[Straggler] = []

    def encoded_with(self, straggler: Straggler) -> str:
        """The record as JSON, with *straggler* in it, in the place of what was known of it before."""
        others = [each for each in self._newest if each.identity != straggler.identity]
        self._newest = [*others, straggler][-KEPT:]
        return msgspec.json.encode(self._newest).decode()
