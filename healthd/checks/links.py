"""Checks `nvlink` and `pcie-width`: every link between devices is up, as wide as it can be."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.checks.check import CheckContext, CheckResult, Figures, judged, skipped
from healthd.checks.devices import GpuInfo, value

_SXM = ("SXM", "HBM3", "H200", "B200", "B300")
"""In names of boards that sit on a base board with NVSwitches, where every link is connected."""
_PCIE_BOARDS = ("PCIe", "NVL")
"""Boards of the same names in a slot. Their links lead to the next board, or nowhere."""


class NvLinks:
    """Behind NVSwitches every NVLink must be up. Where bridges join GPUs, as many as on the GPU with the most."""

    name = "nvlink"
    needs = "GPUs with NVLink"
    is_deep = False

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped where no NVLink is in use."""
        gpus = [gpu for gpu in context.usable if gpu.nvlinks]
        best = max((gpu.nvlinks_up or 0 for gpu in gpus), default=0)
        if not gpus or (not best and not any(_is_switched(gpu, context) for gpu in gpus)):
            return skipped("no NVLink is in use")
        if any(value(context.places, "nvml.mig", gpu.pci) == "on" for gpu in gpus):
            return skipped("MIG is on, which switches NVLinks off")
        figures: Figures = {gpu.pci: {"up": gpu.nvlinks_up or 0, "of": gpu.nvlinks or 0} for gpu in gpus}
        wrong = [fault for gpu in gpus if (fault := _missing(gpu, best, context))]
        return judged(wrong, f"{best} NVLinks are up on each of {len(gpus)} GPUs", figures)


class PcieWidth:
    """The links of GPUs and RDMA devices have all lanes that both ends support."""

    name = "pcie-width"
    needs = "a GPU or an RDMA device whose PCIe link is reported"
    is_deep = False

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped where no width is reported, as in most virtual machines."""
        figures: Figures = {device: {"lanes": has, "of": full} for device, has, full in _widths(context)}
        if not figures:
            return skipped("no width of a PCIe link is reported")
        wrong = [f"{device} has {has:g} of {full:g} lanes" for device, has, full in _widths(context) if has < full]
        return judged(wrong, f"{len(figures)} links have all their lanes", figures)


def _missing(gpu: GpuInfo, best: int, context: CheckContext) -> str:
    up, there = gpu.nvlinks_up or 0, gpu.nvlinks or 0
    should = there if _is_switched(gpu, context) else best
    return f"{gpu.pci} has {up} of {should} NVLinks up" if up < should else ""


def _is_switched(gpu: GpuInfo, context: CheckContext) -> bool:
    """Whether the GPU sits behind NVSwitches: NVML reports a fabric, or the board is one that has them."""
    if value(context.places, "nvml.fabric.state", gpu.pci) is not None:
        return True
    return any(word in gpu.name for word in _SXM) and not any(word in gpu.name for word in _PCIE_BOARDS)


def _widths(context: CheckContext) -> Iterator[tuple[str, float, float]]:
    for gpu in context.usable:
        if gpu.pcie_width and gpu.pcie_full_width:
            yield gpu.pci, gpu.pcie_width, gpu.pcie_full_width
    full_widths = context.places.get("pcie.rdma_full_width", {})
    for place, width in context.places.get("pcie.rdma_width", {}).items():
        yield place[0], float(width), float(full_widths.get(place, width))
