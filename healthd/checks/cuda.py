"""
Checks `pcie-bandwidth` and `gpu-memory`: data sent to a GPU comes back fast enough, and unchanged.

A child process for each GPU (`cuda_child.py`) calls the CUDA driver. Bandwidth is measured one GPU after the other,
because they share the host's memory. Memory is tested on all GPUs at once. GPUs in MIG mode are left out.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from healthd.checks import bandwidth, programs
from healthd.checks.check import CheckContext, CheckResult, Figures, InUse, judged, skipped
from healthd.checks.devices import GpuInfo, value
from healthd.probes.sysfs import read_word

PROGRAM = Path(__file__).with_name("cuda_child.py")
COPY_MIB = 256
SHARE = 0.9
"""The share of the free memory that is tested."""
IN_USE_MIB = 4096
"""The driver, ECC and the check's own context use less. More belongs to another program that computes."""
ONE_COPY_S = 60.0
"""Longest time for one GPU's bandwidth: the driver may first have to initialise the GPU."""

WHOLE_MEMORY_S = 300.0
"""Longest time for the memory of all GPUs, which are tested side by side."""


class CudaAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the child prints."""

    missing: str = ""
    failed: str = ""
    to_gpu_gbps: float = 0
    from_gpu_gbps: float = 0
    free_mib: int = 0
    total_mib: int = 0
    tested_mib: int = 0
    wrong: list[dict[str, int]] = []
    wrong_blocks: int = 0


class PcieBandwidth:
    """Copies between host and GPU reach their share of what the PCIe link can carry."""

    name = "pcie-bandwidth"
    needs = "a GPU and libcuda.so.1"
    is_deep = True

    def __init__(self, copy_mib: float = COPY_MIB) -> None:
        self._copy_mib = copy_mib

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped where there is no GPU, or no CUDA."""
        gpus = _testable(context)
        if not gpus:
            return skipped(_WHY_NONE)
        answers = []
        for gpu in gpus:
            seconds = min(ONE_COPY_S, context.seconds_left)
            answers.append(_answer_of(_start(context, gpu, "bandwidth", seconds, self._copy_mib), seconds))
        if all(answer.missing for answer in answers):
            return skipped(answers[0].missing)
        figures: Figures = {gpu.pci: _speeds(gpu, answer) for gpu, answer in zip(gpus, answers, strict=True)}
        wrong = [fault for gpu, answer in zip(gpus, answers, strict=True) for fault in _slow(gpu, answer)]
        slowest = min(min(answer.to_gpu_gbps, answer.from_gpu_gbps) for answer in answers)
        return judged(wrong, f"{len(gpus)} GPUs, the slowest copy at {slowest:g} GB/s", figures)


class GpuMemory:
    """A pattern and its inverse are read back as written."""

    name = "gpu-memory"
    needs = "a GPU and libcuda.so.1"
    is_deep = True

    def __init__(self, share: float = SHARE) -> None:
        self._share = share

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped where there is no GPU, or no CUDA. Raises InUse where memory is in use already."""
        gpus = _testable(context)
        if not gpus:
            return skipped(_WHY_NONE)
        seconds = min(WHOLE_MEMORY_S, context.seconds_left)
        until = time.monotonic() + seconds
        children = [_start(context, gpu, "memory", seconds, self._share) for gpu in gpus]
        answers: list[CudaAnswer] = []
        try:
            # At least a second for each, also when time is up: one that hangs must not decide the result of the others.
            answers.extend(_answer_of(child, max(1.0, until - time.monotonic())) for child in children)
        finally:
            for child in children[len(answers) :]:
                programs.end(child)
        if all(answer.missing for answer in answers):
            return skipped(answers[0].missing)
        if not context.may_disturb:
            _require_idle(gpus, answers)
        figures: Figures = {
            gpu.pci: {"tested_mib": answer.tested_mib} for gpu, answer in zip(gpus, answers, strict=True)
        }
        wrong = [fault for gpu, answer in zip(gpus, answers, strict=True) for fault in _wrong(gpu, answer)]
        tested = sum(answer.tested_mib for answer in answers)
        return judged(wrong, f"{tested:,} MiB of {len(gpus)} GPUs came back unchanged", figures)


_WHY_NONE = "there is no GPU that the driver calls well and that is not in MIG mode"


def _testable(context: CheckContext) -> list[GpuInfo]:
    return [gpu for gpu in context.usable if value(context.places, "nvml.mig", gpu.pci) != "on"]


def _start(context: CheckContext, gpu: GpuInfo, task: str, seconds: float, amount: float) -> programs.Child:
    cpus = read_word(f"{context.sys}/bus/pci/devices/{gpu.pci}/local_cpulist")
    # -P: no module of the current directory may replace a real one.
    words = (task, gpu.pci, cpus, math.ceil(seconds), amount)
    command = [sys.executable, "-P", str(PROGRAM), *map(str, words)]
    # A variable that hides GPUs from a job would hide them from their check.
    environ = {name: fault for name, fault in context.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return programs.start(command, environ, with_errors=False)


def _answer_of(child: programs.Child, seconds: float) -> CudaAnswer:
    ended = programs.finish(child, seconds)
    if ended.status is None:
        return CudaAnswer(failed="CUDA did not answer in time: the driver may hang")
    if ended.status:
        return CudaAnswer(failed=f"the process that asks CUDA ended with status {ended.status}")
    try:
        return msgspec.json.decode(ended.output, type=CudaAnswer)
    except msgspec.DecodeError as error:
        return CudaAnswer(failed=f"the output of the CUDA process cannot be parsed: {error}")


def _speeds(gpu: GpuInfo, answer: CudaAnswer) -> dict[str, float | str]:
    limit = bandwidth.least(gpu.pcie_generation or 0, gpu.pcie_full_width or 0)
    return {"to_gpu_gbps": answer.to_gpu_gbps, "from_gpu_gbps": answer.from_gpu_gbps, "limit_gbps": round(limit, 2)}


def _slow(gpu: GpuInfo, answer: CudaAnswer) -> Iterator[str]:
    if why := answer.failed or answer.missing:
        yield f"{gpu.pci}: {why}"
        return
    limit = bandwidth.least(gpu.pcie_generation or 0, gpu.pcie_full_width or 0)
    link = f"PCIe {gpu.pcie_generation:g} x{gpu.pcie_full_width:g}" if limit else ""
    for way, speed in (("to", answer.to_gpu_gbps), ("from", answer.from_gpu_gbps)):
        if speed < limit:
            yield f"{speed:g} GB/s {way} {gpu.pci}, and {link} must reach {limit:.1f}"


def _wrong(gpu: GpuInfo, answer: CudaAnswer) -> Iterator[str]:
    if why := answer.failed or answer.missing:
        yield f"{gpu.pci}: {why}"
    elif answer.wrong:
        first = answer.wrong[0]
        where = f"byte {first['offset']:#x} of block {first['block']}"
        yield (
            f"{gpu.pci}: memory does not hold what is written to it ({answer.wrong_blocks} blocks; first {where}: "
            f"{first['wrote']:#04x} became {first['read']:#04x})"
        )
    elif not answer.tested_mib:
        yield f"{gpu.pci}: no memory could be had to be tested ({answer.free_mib} MiB free)"


def _require_idle(gpus: Sequence[GpuInfo], answers: Sequence[CudaAnswer]) -> None:
    for gpu, answer in zip(gpus, answers, strict=True):
        used = answer.total_mib - answer.free_mib
        if used > IN_USE_MIB:
            raise InUse(f"{used:,} MiB of {gpu.pci} are in use by a process that is not visible here")
