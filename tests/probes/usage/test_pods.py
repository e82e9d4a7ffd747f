"""What the pods of a node have used: trees of both versions that are made up, with whatever is written there."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.hang.samples import Usage
from healthd.core.node.pod_groups import PodGroup, PodGroups
from healthd.probes.pod_processes import PodProcesses
from healthd.probes.usage.cgroup import CgroupUsage
from healthd.probes.usage.pods import PodUsages

FIRST, SECOND = "0b54c8a1-6f0e-4a8e-9d3c-1f2e3d4c5b6a", "1c65d9b2-7a1f-4b9f-8e4d-2a3f4e5d6c7b"
FILES = ("cpu.stat", "memory.stat", "io.stat")


class Tree:
    """Control groups of version 2 in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "cgroup.controllers").write_text("cpu io memory pids\n")
        self.processes = PodProcesses(root)
        self.usages = PodUsages(lambda: self.processes.groups)

    def pod(self, uid: str, *containers: str, seconds: float = 1.0) -> Path:
        """A pod, made or changed."""
        folder = self.root / "kubepods" / f"pod{uid}"
        for group in (folder, *(folder / name for name in containers)):
            group.mkdir(parents=True, exist_ok=True)
            (group / "pids.current").write_text("2\n")
        (folder / "cpu.stat").write_text(f"usage_usec {seconds * 1e6:.0f}\nuser_usec 0\nsystem_usec 0\n")
        return folder

    def listed(self) -> PodUsages:
        """After the groups were listed again."""
        self.processes.read()
        return self.usages


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Without pods."""
    return Tree(tmp_path)


def test_the_processor_time_of_all_pods_is_read(tree: Tree) -> None:
    tree.pod(FIRST, seconds=1.5)
    tree.pod(SECOND, seconds=2.5)

    assert tree.listed().processor_times() == {FIRST: 1.5, SECOND: 2.5}


def test_only_the_pods_that_are_asked_for_are_sampled(tree: Tree) -> None:
    tree.pod(FIRST)
    tree.pod(SECOND, seconds=2)

    assert tree.listed().read([SECOND]) == {SECOND: Usage(cpu=2)}


def test_before_the_groups_are_listed_there_are_no_pods(tree: Tree) -> None:
    tree.pod(FIRST)

    assert (tree.usages.processor_times(), tree.usages.read([FIRST])) == ({}, {})


def test_the_groups_of_version_1_are_in_a_tree_for_each_controller(tmp_path: Path) -> None:
    for name, text in {"pids/pids.current": "2", "cpuacct/cpuacct.usage": "3000000000"}.items():
        controller, file = name.split("/")
        folder = tmp_path / controller / "kubepods" / "burstable" / f"pod{FIRST}"
        folder.mkdir(parents=True)
        (folder / file).write_text(text)
    processes = PodProcesses(tmp_path)
    processes.read()

    assert PodUsages(lambda: processes.groups).read([FIRST]) == {FIRST: Usage(cpu=3)}


def test_a_pod_that_vanishes_between_two_reads_is_left_out(tree: Tree) -> None:
    folder = tree.pod(FIRST)
    tree.pod(SECOND)
    tree.listed().read([FIRST, SECOND])
    (folder / "cpu.stat").write_text("")
    shutil.rmtree(folder)

    assert list(tree.usages.read([FIRST, SECOND])) == [SECOND]
    assert list(tree.usages.processor_times()) == [SECOND]


def test_a_pod_that_lost_a_container_is_left_out_once(tree: Tree) -> None:
    folder = tree.pod(FIRST, "sandbox", "main")
    tree.listed().read([FIRST])
    shutil.rmtree(folder / "main")
    tree.pod(FIRST, "main-2")
    tree.processes = PodProcesses(tree.root)  # lists anew: a folder that is no control group counts no links

    assert (tree.listed().read([FIRST]), list(tree.usages.read([FIRST]))) == ({}, [FIRST])


def test_a_pod_that_got_a_further_container_is_the_same(tree: Tree) -> None:
    tree.pod(FIRST, "sandbox")
    tree.listed().read([FIRST])
    tree.pod(FIRST, "debugger")
    tree.processes = PodProcesses(tree.root)

    assert list(tree.listed().read([FIRST])) == [FIRST]


def test_a_tree_that_is_another_machines_has_no_pods_to_sample(tree: Tree) -> None:
    own = PodProcesses(tree.root, own_uid=FIRST)
    folder = tree.pod(FIRST)
    tree.pod(SECOND)
    own.read()
    before = set(own.groups.pods)
    shutil.rmtree(folder)
    with pytest.raises(Exception, match="not among the pods"):
        own.read()

    assert (before, dict(own.groups.pods)) == ({FIRST, SECOND}, {})


def test_files_are_closed_when_a_pod_is_no_longer_sampled(tree: Tree) -> None:
    tree.pod(FIRST)
    before = _open_files()
    tree.listed().read([FIRST])
    tree.usages.read([])

    assert _open_files() <= before + 1  # the number of its tasks, which is read for other reasons


def test_a_file_that_is_missing_is_not_looked_for_again(tree: Tree) -> None:
    folder = tree.pod(FIRST)
    tree.listed().read([FIRST])
    (folder / "memory.stat").write_text("pgfault 7\n")

    assert tree.usages.read([FIRST])[FIRST].faults == 0


TEXTS = (
    st.sampled_from(["", "\n", "usage_usec", "usage_usec -1", "usage_usec nan", "usage_usec inf", "usage_usec 1_0"])
    | st.integers(min_value=0).map(
        lambda number: f"usage_usec {number}\npgfault {number}\n8:0 rbytes={number} wios=x\n"
    )
    | st.integers(min_value=10**18, max_value=10**30).map(lambda number: f"usage_usec 1\npgfault {number}{number}\n")
    | st.text(max_size=60)
    | st.just("8:0 rbytes=1 wbytes=2\n" * 4000)
)


@given(first=st.tuples(TEXTS, TEXTS, TEXTS), second=st.tuples(TEXTS, TEXTS, TEXTS))
def test_whatever_a_group_says_is_a_usage_of_counters_or_none(
    first: tuple[str, str, str], second: tuple[str, str, str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        group = CgroupUsage(folder, "/", is_v2=True)
        for texts in (first, second):
            for name, text in zip(FILES, texts, strict=True):
                Path(folder, name).write_text(text)
            usage = group.read()
            assert usage is None or all(0 <= number <= 2.0**70 for number in usage[:-1])
        group.close()


def test_half_a_number_at_the_end_of_what_is_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 1000000\n")
    line = "8:0 rbytes=1111 wbytes=0 rios=0 wios=0\n"
    (tmp_path / "io.stat").write_text(line * 1000)
    usage = CgroupUsage(str(tmp_path), "/", is_v2=True).read()

    assert usage is not None
    assert usage.read == 1111 * (16 * 1024 // len(line))


def test_five_thousand_pods_are_read(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "cpu.stat").write_text("usage_usec 1000000\n")
    groups = PodGroups(str(tmp_path), True, {f"pod-{n}": PodGroup("/pod", frozenset()) for n in range(5000)})
    usages = PodUsages(lambda: groups)

    assert len(usages.processor_times()) == 5000
    assert len(usages.read(["pod-1", "pod-4999", "pod-5000"])) == 2


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
