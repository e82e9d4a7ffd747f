"""A node whose driver is a stand-in, beneath the real binding in a real child."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from healthd.core.backoff import Backoff, no_jitter
from healthd.core.diagnosis.readings import Sample
from healthd.probes.nvml.health import Nvml, NvmlPulse
from healthd.probes.nvml.process import ChildProcess, Pace, asking
from tests.standin.nvml import StandIn

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
QUICK = Pace(every=timedelta(milliseconds=20), whole=timedelta(0), anew=timedelta(0))
GPU0, GPU1, GPU2 = "0000:3b:00.0", "0000:3c:00.0", "0000:3d:00.0"
ENOUGH = 20.0
"""Seconds after which a child that says nothing fails a test."""

Values = dict[tuple[str, str, str], float | str]


@dataclass
class Clock:
    """The machine's monotonic time, and what a test lets pass beyond it."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class SimulatedNode:
    """A node whose driver is a stand-in, and the probe that looks at it."""

    standin: StandIn
    root: Path
    clock: Clock = field(default_factory=Clock)
    pace: Pace = QUICK
    expected: int | None = None

    def __post_init__(self) -> None:
        backoff = Backoff(timedelta(seconds=0.2), timedelta(minutes=5), no_jitter)
        self.process = ChildProcess(
            self.pace, spawn=asking(self.standin.environ, self.root), monotonic=self.clock, backoff=backoff
        )
        self.probe = Nvml(self.process, expected=self.expected)
        self.pulse = NvmlPulse(self.probe)

    def sample_until(self, is_seen: Callable[[Sample], object]) -> Sample:
        """Sample at what the child says until it says this."""
        ends = time.monotonic() + ENOUGH
        while time.monotonic() < ends:
            sample = self.probe.sample(NOW)
            if is_seen(sample):
                return sample
            self.probe.wait(0.2)
        raise AssertionError(f"never seen; last: {sample.trouble or len(sample.readings)}")

    def values(self) -> Values:
        """All readings of the first sample."""
        return by_place(self.sample_until(lambda sample: sample.readings))

    def wait_until_it_hangs(self) -> None:
        while not self.standin.hangs:
            self.probe.wait(0.01)
            self.probe.sample(NOW)

    def responds(self) -> list[float | str]:
        return [reading.value for reading in self.pulse.sample(NOW).readings]


def by_place(sample: Sample) -> Values:
    return {(reading.device, reading.name, reading.part): reading.value for reading in sample.readings}


def of(sample: Sample, device: str, name: str, part: str = "") -> float | str | None:
    return by_place(sample).get((device, name, part))
