"""
Report what happens as Kubernetes Events, so that `kubectl describe` of a recovery, a gang or a node shows it.

Events are best effort: a call never waits, never fails, and never costs the API server much. Events go into a short
queue for each namespace, and are sent at one bounded rate. A webhook that does not answer may keep each request for
many seconds, and may see one namespace alone: it delays the Events of that namespace only. Events that do not fit into
the queues are dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, Unavailable, WebhookFailed
from healthd.cluster.waiting import first
from healthd.core.api import (
    RESOURCES,
    EventSource,
    GangRef,
    ObjectMeta,
    ObjectReference,
    Occurrence,
    Slim,
)
from healthd.core.backoff import Backoff, no_jitter
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
RETRY, RETRY_MOST = timedelta(seconds=2), timedelta(minutes=1)
"""Before the next attempt. It is doubled up to the longest for a namespace whose webhook does not answer: many such
namespaces leave the rate to the others."""
IDLE = timedelta(minutes=1)
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

    @property
    def namespace(self) -> str:
        """Where the Event is made."""
        return self.about.namespace or NOWHERE


class _NamespaceQueue:
    """The Events that wait for one namespace. They are sent one after the other."""

    def __init__(self) -> None:
        self.events: deque[PendingEvent] = deque()
        self.is_sending = False
        self.not_before: datetime | None = None
        self._backoff = Backoff(RETRY, RETRY_MOST, no_jitter)

    def is_ready(self, now: datetime) -> bool:
        """Whether its next Event may be sent now."""
        is_paused = self.not_before is not None and now < self.not_before
        return bool(self.events) and not self.is_sending and not is_paused

    def failed(self, now: datetime) -> None:
        """A webhook that sees this namespace does not answer."""
        self.not_before = now + self._backoff.next()

    def succeeded(self) -> None:
        """The API server answered, whatever it said."""
        self.not_before = None
        self._backoff.reset()


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
        self._queues: dict[str, _NamespaceQueue] = {}
        """By namespace; the one that was served last is the last."""
        self._waiting = 0
        self._not_before: datetime | None = None
        """The API server is left alone until then."""
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
        if self._waiting >= QUEUE:
            self._drop_one()
        self._queues.setdefault(pending.namespace, _NamespaceQueue()).events.append(pending)
        self._waiting += 1
        self._bell.set()

    def _repeats_too_soon(self, key: str, pending: PendingEvent) -> bool:
        last = self._last.get(key)
        is_same = last is not None and (last.reason, last.message) == (pending.reason, pending.message)
        return last is not None and is_same and abs(pending.at - last.at) < SAID_AGAIN

    def _drop_one(self) -> None:
        """The oldest Event of the namespace with the most: one that cannot be sent takes no room of the others."""
        max(self._queues.values(), key=lambda queue: len(queue.events)).events.popleft()
        self._waiting -= 1
        self._metrics.events_dropped.inc()

    async def run(self) -> None:
        """Send the queued Events, until cancelled."""
        allowed, since = float(BURST), self._clock.now()
        async with asyncio.TaskGroup() as sends:
            while True:
                self._bell.clear()
                now = self._clock.now()
                allowed, since = min(float(BURST), allowed + (now - since) / EVERY), now
                queue = self._ready(now)
                if queue is None:
                    await first(self._bell.wait(), self._clock.sleep(self._until_ready(now)))
                elif allowed < 1:
                    await self._clock.sleep(EVERY)
                else:
                    allowed -= 1
                    queue.is_sending = True
                    sends.create_task(self._send_next(queue), name="send an Event")

    def _ready(self, now: datetime) -> _NamespaceQueue | None:
        """The queue to serve next, each in its turn; None: all have to wait."""
        if self._not_before is not None and now < self._not_before:
            return None
        namespace = next((name for name, queue in self._queues.items() if queue.is_ready(now)), None)
        if namespace is None:
            return None
        queue = self._queues[namespace] = self._queues.pop(namespace)
        return queue

    def _until_ready(self, now: datetime) -> timedelta:
        moments = [queue.not_before for queue in self._queues.values() if queue.events and not queue.is_sending]
        coming = [at for at in (self._not_before, *moments) if at is not None and at > now]
        return min(coming, default=now + IDLE) - now

    async def _send_next(self, queue: _NamespaceQueue) -> None:
        pending = queue.events.popleft()
        self._waiting -= 1
        try:
            error = await self._send(pending)
        except asyncio.CancelledError:  # the process ends: `flush` sends it, maybe a second time
            self._put_back(queue, pending)
            raise
        finally:
            queue.is_sending = False
            self._bell.set()
        if error is None:
            queue.succeeded()
            if not queue.events:
                del self._queues[pending.namespace]
            return
        log.debug("event.waits", error=str(error))
        self._put_back(queue, pending)
        if isinstance(error, WebhookFailed):  # it may see one namespace alone: the others do not wait for it
            queue.failed(self._clock.now())
        else:
            self._not_before = self._clock.now() + RETRY

    def _put_back(self, queue: _NamespaceQueue, pending: PendingEvent) -> None:
        if self._waiting >= QUEUE:
            self._metrics.events_dropped.inc()
            return
        queue.events.appendleft(pending)
        self._waiting += 1

    async def flush(self, limit: float) -> None:
        """Send the rest of the queue before the process ends. After *limit* seconds, drop the remaining Events."""
        try:
            async with asyncio.timeout(limit):
                await asyncio.gather(*map(self._flush, self._queues.values()))
        except TimeoutError:
            self._metrics.events_dropped.inc(sum(len(queue.events) for queue in self._queues.values()))

    async def _flush(self, queue: _NamespaceQueue) -> None:
        while queue.events:
            if await self._send(queue.events[0]) is not None:
                self._metrics.events_dropped.inc()
            queue.events.popleft()

    async def _send(self, pending: PendingEvent) -> ClusterError | None:
        """Send one Event. Returns the error after which it may be sent later; None: there is nothing left to do."""
        try:
            with self._isolation.of("event", f"{pending.about.kind} {pending.about.namespace}/{pending.about.name}"):
                await self._cluster.create(self._occurrence(pending))
        except (Unavailable, WebhookFailed) as error:
            return error
        except ClusterError as error:  # its namespace is being deleted, or it is forbidden: a retry is useless
            log.info("event.refused", reason=pending.reason, error=str(error))
            self._metrics.events_dropped.inc()
        return None

    def _occurrence(self, pending: PendingEvent) -> Occurrence:
        return Occurrence(
            metadata=ObjectMeta(generate_name=f"{pending.about.name[:200]}.", namespace=pending.namespace),
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
