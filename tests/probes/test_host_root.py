"""Which folders of the host are read, and what stands in for those that a pod does not mount."""

from __future__ import annotations

from pathlib import Path

from healthd.probes.host_root import PROC, HostRoot


def test_on_the_host_itself_everything_is_where_it_is() -> None:
    host = HostRoot()

    assert (host.sys, host.cgroups, host.kmsg) == (Path("/sys"), Path("/sys/fs/cgroup"), Path("/dev/kmsg"))
    assert (host.proc, host.host_proc) == (Path("/proc"), Path("/proc"))


def test_in_a_pod_everything_is_below_the_root_of_the_host(tmp_path: Path) -> None:
    for name in ("proc", "run"):
        (tmp_path / name).mkdir()
    host = HostRoot(tmp_path)

    assert (host.sys, host.cgroups, host.kmsg) == (tmp_path / "sys", tmp_path / "sys/fs/cgroup", tmp_path / "dev/kmsg")
    assert (host.proc, host.run) == (tmp_path / "proc", tmp_path / "run")


def test_without_the_proc_of_the_host_there_is_memory_and_there_are_no_processes_of_it(tmp_path: Path) -> None:
    host = HostRoot(tmp_path)

    assert (host.proc, host.host_proc, host.run) == (PROC, None, None)
