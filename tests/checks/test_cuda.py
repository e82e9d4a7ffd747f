"""Copies to and from GPUs by a real child process, against a stand-in for the CUDA driver."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from healthd.checks import bandwidth
from healthd.checks.check import CheckContext, CheckOutcome, InUse
from healthd.checks.cuda import GpuMemory, PcieBandwidth
from healthd.core.diagnosis.readings import Reading
from tests.checks.contexts import GPU0, GPU1, a_context, a_gpu
from tests.standin.cuda import StandIn, build

pytestmark = pytest.mark.slow

SMALL = 1.0
"""MiB of a copy: the stand-in is as fast as it is set to be."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def standin(tmp_path: Path, library: Path) -> StandIn:
    return StandIn(library, tmp_path / "script")


def two_gpus(standin: StandIn, *, seconds: float = 60) -> CheckContext:
    environ = {**os.environ, **standin.environ}
    return a_context(a_gpu(), a_gpu(GPU1, index=1), environ=environ, ends=time.monotonic() + seconds)


def test_copies_at_the_speed_of_the_link_pass(standin: StandIn) -> None:
    standin.play("unmoved")

    result = PcieBandwidth(SMALL).run(two_gpus(standin))

    assert result.status is CheckOutcome.PASS
    assert result.figures[GPU1]["limit_gbps"] == 44.11


@pytest.mark.parametrize("way", ["to", "from"])
def test_a_slow_way_of_one_gpu_fails(standin: StandIn, way: str) -> None:
    standin.play("unmoved", f"slow {way} 1 1000")  # 1 MiB in a millisecond: 1 GB/s

    result = PcieBandwidth(SMALL).run(two_gpus(standin))

    assert result.status is CheckOutcome.FAIL
    assert f"GB/s {way} {GPU1}, and PCIe 5 x16 must reach 44.1" in result.why
    assert GPU0 not in result.why


def test_a_link_of_fewer_lanes_is_measured_by_what_it_could_be(standin: StandIn) -> None:
    standin.play("unmoved", "slow to 0 50")  # at most 21 GB/s: fine for 8 lanes, half of what 16 can do
    narrow = a_gpu(pcie_width=8)
    context = a_context(narrow, environ={**os.environ, **standin.environ})

    assert PcieBandwidth(SMALL).run(context).status is CheckOutcome.FAIL


def test_memory_that_keeps_what_it_is_given_passes(standin: StandIn) -> None:
    result = GpuMemory().run(two_gpus(standin))

    assert result.status is CheckOutcome.PASS
    assert result.figures[GPU0]["tested_mib"] == 48


def test_a_bit_that_is_stuck_is_found_where_it_is(standin: StandIn) -> None:
    standin.play("stuck 1 0x1234567")

    result = GpuMemory().run(two_gpus(standin))

    assert result.status is CheckOutcome.FAIL
    assert f"{GPU1}: memory does not hold what is written to it" in result.why
    assert "byte 0x234567 of block 1" in result.why
    assert GPU0 not in result.why


def test_a_piece_that_is_written_to_another_address_is_found(standin: StandIn) -> None:
    standin.play("twin 0 1")

    result = GpuMemory().run(two_gpus(standin))

    assert result.status is CheckOutcome.FAIL
    assert f"{GPU0}: memory does not hold" in result.why


def test_memory_in_use_means_that_the_gpu_is_in_use(standin: StandIn) -> None:
    standin.play("memory 8192 5000")

    with pytest.raises(InUse, match=r"5,000 MiB of 0000:3b:00\.0"):
        GpuMemory(share=0.001).run(two_gpus(standin))


def test_a_gpu_that_cuda_cannot_use_fails_with_the_error_of_cuda(standin: StandIn) -> None:
    standin.play("unmoved", "error cuCtxCreate 1 802")

    result = PcieBandwidth(SMALL).run(two_gpus(standin))

    assert result.why == f"{GPU1}: cuCtxCreate_v2: CUDA_ERROR_SYSTEM_NOT_READY (802)"


@pytest.mark.slow
def test_a_gpu_that_hangs_fails_in_time_and_does_not_hide_the_others(standin: StandIn) -> None:
    standin.play("hang cuMemcpyDtoH 0")

    result = GpuMemory().run(two_gpus(standin, seconds=3))

    assert result.why == f"{GPU0}: CUDA did not answer in time: the driver may hang"
    assert result.figures[GPU1]["tested_mib"] == 48


def test_what_the_library_prints_is_not_taken_for_an_answer(standin: StandIn) -> None:
    standin.play("unmoved", "print {}")

    assert PcieBandwidth(SMALL).run(two_gpus(standin)).status is CheckOutcome.PASS


def test_what_hides_gpus_from_a_job_does_not_hide_them_from_the_check(standin: StandIn) -> None:
    standin.play("unmoved")
    context = two_gpus(standin)
    hidden = a_context(*context.gpus, environ={**context.environ, "CUDA_VISIBLE_DEVICES": ""})

    assert PcieBandwidth(SMALL).run(hidden).status is CheckOutcome.PASS


@pytest.mark.parametrize("check", [PcieBandwidth(SMALL), GpuMemory()])
def test_without_cuda_it_is_skipped(tmp_path: Path, check: PcieBandwidth | GpuMemory) -> None:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}

    result = check.run(a_context(a_gpu(), environ=environ))

    assert (result.status, "libcuda.so.1" in result.why) == (CheckOutcome.SKIP, True)


@pytest.mark.parametrize("check", [PcieBandwidth(), GpuMemory()])
def test_gpus_in_mig_mode_or_not_well_are_left_out(check: PcieBandwidth | GpuMemory) -> None:
    sliced = a_context(a_gpu(), a_gpu(GPU1, state="lost"), readings=(Reading(GPU0, "nvml.mig", "on"),))

    assert check.run(sliced).status is CheckOutcome.SKIP


@pytest.mark.parametrize(
    ("generation", "lanes", "limit"), [(3, 16, 11.0), (4, 16, 22.1), (5, 16, 44.1), (5, 8, 22.1), (9, 16, 0)]
)
def test_a_copy_must_reach_70_percent_of_the_line_rate(generation: int, lanes: int, limit: float) -> None:
    assert bandwidth.least(generation, lanes) == pytest.approx(limit, abs=0.06)
