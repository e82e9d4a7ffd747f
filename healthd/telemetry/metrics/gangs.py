"""Metrics of single gangs: progress, checkpoints, standstill. In each namespace, a limited number of gangs is shown."""

from __future__ import annotations

from collections import Counter as Counting
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Gauge

from healthd.core.api.model import Hold, Phase
from healthd.core.api.save_stats import Concern

if TYPE_CHECKING:  # agents have no gangs, and need not load this module
    from healthd.core.recovery.gang import Root

SHOWN_GANGS = 500
"""In each namespace: a tenant can create gangs without limit, and each series costs storage in Prometheus."""


class GangSaves(NamedTuple):
    """What is known about the checkpoints of one gang."""

    namespace: str
    gang: str
    saved: datetime | None
    """When the newest good checkpoint was saved."""
    interval: timedelta | None
    lost: timedelta | None
    concerns: Collection[Concern]


class HeldGang(NamedTuple):
    """A gang whose recovery is on hold."""

    namespace: str
    gang: str
    reason: Hold
    since: datetime


class RecoveringGang(NamedTuple):
    """A gang whose recovery should go on by itself: it is not on hold."""

    namespace: str
    gang: str
    phase: Phase
    since: datetime
    """When it entered the phase; while it waits before a start, when the wait ends."""


class GivenUpGang(NamedTuple):
    """A gang that healthd gave up on, and that stands still since."""

    namespace: str
    gang: str
    at: datetime


class HangingGang(NamedTuple):
    """A gang whose ranks have all fallen silent."""

    namespace: str
    gang: str
    since: datetime
    """When its last rank worked."""


class SlowRank(NamedTuple):
    """A rank that the others of its gang wait for."""

    namespace: str
    gang: str
    rank: str
    node: str
    since: datetime


class GangGpuTime(NamedTuple):
    """What the GPUs of a gang were used for, since healthd knows it."""

    namespace: str
    gang: str
    ettr: float | None
    """From 0 to 1; None before there was any time to train."""
    lost_ms: int
    """GPU-milliseconds."""


class GangMetrics:
    """What the leading controller sets for each gang."""

    def _make_gangs(self, registry: CollectorRegistry) -> None:
        self.gang_step = Gauge(
            "healthd_gang_step", "The furthest training step seen.", ["namespace", "gang"], registry=registry
        )
        self.gang_attempt = Gauge(
            "healthd_gang_attempt",
            "Which attempt a gang is in; 0 until its first restart.",
            ["namespace", "gang"],
            registry=registry,
        )

        self.gang_held_since = Gauge(
            "healthd_gang_held_since_timestamp_seconds",
            "Since when the recovery of a gang is on hold, and what it waits for, as Unix time. Other gangs have no "
            "series.",
            ["namespace", "gang", "reason"],
            registry=registry,
        )
        self.gang_recovery_since = Gauge(
            "healthd_gang_recovery_since_timestamp_seconds",
            "Since when the recovery of a gang is in its phase, as Unix time; while it waits before a start, when that "
            "wait ends. Recoveries on hold have no series.",
            ["namespace", "gang", "phase"],
            registry=registry,
        )
        self.gang_gave_up = Gauge(
            "healthd_gang_gave_up_timestamp_seconds",
            "When healthd gave up on a gang, as Unix time; no series once it is started again or deleted.",
            ["namespace", "gang"],
            registry=registry,
        )
        self.gang_silent_since = Gauge(
            "healthd_gang_silent_since_timestamp_seconds",
            "When the last rank of a gang that hangs worked, as Unix time. Other gangs have no series.",
            ["namespace", "gang"],
            registry=registry,
        )
        self.gang_straggler_since = Gauge(
            "healthd_gang_straggler_since_timestamp_seconds",
            "Since when the others of its gang wait for a rank that is slow, as Unix time. Other ranks have no series.",
            ["namespace", "gang", "rank", "node"],
            registry=registry,
        )
        self.gangs_invalid = Gauge(
            "healthd_gangs_invalid",
            "Gangs that healthd does nothing to, because what their owner wrote cannot be read.",
            registry=registry,
        )
        self.gangs_not_shown = Gauge(
            "healthd_gangs_not_shown",
            f"Gangs that have no series of their own: those beyond {SHOWN_GANGS} in a namespace.",
            registry=registry,
        )
        self._make_totals(registry)
        self._make_saves(registry)

    def _make_totals(self, registry: CollectorRegistry) -> None:
        self.gang_ettr = Gauge(
            "healthd_gang_effective_training_time_ratio",
            "ETTR of a gang since healthd knows it, from 0 to 1: its productive GPU time by all its GPU time, without "
            "time in which its user had suspended it or it waited for its first pods. Training since the newest step "
            "is not in it.",
            ["namespace", "gang"],
            registry=registry,
        )
        self.gang_lost = Gauge(
            "healthd_gang_lost_gpu_seconds",
            "GPU time that faults and starts cost a gang since healthd knows it, a recovery that runs included.",
            ["namespace", "gang"],
            registry=registry,
        )

    def _make_saves(self, registry: CollectorRegistry) -> None:
        labels = ["namespace", "gang"]
        self.checkpoint_saved = Gauge(
            "healthd_checkpoint_saved_timestamp_seconds",
            "When the newest checkpoint that would be resumed from was saved, as Unix time.",
            labels,
            registry=registry,
        )
        self.checkpoint_interval = Gauge(
            "healthd_checkpoint_interval_seconds", "How often a gang usually saves.", labels, registry=registry
        )
        self.checkpoint_lost_work = Gauge(
            "healthd_checkpoint_lost_work_seconds",
            "How much work a fault would cost now: since the newest checkpoint that would be resumed from or, where it "
            "is later, since the gang was set going.",
            labels,
            registry=registry,
        )
        self.checkpoint_valid = Gauge(
            "healthd_checkpoint_valid",
            "1 while the newest checkpoint would be resumed from, 0 while it would be refused or there is none.",
            labels,
            registry=registry,
        )
        self.checkpoint_concern = Gauge(
            "healthd_checkpoint_concern",
            "1 for each thing that is wrong with the saving of a gang: late, refused, slower, full.",
            [*labels, "concern"],
            registry=registry,
        )

    def show_gangs(self, gangs: Iterable[Root], *, invalid: Collection[str] = ()) -> None:
        """
        Set the gauges of gangs to exactly this; a step below 0 is not known and has no series. *invalid*: the uids of
        those that are invalid although their own object is not.
        """
        self.gang_attempt.clear()
        self.gang_step.clear()
        unread, left_out = 0, 0
        seen: Counting[str] = Counting()
        for root in gangs:
            labels = (root.ref.namespace, root.ref.name)
            is_invalid = bool(root.invalid) or root.ref.uid in invalid
            unread += is_invalid
            seen[root.ref.namespace] += 1
            if seen[root.ref.namespace] > SHOWN_GANGS:
                left_out += 1
            if is_invalid or seen[root.ref.namespace] > SHOWN_GANGS:
                continue
            self.gang_attempt.labels(*labels).set(root.attempt)
            if root.progress.step >= 0:
                self.gang_step.labels(*labels).set(root.progress.step)
        self.gangs_invalid.set(unread)
        self.gangs_not_shown.set(left_out)

    def show_saves(self, gangs: Iterable[GangSaves]) -> None:
        """Set the gauges of checkpoints to exactly this; a value that is not known has no series."""
        for gauge in (
            self.checkpoint_saved,
            self.checkpoint_interval,
            self.checkpoint_lost_work,
            self.checkpoint_valid,
            self.checkpoint_concern,
        ):
            gauge.clear()
        seen: Counting[str] = Counting()
        for each in gangs:
            labels = (each.namespace, each.gang)
            seen[each.namespace] += 1
            if seen[each.namespace] > SHOWN_GANGS:
                continue
            if each.saved is not None:
                self.checkpoint_saved.labels(*labels).set(each.saved.timestamp())
            if each.interval is not None:
                self.checkpoint_interval.labels(*labels).set(each.interval.total_seconds())
            if each.lost is not None:
                self.checkpoint_lost_work.labels(*labels).set(each.lost.total_seconds())
            self.checkpoint_valid.labels(*labels).set(each.saved is not None and Concern.REFUSED not in each.concerns)
            for concern in each.concerns:
                self.checkpoint_concern.labels(*labels, concern.value).set(1)

    def show_gpu_time(self, gangs: Iterable[GangGpuTime]) -> None:
        """Set the gauges of the GPU time of gangs to exactly this."""
        self.gang_ettr.clear()
        self.gang_lost.clear()
        for each in _shown(gangs):
            self.gang_lost.labels(each.namespace, each.gang).set(each.lost_ms / 1000)
            if each.ettr is not None:
                self.gang_ettr.labels(each.namespace, each.gang).set(each.ettr)

    def show_hanging(self, gangs: Iterable[HangingGang]) -> None:
        """Set the gauge of gangs that hang to exactly this."""
        self.gang_silent_since.clear()
        for each in _shown(gangs):
            self.gang_silent_since.labels(each.namespace, each.gang).set(each.since.timestamp())

    def show_stragglers(self, ranks: Iterable[SlowRank]) -> None:
        """Set the gauge of ranks that the others wait for to exactly this."""
        self.gang_straggler_since.clear()
        for each in _shown(ranks):
            labels = (each.namespace, each.gang, each.rank, each.node)
            self.gang_straggler_since.labels(*labels).set(each.since.timestamp())

    def show_recovering(self, gangs: Iterable[RecoveringGang]) -> None:
        """Set the gauge of gangs that are being recovered to exactly this."""
        self.gang_recovery_since.clear()
        for each in _shown(gangs):
            self.gang_recovery_since.labels(each.namespace, each.gang, each.phase.value).set(each.since.timestamp())

    def show_standstills(self, held: Iterable[HeldGang], given_up: Iterable[GivenUpGang]) -> None:
        """Set the gauges of gangs that stand still to exactly this."""
        self.gang_held_since.clear()
        self.gang_gave_up.clear()
        for hold in _shown(held):
            self.gang_held_since.labels(hold.namespace, hold.gang, hold.reason.value).set(hold.since.timestamp())
        for end in _shown(given_up):
            self.gang_gave_up.labels(end.namespace, end.gang).set(end.at.timestamp())


_Row = TypeVar("_Row", HeldGang, GivenUpGang, GangGpuTime, RecoveringGang, HangingGang, SlowRank)


def _shown(rows: Iterable[_Row]) -> Iterator[_Row]:
    """The first `SHOWN_GANGS` of each namespace."""
    seen: Counting[str] = Counting()
    for row in rows:
        seen[row.namespace] += 1
        if seen[row.namespace] <= SHOWN_GANGS:
            yield row
