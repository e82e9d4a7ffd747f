"""
A leader that alerts, in a process of its own: `python -m tests.bench._alerts_leader STORE SERVICE`.

Its cluster is the SQLite file STORE. SERVICE is the address of an Alertmanager, or a socket: each message is one JSON
line, and is accepted when a line comes back. `tests.bench.alerts` and tests kill it.
"""

from __future__ import annotations

import asyncio
import random
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from healthd.alerts.registry import make_sink
from healthd.alerts.sink import Answer, Outcome, Sink
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.alerts.incidents import Alerts
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import Informers
from healthd.core.api.incidents import Incident
from healthd.core.config import AlertsPolicy, QuarantinePolicy, SinkKind, SinkPolicy
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_sink_policy

SPACE = "healthd-system"


class SocketSink:
    """An alert service behind a socket."""

    name = "oncall"
    rate = 60_000.0
    resend_every: float | None = None

    def __init__(self, path: str) -> None:
        self._path = path

    async def send(self, incident: Incident, thread: str) -> Outcome:
        """Send one, and wait for the answer."""
        return await self.send_digest([incident])

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """Send several."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(msgspec.json.encode([(each.key, each.revision) for each in incidents]) + b"\n")
            answered = await reader.readline()
        finally:
            writer.close()
        return Outcome(Answer.ACCEPTED if answered else Answer.RETRY, "")

    async def close(self) -> None:
        """Nothing to do."""


def sink_at(service: str, clock: SystemClock) -> tuple[Sink, SinkPolicy]:
    """The sink for a socket or for the address of an Alertmanager, and its configuration."""
    if not service.startswith("http"):
        return SocketSink(service), a_sink_policy("oncall")
    policy = SinkPolicy(name="oncall", kind=SinkKind.ALERTMANAGER, urls=(service,), insecure=True)
    return make_sink(policy, clock), policy


async def lead(store: Path, service: str) -> None:
    """Alert until killed."""
    clock, wake, state = SystemClock(), asyncio.Event(), ClusterState(ADAPTERS)
    sink, policy = sink_at(service, clock)
    with EmbeddedCluster.open(store, clock=clock, new_uid=lambda: str(uuid.uuid4()), durable=False) as cluster:
        informers = Informers(cluster, clock, state, ADAPTERS, wake.set)
        alerts = Alerts(
            cluster,
            clock,
            state,
            [sink],
            AlertsPolicy(sinks=(policy,)),
            QuarantinePolicy(),
            namespace=SPACE,
            metrics=Metrics(),
            wake=wake,
            trouble=informers.trouble,
            jitter=random.random,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(informers.run())
            await informers.until_synced()
            group.create_task(alerts.run())


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    asyncio.run(lead(Path(sys.argv[1]), sys.argv[2]))
