"""Whether somebody computes: by what processes have open in a /proc that is laid into a folder."""

from __future__ import annotations

import os
from pathlib import Path

from healthd.checks.busy import GpuProcess, occupied, workers
from tests.checks.contexts import GPU1, a_gpu

POD = "0f9a4a4e-9d2b-4c55-8f6b-3d1d6d3a7c11"


def a_process(proc: Path, pid: int, name: str, *opened: str, cgroup: str = "/") -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    for number, path in enumerate(opened):
        (folder / "fd" / str(number)).symlink_to(path)


def test_who_computes_is_named_with_its_pod(tmp_path: Path) -> None:
    slice_of_pod = f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-1.scope"
    a_process(tmp_path, 4321, "python", "/dev/null", "/dev/nvidia-uvm", "/dev/nvidia0", cgroup=slice_of_pod)

    assert workers(tmp_path) == [GpuProcess(pid=4321, name="python", pod=POD)]
    assert str(workers(tmp_path)[0]) == f"python (process 4321 of pod {POD})"


def test_a_process_that_only_monitors_does_not_count(tmp_path: Path) -> None:
    a_process(tmp_path, 100, "nv-hostengine", "/dev/nvidiactl", "/dev/nvidia0")
    a_process(tmp_path, 101, "sshd", "/dev/null")
    a_process(tmp_path, 102, "nvidia-persiste", "/dev/nvidia-uvm")
    (tmp_path / "self").mkdir()

    assert workers(tmp_path) == []


def test_we_ourselves_do_not_count(tmp_path: Path) -> None:
    a_process(tmp_path, os.getpid(), "healthd", "/dev/nvidia-uvm")

    assert workers(tmp_path) == []


def test_processes_that_nvml_counts_are_reported_though_no_one_sees_them() -> None:
    assert occupied([a_gpu(), a_gpu(GPU1, index=1, processes=2)]) == [f"2 on GPU 1 ({GPU1})"]
    assert occupied([a_gpu(), a_gpu(GPU1, processes=None)]) == []
