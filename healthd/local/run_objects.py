"""What the cluster holds of one `healthd run`: its Job, pods and recoveries. Waits until they are in a wanted state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from healthd.clock import Clock
from healthd.cluster.loop import cycle_on_change
from healthd.cluster.port import Cluster, NotFound
from healthd.core.api import Job, Pod, Recovery, Slim
from healthd.core.api.model import ENDED, Phase
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.members import attempt_of, is_terminal
from healthd.gangs.job import read_job
from healthd.local.gang import NAMESPACE

CHECK_AGAIN = timedelta(seconds=1)
"""How often a condition is checked while nothing changes."""
GAVE_UP = 1
"""The exit code when healthd gave up and no rank left a more specific one."""


class StopRequest:
    """Whether the user asked the run to stop, and whether again. The second request ends the grace period."""

    def __init__(self) -> None:
        self.is_made = False
        self.is_repeated = False
        self.by = ""
        """What asked first, as it begins a sentence. Empty when it is not known."""
        self.wakes = asyncio.Event()

    def make(self, by: str = "") -> None:
        """The user asks, by what *by* says."""
        self.by = self.by if self.is_made else by
        self.is_repeated = self.is_made
        self.is_made = True
        self.wakes.set()


class RunObjects:
    """The objects of the run *name*. All methods raise ClusterError."""

    def __init__(self, name: str, cluster: Cluster, clock: Clock, stop: StopRequest) -> None:
        self._name = name
        self._cluster = cluster
        self._clock = clock
        self._stop = stop

    async def job(self) -> Job:
        """The Job of the run. Raises NotFound."""
        return await self._cluster.get(Job, self._name, NAMESPACE)

    async def recoveries(self, root: Root) -> list[Recovery]:
        """The recoveries of this gang, and not of an earlier one of the same name."""
        found = (await self._cluster.list(Recovery, namespace=NAMESPACE)).items
        return [recovery for recovery in found if recovery.spec.gang.uid == root.ref.uid]

    async def exit_code(self) -> int | None:
        """The exit code of the run. None while the gang runs or may run again."""
        try:
            root = read_job(await self.job())
        except NotFound:
            return GAVE_UP
        recoveries = await self.recoveries(root)
        if root.ending is RootOutcome.COMPLETE:
            # The controller must finish first: an open recovery would look for ever as if it continued.
            return 0 if all(recovery.status.phase in ENDED for recovery in recoveries) else None
        gave_up = [recovery for recovery in recoveries if recovery.status.phase is Phase.GAVE_UP]
        latest = max(gave_up, key=lambda r: r.status.attempt, default=None)
        given_up_now = latest is not None and latest.status.attempt > root.attempt
        if root.ending is RootOutcome.FAILED or given_up_now:
            return await self._failing_rank() or GAVE_UP
        return None

    async def until_quiet(self) -> None:
        """Return when no process of the gang runs, or when the user asked to stop."""

        async def is_over() -> bool:
            return self._stop.is_made or await self._is_quiet()

        await self.until(is_over)

    async def until_quiet_or_urgent(self) -> None:
        """Return when no process of the gang runs, or when the user asked twice to stop."""

        async def is_over() -> bool:
            return self._stop.is_repeated or await self._is_quiet()

        await self.until(is_over)

    async def until_gone(self) -> None:
        """Return when the Job is deleted and no process of it runs, or when the user asked to stop."""

        async def is_over() -> bool:
            return self._stop.is_made or await self._is_gone()

        await self.until(is_over)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Return when *condition* holds. It is checked after each change, and when the user wants to stop."""
        held = asyncio.Event()

        async def check(_: datetime) -> timedelta:
            if await condition():
                held.set()
            return CHECK_AGAIN

        async with asyncio.TaskGroup() as group:
            kinds: list[type[Slim]] = [Job, Pod, Recovery]
            watching = group.create_task(cycle_on_change(self._cluster, self._clock, kinds, check, self._stop.wakes))
            await held.wait()
            watching.cancel()

    async def _is_quiet(self) -> bool:
        return all(is_terminal(pod) for pod in (await self._cluster.list(Pod, namespace=NAMESPACE)).items)

    async def _is_gone(self) -> bool:
        try:
            await self.job()
        except NotFound:
            return await self._is_quiet()
        return False

    async def _failing_rank(self) -> int:
        """The exit code of the rank that failed first in the last attempt. 0 when no rank failed by itself."""
        pods = (await self._cluster.list(Pod, namespace=NAMESPACE)).items
        last = max(map(attempt_of, pods), default=0)
        states = [s.state.terminated for pod in pods if attempt_of(pod) == last for s in pod.status.container_statuses]
        failed = [end for end in states if end and end.reason in ("Error", "StartError") and not end.signal]
        first = min(failed, key=lambda end: end.finished_at or self._clock.now(), default=None)
        return first.exit_code if first else 0
