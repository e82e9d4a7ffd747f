"""Why the processes of a control group do nothing, as the kernel writes it in both versions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from healthd.core.hang.samples import Stall
from healthd.core.node.pod_groups import PodGroup, PodGroups
from healthd.probes.pod_processes import CGROUPS
from healthd.probes.usage.cgroup_stall import read_stall
from healthd.probes.usage.pods import PodUsages

POD = "kubepods.slice/kubepods-pod0b54c8a1.slice"
PRESSURE = "some avg10=63.21 avg60=20.00 avg300=5.00 total=9000000\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=1\n"


def stall_of(root: Path, files: dict[str, str], *, is_v2: bool = True) -> Stall:
    """After these files were written."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return read_stall(str(root), f"/{POD}", ["main", "sandbox"], is_v2=is_v2)


def test_how_much_of_the_last_seconds_a_process_waited_for_io(tmp_path: Path) -> None:
    assert stall_of(tmp_path, {f"{POD}/io.pressure": PRESSURE}) == Stall(io_wait=0.6321)


@pytest.mark.parametrize("group", [POD, f"{POD}/main"])
def test_a_container_that_is_frozen_or_whose_pod_is(tmp_path: Path, group: str) -> None:
    assert stall_of(tmp_path, {f"{group}/cgroup.events": "populated 1\nfrozen 1\n"}) == Stall(frozen=True)


def test_containers_that_are_not_frozen(tmp_path: Path) -> None:
    files = {f"{group}/cgroup.events": "populated 1\nfrozen 0\n" for group in (POD, f"{POD}/main", f"{POD}/sandbox")}

    assert stall_of(tmp_path, files) == Stall()


@pytest.mark.parametrize(("state", "frozen"), [("FROZEN\n", True), ("FREEZING\n", False), ("THAWED\n", False)])
def test_version_1_has_a_tree_for_the_freezer_and_counts_no_waits(tmp_path: Path, state: str, frozen: bool) -> None:
    files = {f"freezer/{POD}/main/freezer.state": state, f"{POD}/io.pressure": PRESSURE}

    assert stall_of(tmp_path, files, is_v2=False) == Stall(io_wait=None, frozen=frozen)


@pytest.mark.parametrize("is_v2", [True, False])
def test_a_group_that_is_gone_says_nothing(tmp_path: Path, is_v2: bool) -> None:
    assert stall_of(tmp_path, {}, is_v2=is_v2) == Stall()


def test_only_pods_that_the_node_has_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "io.pressure").write_text(PRESSURE)
    usages = PodUsages(lambda: PodGroups(str(tmp_path), True, {"here": PodGroup("/pod", frozenset())}))

    assert usages.stalls(["here", "gone"]) == {"here": Stall(io_wait=0.6321)}


@given(text=st.text(max_size=60) | st.from_regex(r"some avg10=[0-9.]{0,400} ?", fullmatch=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_file_says_it_is_a_share_or_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / POD).mkdir(parents=True, exist_ok=True)
    (tmp_path / POD / "io.pressure").write_text(text, encoding="utf-8")
    share = stall_of(tmp_path, {}).io_wait

    assert share is None or 0 <= share <= 1


IS_V2 = (CGROUPS / "cgroup.controllers").exists()
TREE = CGROUPS if IS_V2 else CGROUPS / "freezer"
FILE, FREEZE, THAW = ("cgroup.freeze", "1", "0") if IS_V2 else ("freezer.state", "FROZEN", "THAWED")


@pytest.fixture
def container() -> Iterator[Path]:
    """The group of the one container of a pod in the machine's own tree."""
    folder = TREE / f"healthd-test-{uuid.uuid4().hex[:8]}" / "main"
    try:
        folder.mkdir(parents=True)
    except OSError as refusal:
        pytest.skip(f"no control groups can be made here: {refusal}")
    yield folder
    folder.rmdir()
    folder.parent.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make control groups")
def test_a_real_container_that_is_frozen(container: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        (container / "cgroup.procs").write_text(str(process.pid))
        states = [_stall(container).frozen]
        (container / FILE).write_text(FREEZE)
        states.append(_until(lambda: _stall(container).frozen))
        (container / FILE).write_text(THAW)
        states.append(_until(lambda: not _stall(container).frozen))
        process.communicate(b"\n")

    assert states == [False, True, True]


def _stall(container: Path) -> Stall:
    return read_stall(str(CGROUPS), f"/{container.parent.name}", ["main"], is_v2=IS_V2)


def _until(holds: Callable[[], bool]) -> bool:
    """Freezing takes the kernel a moment."""
    until = time.monotonic() + 10
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()
