"""
How fast GPUs run while they work, in windows one after the other. Pure.

A GPU that waits for others in a kernel draws little power, so it runs faster than those that work. So its clock counts
by how much its memory is used. What happens for less than half of the newest windows, as a moment of heat, does not
count: the clock of a GPU is the median of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

from healthd.core.api.health import MOST_GPUS, MOST_LIMITS, GpuClock, GpuClocks
from healthd.core.hang.gpus import GpuUse, GpuUses

WINDOW = timedelta(seconds=15)
WINDOWS = 7
"""The newest windows that are looked at."""
LEAST_WORK = 0.02
"""Of a window, in which the memory of a GPU is used: in the others it does not work."""
KNOWN_FOR = timedelta(minutes=5)
"""How long a window counts. A GPU that works now and then for a moment is not known."""
OFTEN = 0.4
"""Of the samples in the newest windows that name a reason which counts: less than the windows that show it."""


class _Window(NamedTuple):
    """What one GPU did in one window."""

    begin: datetime
    end: datetime
    mhz: float
    samples: int
    limits: Counter[str]
    """How many of the samples name which reason."""


class _Gpu:
    """The newest windows of one GPU."""

    def __init__(self, use: GpuUse, at: datetime) -> None:
        self.windows: deque[_Window] = deque(maxlen=WINDOWS)
        self.highest = use.highest
        self._begin(use, at)

    def _begin(self, use: GpuUse, at: datetime) -> None:
        self._first, self._began, self._samples, self._limits = use, at, 0, Counter[str]()

    def add(self, use: GpuUse, at: datetime) -> None:
        self._samples += 1
        self._limits.update(use.limits)
        self.highest = use.highest
        passed, worked = at - self._began, use.memory - self._first.memory
        if worked < 0:  # counted anew: another process reads the driver
            self._begin(use, at)
        if passed < WINDOW:
            return
        while self.windows and at - self.windows[0].end > KNOWN_FOR:
            self.windows.popleft()
        if worked >= LEAST_WORK * passed.total_seconds():
            mhz = (use.cycles - self._first.cycles) / worked
            self.windows.append(_Window(self._began, at, mhz, self._samples, self._limits))
        self._begin(use, at)

    @property
    def is_known(self) -> bool:
        return self.highest > 0 and len(self.windows) == WINDOWS and all(each.mhz > 0 for each in self.windows)

    @property
    def mhz(self) -> float:
        return median(window.mhz for window in self.windows)

    @property
    def limits(self) -> list[str]:
        """What kept it down, the most frequent reason first."""
        samples = sum(window.samples for window in self.windows)
        named = sum((window.limits for window in self.windows), Counter[str]())
        return [why for why, count in named.most_common(MOST_LIMITS) if count >= OFTEN * samples]


class ClockWindows:
    """The clocks of GPUs. A GPU that is not seen in a sample begins anew."""

    def __init__(self) -> None:
        self._gpus: dict[str, _Gpu] = {}
        self._at: datetime | None = None

    def observe(self, uses: GpuUses) -> None:
        """Take a sample. The same one again is none."""
        if self._at is not None and uses.at <= self._at and uses.gpus:
            return
        self._at = uses.at
        self._gpus = {pci: gpu for pci, gpu in self._gpus.items() if pci in uses.gpus}
        for pci, use in uses.gpus.items():
            if pci in self._gpus:
                self._gpus[pci].add(use, uses.at)
            else:
                self._gpus[pci] = _Gpu(use, uses.at)

    def of(self, pcis: Collection[str] | None = None) -> GpuClocks | None:
        """Of these GPUs, or of all. None: of none it is known, or they are of different models."""
        known = {pci: gpu for pci, gpu in self._gpus.items() if gpu.is_known and (pcis is None or pci in pcis)}
        if not known or len({gpu.highest for gpu in known.values()}) > 1:
            return None
        return _compared(known)


def _compared(known: Mapping[str, _Gpu]) -> GpuClocks:
    gpus = [
        GpuClock(pci=pci, mhz=round(gpu.mhz), newest=round(gpu.windows[-1].mhz), limited_by=gpu.limits)
        for pci, gpu in known.items()
    ]
    return GpuClocks(
        begin=min(each.windows[0].begin for each in known.values()).replace(microsecond=0),
        end=max(each.windows[-1].end for each in known.values()).replace(microsecond=0),
        usual=round(median(each.mhz for each in known.values())),
        highest=max(each.highest for each in known.values()),
        gpus=sorted(gpus, key=lambda each: (each.mhz, each.pci))[:MOST_GPUS],
    )
