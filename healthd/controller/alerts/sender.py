"""Send incidents to one alert service, at its pace, and record what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from healthd.alerts.sink import Answer, Outcome, Sink
from healthd.clock import Clock
from healthd.cluster.waiting import first, within
from healthd.controller.alerts.store import Entry, IncidentStore
from healthd.core.alerts.delivery import (
    accepted,
    due_at,
    failed,
    is_worth_a_write,
    next_batch,
    oldest_waiting,
    refused,
)
from healthd.core.alerts.pacing import Pace, retry_delay
from healthd.core.api import Delivery
from healthd.core.api.incidents import Incident
from healthd.core.backoff import Jitter
from healthd.core.config import AlertsPolicy, SinkPolicy
from healthd.telemetry.events import WARNING, Announce
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

TIMEOUT = timedelta(seconds=15)
"""A service that has not answered by then is tried again."""
IN_FLIGHT = 8
"""Messages to one service at the same time; of one incident there is at most one."""
IDLE = timedelta(minutes=1)
TOOK = frozenset({Answer.ACCEPTED, Answer.DELIVERED, Answer.UNKNOWN})
"""Answers after which a message is not sent again."""


class Sender:
    """The messages to one *sink*. *route* says what it gets."""

    def __init__(
        self,
        sink: Sink,
        route: SinkPolicy,
        policy: AlertsPolicy,
        store: IncidentStore,
        clock: Clock,
        metrics: Metrics,
        announce: Announce,
        jitter: Jitter,
    ) -> None:
        self.name = sink.name
        self.route = route
        self._sink = sink
        self._policy = policy
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._announce = announce
        self._jitter = jitter
        self._pace = Pace.after(self._rate, (), clock.now())
        self._open: dict[str, Entry] = {}
        """Entries of which something may have to be sent, now or later."""
        self._sending: set[str] = set()
        self._apart: set[str] = set()
        """Keys of incidents whose digest was refused. In memory alone: a new leader may try a digest again."""
        self._resend_at: dict[str, datetime] = {}
        """Of services that forget. In memory alone: a new leader sends all that is open at once."""
        self._bell = asyncio.Event()

    @property
    def _rate(self) -> float:
        """The lower one of the service's own rate and the configured one."""
        return min(self._sink.rate, self.route.rate or self._sink.rate)

    def begin(self) -> None:
        """Take over what is stored: messages of the last minute count for the rate."""
        entries = self._store.entries.values()
        sent = [at for entry in entries if (at := entry.delivery(self.name).at) is not None]
        self._pace = Pace.after(self._rate, sent, self._clock.now())
        for entry in entries:
            self.offer(entry)

    def offer(self, entry: Entry) -> None:
        """There may be something to send of *entry*."""
        self._open[entry.key] = entry
        self._bell.set()

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        async with asyncio.TaskGroup() as sends:
            while True:
                self._bell.clear()
                now = self._clock.now()
                wait = max(timedelta(0), self._send_due(sends, now) - now)
                await first(self._bell.wait(), self._clock.sleep(wait or timedelta(milliseconds=10)))

    def _send_due(self, sends: asyncio.TaskGroup, now: datetime) -> datetime:
        """Start the messages that are due. Returns when to look again."""
        due, later = self._due(now)
        room = IN_FLIGHT - len(self._sending)
        if room <= 0:
            return now + IDLE  # an answer rings the bell
        batch = next_batch(self._pace, [entry.tracked.incident for entry in due], now, room, apart=self._apart)
        if batch.digest:
            self._start(sends, batch.digest, now)
        for incident in batch.alone:
            self._start(sends, (incident,), now)
        return min([now + IDLE, *later, *([batch.later] if batch.later else [])])

    def _due(self, now: datetime) -> tuple[list[Entry], list[datetime]]:
        """What is due, and when the others will be. Drops what has nothing left to send."""
        due: list[Entry] = []
        later: list[datetime] = []
        for entry in list(self._open.values()):
            at = self._due_at(entry)
            if at is None:
                if entry.key not in self._sending:
                    self._open.pop(entry.key)
                    self._resend_at.pop(entry.key, None)
                    self._apart.discard(entry.key)
            elif entry.key not in self._sending and entry.tried:
                if at <= now:
                    due.append(entry)
                else:
                    later.append(at)
        return due, later

    def _due_at(self, entry: Entry) -> datetime | None:
        delivery, resend = entry.delivery(self.name), None
        if self._sink.resend_every is not None and delivery.at is not None:
            known = self._resend_at.get(entry.key)
            resend = known or delivery.at + timedelta(seconds=self._sink.resend_every)
        return due_at(self.route, entry.tracked.incident, delivery, self._policy, resend_at=resend)

    def _start(self, sends: asyncio.TaskGroup, incidents: Sequence[Incident], now: datetime) -> None:
        entries = [self._open[each.key] for each in incidents]
        self._sending.update(each.key for each in incidents)
        self._pace = self._pace.took(1, now)
        sends.create_task(self._send(entries, incidents), name=f"send to {self.name}")

    async def _send(self, entries: Sequence[Entry], incidents: Sequence[Incident]) -> None:
        try:
            outcome = await self._outcome(entries, incidents)
            await self._record(entries, incidents, outcome)
        finally:
            self._sending.difference_update(each.key for each in incidents)
            self._bell.set()

    async def _outcome(self, entries: Sequence[Entry], incidents: Sequence[Incident]) -> Outcome:
        try:
            if len(incidents) > 1:
                return await within(self._clock, TIMEOUT, self._sink.send_digest(incidents))
            thread = entries[0].delivery(self.name).thread
            return await within(self._clock, TIMEOUT, self._sink.send(incidents[0], thread))
        except TimeoutError:
            return Outcome(Answer.RETRY, f"no answer within {TIMEOUT.total_seconds():.0f} s")
        except Exception as error:  # its text may hold the address, which may be a secret
            return Outcome(Answer.RETRY, f"error {type(error).__name__}")

    async def _record(self, entries: Sequence[Entry], incidents: Sequence[Incident], outcome: Outcome) -> None:
        now = self._clock.now()
        self._metrics.alert_messages.labels(self.name, outcome.answer.value).inc()
        if outcome.answer is Answer.RETRY:
            self._pace = self._pace.failed(now, self._jitter, outcome.retry_after)
            failures = self._pace.failures
            log.warning(
                "alert.not_sent", sink=self.name, incidents=len(incidents), error=outcome.detail, failures=failures
            )
        else:
            self._pace = self._pace.succeeded()
        self._apart.difference_update(each.key for each in incidents)
        if outcome.answer is Answer.REFUSED and len(incidents) > 1:
            self._apart.update(each.key for each in incidents)
        to_store: list[Entry] = []
        for entry, incident in zip(entries, incidents, strict=True):
            before = entry.delivery(self.name)
            after = self._after(entry, incident, before, outcome, now, is_alone=len(incidents) == 1)
            entry.deliveries = {**entry.deliveries, self.name: after}
            if after.dead != before.dead:
                self._report_dead(entry, incident, after)
            if after != before and is_worth_a_write(before, after):
                to_store.append(entry)
        await self._store.save_all(to_store)

    def _after(
        self, entry: Entry, incident: Incident, before: Delivery, outcome: Outcome, now: datetime, *, is_alone: bool
    ) -> Delivery:
        """
        The record after *outcome*. A repeat for a service that forgets changes nothing that is stored.

        That a digest is refused says nothing of one incident in it, which is sent alone then.
        """
        is_repeat = before.revision >= incident.revision
        if self._sink.resend_every is not None:
            every = timedelta(seconds=self._sink.resend_every)
            wait = every if outcome.answer in TOOK else retry_delay(self._pace.failures, self._jitter)
            self._resend_at[entry.key] = now + min(every, wait)
        if is_repeat:
            return before
        if outcome.answer in TOOK:
            return accepted(incident, before, outcome.answer.value, outcome.thread, now)
        if outcome.answer is Answer.REFUSED and is_alone:
            return refused(incident, before, outcome.detail, now)
        return failed(incident, before, outcome.detail, self._policy, now, self._jitter, outcome.retry_after)

    def _report_dead(self, entry: Entry, incident: Incident, delivery: Delivery) -> None:
        log.error("alert.dead_letter", sink=self.name, incident=entry.key, title=incident.title, error=delivery.error)
        self._metrics.alert_dead_letters.labels(self.name).inc()
        message = f"revision {incident.revision} could not be sent to {self.name}: {delivery.error}"
        self._announce(self._store.reference(entry), WARNING, "AlertNotDelivered", message)

    def waiting(self, now: datetime) -> int:
        """How many incidents the service does not have as they are now."""
        return self._waiting(now)[0]

    def _waiting(self, now: datetime) -> tuple[int, timedelta]:
        pairs = ((entry.tracked.incident, entry.delivery(self.name)) for entry in self._open.values())
        return oldest_waiting(pairs, self.route, now)

    def measure(self, now: datetime) -> None:
        """Set the gauges of what waits."""
        waiting, age = self._waiting(now)
        self._metrics.alert_waiting.labels(self.name).set(waiting)
        self._metrics.alert_oldest_waiting.labels(self.name).set(age.total_seconds())
