"""
How much each GPU was used since the child began, summed up: a reader that comes now and then misses nothing.

Nothing but the standard library and the reader of one GPU may be imported here: the child must stay small.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from healthd.probes.nvml.child.gpu import NvmlGpu

SPINS = 0.01
"""The part of the time in which memory is read by kernels that only wait in a loop for other GPUs."""
_LONGEST = 3.0
"""Seconds between two samples, beyond which the driver's last fraction of a second says nothing about all of them."""
_REST = 300
"""The child sleeps so many times as long as a sample took it: however slow a driver is, that is 0.3 % of a core."""

Use = dict[str, tuple[float, float, int]]
"""By the address of the GPU: seconds in which its memory was used by more than `SPINS`, seconds in which a kernel ran,
and the bytes of its memory that are taken now."""


class UseSums:
    """Samples every *every* seconds, or less often where that would cost too much. 0: never."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._sums: dict[str, tuple[float, float]] = {}
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
            memory, kernels = self._sums.get(gpu.pci, (0.0, 0.0))
            if passed <= _LONGEST:
                memory += passed * max(0.0, now.memory - SPINS)
                kernels += passed * now.kernels
            self._sums[gpu.pci] = (memory, kernels)
            found[gpu.pci] = (round(memory, 4), round(kernels, 4), now.held)
        self.due = at + max(self._every, _REST * (time.process_time() - began))
        return found
