"""What the cluster shows, controllers that alert, and the services that they alert."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Cluster
from healthd.controller.alerts.incidents import Alerts
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.api import GangRef, IncidentRecord, ObjectMeta, ObjectReference, Recovery, TimelineEntry
from healthd.core.api.model import Phase
from healthd.core.config import AlertsPolicy, QuarantinePolicy
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_cause, a_sink_policy
from tests.controller.alerts.sinks import FakeSink
from tests.core.gangs import a_recovery_in
from tests.fakes import ManualClock, counting_uids, settle

SPACE = "healthd-system"
SOON = timedelta(seconds=1)
WRITES = frozenset({"create", "patch", "delete"})


class Flaky:
    """
    A cluster whose verbs in *fails* raise what stands there, and that counts writes. The write with the number
    *freezes_at* gets no answer: it is lost, or with *after* done.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.fails: dict[str, Exception] = {}
        self.writes = 0
        self.freezes_at = 0
        self.after = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)

        async def call(*args: Any, **options: Any) -> Any:
            if name in self.fails:
                raise self.fails[name]
            self.writes += name in WRITES
            is_last = name in WRITES and self.writes == self.freezes_at
            if is_last and not self.after:
                await asyncio.Event().wait()
            answer = await verb(*args, **options)
            if is_last:
                await asyncio.Event().wait()
            return answer

        return call


class OnCall:
    """One cluster, of which at most one controller is the leader at a time."""

    def __init__(self, *sinks: FakeSink, **policy: Any) -> None:
        self.clock = ManualClock()
        self.stored = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.cluster = Flaky(self.stored)
        self.state = ClusterState(ADAPTERS)
        self.sinks = sinks
        policy.setdefault("sinks", tuple(a_sink_policy(sink.name) for sink in sinks))
        self.policy = AlertsPolicy(**policy)
        self.metrics = Metrics()
        self.events: list[tuple[str, str, str]] = []
        self.blind: str | None = None
        self._version = 0
        self._wakes: list[asyncio.Event] = []
        self._leaders: list[asyncio.Task[None]] = []

    async def lead(self) -> None:
        """A controller becomes a leader."""
        link: Any = self.cluster
        cluster: Cluster = link
        self._wakes.append(asyncio.Event())
        alerts = Alerts(
            cluster,
            self.clock,
            self.state,
            self.sinks,
            self.policy,
            QuarantinePolicy(),
            namespace=SPACE,
            metrics=self.metrics,
            wake=self._wakes[-1],
            announce=self._hear,
            trouble=lambda: self.blind,
        )
        self._leaders.append(asyncio.create_task(alerts.run()))
        await settle()

    async def kill(self) -> None:
        """The leader dies: what it had in memory is gone."""
        for leader in self._leaders:
            leader.cancel()
            with suppress(asyncio.CancelledError):
                await leader
        self._leaders.clear()
        self._wakes.clear()

    async def end(self) -> None:
        """Stop all."""
        await self.kill()
        self.stored.close()

    def _hear(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        self.events.append((about.name, reason, message))

    def see(self, *objects: Any) -> None:
        """The watch brings *objects*."""
        for each in objects:
            self._version += 1
            meta = replace(each.metadata, resource_version=str(self._version))
            self.state.upsert(replace(each, metadata=meta))
        for wake in self._wakes:
            wake.set()

    async def show(self, *objects: Any, within: timedelta = SOON) -> None:
        """The watch brings *objects*, and so much time passes."""
        self.see(*objects)
        await self.clock.run_for(within)

    def a_gang(self, name: str, phase: Phase, *, node: str = "n1", **status: Any) -> Recovery:
        """The recovery of gang *name*, which comes to *phase* now."""
        now = self.clock.now()
        known: dict[str, Any] = {"message": "so it is", "timeline": [TimelineEntry(phase=phase, at=now)]}
        recovery = a_recovery_in(phase, causes=[a_cause(node=node, at=now)], **{**known, **status})
        gang = GangRef(kind="Job", name=name, namespace="team-a", uid=f"uid-{name}")
        meta = ObjectMeta(name=f"{name}-1", namespace="team-a", uid=f"uid-{name}-1")
        return replace(recovery, metadata=meta, spec=replace(recovery.spec, gang=gang))

    def waiting(self, name: str, **status: Any) -> Recovery:
        """A gang that waits for a spare."""
        return self.a_gang(name, Phase.HELD, **{"held_in": Phase.RESERVING, "message": "no spare", **status})

    async def records(self) -> dict[str, IncidentRecord]:
        """What is stored, by key."""
        return {each.spec.key: each for each in (await self.stored.list(IncidentRecord)).items}

    def sample(self, name: str, **labels: str) -> float | None:
        """A metric."""
        return self.metrics.registry.get_sample_value(name, labels)
