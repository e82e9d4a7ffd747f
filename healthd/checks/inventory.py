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
        missing = _missing(context)
        if not ours and not missing:
            return skipped("there is no GPU")
        figures: Figures = {gpu.pci: {"state": gpu.state} for gpu in context.gpus}
        well = sum(gpu.state == "ok" for gpu in ours)
        return judged([*missing, *_wrong(context, ours)], f"{well} GPUs answer", figures)


def accounted_for(state: str) -> bool:
    """Whether a GPU in *state* is where it should be: it answers, or was passed through to a virtual machine."""
    return state == "ok" or state.startswith("driver ")


def _missing(context: CheckContext) -> list[str]:
    """How many GPUs are expected, where fewer answer, or not as many as an operator states."""
    well = sum(gpu.state == "ok" for gpu in context.gpus)
    if (stated := context.expected.gpus) is not None:
        return [f"{well} GPUs answer, and {stated} are expected"] if well != stated else []
    known = context.expected.known.gpus
    found = sum(accounted_for(gpu.state) for gpu in context.gpus)
    if known is None or found >= known.count:
        return []
    return [f"{found} GPUs answer, and {known.count} are expected: {known.why}"]


def _wrong(context: CheckContext, ours: list[GpuInfo]) -> Iterator[str]:
    if why := context.unread.get("nvml"):
        yield f"NVML cannot be asked: {why}"
    for gpu in ours:
        if gpu.state != "ok" and not (why and gpu.state == "not read"):
            yield f"{gpu.pci} is {gpu.state}"
    unreadable = context.places.get("nvml.gpus.unreadable", {}).get((NODE, ""), 0)
    if unreadable:
        yield f"NVML counts {unreadable} more that it cannot name"


def _is_foreign(gpu: GpuInfo) -> bool:
    """Passed through to a virtual machine, or on the machine but not given to this container."""
    return gpu.state.startswith("driver ") or gpu.state == "not given"
