"""Replicas of the real controller over an embedded cluster, with a gang that they guard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

from healthd.alerts.sink import Sink
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import AlreadyExists, Cluster, Forbidden, NotFound, Unavailable
from healthd.controller.alerts.heartbeat import HeartbeatSink
from healthd.controller.daemon import LEASE, ControllerDaemon, ControllerDependencies
from healthd.controller.ports import Checkpoints
from healthd.controller.remediation.requests import Requests
from healthd.core.api import ANNOTATION_RESTART, Job, Lease, Node, Pod, Recovery
from healthd.core.config import AlertsPolicy, Config
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.gangs import ADAPTERS
from tests.builders import a_job, a_node, a_pod, a_sink_policy
from tests.fakes import START, ManualClock, counting_uids, settle
from tests.simulation.training import SeenCheckpoints

TURNS = 200
"""So often a replica may be waited for before its test fails."""


class Link:
    """
    A cluster as one replica reaches it: not at all while it is *cut*, and without the kinds that are *unknown*. Writes
    to objects whose names are *refused* fail, as by an admission policy. No object of a kind in *taken* can be
    made: one that no controller can read has the name.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.cut = False
        self.unknown: set[type[Any]] = set()
        self.refused: set[str] = set()
        self.taken: set[type[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)
        return verb if name == "watch" else self._through(verb, is_write=name == "patch")

    def _through(self, verb: Callable[..., Awaitable[Any]], *, is_write: bool) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            if self.cut:
                raise Unavailable("no route to the API server")
            if isinstance(args[0], type) and args[0] in self.unknown:
                raise NotFound("the server could not find the requested resource")
            if type(args[0]) in self.taken:
                raise AlreadyExists("an object of that name already exists")
            if is_write and args[1] in self.refused:
                raise Forbidden("an admission policy denied the request")
            return await verb(*args, **options)

        return call


class Replicas:
    """
    A cluster with a running gang of two on `node-0` and `node-1`, and replicas of the controller.

    With a small *history*, also quiet watches say something: after each tenth of so many changes.
    """

    def __init__(self, history: int = 10_000) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids(), history=history)
        self._replicas: dict[str, asyncio.Task[None]] = {}
        self.daemons: dict[str, ControllerDaemon] = {}
        self.links: dict[str, Link] = {}

    async def set_up(self) -> None:
        for number in range(2):
            await self.cluster.create(a_node(f"node-{number}"))
        notes = {ANNOTATION_RESTART: "enabled"}
        job = await self.cluster.create(a_job("train", annotations=notes))
        started = {"status": {"active": 2, "startTime": START.isoformat()}}
        await self.cluster.patch(Job, "train", started, namespace="default", subresource="status")
        for rank in range(2):
            labels = {"batch.kubernetes.io/job-name": "train"}
            pod = a_pod(f"train-{rank}", node=f"node-{rank}", index=rank, owner=job, labels=labels)
            await self.cluster.create(pod)
            running = {"status": {"phase": "Running"}}
            await self.cluster.patch(Pod, pod.metadata.name, running, namespace="default", subresource="status")

    async def start(
        self,
        name: str,
        *,
        unknown: set[type[Any]] | None = None,
        checkpoints: Checkpoints | None = None,
        sinks: Sequence[Sink] = (),
        heartbeat: HeartbeatSink | None = None,
        cut: bool = False,
        requests: Callable[[Cluster], Requests] | None = None,
        config: Config | None = None,
    ) -> None:
        """One more replica."""
        link = self.links[name] = Link(self.cluster)
        link.cut = cut
        link.unknown = unknown or set()
        cluster: Any = link
        seen: Cluster = cluster
        alerts = AlertsPolicy(sinks=tuple(a_sink_policy(sink.name) for sink in sinks))
        self.daemons[name] = ControllerDaemon(
            config or Config(alerts=alerts),
            ControllerDependencies(
                identity=name,
                namespace="healthd-system",
                cluster=seen,
                clock=self.clock,
                adapters=ADAPTERS,
                checkpoints=checkpoints or SeenCheckpoints({}),
                jitter=lambda: 0.5,
                sinks=sinks,
                heartbeat=heartbeat,
                requests=requests(seen) if requests is not None else None,
            ),
        )
        self._replicas[name] = asyncio.create_task(self.daemons[name].run())
        await settle()

    async def stop(self, name: str) -> None:
        """As SIGTERM does."""
        self.daemons[name].stop()
        await self._replicas.pop(name)

    @property
    def running(self) -> Collection[str]:
        """The replicas that run."""
        return self._replicas.keys()

    async def close(self) -> None:
        for name in list(self._replicas):
            await self.stop(name)
        self.cluster.close()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Turn the clock until it *holds*."""
        for _ in range(TURNS):
            await settle()
            if await holds():
                return
            await self.clock.run_for(timedelta(seconds=1))
        raise AssertionError("it never came to that")

    async def leader(self) -> str:
        """Who holds the lease."""
        try:
            return (await self.cluster.get(Lease, LEASE, "healthd-system")).spec.holder_identity or ""
        except NotFound:
            return ""

    async def is_led_by(self, name: str) -> bool:
        return await self.leader() == name

    async def quarantine(self, node: str) -> None:
        """An agent takes *node* out of service."""
        record = Record(finding="gpu/xid-79", message="GPU has fallen off the bus", since=self.clock.now())
        await self.cluster.patch(Node, node, cordon_patch(await self.cluster.get(Node, node), record))

    async def annotate(self, job: str, notes: dict[str, str | None]) -> None:
        """What its owner writes on a Job."""
        await self.cluster.patch(Job, job, {"metadata": {"annotations": notes}}, namespace="default")

    def has_ended(self, name: str) -> bool:
        """Whether the process of a replica is over."""
        return self._replicas[name].done()

    def held_for(self, replica: str, reason: str) -> float | None:
        """How many recoveries its metrics call held for *reason*."""
        registry = self.daemons[replica].metrics.registry
        return registry.get_sample_value("healthd_recoveries_held", {"reason": reason})

    async def recoveries(self) -> list[Recovery]:
        return (await self.cluster.list(Recovery)).items

    async def is_stopped(self) -> bool:
        return (await self.cluster.get(Job, "train", "default")).spec.suspend

    def gauge(self, replica: str, name: str) -> float | None:
        return self.daemons[replica].metrics.registry.get_sample_value(name)

    def witness_report(self, replica: str, kind: str) -> float | None:
        """When the replica last heard of a kind, as Unix time."""
        name = "healthd_informer_last_heard_timestamp_seconds"
        return self.daemons[replica].metrics.registry.get_sample_value(name, {"kind": kind})
