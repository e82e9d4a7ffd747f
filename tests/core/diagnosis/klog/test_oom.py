"""Whom the kernel killed for want of memory, whatever names processes and control groups have."""

from __future__ import annotations

import pytest

from healthd.core.diagnosis.klog import OomKill, parse_message, parse_oom_kill

CHOSEN = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={oom},task_memcg={group}"
)
KILLED = "Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:47584kB, anon-rss:37632kB, UID:0"


def chosen(name: str = "python", pid: int = 4242, group: str = "/user.slice/job", oom: str = "/user.slice") -> str:
    return f"{CHOSEN.format(oom=oom, group=group)},task={name},pid={pid},uid=1000"


@pytest.mark.parametrize(
    ("text", "pid", "group"),
    [
        (chosen(), 4242, "/user.slice/job"),
        (KILLED.format(pid=4242, name="python"), 4242, ""),
        ("Out of memory: Killed process 7 (a) total-vm:1kB", 7, ""),
        ("Out of memory (oom_kill_allocating_task): Killed process 7 (a) total-vm:1kB", 7, ""),
        ("Killed process 7 (a) total-vm:1kB", 7, ""),
    ],
)
def test_a_kill_reports_the_pid_and_where_it_was(text: str, pid: int, group: str) -> None:
    assert parse_oom_kill(text) == OomKill(pid=pid, cgroup=group)


@pytest.mark.parametrize(
    "text",
    [
        "Out of memory: Kill process 7 (a) score 905 or sacrifice child",
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom_reaper: reaped process 7 (a), now anon-rss:0kB",
        "Killed process [7]: segfault at 7 ip 7 sp 7 error 4 in python[7+7]",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)",
    ],
)
def test_a_line_that_is_no_kill_kills_no_one(text: str) -> None:
    assert parse_oom_kill(text) is None


@pytest.mark.parametrize("name", ["a\n,pid=1,uid=0", "x,pid=1,uid=0", "p,task=q,pid=1,", ") total-vm:1kB", "(", "=,="])
def test_the_name_of_a_process_changes_no_pid(name: str) -> None:
    texts = (chosen(name), KILLED.format(pid=4242, name=name))
    read = [parse_message(text) for text in texts]

    assert [kill.pid for text in texts if (kill := parse_oom_kill(text))] == [4242, 4242]
    assert [message.pid for message in read if message] == [4242, 4242]


@pytest.mark.parametrize(
    "text",
    [
        chosen(oom="/mine,task_memcg=/user.slice/job,task=a", group="/mine,task_memcg=/user.slice/job,task=a"),
        chosen(group="/user.slice/job,task=other"),
        chosen(name="a,task=b"),
    ],
)
def test_a_control_group_that_a_name_may_have_made_up_is_none(text: str) -> None:
    assert parse_oom_kill(text) == OomKill(pid=4242)
