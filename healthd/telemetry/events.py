"""
Report what happens as Kubernetes Events, so that `kubectl describe` of a recovery, a gang or a node shows it.

Events are best effort: a call never waits, never fails, and never costs the API server much. Events go into a short
queue, which one task sends at a bounded rate. Events that do not fit into the queue are dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, Unavailable, WebhookFailed
from healthd.core.api import (
    RESOURCES,
    EventSource,
    GangRef,
    ObjectMeta,
    ObjectReference,
    Occurrence,
    Slim,
)
from healthd.core.printable import printable
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

NORMAL, WARNING = "Normal", "Warning"
LONGEST_MESSAGE = 1024
"""Characters; the API server refuses more."""
NOWHERE = "default"
"""The namespace of Events about objects without a namespace."""
QUEUE = 1000
BURST, EVERY = 50, timedelta(milliseconds=200)
"""Rate limit: so many Events at once, and after that one per interval: five per second."""
RETRY = timedelta(seconds=2)
SAID_AGAIN = timedelta(minutes=30)
"""The same Event is repeated after so long: the API server forgets one after an hour, and what it is about may last."""


class Announce(Protocol):
    """Report an Event about an object. Never waits, never fails."""

    def __call__(self, about: ObjectReference, kind: str, reason: str, message: str) -> None: ...


def silently(about: ObjectReference, kind: str, reason: str, message: str) -> None:
    """Report nothing: for use without Kubernetes."""


class PendingEvent(NamedTuple):
    """One Event in the queue."""

    about: ObjectReference
    kind: str
    reason: str
    message: str
    at: datetime


class Announcer:
    """
    Reports Events as *component* of the process *instance*. An `Announce`; the caller must also `run` it.

    The same Event twice in a row about an object is sent once in `SAID_AGAIN`.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, component: str, instance: str, metrics: Metrics) -> None:
        self._cluster = cluster
        self._clock = clock
        self._component = component
        self._instance = instance
        self._metrics = metrics
        self._isolation = Isolation(metrics)
        self._queue: deque[PendingEvent] = deque()
        self._bell = asyncio.Event()
        self._last: dict[str, PendingEvent] = {}

    def __call__(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        """Put an Event into the queue."""
        key = about.uid or f"{about.kind}/{about.namespace}/{about.name}"
        pending = PendingEvent(about, kind, reason, message, self._clock.now())
        if self._repeats_too_soon(key, pending):
            return
        if len(self._last) >= QUEUE:
            self._last.pop(next(iter(self._last)))
        self._last[key] = pending
        if len(self._queue) >= QUEUE:
            self._queue.popleft()
            self._metrics.events_dropped.inc()
        self._queue.append(pending)
        self._bell.set()

    def _repeats_too_soon(self, key: str, pending: PendingEvent) -> bool:
        last = self._last.get(key)
        is_same = last is not None and (last.reason, last.message) == (pending.reason, pending.message)
        return last is not None and is_same and abs(pending.at - last.at) < SAID_AGAIN

    async def run(self) -> None:
        """Send the queued Events, until cancelled."""
        allowed, since = float(BURST), self._clock.now()
        while True:
            while not self._queue:
                self._bell.clear()
                await self._bell.wait()
            now = self._clock.now()
            allowed, since = min(float(BURST), allowed + (now - since) / EVERY), now
            if allowed < 1:
                await self._clock.sleep(EVERY)
                continue
            allowed -= 1
            await self._send(self._queue.popleft())

    async def flush(self, limit: float) -> None:
        """Send the rest of the queue before the process ends. After *limit* seconds, drop the remaining Events."""
        try:
            async with asyncio.timeout(limit):
                while self._queue:
                    await self._send(self._queue.popleft(), again=False)
        except TimeoutError:
            self._metrics.events_dropped.inc(len(self._queue))

    async def _send(self, pending: PendingEvent, *, again: bool = True) -> None:
        try:
            with self._isolation.of("event", f"{pending.about.kind} {pending.about.namespace}/{pending.about.name}"):
                await self._cluster.create(self._occurrence(pending))
        except (Unavailable, WebhookFailed) as error:
            log.debug("event.waits", error=str(error))
            if again and len(self._queue) < QUEUE:
                if isinstance(error, WebhookFailed):  # it may see one namespace alone: the others do not wait for it
                    self._queue.append(pending)
                else:
                    self._queue.appendleft(pending)
                await self._clock.sleep(RETRY)
            else:
                self._metrics.events_dropped.inc()
        except ClusterError as error:  # its namespace is being deleted, or it is forbidden: a retry is useless
            log.info("event.refused", reason=pending.reason, error=str(error))
            self._metrics.events_dropped.inc()

    def _occurrence(self, pending: PendingEvent) -> Occurrence:
        namespace = pending.about.namespace or NOWHERE
        return Occurrence(
            metadata=ObjectMeta(generate_name=f"{pending.about.name[:200]}.", namespace=namespace),
            involved_object=pending.about,
            type=pending.kind,
            reason=pending.reason,
            message=printable(pending.message)[:LONGEST_MESSAGE],
            first_timestamp=pending.at,
            last_timestamp=pending.at,
            source=EventSource(component=self._component),
            reporting_controller=self._component,
            reporting_instance=self._instance,
        )


def about(obj: Any) -> ObjectReference:
    """The reference of an Event to a stored object."""
    resource, meta = RESOURCES[type(obj)], obj.metadata
    return ObjectReference(
        api_version=resource.api_version, kind=resource.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


def about_gang(gang: GangRef, kind: type[Slim]) -> ObjectReference:
    """The reference of an Event to the root of a gang, which is an object of *kind*."""
    resource = RESOURCES[kind]
    return ObjectReference(
        api_version=resource.api_version, kind=resource.kind, namespace=gang.namespace, name=gang.name, uid=gang.uid
    )
