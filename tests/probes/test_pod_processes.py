"""Pods by their control groups: trees of both versions and both drivers, and the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.probes.errors import CannotRead
from healthd.probes.pod_processes import CGROUPS, PodProcesses

UID = "0b54c8a1-6f0e-4a8e-9d3c-1f2e3d4c5b6a"
OTHER = "1c65d9b2-7a1f-4b9f-8e4d-2a3f4e5d6c7b"
STATIC = "5f2c0b54c8a16f0e4a8e9d3c1f2e3d4c"


def group(folder: Path, tasks: int) -> Path:
    """A control group that counts *tasks*, its parents too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pids.current").write_text(f"{tasks}\n")
    return folder


def version_2(root: Path) -> Path:
    """A tree of version 2."""
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    return root


def tasks(root: Path, own_uid: str = "") -> dict[str, int]:
    """Pod uid -> tasks."""
    return {pod.uid: pod.tasks for pod in PodProcesses(root, own_uid=own_uid).read()}


@pytest.mark.parametrize(
    "place",
    [
        f"kubepods/burstable/pod{UID}",
        f"kubepods/pod{UID}",
        f"healthd-lab/node-1/kubepods/besteffort/pod{UID}",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_pod_is_found_by_either_driver_in_either_version(tmp_path: Path, place: str, version: int) -> None:
    tree = version_2(tmp_path) if version == 2 else tmp_path / "pids"
    group(tree / place, 3)

    assert tasks(tmp_path) == {UID: 3}


def test_a_static_pod_is_found(tmp_path: Path) -> None:
    group(version_2(tmp_path) / f"kubepods/burstable/pod{STATIC}", 1)

    assert tasks(tmp_path) == {STATIC: 1}


def test_containers_are_reported_with_the_order_of_their_creation(tmp_path: Path) -> None:
    pod = group(version_2(tmp_path) / f"kubepods/pod{UID}", 6)
    first, second = group(pod / "cri-containerd-bb.scope", 1), group(pod / "cri-containerd-aa.scope", 5)
    [found] = PodProcesses(tmp_path).read()

    assert {container.id: container.tasks for container in found.containers} == {
        first.stat().st_ino: 1,
        second.stat().st_ino: 5,
    }


def test_other_groups_are_no_pods(tmp_path: Path) -> None:
    group(version_2(tmp_path) / "kubepods/burstable/podcast", 1)
    group(tmp_path / f"system.slice/pod{UID}", 1)

    assert tasks(tmp_path) == {}


def test_an_agent_reads_the_tree_of_the_kubelet_that_runs_it(tmp_path: Path) -> None:
    group(version_2(tmp_path) / f"node-1/kubepods/pod{UID}", 1)
    group(tmp_path / f"node-2/kubepods/pod{OTHER}", 1)

    assert tasks(tmp_path, own_uid=UID) == {UID: 1}


def test_an_agent_that_does_not_find_itself_does_not_believe_the_tree(tmp_path: Path) -> None:
    group(version_2(tmp_path) / f"kubepods/pod{OTHER}", 1)

    with pytest.raises(CannotRead, match=f"{UID} is not among the pods"):
        tasks(tmp_path, own_uid=UID)


def test_an_agent_that_no_longer_finds_itself_stops_believing(tmp_path: Path) -> None:
    pod = group(version_2(tmp_path) / f"kubepods/pod{UID}", 1)
    processes = PodProcesses(tmp_path, own_uid=UID)
    processes.read()
    (pod / "pids.current").unlink()
    pod.rmdir()

    with pytest.raises(CannotRead, match="is not among the pods"):
        processes.read()


@pytest.mark.parametrize("root", ["", "missing"])
def test_a_tree_without_a_kubelet_is_refused(tmp_path: Path, root: str) -> None:
    with pytest.raises(CannotRead):
        PodProcesses(tmp_path / root).read()


def test_a_pod_whose_tasks_no_one_counts_makes_the_whole_tree_unreadable(tmp_path: Path) -> None:
    group(version_2(tmp_path) / f"kubepods/pod{UID}", 1)
    (tmp_path / f"kubepods/pod{OTHER}").mkdir()

    with pytest.raises(CannotRead, match=r"pids\.current"):
        PodProcesses(tmp_path).read()


def test_a_tree_that_appears_later_is_found(tmp_path: Path) -> None:
    processes = PodProcesses(version_2(tmp_path))
    with pytest.raises(CannotRead):
        processes.read()
    group(tmp_path / f"kubepods/pod{UID}", 2)

    assert [pod.uid for pod in processes.read()] == [UID]


def test_what_did_not_change_is_the_same_list(tmp_path: Path) -> None:
    group(version_2(tmp_path) / f"kubepods/burstable/pod{UID}", 3)
    processes = PodProcesses(tmp_path)

    assert processes.read() is processes.read()


def test_pods_and_containers_that_come_and_go_later_are_seen(tmp_path: Path) -> None:
    pod = group(version_2(tmp_path) / f"kubepods/burstable/pod{UID}", 1)
    group(pod / "sandbox", 1)
    processes = PodProcesses(tmp_path)
    [alone] = processes.read()
    group(group(pod, 5) / "main", 4)
    group(tmp_path / f"kubepods/pod{OTHER}", 2)
    with_more = processes.read()
    group(pod, 1)
    shutil.rmtree(pod / "main")
    shutil.rmtree(tmp_path / f"kubepods/pod{OTHER}")
    [alone_again] = processes.read()

    assert [one.tasks for one in alone.containers] == [1]
    assert {one.uid: sorted(each.tasks for each in one.containers) for one in with_more} == {UID: [1, 4], OTHER: []}
    assert (alone_again.tasks, [one.tasks for one in alone_again.containers]) == (1, [1])


@pytest.fixture
def real_pod() -> Iterator[tuple[str, Path]]:
    """A pod's control group in the machine's own tree, as a kubelet makes it: its uid, and the group of a container."""
    version = CGROUPS if (CGROUPS / "cgroup.controllers").exists() else CGROUPS / "pids"
    kubelet = version / f"healthd-test-{uuid.uuid4().hex[:8]}"
    uid = str(uuid.uuid4())
    container = kubelet / "kubepods" / "burstable" / f"pod{uid}" / "main"
    try:
        container.mkdir(parents=True)
        if not (container.parent / "pids.current").exists():
            raise PermissionError("the controller pids is not given on here")
    except OSError as refusal:
        pytest.skip(f"no control groups can be made here: {refusal}")
    yield uid, container
    for folder in (container, container.parent, *list(container.parents)[1:4]):
        if folder.exists():
            folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make control groups")
def test_a_real_process_in_a_real_pod_is_counted_until_it_ends(real_pod: tuple[str, Path]) -> None:
    uid, container = real_pod
    processes = PodProcesses(own_uid=uid)
    with subprocess.Popen(["sleep", "600"]) as process:
        (container / "cgroup.procs").write_text(str(process.pid))
        [before] = processes.read()
        process.kill()
    [after] = processes.read()

    assert (before.tasks, [one.tasks for one in before.containers]) == (1, [1])
    assert after.tasks == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make control groups")
def test_a_real_pod_in_the_place_of_another_is_seen(real_pod: tuple[str, Path]) -> None:
    uid, container = real_pod
    classes = container.parent.parent
    first, second = classes / f"pod{OTHER}", classes / f"pod{UID}"
    processes = PodProcesses(own_uid=uid)
    try:
        first.mkdir()
        before = processes.read()
        first.rmdir()
        second.mkdir()  # their folder has as many links as before
        after = processes.read()
    finally:
        for folder in (first, second):
            if folder.exists():
                folder.rmdir()

    assert {pod.uid for pod in before} == {uid, OTHER}
    assert {pod.uid for pod in after} == {uid, UID}
