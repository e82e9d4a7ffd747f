"""Check `ecc`: the driver reports no memory that is broken or waits for a repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from healthd.checks.check import CheckContext, CheckResult, Figures, judged, skipped
from healthd.checks.devices import number, value


class _Sign(NamedTuple):
    """A reading of a GPU that must be zero, and what it means where it is not."""

    reading: str
    meaning: str


SIGNS = (
    _Sign("nvml.row_remap.failure", "a memory row could not be remapped: replace the GPU"),
    _Sign("nvml.row_remap.pending", "a memory row waits to be remapped: reset the GPU"),
    _Sign("nvml.bank_remap.pending", "a memory bank waits to be remapped: reset the GPU"),
    _Sign("nvml.bank_remap.exhausted", "no spare memory bank is left: replace the GPU"),
    _Sign("nvml.retired.pending", "a memory page waits to be retired: reset the GPU"),
    _Sign("nvml.repair.channel_pending", "a memory channel waits for its repair: reset the GPU"),
    _Sign("nvml.repair.tpc_pending", "a part of the GPU waits for its repair: reset the GPU"),
    _Sign("nvml.ecc.uncorrected", "uncorrected memory errors since its last reset: reset it and check again"),
    _Sign("nvml.ecc.sram.threshold", "too many uncorrected errors of its SRAM in its life: replace the GPU"),
    _Sign("nvml.recovery_action", "the driver asks for a recovery (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)"),
)


class Ecc:
    """Nothing is broken, nothing waits, and there was no error since the last reset."""

    name = "ecc"
    needs = "a GPU that reports its memory"
    is_deep = False

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped where no GPU reports on its memory."""
        figures: Figures = {}
        for gpu in context.usable:
            values = {
                sign.reading: found
                for sign in SIGNS
                if (found := number(context.places, sign.reading, gpu.pci)) is not None
            }
            if values:
                figures[gpu.pci] = dict(values)
        if not figures:
            return skipped("no GPU reports its memory")
        off = [gpu.pci for gpu in context.usable if value(context.places, "nvml.ecc.on", gpu.pci) == 0]
        without = f"; ECC is switched off on {', '.join(off)}" if off else ""
        return judged(list(_wrong(figures)), f"the memory of {len(figures)} GPUs is clean{without}", figures)


def _wrong(figures: Figures) -> Iterator[str]:
    for pci, values in figures.items():
        for sign in SIGNS:
            if values.get(sign.reading):
                yield f"{pci}: {sign.meaning}"
