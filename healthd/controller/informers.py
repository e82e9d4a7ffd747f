"""
Fill the cluster state from watches: every kind that gangs are made of, as far as the cluster knows it.

A kind that is not installed (a JobSet, say) is asked for again now and then, so nobody has to restart healthd after he
installed it. All that nobody here reads is left out of what is kept: there may be a hundred thousand pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
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

log = structlog.get_logger()

T = TypeVar("T", bound=Slim)

MUST_HAVE = frozenset({Node, NodeHealth, Recovery, Pod})
"""Without these healthd cannot work: the last two but one are its own."""
ASK_AGAIN = timedelta(minutes=5)
"""How often a kind that the cluster does not know is asked for."""
NOBODY = {"healthd.dev/nobody": "nobody"}
"""Selects nothing: the answer to whether a kind is known is a small one."""
TOO_OLD = timedelta(minutes=3)
"""A watch that is silent for longer shows nothing that may be acted on: an API server sends a bookmark every minute."""


class Informers:
    """Watches *cluster*, tells *cluster_state*, and calls *wake* after each change. A `Reader` of what it watches."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        adapters: Mapping[str, GangAdapter[Any]],
        wake: Callable[[], None],
        isolation: Isolation | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._wake = wake
        self._isolation = isolation or Isolation()
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
        """Return when all that there is has been listed once."""
        await self._all_asked.wait()
        for kind in list(self._running):
            await self._informers[kind].until_synced()

    def trouble(self) -> str | None:
        """Why nothing may be decided on what was seen; None when it may."""
        now = self._clock.now()
        if not self._all_asked.is_set():
            return "the cluster has not answered yet"
        for kind in sorted(self._running, key=lambda kind: kind.__name__):
            if not self._informers[kind].is_synced:
                return f"{RESOURCES[kind].plural} have not been listed yet"
            if (age := self._informers[kind].stale_for(now)) > TOO_OLD:
                return f"nothing was heard of {RESOURCES[kind].plural} for {age.total_seconds():.0f} s"
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
        said = False
        while not await self._is_known(kind):
            if not said:
                log.info("kind.unknown", kind=RESOURCES[kind].kind, note="gangs of this kind are not watched over")
            said = True
            await self._clock.sleep(ASK_AGAIN)
        await self._informers[kind].run()

    async def _is_known(self, kind: type[Slim]) -> bool:
        """Whether the cluster has this kind; what it must have is not asked for."""
        known = True
        if kind not in MUST_HAVE:
            try:
                await self._cluster.list(kind, namespace="default", labels=NOBODY)
            except NotFound:
                known = False
            except ClusterError as error:
                log.info("kind.asked", kind=RESOURCES[kind].kind, error=str(error))  # the informer will tell
        if known:
            self._running.add(kind)
        self._asked.add(kind)
        if len(self._asked) == len(self._kinds):
            self._all_asked.set()
        return known

    def _ingest(self, change: Change) -> None:
        """At once and in order: the last state of a pod that is made anew under the same name must not be missed."""
        with self._isolation.of("watch", f"{change.kind.__name__} {'/'.join(change.key)}"):
            self._cluster_state.apply(change.obj, change.last, change.version)
        self._wake()


def watched_kinds(adapters: Mapping[str, GangAdapter[Any]]) -> dict[type[Slim], Labels | None]:
    """
    Every kind that the cluster state is made of, and the labels of the objects that count. None: all of them.

    Nodes come before recoveries, so that a claim that is seen on a node belongs to a recovery that is seen, too.
    """
    kinds: dict[type[Slim], Labels | None] = {Node: None, NodeHealth: None, Recovery: None}
    for adapter in adapters.values():
        same = adapter.kind not in kinds or kinds[adapter.kind] == adapter.labels
        kinds[adapter.kind] = adapter.labels if same else None
    return {**kinds, Pod: None}


async def read_everything(
    reader: Reader, cluster_state: ClusterState, adapters: Mapping[str, GangAdapter[Any]]
) -> None:
    """Everything, as *reader* shows it; a cluster that does not know a kind has none of it. Raises ClusterError."""
    for kind, labels in watched_kinds(adapters).items():
        try:
            listed = await reader.list(kind, labels=labels)
        except NotFound:
            continue
        cluster_state.replace(kind, listed.items, listed.resource_version)


def _gang_label(obj: Any) -> list[str]:
    """Plain pods are asked for by it at every look at their gang, and a namespace may have ten thousand others."""
    return [obj.metadata.labels[LABEL_GANG]] if LABEL_GANG in obj.metadata.labels else []


def trimmed_pod(pod: Pod) -> Pod:
    """A pod without what it is to run: nobody who notices reads that, and it is the largest part."""
    return replace(pod, spec=replace(pod.spec, containers=[], volumes=[], security_context=None))
