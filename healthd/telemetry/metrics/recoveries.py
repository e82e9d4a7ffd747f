"""Metrics of recoveries: outcomes, durations, and what those on hold wait for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from healthd.core.api.model import ENDED, BreakerTrigger, CauseKind, Hold, Phase

_PHASE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class RecoveryMetrics:
    """What the leading controller sets from the recoveries."""

    def _make_recoveries(self, registry: CollectorRegistry) -> None:
        """Outcomes and durations."""
        self.recoveries = Counter(
            "healthd_recoveries_total", "Recoveries that ended.", ["cause", "outcome"], registry=registry
        )
        self.recovery_detection_seconds = Histogram(
            "healthd_recovery_detection_seconds",
            "From the fault until its recovery was opened. A hang counts from when it was noticed: the time before it "
            "is in `healthd_lost_gpu_seconds_total`.",
            ["cause"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.recovery_phase_seconds = Histogram(
            "healthd_recovery_phase_seconds",
            "How long a recovery stayed in a phase, once it left it.",
            ["phase"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.recovery_running_seconds = Histogram(
            "healthd_recovery_running_seconds",
            "From the fault until every member ran again.",
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.recovery_confirmed_seconds = Histogram(
            "healthd_recovery_confirmed_seconds",
            "From the fault until progress was seen. It lasts as long as the gang takes to save, and a read to see it.",
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.checkpoint_rejected = Counter(
            "healthd_checkpoint_rejected_total",
            "Checkpoints that a recovery refused; each one, with the reason, is in the recovery.",
            registry=registry,
        )
        self.lost_steps = Counter(
            "healthd_lost_steps_total",
            "Training steps that had been done and must be done again after a recovery.",
            registry=registry,
        )
        self._make_standing(registry)

    def _make_standing(self, registry: CollectorRegistry) -> None:
        """Gauges of the current state."""
        self.recovery_in_progress = Gauge(
            "healthd_recovery_in_progress", "Recoveries that have not ended, those on hold included.", registry=registry
        )
        self.recoveries_held = Gauge(
            "healthd_recoveries_held",
            "Recoveries on hold, by what they wait for: the budget of quarantines, the breaker, the fence (proof that "
            "old pods ended), a checkpoint that loads, a spare. Such a gang stands still or runs on a bad node, and "
            "somebody has to bring what it waits for.",
            ["reason"],
            registry=registry,
        )
        self.breaker_open = Gauge(
            "healthd_breaker_open",
            "1 while a recovery that began now would be held because too many nodes went bad, or too many restarts "
            "began, in a short time; also while there is none to be held.",
            ["crowd"],
            registry=registry,
        )
        self._start_recoveries_at_zero()

    def _start_recoveries_at_zero(self) -> None:
        """Create every series of a closed set now: `rate()` does not see the event that creates a series."""
        for cause in CauseKind:
            self.recovery_detection_seconds.labels(cause.value)
            for outcome in ENDED:
                self.recoveries.labels(cause.value, outcome.value)
        for phase in set(Phase) - ENDED:
            self.recovery_phase_seconds.labels(phase.value)
        self.show_held({})
        self.show_breaker(())

    def show_held(self, counts: Mapping[Hold, int]) -> None:
        """Set how many recoveries are held for each reason; a reason that is not named: none."""
        for reason in Hold:
            self.recoveries_held.labels(reason.value).set(counts.get(reason, 0))

    def show_breaker(self, over: Collection[BreakerTrigger]) -> None:
        """Set the triggers for which the breaker is open."""
        for trigger in BreakerTrigger:
            self.breaker_open.labels(trigger.value).set(trigger in over)

    def count_ended(self, cause: CauseKind, outcome: Phase) -> None:
        """Count a recovery that reached one of the phases in `ENDED`."""
        self.recoveries.labels(cause.value, outcome.value).inc()
