"""All that NVML tells of GPUs, asked by a real child of a stand-in library beneath the real binding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from healthd.core.readings import Look
from healthd.core.waits import Waits, alone
from healthd.probes.nvml_health import Nvml, NvmlPulse
from healthd.probes.nvml_process import Pace, Process
from tests.standin.nvml import StandIn, build

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
QUICK = Pace(every=timedelta(milliseconds=20), whole=timedelta(0))
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
class World:
    """A node whose driver is a stand-in, and the probe that looks at it."""

    standin: StandIn
    sys: Path
    clock: Clock = field(default_factory=Clock)
    pace: Pace = QUICK
    expected: int | None = None

    def __post_init__(self) -> None:
        waits = Waits(timedelta(seconds=1), timedelta(minutes=5), alone)
        self.process = Process(self.pace, environ=self.standin.environ, monotonic=self.clock, waits=waits)
        self.probe = Nvml(self.process, sys=self.sys, expected=self.expected)
        self.pulse = NvmlPulse(self.probe)

    def look_until(self, is_seen: Callable[[Look], object]) -> Look:
        """Look at what the child says until it says this."""
        ends = time.monotonic() + ENOUGH
        while time.monotonic() < ends:
            look = self.probe.look(NOW)
            if is_seen(look):
                return look
            self.probe.wait(0.2)
        raise AssertionError(f"never seen; last: {look.trouble or look.readings}")

    def values(self) -> Values:
        """All readings of the first look."""
        return by_place(self.look_until(lambda look: look.readings))

    def responds(self) -> list[float | str]:
        return [reading.value for reading in self.pulse.look(NOW).readings]


def by_place(look: Look) -> Values:
    return {(reading.device, reading.name, reading.part): reading.value for reading in look.readings}


def of(look: Look, device: str, name: str, part: str = "") -> float | str | None:
    return by_place(look).get((device, name, part))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def standin(library: Path, tmp_path: Path) -> StandIn:
    return StandIn(library, tmp_path / "script")


@pytest.fixture
def world(standin: StandIn, tmp_path: Path) -> Iterator[World]:
    world = World(standin, tmp_path / "sys")
    yield world
    world.probe.close()


def test_eight_gpus_are_told_with_their_names_and_driver(world: World) -> None:
    values = world.values()

    assert values["node", "nvml.gpus", ""] == 8
    assert values["node", "nvml.driver", ""] == "570.124.06"
    assert values[GPU1, "nvml.uuid", ""] == "GPU-00000002-0000-4000-8000-000000000000"
    assert values[GPU1, "nvml.product", ""] == "NVIDIA H100 80GB HBM3"
    assert values[GPU1, "nvml.serial", ""] == "1650123010001"
    assert values[GPU1, "nvml.index", ""] == 1
    assert values[GPU1, "nvml.state", ""] == "ok"
