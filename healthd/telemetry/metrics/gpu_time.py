"""Metrics of what GPUs were used for, and what faults cost. `healthd.core.accounting` divides the time."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter

from healthd.core.api.gpu_time import LOST, NOT_OURS, LossCause, Part


class GpuTimeMetrics:
    """What the leading controller counts when it brings the account of a gang up to date."""

    def _make_gpu_time(self, registry: CollectorRegistry) -> None:
        self.gpu_seconds = Counter(
            "healthd_gpu_seconds_total",
            "Wall clock time of gangs, times their GPUs: the sum of the four counters below. Time is counted when it "
            "is known what it was: at a new step, at most every five minutes, and at the end of a recovery; while a "
            "gang stands still, once an hour.",
            registry=registry,
        )
        self.productive_gpu_seconds = Counter(
            "healthd_productive_gpu_seconds_total",
            "GPU time of training that a later checkpoint shows.",
            registry=registry,
        )
        self.lost_gpu_seconds = Counter(
            "healthd_lost_gpu_seconds_total",
            "GPU time that faults and starts cost, by what it was due to (for hardware: the family of the rule that "
            "found it) and what it was spent on: work that is done again, detection, a phase of the recovery, a hold, "
            "no spare, start-up until training goes on, given up, members that are left out.",
            ["cause", "phase"],
            registry=registry,
        )
        self.unverified_gpu_seconds = Counter(
            "healthd_unverified_gpu_seconds_total",
            "GPU time of gangs that ran, where no step shows whether they trained: neither productive nor lost.",
            registry=registry,
        )
        self.waiting_gpu_seconds = Counter(
            "healthd_waiting_gpu_seconds_total",
            "GPU time of gangs that their user had suspended, or that waited for their pods after their user had "
            "started them.",
            ["state"],
            registry=registry,
        )

    def start_gpu_time_at_zero(self) -> None:
        """Create every series now, as `rate()` wants it. Only a process that counts gangs does this: it is many."""
        for part in LOST:
            for cause in LossCause:
                self.lost_gpu_seconds.labels(cause.value, part.value)
        for part in NOT_OURS:
            self.waiting_gpu_seconds.labels(part.value)

    def count_gpu_time(self, increments: Mapping[str, int]) -> None:
        """Count GPU-milliseconds by `core.api.gpu_time.key`."""
        for name, amount in increments.items():
            seconds = amount / 1000
            self.gpu_seconds.inc(seconds)
            self._part(name).inc(seconds)

    def _part(self, name: str) -> Counter:
        part, _, cause = name.partition("/")
        if part == Part.PRODUCTIVE:
            return self.productive_gpu_seconds
        if part == Part.UNVERIFIED:
            return self.unverified_gpu_seconds
        if part in NOT_OURS:
            return self.waiting_gpu_seconds.labels(part)
        return self.lost_gpu_seconds.labels(cause, part)
