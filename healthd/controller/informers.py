"""
Fill the cluster state from watches: every kind that gangs are made of, as far as it is installed in the cluster.

A kind that is not installed (a JobSet, say) is tried again now and then, so healthd needs no restart after the kind is
installed. Fields that are never read here are left out of the cache: there may be a hundred thousand pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import structlog
from msgspec.structs import replace

from healthd.clock import Clock
from healthd.cluster.informer import Change, Informer, Watched
from healthd.cluster.port import Cluster, ClusterError, Fields, Labels, Listed, NotFound, Reader
from healthd.controller.cluster_state import ClusterState
from healthd.core.api import LABEL_GANG, RESOURCES, Node, NodeHealth, Pod, Recovery, Slim
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

T = TypeVar("T", bound=Slim)

MUST_HAVE = frozenset({Node, NodeHealth, Recovery, Pod})
"""healthd cannot work without these kinds: NodeHealth and Recovery are its own."""
ASK_AGAIN = timedelta(minutes=5)
"""How often a kind that is not installed is tried again."""
MATCHES_NOTHING = {"healthd.dev/nobody": "nobody"}
"""Selects nothing, so the request that checks whether a kind is installed has a small answer."""
TOO_OLD = timedelta(minutes=3)
"""A watch that is silent for longer is stale; no action uses it: an API server sends a bookmark every minute."""


class Informers:
    """Watches *cluster*, updates *cluster_state*, calls *wake* after each change. A `Reader` of the watched kinds."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        adapters: Mapping[str, GangAdapter[Any]],
        wake: Callable[[], None],
        isolation: Isolation | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._wake = wake
        self._isolation = isolation or Isolation()
        self._metrics = metrics
        self._kinds = watched_kinds(adapters)
        self._informers = {kind: self._informer_of(kind, labels) for kind, labels in self._kinds.items()}
        self._running: set[type[Slim]] = set()
        self._asked: set[type[Slim]] = set()
        self._all_asked = asyncio.Event()

    async def run(self) -> None:
        """Keep up with the cluster until cancelled. Raises Unusable."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._follow(kind), name=f"informers {kind.__name__}")

    async def until_synced(self) -> None:
        """Return when every installed kind has been listed once."""
        await self._all_asked.wait()
        for kind in list(self._running):
            await self._informers[kind].until_synced()

    def trouble(self) -> str | None:
        """Why no decision may use the cache now; None when it may be used."""
        now = self._clock.now()
        if not self._all_asked.is_set():
            return "the cluster has not answered yet"
        for kind in sorted(self._running, key=lambda kind: kind.__name__):
            if not self._informers[kind].is_synced:
                return f"{RESOURCES[kind].plural} have not been listed yet"
            if (age := self._informers[kind].stale_for(now)) > TOO_OLD:
                return f"no update of {RESOURCES[kind].plural} for {age.total_seconds():.0f} s"
        return None

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """The object as last seen. Raises NotFound; Unavailable before the first list."""
        return await self._informer(kind).get(kind, name, namespace)

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        """All that match, ordered by namespace and name. Raises Unavailable before the first list."""
        return await self._informer(kind).list(kind, namespace=namespace, labels=labels, fields=fields)

    def _informer(self, kind: type[Slim]) -> Informer:
        if kind not in self._running:
            raise NotFound(f"{RESOURCES[kind].plural}: the cluster does not know this kind")
        return self._informers[kind]

    def _informer_of(self, kind: type[Slim], labels: Labels | None) -> Informer:
        trim: Any = trimmed_pod if kind is Pod else None
        indexes = {LABEL_GANG: _gang_label} if kind is Pod else {}
        watched = Watched(kind=kind, labels=labels, indexes=indexes, trim=trim)
        informer = Informer(self._cluster, self._clock, [watched], lambda _: self._isolation.count("watch"))
        informer.listen(self._ingest)
        return informer

    async def _follow(self, kind: type[Slim]) -> None:
        logged = False
        while not await self._is_known(kind):
            if not logged:
                log.info("kind.unknown", kind=RESOURCES[kind].kind, note="gangs of this kind are not watched over")
            logged = True
            await self._clock.sleep(ASK_AGAIN)
        await self._informers[kind].run()

    async def _is_known(self, kind: type[Slim]) -> bool:
        """Whether the cluster has this kind. The kinds in `MUST_HAVE` are not checked."""
        known = True
        if kind not in MUST_HAVE:
            try:
                await self._cluster.list(kind, namespace="default", labels=MATCHES_NOTHING)
            except NotFound:
                known = False
            except ClusterError as error:
                log.info("kind.asked", kind=RESOURCES[kind].kind, error=str(error))  # the informer reports it
        if known:
            self._begin(kind)
        self._asked.add(kind)
        if len(self._asked) == len(self._kinds):
            self._all_asked.set()
        return known

    def _begin(self, kind: type[Slim]) -> None:
        self._running.add(kind)
        if self._metrics is not None:
            self._metrics.follow_informer(RESOURCES[kind].plural, partial(self._last_heard, kind))

    def _last_heard(self, kind: type[Slim]) -> float:
        """When the watch of *kind* last said something, as Unix time; 0 before the first list."""
        informer, now = self._informers[kind], self._clock.now()
        return (now - informer.stale_for(now)).timestamp() if informer.is_synced else 0.0

    def _ingest(self, change: Change) -> None:
        """At once and in order: the last state of a pod that is created again under its name must not be missed."""
        with self._isolation.of("watch", f"{change.kind.__name__} {'/'.join(change.key)}"):
            self._cluster_state.apply(change.obj, change.last, change.version)
        self._wake()


def watched_kinds(adapters: Mapping[str, GangAdapter[Any]]) -> dict[type[Slim], Labels | None]:
    """
    Every kind in the cluster state, and the labels of the objects that count. None: all objects.

    Nodes come before recoveries. So when a claim is seen on a node, its recovery is seen, too.
    """
    kinds: dict[type[Slim], Labels | None] = {Node: None, NodeHealth: None, Recovery: None}
    for adapter in adapters.values():
        same = adapter.kind not in kinds or kinds[adapter.kind] == adapter.labels
        kinds[adapter.kind] = adapter.labels if same else None
    return {**kinds, Pod: None}


async def read_everything(
    reader: Reader, cluster_state: ClusterState, adapters: Mapping[str, GangAdapter[Any]]
) -> None:
    """Read everything from *reader*. A kind that is not installed has no objects. Raises ClusterError."""
    for kind, labels in watched_kinds(adapters).items():
        try:
            listed = await reader.list(kind, labels=labels)
        except NotFound:
            continue
        cluster_state.replace(kind, listed.items, listed.resource_version)


def _gang_label(obj: Any) -> list[str]:
    """Index value. Plain pods are listed by it at every reconcile; a namespace may have ten thousand other pods."""
    return [obj.metadata.labels[LABEL_GANG]] if LABEL_GANG in obj.metadata.labels else []


def trimmed_pod(pod: Pod) -> Pod:
    """A pod without containers, volumes and security context: they are never read here, and are the largest part."""
    return replace(pod, spec=replace(pod.spec, containers=[], volumes=[], security_context=None))
