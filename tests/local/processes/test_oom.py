"""A rank is called killed for want of memory only where the kernel's own words are about it."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.klog import OomKill
from healthd.local.processes.oom import CgroupCounter, OomKills, Suspect, Victim, blamed, victim_of
from healthd.local.processes.pods import RankExit
from tests.fakes import START
from tests.procfs import a_stat_line

GROUP = "/user.slice/job"
KILLED = RankExit(exit_code=137, signal=9, reason="Error", message="killed by signal 9")
END = START + timedelta(minutes=10)


def a_suspect(uid: str = "rank-0") -> Suspect:
    return Suspect(uid=uid, cgroup=GROUP, began=START, ended=END)


def a_victim(of: str = "", group: str = GROUP, *, is_known: bool = False, at: datetime = END) -> Victim:
    return Victim(kill=OomKill(pid=7, cgroup=group), at=at, of=of, is_known=is_known or bool(of))


def a_record(pid: int, group: str = GROUP, *, at: datetime = END, priority: int = 6) -> KernelRecord:
    text = f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/,task_memcg={group},task=python,pid={pid},uid=0"
    return KernelRecord(sequence=1, at=at, text=text, priority=priority)


def test_a_process_of_the_rank_explains_its_death() -> None:
    assert victim_of(a_suspect(), [a_victim("rank-0", group="")]) == a_victim("rank-0", group="")


@pytest.mark.parametrize(
    "victim",
    [
        a_victim("rank-1"),
        a_victim(is_known=True),
        a_victim(group="/user.slice/other"),
        a_victim(group=""),
        a_victim(at=END - timedelta(seconds=30)),
        a_victim("rank-0", at=START - timedelta(seconds=30)),
    ],
    ids=["another rank", "a stranger", "another group", "no group", "long before", "before its start: a pid again"],
)
def test_what_is_about_others_explains_nothing(victim: Victim) -> None:
    assert victim_of(a_suspect(), [victim]) is None


def test_a_process_that_was_gone_at_once_is_known_by_its_control_group() -> None:
    assert victim_of(a_suspect(), [a_victim()]) == a_victim()


def test_a_child_that_was_killed_is_said_of_a_rank_that_failed_over_it() -> None:
    failed = RankExit(exit_code=1, reason="Error", message="exit code 1")

    reported = blamed(failed, a_victim("rank-0"))

    assert (reported.reason, reported.exit_code) == ("Error", 1)
    assert "out-of-memory killer had killed process 7 of it" in reported.message
    assert blamed(KILLED, a_victim("rank-0")).reason == "OOMKilled"


def test_a_descendant_is_found_by_its_parents(tmp_path: Path) -> None:
    for pid, parent in {30: 20, 20: 10, 40: 1}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(a_stat_line(pid, "a) 1 9 (b", parent=parent))
    kills = OomKills(proc=tmp_path, cgroup=GROUP)

    kills.ingest_records([a_record(30)], {10: "rank-0"})
    assert kills.victim(a_suspect()) is not None
    assert kills.victim(a_suspect("rank-1")) is None

    strange = OomKills(proc=tmp_path, cgroup=GROUP)
    strange.ingest_records([a_record(40)], {10: "rank-0"})
    assert strange.victim(a_suspect()) is None


def test_a_line_that_a_process_wrote_is_ignored(tmp_path: Path) -> None:
    kills = OomKills(proc=tmp_path, cgroup=GROUP)

    assert not kills.ingest_records([a_record(10, priority=14)], {10: "rank-0"})
    assert kills.victim(a_suspect()) is None


def test_in_a_container_the_same_number_is_another_process(tmp_path: Path) -> None:
    kills = OomKills(proc=tmp_path, sees_pids=False)
    kills.ingest_records([a_record(10, group="/kubepods/other")], {10: "rank-0"})

    assert kills.victim(a_suspect()) is None


def test_where_nothing_can_be_compared_the_own_control_group_counts(tmp_path: Path) -> None:
    file = tmp_path / "memory.events.local"
    file.write_text("oom 1\noom_kill 1\n")
    kills = OomKills(proc=tmp_path, sees_pids=False, counter=CgroupCounter(file))
    kills.ingest_records([a_record(10)], {10: "rank-0"})

    assert not kills.is_counted(a_suspect())
    file.write_text("oom 2\noom_kill 2\n")
    assert kills.is_counted(a_suspect())


def test_a_count_of_long_ago_says_nothing_of_now(tmp_path: Path) -> None:
    file = tmp_path / "memory.oom_control"
    file.write_text("oom_kill_disable 0\noom_kill 1\n")
    counter = CgroupCounter(file)
    file.write_text("oom_kill_disable 0\noom_kill 2\n")
    counter.poll(END - timedelta(minutes=1))

    assert not OomKills(proc=tmp_path, counter=counter).is_counted(a_suspect())


def test_a_kill_that_the_log_says_was_of_somebody_else_is_not_counted_for_the_rank(tmp_path: Path) -> None:
    file = tmp_path / "memory.oom_control"
    file.write_text("oom_kill 1\n")
    kills = OomKills(proc=tmp_path, cgroup=GROUP, counter=CgroupCounter(file))
    file.write_text("oom_kill 2\n")
    kills.ingest_records([a_record(os.getpid(), group="/elsewhere")], {10: "rank-0"})

    assert not kills.is_counted(a_suspect())


def test_what_this_process_sees_of_its_machine(tmp_path: Path) -> None:
    """A container of Docker: its own namespaces, and its control group as the root of the tree."""
    ns = tmp_path / "self" / "ns"
    ns.mkdir(parents=True)
    (ns / "pid").symlink_to("pid:[4026532281]")
    (ns / "cgroup").symlink_to("cgroup:[4026532279]")
    (tmp_path / "self" / "cgroup").write_text("0::/\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "memory.events.local").write_text("oom_kill 0\n")
    mount = f"35 30 0:27 / {tree} ro,nosuid - cgroup2 cgroup rw\n"
    (tmp_path / "self" / "mountinfo").write_text(mount)

    seen = OomKills.here(tmp_path)

    assert (seen.sees_pids, seen.cgroup, seen.counter.path) == (False, "", tree / "memory.events.local")


def test_the_control_group_of_all_says_nothing(tmp_path: Path) -> None:
    ns = tmp_path / "self" / "ns"
    ns.mkdir(parents=True)
    (ns / "pid").symlink_to("pid:[4026531836]")
    (ns / "cgroup").symlink_to("cgroup:[4026531835]")
    (tmp_path / "self" / "cgroup").write_text("4:memory:/\n0::/init.scope\n")
    (tmp_path / "self" / "mountinfo").write_text(f"35 30 0:27 / {tmp_path} rw - cgroup cgroup rw,memory\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill 0\n")

    seen = OomKills.here(tmp_path)

    assert (seen.sees_pids, seen.cgroup, seen.counter.path) == (True, "", None)
