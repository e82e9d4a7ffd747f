"""What a control group has used, as the kernel writes it in both versions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.core.hang.samples import Usage
from healthd.probes.pod_processes import CGROUPS
from healthd.probes.process_stat import TICK
from healthd.probes.usage.cgroup import CgroupUsage, processor_seconds

POD = "kubepods.slice/kubepods-pod0b54c8a1.slice"
V2 = {
    f"{POD}/cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
    f"{POD}/memory.stat": "anon 4096\npgfault 77\npgmajfault 3\n",
    f"{POD}/io.stat": "8:0 rbytes=100 wbytes=20 rios=3 wios=4 dbytes=0 dios=0\n259:0 rbytes=1 wbytes=2 rios=1 wios=1\n",
    f"{POD}/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=7\n",
    f"{POD}/io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\nfull avg10=0.00 total=7\n",
}
V1 = {
    f"cpuacct/{POD}/cpuacct.usage": "2500000000\n",
    f"cpuacct/{POD}/cpuacct.usage_sys": "500000000\n",
    f"memory/{POD}/memory.stat": "cache 0\npgfault 1\ntotal_pgfault 77\n",
    f"blkio/{POD}/blkio.throttle.io_service_bytes_recursive": "8:0 Read 101\n8:0 Write 22\n8:0 Total 123\nTotal 123\n",
    f"blkio/{POD}/blkio.throttle.io_serviced_recursive": "8:0 Read 4\n8:0 Write 5\n8:0 Total 9\nTotal 9\n",
}
USED = Usage(cpu=2.5, faults=77, calls=9, read=101, written=22, system=0.5)


def made(root: Path, files: dict[str, str]) -> CgroupUsage:
    """The group of the pod, after these files were written."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return CgroupUsage(str(root), f"/{POD}", is_v2=files.keys() == V2.keys())


def test_what_a_group_has_used(tmp_path: Path) -> None:
    assert made(tmp_path, V2).read() == USED._replace(starved=1.5, stalled=0.25)


def test_version_1_does_not_count_who_waits(tmp_path: Path) -> None:
    assert made(tmp_path, V1).read() == USED


@pytest.mark.parametrize("text", ["", "some\n", "full total=3\n", "some avg10=0.00"])
def test_a_kernel_that_counts_no_pressure_counts_nothing(tmp_path: Path, text: str) -> None:
    group = made(tmp_path, V2)
    (tmp_path / POD / "cpu.pressure").write_text(text)
    (tmp_path / POD / "io.pressure").unlink()

    assert group.read() == USED


def test_a_controller_that_is_not_there_counts_nothing(tmp_path: Path) -> None:
    group = made(tmp_path, V2)
    (tmp_path / POD / "io.stat").unlink()

    assert group.read() == USED._replace(calls=0, read=0, written=0, starved=1.5, stalled=0.25)


@pytest.mark.parametrize("text", ["", "usage_usec \n", "usage_usec many\n"])
def test_a_group_whose_processor_time_cannot_be_read_is_not_known(tmp_path: Path, text: str) -> None:
    group = made(tmp_path, V2)
    (tmp_path / POD / "cpu.stat").write_text(text)

    assert group.read() is None


def test_a_group_that_is_gone_is_not_known(tmp_path: Path) -> None:
    assert CgroupUsage(str(tmp_path), f"/{POD}", is_v2=True).read() is None


IS_V2 = (CGROUPS / "cgroup.controllers").exists()
TREES = [CGROUPS] if IS_V2 else [CGROUPS / name for name in ("cpuacct", "memory", "blkio")]
WORK = "import sys; sys.stdin.readline(); kept = [bytes(4096) for _ in range(50_000)]; print(sum(range(1_000_000)))"


@pytest.fixture
def real_pod() -> Iterator[str]:
    """The group of a pod and of its one container in the machine's own trees: its path there."""
    name = f"healthd-test-{uuid.uuid4().hex[:8]}"
    made: list[Path] = []
    try:
        for tree in TREES:
            for folder in (tree / name, tree / name / "main"):
                folder.mkdir()
                made.append(folder)
        if not (made[0] / ("memory.stat" if IS_V2 else "cpuacct.usage")).exists():
            raise PermissionError("the controllers are not given on here")
    except OSError as refusal:
        for folder in reversed(made):
            folder.rmdir()
        pytest.skip(f"no control groups can be made here: {refusal}")
    yield f"/{name}"
    for folder in reversed(made):
        folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make control groups")
def test_what_a_real_process_in_a_container_uses_counts_for_its_pod(real_pod: str) -> None:
    group = CgroupUsage(str(CGROUPS), real_pod, is_v2=IS_V2)
    before, began = group.read(), time.monotonic()
    with subprocess.Popen([sys.executable, "-S", "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for tree in TREES:
            (tree / real_pod[1:] / "main" / "cgroup.procs").write_text(str(process.pid))
        process.communicate(b"\n")
    after, processor = group.read(), processor_seconds(str(CGROUPS), real_pod, is_v2=IS_V2)
    elapsed = time.monotonic() - began
    group.close()

    assert before is not None
    assert after is not None
    assert after.cpu - before.cpu > 0.01
    assert after.faults - before.faults > 1000
    # In whole ticks with version 1, each for what the processor did as it ended: it may be more than the exact time.
    assert 0 < after.system <= (after.cpu if IS_V2 else elapsed + TICK)
    assert processor == pytest.approx(after.cpu)
