"""
What alerts cost, and how soon they come: `python -m tests.bench.alerts`.

`page_ms`: from a fault in the cluster state to the answer of the alert service, one fault after another, over an
embedded cluster in memory and a service that answers at once; with `api_ms` of delay in every request to the cluster
and `service_ms` in every message, as over a network. `burst`: 1,000 incidents within a minute, while the leader, a
process of its own over an SQLite file, gets SIGKILL every five seconds and is started again: `page_ms` includes that.
Wall time on a system clock.

`look_ms` is the CPU time of one look at a cluster of 10,000 nodes with 1,000 gangs and ten old recoveries each, quiet,
and in a storm of 750 gangs that wait; `memory_mb` is what Python holds for 1,000 open incidents.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from healthd.alerts.sink import Answer, Outcome
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Cluster
from healthd.controller.alerts.incidents import Alerts
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.api import GangRef, IncidentRecord, ObjectMeta, Recovery, TimelineEntry
from healthd.core.api.incidents import Incident
from healthd.core.api.model import Phase
from healthd.core.config import AlertsPolicy, QuarantinePolicy
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.bench._figures import machine, spread
from tests.builders import a_cause, a_node, a_nodehealth, a_sink_policy
from tests.core.gangs import a_recovery_in

PAGES, BURST, WITHIN, KILL_EVERY = 300, 1000, 60.0, 5.0
API, SERVICE = timedelta(milliseconds=5), timedelta(milliseconds=50)


class Slow:
    """A cluster that answers after *delay*."""

    def __init__(self, cluster: EmbeddedCluster, delay: timedelta) -> None:
        self._cluster = cluster
        self._delay = delay.total_seconds()
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)

        async def call(*args: Any, **options: Any) -> Any:
            await asyncio.sleep(self._delay)
            self.writes += name in ("create", "patch")
            return await verb(*args, **options)

        return call


class Service:
    """An alert service that notes when it had which incident first."""

    name = "oncall"
    rate = 60_000.0
    resend_every: float | None = None

    def __init__(self, delay: timedelta) -> None:
        self._delay = delay.total_seconds()
        self.first: dict[str, float] = {}
        self.messages = 0
        self.backwards = 0
        self._newest: dict[str, int] = {}

    async def send(self, incident: Incident, thread: str) -> Outcome:
        """Take one, and answer later."""
        await asyncio.sleep(self._delay / 2)
        self.messages += 1
        self.first.setdefault(incident.key, time.monotonic())
        self.backwards += incident.revision < self._newest.get(incident.key, 0)
        self._newest[incident.key] = incident.revision
        await asyncio.sleep(self._delay / 2)
        return Outcome(Answer.ACCEPTED, "202")

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """Take several."""
        for incident in incidents:
            await self.send(incident, "")
        return Outcome(Answer.ACCEPTED, "202")

    async def close(self) -> None:
        """Nothing to do."""


class Stage:
    """A cluster state, a store, a service, and leaders one after another."""

    def __init__(self, api: timedelta = API, service: timedelta = SERVICE) -> None:
        self.clock = SystemClock()
        self.stored = EmbeddedCluster.open(None, clock=self.clock, new_uid=lambda: str(uuid.uuid4()))
        self.cluster = Slow(self.stored, api)
        self.state = ClusterState(ADAPTERS)
        self.service = Service(service)
        self._wake = asyncio.Event()
        self._version = 0
        self._leader: asyncio.Task[None] | None = None

    def alerts(self) -> Alerts:
        link: Any = self.cluster
        cluster: Cluster = link
        policy = AlertsPolicy(sinks=(a_sink_policy("oncall"),))
        return Alerts(
            cluster, self.clock, self.state, [self.service], policy, QuarantinePolicy(),
            namespace="healthd-system", metrics=Metrics(), wake=self._wake, jitter=random.random,
        )  # fmt: skip

    async def lead(self) -> None:
        """The next leader; the one before is gone at once."""
        if self._leader is not None:
            self._leader.cancel()
            with suppress(asyncio.CancelledError):
                await self._leader
        self._leader = asyncio.create_task(self.alerts().run())

    def fault(self, name: str, phase: Phase = Phase.HELD, held_in: Phase | None = Phase.CHOOSING) -> str:
        """Gang *name* waits for a person from now on. The answer is the key of its incident."""
        self.see(a_gang(name, phase, self.clock, held_in=held_in))
        return f"recovery/team-a/{name}-1"

    def see(self, obj: Any) -> None:
        """The watch brings it."""
        self._version += 1
        self.state.upsert(replace(obj, metadata=replace(obj.metadata, resource_version=str(self._version))))
        self._wake.set()

    async def end(self) -> None:
        if self._leader is not None:
            self._leader.cancel()
            with suppress(asyncio.CancelledError):
                await self._leader
        self.stored.close()


def a_gang(name: str, phase: Phase, clock: SystemClock, **status: Any) -> Recovery:
    now = clock.now()
    entry = TimelineEntry(phase=phase, at=now, message="so it is")
    recovery = a_recovery_in(phase, causes=[a_cause(node=f"n-{name}", at=now)], timeline=[entry], **status)
    gang = GangRef(kind="Job", name=name, namespace="team-a", uid=f"uid-{name}")
    meta = ObjectMeta(name=f"{name}-1", namespace="team-a", uid=f"uid-{name}-{phase}")
    return replace(recovery, metadata=meta, spec=replace(recovery.spec, gang=gang))


async def pages(api: timedelta, service: timedelta) -> dict[str, float]:
    """From fault to answer."""
    stage, dice, samples = Stage(api, service), random.Random(1), []
    await stage.lead()
    await asyncio.sleep(0.5)
    for number in range(PAGES):
        began = time.monotonic()
        key = stage.fault(f"job-{number}")
        while key not in stage.service.first:  # noqa: ASYNC110 - an event would be one more task that is waited for
            await asyncio.sleep(0.001)
        samples.append(1e3 * (stage.service.first[key] - began))
        await asyncio.sleep(dice.uniform(0.01, 0.3))
    await stage.end()
    return spread(samples, digits=1)


class Inbox:
    """The alert service of leaders in other processes: what it got, in order."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.newest: dict[str, int] = {}
        self.messages = 0
        self.backwards = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One message."""
        try:
            for key, revision in json.loads(await reader.readline()):
                self.messages += 1
                self.first.setdefault(key, time.monotonic())
                self.backwards += revision < self.newest.get(key, 0)
                self.newest[key] = revision
            await asyncio.sleep(SERVICE.total_seconds())
            writer.write(b"taken\n")
            await writer.drain()
        except (OSError, ValueError):
            pass  # the leader was killed
        finally:
            writer.close()


async def burst() -> dict[str, Any]:
    """1,000 incidents in a minute; the leader, a process of its own, gets SIGKILL every five seconds."""
    inbox, faults, clock = Inbox(), dict[str, float](), SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store, socket = Path(folder, "cluster.db"), str(Path(folder, "service"))
        server = await asyncio.start_unix_server(inbox.take, socket)  # noqa: TID251 - a stand-in for a service
        with EmbeddedCluster.open(store, clock=clock, new_uid=lambda: str(uuid.uuid4()), durable=False) as cluster:
            killing = asyncio.create_task(_kill_leaders(str(store), socket))
            began = time.monotonic()
            for number in range(BURST):
                key = await _store_fault(cluster, f"job-{number}", clock)
                faults[key] = time.monotonic()
                await asyncio.sleep(max(0.0, began + (number + 1) * WITHIN / BURST - time.monotonic()))
            await asyncio.sleep(10)
            killing.cancel()
            with suppress(asyncio.CancelledError):
                await killing
            records = (await cluster.list(IncidentRecord)).items
        server.close()
    took = [1e3 * (inbox.first[key] - at) for key, at in faults.items() if key in inbox.first]
    return {
        "incidents": len(records),
        "lost": len(faults.keys() - inbox.first.keys()),
        "keys_beyond_those": len(inbox.first.keys() - faults.keys()),
        "messages": inbox.messages,
        "sent_again": inbox.messages - len(inbox.first),
        "out_of_order": inbox.backwards,
        "recorded": sum(each.status.deliveries["oncall"].revision == each.spec.revision for each in records),
        "page_ms": spread(took, digits=1),
    }


async def _store_fault(cluster: EmbeddedCluster, name: str, clock: SystemClock) -> str:
    made = await cluster.create(a_gang(name, Phase.HELD, clock, held_in=Phase.CHOOSING))
    status = msgspec.to_builtins(a_gang(name, Phase.HELD, clock, held_in=Phase.CHOOSING).status)
    meta = made.metadata
    await cluster.patch(Recovery, meta.name, {"status": status}, namespace=meta.namespace, subresource="status")
    return f"recovery/{meta.namespace}/{meta.name}"


async def _kill_leaders(store: str, socket: str) -> None:
    command = [sys.executable, "-m", "tests.bench._alerts_leader", store, socket]
    while True:
        leader = await asyncio.create_subprocess_exec(*command)
        try:
            await asyncio.sleep(KILL_EVERY)
        finally:
            leader.kill()
            await leader.wait()


async def looks() -> dict[str, float]:
    """CPU time of one look."""
    stage = Stage(timedelta(0), timedelta(0))
    for number in range(10_000):
        node = a_node(f"n-{number}")
        stage.see(replace(node, status=replace(node.status, capacity={"nvidia.com/gpu": "8"})))
        health = a_nodehealth(f"n-{number}")
        stage.see(replace(health, status=replace(health.status, seen_at=stage.clock.now())))
    for number in range(10_000):
        old = stage.clock.now() - timedelta(days=1)
        stage.see(a_gang(f"old-{number}", Phase.RECOVERED, stage.clock, ended_at=old))
    alerts = stage.alerts()
    quiet = [await _look(alerts, stage) for _ in range(5)]
    for number in range(750):
        stage.fault(f"job-{number}", held_in=Phase.RESERVING)
    storm = [await _look(alerts, stage) for _ in range(5)]
    await stage.end()
    return {"first": quiet[0], "quiet": min(quiet), "storm_begins": storm[0], "storm": min(storm)}


async def _look(alerts: Alerts, stage: Stage) -> float:
    began = time.process_time()
    await alerts.look(stage.clock.now())
    return round(1e3 * (time.process_time() - began), 1)


async def memory() -> float:
    """MB for 1,000 open incidents."""
    stage = Stage(timedelta(0), timedelta(0))
    for number in range(BURST):
        stage.fault(f"job-{number}")
    gc.collect()
    tracemalloc.start()
    alerts = stage.alerts()
    await alerts.look(stage.clock.now())
    gc.collect()
    with_store, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await stage.end()
    return round(with_store / 1e6, 1)


async def measure() -> dict[str, Any]:
    """All figures."""
    return {
        "look_ms": await looks(),
        "memory_mb": await memory(),
        "page_ms_at_once": await pages(timedelta(0), timedelta(0)),
        "page_ms": await pages(API, SERVICE),
        "burst": await burst(),
    }


def main() -> None:
    """Print one JSON object."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    figures = asyncio.run(measure())
    delays = {"api_ms": API / timedelta(milliseconds=1), "service_ms": SERVICE / timedelta(milliseconds=1)}
    print(json.dumps({**figures, **delays, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
