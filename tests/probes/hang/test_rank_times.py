"""How long the ranks of a pod ran, by a made-up process file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from healthd.probes.hang.rank_times import FORGOTTEN_AFTER_S, LOOK_AGAIN_S, LOOKS_S, SOONEST_S, PodRankTimes
from tests.sibling_processes import Family, a_family


class Node:
    """One pod with a launcher and its ranks."""

    def __init__(self, root: Path) -> None:
        self.proc, self.group = root / "proc", root / "group"
        (self.group / "main").mkdir(parents=True)
        self.now, self.slow = 0.0, 0.0
        self.left: set[int] = set()
        self.times = PodRankTimes(str(self.proc), self._clock)
        self.runs(10, parent=1, cpu=1)
        for number in (0, 1):
            self.runs(20 + number, parent=10, number=str(8 + number), cpu=50, ran=40.0 + number, starved=0.5)

    def runs(
        self, pid: int, *, parent: int, number: str = "", cpu: int = 0, ran: float = 0.0, starved: float = 0.0
    ) -> None:
        """Process *pid* is there, with so many seconds of a processor."""
        folder = self.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = ["S", parent, *[0] * 9, cpu * os.sysconf("SC_CLK_TCK"), 0, 0, 0, *[0] * 4, 1000 + pid, *[0] * 30]
        (folder / "stat").write_text(f"{pid} (python) {' '.join(map(str, fields))}\n")
        (folder / "environ").write_bytes(f"RANK={number}\0".encode() if number else b"PATH=/bin\0")
        (folder / "schedstat").write_text(f"{round(ran * 1e9)} {round(starved * 1e9)} 77\n")
        self._list()

    def ends(self, pid: int) -> None:
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()
        (self.proc / str(pid)).rmdir()
        self._list()

    def begins_again(self, pid: int, *, in_pod: bool) -> None:
        """Another process has this number now."""
        stat = self.proc / str(pid) / "stat"
        stat.write_text(stat.read_text().replace(str(1000 + pid), str(2000 + pid)))
        if not in_pod:
            self.leave_the_list(pid)

    def leave_the_list(self, *pids: int) -> None:
        """As the dead ones do, and what is in another control group."""
        self.left |= {*pids}
        self._list()

    def _clock(self) -> float:
        """Each look at it takes some time."""
        self.now += self.slow
        return self.now

    def _list(self) -> None:
        pids = sorted({int(folder.name) for folder in self.proc.iterdir()} - self.left)
        (self.group / "main" / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def read(self) -> dict[int, tuple[int, float, float]]:
        found = self.times.read({"uid": str(self.group)})
        return {each.number: (each.pid, each.ran, each.starved) for each in found.get("uid", [])}


def times_of(family: Family, root: Path) -> dict[int, int]:
    """The processes by number of a pod of real processes."""
    (root / "main").mkdir()
    (root / "main" / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in (family.parent, *family.children)))
    found = PodRankTimes().read({"uid": str(root)})
    return {each.number: each.pid for each in found.get("uid", [])}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_times_of_numbered_ranks_are_read(node: Node) -> None:
    assert node.read() == {8: (20, 40.0, 0.5), 9: (21, 41.0, 0.5)}


def test_what_has_no_number_is_no_rank(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for pid in (20, 21):
        node.ends(pid)
    node.runs(30, parent=1, cpu=50, ran=9.0)  # two sidecars

    assert node.read() == {}


def test_ranks_without_numbers_are_counted_where_they_are_connected_with_each_other(tmp_path: Path) -> None:
    with a_family("ranks") as family:
        assert times_of(family, tmp_path) == dict(enumerate(family.children[:3]))


def test_the_loaders_of_a_program_are_no_ranks(tmp_path: Path) -> None:
    with a_family("trainer") as family:
        assert times_of(family, tmp_path) == {}


def test_a_process_that_has_hardly_worked_may_be_about_to_get_its_number(node: Node) -> None:
    node.runs(22, parent=10, number="8")  # as what its parent had, which has forked it
    node.read()
    node.runs(22, parent=10, number="10", cpu=50, ran=7.0)
    node.now += LOOK_AGAIN_S

    assert sorted(node.read()) == [8, 9, 10]


def test_ranks_that_are_just_started_are_all_found_within_seconds(node: Node) -> None:
    node.read()
    node.runs(22, parent=10, number="10", ran=0.1)
    node.now += SOONEST_S

    assert sorted(node.read()) == [8, 9, 10]


def test_each_pause_between_looks_is_twice_as_long_up_to_a_minute(node: Node) -> None:
    looked_at, pids = list[float](), iter(range(50, 100))
    found = len(node.read())
    for _ in range(250):
        node.now += 1.0
        if len(now := node.read()) > found:
            looked_at.append(node.now)
            found = len(now)
        pid = next(pids) if len(list(node.proc.iterdir())) == found + 1 else None
        if pid is not None:  # one more, which the next look finds
            node.runs(pid, parent=10, number=str(pid), cpu=50, ran=7.0)

    assert looked_at == [2, 6, 14, 30, 62, 122, 182, 242]


def test_a_rank_is_not_the_shell_around_it_which_began_first(node: Node) -> None:
    node.runs(22, parent=10, number="10", cpu=1, ran=0.01)  # the shell
    node.runs(32, parent=22, number="10", ran=0.001)
    assert node.read()[10][0] == 22
    node.runs(32, parent=22, number="10", cpu=50, ran=7.0)
    node.now += LOOK_AGAIN_S

    assert node.read()[10][0] == 32


def test_a_rank_that_hardly_works_changes_no_other(node: Node) -> None:
    node.runs(22, parent=10, number="10", cpu=1, ran=0.1)
    node.read()
    node.runs(31, parent=21, number="9", cpu=500, ran=99.0)  # a loader that is far busier
    node.now += LOOK_AGAIN_S

    assert {number: pid for number, (pid, _, _) in node.read().items()} == {8: 20, 9: 21, 10: 22}


def test_a_rank_that_has_worked_stays_the_process_that_it_is(node: Node) -> None:
    node.read()
    node.runs(31, parent=21, number="9", cpu=500, ran=99.0)  # a loader that is far busier
    node.now += LOOK_AGAIN_S

    assert node.read()[9][0] == 21


def test_a_number_that_is_used_again_outside_the_pod_is_no_rank(node: Node) -> None:
    node.read()
    node.runs(23, parent=10, number="9", cpu=50, ran=3.0)
    node.begins_again(21, in_pod=False)  # read before it was seen that the rank had ended
    node.now += LOOK_AGAIN_S

    assert node.read() == {8: (20, 40.0, 0.5), 9: (23, 3.0, 0.0)}


def test_ranks_that_are_dead_and_not_collected_are_replaced_by_others(node: Node) -> None:
    node.read()
    for number in (0, 1):
        node.runs(40 + number, parent=10, number=str(8 + number), cpu=3, ran=2.0)
    node.leave_the_list(20, 21)
    node.now += LOOK_AGAIN_S

    assert node.read() == {8: (40, 2.0, 0.0), 9: (41, 2.0, 0.0)}


def test_a_question_looks_for_ranks_for_a_part_of_a_second_and_the_next_goes_on(node: Node) -> None:
    pods = {uid: str(node.group) for uid in ("a", "b", "c")}
    node.slow = LOOKS_S / 2

    found = [sorted(node.times.read(pods)) for _ in range(4)]

    assert len(found[0]) < 3
    assert found[-1] == ["a", "b", "c"]


def test_a_rank_that_is_alone_in_its_pod_is_not_looked_at(node: Node) -> None:
    node.ends(21)

    assert sorted(node.read()) == [8]
    assert node.times.pids == []


@pytest.mark.parametrize("number", ["9" * 10, "9" * 16, "9" * 5000])
def test_ranks_that_give_themselves_impossible_numbers_are_numbered_by_their_order(tmp_path: Path, number: str) -> None:
    node = Node(tmp_path)
    node.runs(22, parent=10, number=number, cpu=50, ran=7.0)

    assert sorted(node.read()) == [0, 1, 2]


def test_the_environment_of_a_rank_is_read_once(node: Node) -> None:
    before = node.read()
    for pid in (20, 21):
        (node.proc / str(pid) / "environ").unlink()
    node.now += LOOK_AGAIN_S

    assert node.read() == before


def test_pods_that_are_asked_for_in_turn_are_not_forgotten(node: Node) -> None:
    before = node.read()
    for pid in (20, 21):
        (node.proc / str(pid) / "environ").unlink()
    node.times.read({"another": str(node.group / "gone")})

    assert node.read() == before
    assert sorted(node.times.pids) == [20, 21]
    node.now += FORGOTTEN_AFTER_S
    node.times.read({"another": str(node.group / "gone")})
    assert node.times.pids == []


def test_ranks_that_the_launcher_started_again_are_found_at_once(node: Node) -> None:
    node.read()
    for number in (0, 1):
        node.ends(20 + number)
        node.runs(40 + number, parent=10, number=str(8 + number), cpu=3, ran=2.0)

    assert node.read() == {}  # what is known has ended
    assert node.read() == {8: (40, 2.0, 0.0), 9: (41, 2.0, 0.0)}


def test_a_number_of_a_process_that_is_used_again_is_of_another_one(node: Node) -> None:
    node.read()
    node.ends(21)
    node.read()
    node.runs(21, parent=1)
    node.begins_again(21, in_pod=True)

    assert node.read() == {8: (20, 40.0, 0.5)}


def test_ranks_that_start_later_are_found_within_a_minute(node: Node) -> None:
    node.read()
    node.runs(22, parent=10, number="10", cpu=50, ran=1.0)

    assert 10 not in node.read()
    node.now += LOOK_AGAIN_S
    assert 10 in node.read()


def test_a_rank_stays_the_process_that_it_was_found_to_be(node: Node) -> None:
    before = node.read()
    for number in (0, 1):  # a process of its loader has used more than it for long
        node.runs(50 + number, parent=20 + number, number=str(8 + number), cpu=5000)
    node.now += LOOK_AGAIN_S

    assert node.read() == before


def test_where_the_kernel_does_not_count_nothing_is_known(node: Node) -> None:
    (node.proc / "21" / "schedstat").unlink()

    assert node.read() == {}
