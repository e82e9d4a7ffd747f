"""
How much each GPU was used since the child began, summed up: a reader that comes now and then misses nothing.

Nothing but the standard library and the reader of one GPU may be imported here: the child must stay small.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from healthd.probes.nvml.child.gpu import NvmlGpu

SPINS = 0.01
"""The part of the time in which memory is read by kernels that only wait in a loop for other GPUs."""
_LONGEST = 3.0
"""Seconds between two samples, beyond which the driver's last fraction of a second says nothing about all of them."""
_REST = 300
"""The child sleeps so many times as long as a sample took it: however slow a driver is, that is 0.3 % of a core."""


class GpuSums(NamedTuple):
    """What one GPU has done since the child began, and what it shows now: the fields of `core.hang.gpus.GpuUse`."""

    memory: float = 0.0
    """Seconds in which its memory was used by more than `SPINS`."""
    kernels: float = 0.0
    """Seconds in which a kernel ran."""
    held: int = 0
    """Bytes of its memory that are taken now."""
    cycles: float = 0.0
    """Millions of cycles of its clock in the seconds of *memory*."""
    highest: int = 0
    """The highest clock of its model, MHz."""
    limits: tuple[str, ...] = ()
    """What keeps its clock down now."""


Use = dict[str, GpuSums]
"""By the address of the GPU."""


class UseSums:
    """Samples every *every* seconds, or less often where that would cost too much. 0: never."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._sums: dict[str, GpuSums] = {}
        self._at: dict[str, float] = {}
        self.due = 0.0 if every else float("inf")
        """When to sample next, by the monotonic clock."""

    def sample(self, gpus: Iterable[NvmlGpu], at: float) -> Use:
        """Take a sample at *at*. A GPU that does not say what it does is left out."""
        began = time.process_time()
        found = {}
        for gpu in gpus:
            if (now := gpu.utilisation()) is None:
                self._at.pop(gpu.pci, None)
                continue
            passed = at - self._at.get(gpu.pci, at)
            self._at[gpu.pci] = at
            memory, kernels, _, cycles, *_ = self._sums.get(gpu.pci, GpuSums())
            if passed <= _LONGEST:
                worked = passed * max(0.0, now.memory - SPINS)
                memory += worked
                cycles += worked * now.clock
                kernels += passed * now.kernels
            sums = self._sums[gpu.pci] = GpuSums(memory, kernels, now.held, cycles, now.highest, now.limits)
            found[gpu.pci] = sums._replace(memory=round(memory, 4), kernels=round(kernels, 4), cycles=round(cycles, 1))
        self.due = at + max(self._every, _REST * (time.process_time() - began))
        return found
