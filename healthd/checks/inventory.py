"""Check `inventory`: every GPU is there, has its driver and answers."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.checks.check import CheckContext, CheckResult, Figures, judged, skipped
from healthd.checks.devices import GpuInfo
from healthd.core.diagnosis.readings import NODE


class InventoryCheck:
    """Compares the PCI bus, the driver and NVML, and the expected number of GPUs."""

    name = "inventory"
    needs = "a GPU"
    is_deep = False

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped only where there is no GPU and none is expected."""
        ours = [gpu for gpu in context.gpus if not _is_foreign(gpu)]
        if not ours and not context.expected.gpus:
            return skipped("there is no GPU")
        figures: Figures = {gpu.pci: {"state": gpu.state} for gpu in ours}
        well = sum(gpu.state == "ok" for gpu in ours)
        return judged(list(_wrong(context, ours, well)), f"{well} GPUs answer", figures)


def _wrong(context: CheckContext, ours: list[GpuInfo], well: int) -> Iterator[str]:
    if why := context.unread.get("nvml"):
        yield f"NVML cannot be asked: {why}"
    if context.expected.gpus is not None and well != context.expected.gpus:
        yield f"{well} GPUs answer, and {context.expected.gpus} are expected"
    for gpu in ours:
        if gpu.state != "ok" and not (why and gpu.state == "not read"):
            yield f"{gpu.pci} is {gpu.state}"
    unreadable = context.places.get("nvml.gpus.unreadable", {}).get((NODE, ""), 0)
    if unreadable:
        yield f"NVML counts {unreadable} more that it cannot name"


def _is_foreign(gpu: GpuInfo) -> bool:
    """Passed through to a virtual machine, or on the machine but not given to this container."""
    return gpu.state.startswith("driver ") or gpu.state == "not given"
