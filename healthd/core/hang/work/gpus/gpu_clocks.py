"""
How fast GPUs run while they work, in windows one after the other. Pure.

A GPU that waits for others in a kernel draws little power, so it runs faster than those that work. So its clock counts
by how much its memory is used. What happens for less than half of the newest windows, as a moment of heat, does not
count: the clock of a GPU is the median of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
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

    def __init__(self, pci: str, use: GpuUse, at: datetime) -> None:
        self._pci = pci
        self.windows: deque[_Window] = deque(maxlen=WINDOWS)
        self.highest = use.highest
        self.clock: GpuClock | None = None
        """None: not known."""
        self._begin(use, at)

    def _begin(self, use: GpuUse, at: datetime) -> None:
        self._first, self._began, self._samples, self._limits = use, at, 0, Counter[str]()

    def add(self, use: GpuUse, at: datetime) -> None:
        self._samples += 1
        self._limits.update(use.limits)
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
        self.highest = use.highest
        self.clock = self._of_windows()
        self._begin(use, at)

    def _of_windows(self) -> GpuClock | None:
        clocks = [window.mhz for window in self.windows]
        if self.highest <= 0 or len(clocks) < WINDOWS or min(clocks) <= 0:
            return None
        return GpuClock(
            pci=self._pci, mhz=round(median(clocks)), newest=round(clocks[-1]), limited_by=self._frequent_limits()
        )

    def _frequent_limits(self) -> list[str]:
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
        """Take a sample. The same one again is none. Where the clock was set back, all begin anew."""
        if self._at is not None and self._at - WINDOW < uses.at <= self._at and uses.gpus:
            return
        is_continued = self._at is not None and uses.at > self._at
        self._at = uses.at
        self._gpus = {pci: gpu for pci, gpu in self._gpus.items() if is_continued and pci in uses.gpus}
        for pci, use in uses.gpus.items():
            if pci in self._gpus:
                self._gpus[pci].add(use, uses.at)
            else:
                self._gpus[pci] = _Gpu(pci, use, uses.at)

    def of(self, pcis: Collection[str] | None = None) -> GpuClocks | None:
        """Of these GPUs, or of all. None: of none it is known, or they are of different models."""
        of_these = [gpu for pci, gpu in self._gpus.items() if pcis is None or pci in pcis]
        known = [(gpu, gpu.clock) for gpu in of_these if gpu.clock is not None]
        if not known or len({gpu.highest for gpu, _ in known}) > 1:
            return None
        return GpuClocks(
            begin=min(gpu.windows[0].begin for gpu, _ in known).replace(microsecond=0),
            end=max(gpu.windows[-1].end for gpu, _ in known).replace(microsecond=0),
            usual=round(median(clock.mhz for _, clock in known)),
            highest=known[0][0].highest,
            gpus=sorted((clock for _, clock in known), key=lambda clock: (clock.mhz, clock.pci))[:MOST_GPUS],
        )
