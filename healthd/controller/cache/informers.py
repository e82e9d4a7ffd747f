"""
Fill the cluster state from watches: every kind that gangs are made of, as far as it is installed in the cluster.

A kind that is not installed (a JobSet, say) is asked for again now and then, so healthd needs no restart after the kind
is installed; of all such kinds together, one is asked for in a minute. So is a kind of custom objects to which healthd
lacks rights. A kind that is deleted is forgotten. None of this keeps healthd from guarding the other gangs.

Fields that are never read here are left out of the cache: there may be a hundred thousand pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, TypeVar

import structlog
from msgspec.structs import replace

from healthd.clock import Clock
from healthd.cluster.informer import Change, Informer, Watched
from healthd.cluster.port import AccessReader, Cluster, Fields, Labels, Listed, NotFound, Reader
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.kind_checks import ForbiddenKinds, KindChecks, absences
from healthd.core.api import (
    LABEL_GANG,
    LABEL_JOB_UID,
    RESOURCES,
    CustomObject,
    Node,
    NodeHealth,
    Pod,
    Recovery,
    Slim,
    Workload,
)
from healthd.core.api.kubernetes.pods import Container, ContainerResources
from healthd.core.node.pod_devices import held_devices
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.annotations import concerns_us
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

T = TypeVar("T", bound=Slim)

ASK_AGAIN = timedelta(minutes=5)
"""How often a kind that is not installed is tried again, at most."""
BETWEEN = timedelta(minutes=1)
"""The shortest time between two such tries, of whatever kinds."""
BACK_SOON = timedelta(seconds=10)
"""A kind that was there and is not found any more is tried again so soon, `TRIES` times: an API server that has just
started does not know every kind yet."""
TRIES = 6
TOO_OLD = timedelta(minutes=3)
"""A watch that is silent for longer is stale; no action uses it: an API server sends a bookmark every minute."""

INDEXED = ((Pod, LABEL_GANG), (Workload, LABEL_JOB_UID))
"""Labels by which objects are listed at every reconcile; a namespace may have ten thousand others."""


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
        access: AccessReader | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._wake = wake
        self._isolation = isolation or Isolation()
        self._metrics = metrics
        self._checks = KindChecks(cluster, access)
        self._forbidden = ForbiddenKinds(metrics.show_forbidden if metrics else lambda _kind, _is_forbidden: None)
        self._kinds = watched_kinds(adapters)
        self._informers = {kind: self._informer_of(kind, labels) for kind, labels in self._kinds.items()}
        self._running: set[type[Slim]] = set()
        self._asked: set[type[Slim]] = set()
        self._all_asked = asyncio.Event()
        self._last_turn: datetime | None = None

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
        trim: Any = trimmed_pod if kind is Pod else trimmed_custom if issubclass(kind, CustomObject) else None
        indexes = {label: partial(label_values, label) for of, label in INDEXED if of is kind}
        watched = Watched(kind=kind, labels=labels, indexes=indexes, trim=trim)
        unreadable: Callable[[Any], None] = lambda _: self._isolation.count("watch")  # noqa: E731
        informer = Informer(self._cluster, self._clock, [watched], unreadable, ends_with=absences(kind))
        informer.listen(self._ingest)
        return informer

    async def _follow(self, kind: type[Slim]) -> None:
        while True:
            if await self._can_be_watched(kind):
                await self._watch(kind)
            await self._turn()

    async def _watch(self, kind: type[Slim]) -> None:
        """Watch a kind until the cluster does not have it any more, and forget its objects then. Raises Unusable."""
        self._begin(kind)
        missed, said = 0, ""
        while missed < TRIES:
            try:
                await self._informers[kind].run()
            except* absences(kind) as group:
                if (error := str(group.exceptions[0])) != said:
                    log.info("kind.lost", kind=RESOURCES[kind].name, error=error)
                    said = error
            await self._clock.sleep(BACK_SOON)
            missed = 0 if await self._can_be_watched(kind) else missed + 1
        self._running.discard(kind)
        self._cluster_state.replace(kind, [], "")
        self._informers[kind] = self._informer_of(kind, self._kinds[kind])

    async def _turn(self) -> None:
        """Wait until a kind that is not there may be asked for again."""
        now = self._clock.now()
        last = self._last_turn
        self._last_turn = max(now + ASK_AGAIN, last + BETWEEN) if last else now + ASK_AGAIN
        await self._clock.sleep(self._last_turn - now)

    async def _can_be_watched(self, kind: type[Slim]) -> bool:
        check = await self._checks.check(kind)
        self._forbidden.report(kind, check)
        if not check.absence and kind not in self._asked:
            self._begin(kind)
        self._asked.add(kind)
        if len(self._asked) == len(self._kinds):
            self._all_asked.set()
        return check.absence is None

    def _begin(self, kind: type[Slim]) -> None:
        self._running.add(kind)
        if self._metrics is not None:
            self._metrics.follow_informer(RESOURCES[kind].plural, partial(self._last_heard, kind))

    def _last_heard(self, kind: type[Slim]) -> float:
        """When the watch of *kind* last said something, as Unix time; 0 before the first list."""
        informer, now = self._informers[kind], self._clock.now()
        if kind not in self._running:
            return now.timestamp()  # it is not watched any more, and so not silent
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
        if adapter.beside is not None:
            kinds[adapter.beside] = None
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


def label_values(label: str, obj: Any) -> list[str]:
    """The values of *obj* in the index of a *label*."""
    return [obj.metadata.labels[label]] if label in obj.metadata.labels else []


def trimmed_custom(obj: CustomObject) -> CustomObject:
    """An object without its spec and status, where its owner did not ask healthd for anything."""
    return obj if concerns_us(obj.metadata) else replace(obj, spec={}, status={})


def trimmed_pod(pod: Pod) -> Pod:
    """
    A pod without volumes and security context, and of its containers only the devices that they hold: the rest is never
    read here, and is the largest part.
    """
    held = (held_devices(container) for container in pod.spec.containers)
    containers = [_holding(devices) for devices in held if devices]
    return replace(pod, spec=replace(pod.spec, containers=containers, volumes=[], security_context=None))


@lru_cache(maxsize=1024)
def _holding(devices: tuple[tuple[str, str], ...]) -> Container:
    """One for all containers that hold the same."""
    return Container(resources=ContainerResources(limits=dict(devices)))
