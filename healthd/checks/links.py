"""Checks `nvlink` and `pcie-width`: every link between devices is up, as wide as it can be."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.checks.check import Bench, Figures, Result, judged, skipped
from healthd.checks.devices import Gpu, value

_SXM = ("SXM", "HBM3", "H200", "B200", "B300")
"""In names of boards that sit on a base board with NVSwitches, where every link is connected."""
_PCIE_BOARDS = ("PCIe", "NVL")
"""Boards of the same names in a slot. Their links lead to the next board, or nowhere."""


class NvLinks:
    """Behind NVSwitches every NVLink must be up. Where bridges join GPUs, as many as on the GPU with the most."""

    name = "nvlink"
    needs = "GPUs with NVLink"
    is_deep = False

    def run(self, bench: Bench) -> Result:
        """Skipped where no NVLink is in use."""
        gpus = [gpu for gpu in bench.usable if gpu.nvlinks]
        best = max((gpu.nvlinks_up or 0 for gpu in gpus), default=0)
        if not gpus or (not best and not any(_is_switched(gpu, bench) for gpu in gpus)):
            return skipped("no NVLink is in use")
        if any(value(bench.places, "nvml.mig", gpu.pci) == "on" for gpu in gpus):
            return skipped("MIG is on, which switches NVLinks off")
        figures: Figures = {gpu.pci: {"up": gpu.nvlinks_up or 0, "of": gpu.nvlinks or 0} for gpu in gpus}
        wrong = [said for gpu in gpus if (said := _missing(gpu, best, bench))]
        return judged(wrong, f"{best} NVLinks are up on each of {len(gpus)} GPUs", figures)


class PcieWidth:
    """The links of GPUs and RDMA devices have all lanes that both ends support."""

    name = "pcie-width"
    needs = "a GPU or an RDMA device on a PCIe link that is told"
    is_deep = False

    def run(self, bench: Bench) -> Result:
        """Skipped where no width is reported, as in most virtual machines."""
        figures: Figures = {device: {"lanes": has, "of": full} for device, has, full in _widths(bench)}
        if not figures:
            return skipped("no width of a PCIe link is told")
        wrong = [f"{device} has {has:g} of {full:g} lanes" for device, has, full in _widths(bench) if has < full]
        return judged(wrong, f"{len(figures)} links have all their lanes", figures)


def _missing(gpu: Gpu, best: int, bench: Bench) -> str:
    up, there = gpu.nvlinks_up or 0, gpu.nvlinks or 0
    should = there if _is_switched(gpu, bench) else best
    return f"{gpu.pci} has {up} of {should} NVLinks up" if up < should else ""


def _is_switched(gpu: Gpu, bench: Bench) -> bool:
    """Whether the GPU sits behind NVSwitches: NVML reports a fabric, or the board is one that has them."""
    if value(bench.places, "nvml.fabric.state", gpu.pci) is not None:
        return True
    return any(word in gpu.name for word in _SXM) and not any(word in gpu.name for word in _PCIE_BOARDS)


def _widths(bench: Bench) -> Iterator[tuple[str, float, float]]:
    for gpu in bench.usable:
        if gpu.pcie_width and gpu.pcie_full_width:
            yield gpu.pci, gpu.pcie_width, gpu.pcie_full_width
    full_widths = bench.places.get("pcie.rdma_full_width", {})
    for place, width in bench.places.get("pcie.rdma_width", {}).items():
        yield place[0], float(width), float(full_widths.get(place, width))
