"""How much the GPUs of each rank are used: a slot knows its GPUs, so here each rank is judged by its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import nan
from typing import Protocol

from healthd.core.api.health import GpuClocks
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.core.hang.work.gpus.gpu_clocks import ClockWindows
from healthd.local.machine.slots import Slot
from healthd.probes.nvml.health import Nvml
from healthd.probes.nvml.process import ChildProcess, Pace

PACE = Pace(every=timedelta(minutes=1), use=timedelta(seconds=0.5))
"""The use of the GPUs is read twice for each sample of the ranks, so that none shows the same moment as the one before.
The rest of what NVML knows is not looked at here."""
_UNKNOWN = GpuUse(nan, nan, nan)


class GpuReader(Protocol):
    """What this module uses of `Nvml`."""

    def use(self, now: datetime) -> GpuUses: ...

    def close(self) -> None: ...


class SlotGpus:
    """The GPUs of *slots*, read by *reader*. Slots that are only numbers have none, and then nothing is read."""

    def __init__(self, slots: Sequence[Slot], reader: GpuReader | None = None) -> None:
        self._pcis = {slot.name: [device.pci for device in slot.devices] for slot in slots if slot.devices}
        self._reader = reader or (Nvml(ChildProcess(PACE)) if self._pcis else None)
        self._is_open = False
        self._clocks = ClockWindows()

    def read(self, now: datetime) -> Mapping[str, GpuUse]:
        """By slot: the mean of its GPUs so far. NaN: one of them does not say what it does."""
        if self._reader is None:
            return {}
        self._is_open = True
        uses = self._reader.use(now)
        self._clocks.observe(uses)
        gpus = uses.gpus
        return {slot: _mean([gpus.get(pci, _UNKNOWN) for pci in pcis]) for slot, pcis in self._pcis.items()}

    def clocks(self) -> Mapping[str, GpuClocks]:
        """By slot: how fast its GPUs run while they work. One of which that is not known is left out."""
        known = ((slot, self._clocks.of(pcis)) for slot, pcis in self._pcis.items())
        return {slot: clocks for slot, clocks in known if clocks is not None}

    def close(self) -> None:
        """Let go of the GPUs: one that is open cannot be reset. The next read opens them again."""
        if self._reader is not None and self._is_open:
            self._reader.close()
            self._is_open = False


def _mean(uses: Sequence[GpuUse]) -> GpuUse:
    """Of what is known of ranks; clocks are compared GPU by GPU."""
    count = len(uses)
    return GpuUse(*(sum(getattr(use, name) for use in uses) / count for name in ("memory", "kernels", "held")))
