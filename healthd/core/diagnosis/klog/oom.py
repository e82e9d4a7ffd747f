"""
The grammar of out-of-memory messages: which process asked for memory, and which one the kernel killed.

A process chooses its name, and a user who may make control groups chooses their names. Both stand in these lines, and
may look like any other part of them. So a pid is taken only from where no chosen text can stand: behind the last field
of `oom-kill:…,task=NAME,pid=1,uid=0`, and before the name in `Killed process 1 (NAME)`. A control group is taken only
where each mark around it stands once.

Source: `mm/oom_kill.c` and `mm/memcontrol.c` of Linux, with the wordings of old and new versions.
"""

from __future__ import annotations

import re

import msgspec

from healthd.core.diagnosis.klog.message import Message, MessageKind
from healthd.core.diagnosis.klog.process import begins_with_a_name

_KILLED = re.compile(
    r"(?:(?:Memory cgroup )?[Oo]ut of [Mm]emory(?: \([^)]{1,48}\))?: )?"
    r"(?:Kill(?:ed)?|kill(?:ed)?|OOM victim|Sacrifice child:?)(?: process)? "
    r"(?P<pid>[0-9]{1,10}),?(?: UID [0-9]{1,10},?)? "
    r"\((?P<process>.{1,64}?)\)(?=[,.:]{0,2}(?:\s{1,2}(?:total-vm|vsz|score|now|or|UID|shmem|is|sharing)\b|\s{0,4}$))",
    re.ASCII | re.DOTALL,
)
_NUMBER = re.compile(
    r"(?:Memory cgroup )?[Oo]ut of [Mm]emory: Kill(?:ed)? process (?P<pid>[0-9]{1,10})\s{0,4}$", re.ASCII
)
_TASK = re.compile(
    r"oom-kill:(?=constraint=|gfp).{0,4000}\btask=(?P<process>.{1,64}),pid=(?P<pid>[0-9]{1,10}),uid=",
    re.ASCII | re.DOTALL,
)
"""Greedy: the last of all pids is the kernel's own."""
_REST = re.compile(
    r"(?:Memory cgroup )?[Oo]ut of [Mm]emory(?=:| \(| and no killable|$)|Kernel panic - not syncing: Out of memory"
    r"|oom-kill:|oom-killer: |oom_reaper: "
    r"|Tasks? in \S{1,512} (?:killed as a result of limit|are going to be killed)",
    re.ASCII,
)

_VICTIM = re.compile(
    r"(?:(?:Memory cgroup )?[Oo]ut of memory(?: \(oom_kill_allocating_task\))?: )?Killed process (?P<pid>[0-9]{1,10})"
    r"(?:,? UID [0-9]{1,10},?|,)? \(",
    re.ASCII,
)
"""Not `Kill process 1 (…) score 9 or sacrifice child` of old kernels: a child may be killed instead."""
_CHOSEN = re.compile(
    r"oom-kill:constraint=.{0,4000},pid=(?P<pid>[0-9]{1,10}),uid=[0-9]{1,10}\s{0,2}\Z", re.ASCII | re.DOTALL
)
_GROUP_MARK, _NAME_MARK = ",task_memcg=", ",task="


class OomKill(msgspec.Struct, frozen=True, kw_only=True):
    """A process that the kernel reports it killed to free memory: its *pid* in the initial PID namespace."""

    pid: int
    cgroup: str = ""
    """Its control group, as the initial cgroup namespace names it. Empty where the line is ambiguous."""


def parse_oom(text: str) -> Message | None:
    """The reaper's line only repeats a kill that was reported before, so it names no process here."""
    if found := _KILLED.match(text) or _TASK.match(text):
        return Message(kind=MessageKind.OOM, text=text, pid=int(found["pid"]), process=found["process"])
    if found := _NUMBER.match(text):
        return Message(kind=MessageKind.OOM, text=text, pid=int(found["pid"]))
    return Message(kind=MessageKind.OOM, text=text) if _REST.match(text) else None


def parse_oom_kill(text: str) -> OomKill | None:
    """The process that the kernel killed, by the line of the kill alone. None for other lines, also warnings."""
    if begins_with_a_name(text):
        return None
    if found := _VICTIM.match(text):
        return OomKill(pid=int(found["pid"]))
    if found := _CHOSEN.match(text):
        return OomKill(pid=int(found["pid"]), cgroup=_cgroup(text))
    return None


def _cgroup(text: str) -> str:
    if text.count(_GROUP_MARK) != 1 or text.count(_NAME_MARK) != 1:
        return ""
    return text.partition(_GROUP_MARK)[2].partition(_NAME_MARK)[0]
