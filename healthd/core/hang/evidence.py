"""
What is known of each rank of a gang that makes no progress. Pure records, each of a bounded size.

Everything in them comes from processes of users: names, stacks, dumps, log lines. `bounded` makes text safe to store
and to print; decoding a record checks its size again. A field that could not be read is None or empty, which is no
evidence for or against a rank.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from healthd.core.printable import printable

LONGEST_WORD = 64
"""Characters of a name: a process, a function, a group."""
LONGEST_LINE = 240
"""Characters of a line of a log."""
MOST_FRAMES = 24
MOST_GROUPS = 64
"""Communicators of one rank. Those beyond are left out, the ones with waiting ranks last."""
MOST_RECENT = 8
"""Collectives of one group that are kept, the newest."""
MOST_LOG_LINES = 8
MOST_GPUS = 16
MOST_TROUBLES = 8
LONGEST_NAME = 253
"""Characters of the name of a pod or a node."""
_ELLIPSIS = "…"

Word = Annotated[str, Meta(max_length=LONGEST_WORD)]
Line = Annotated[str, Meta(max_length=LONGEST_LINE)]
Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def bounded(text: str, most: int = LONGEST_WORD) -> str:
    """*text* with at most *most* characters, all of them printable."""
    safe = printable(text[: most + 1])
    return safe if len(safe) <= most else safe[: most - 1] + _ELLIPSIS


class TaskState(StrEnum):
    """The state of a process, from /proc. The state of a tree of processes is the one that explains a hang best."""

    RUNNING = "running"
    SLEEPING = "sleeping"
    UNINTERRUPTIBLE = "uninterruptible"
    STOPPED = "stopped"
    FROZEN = "frozen"
    """By the freezer of its control group. Seen of whole containers alone."""
    ZOMBIE = "zombie"
    GONE = "gone"
    UNKNOWN = "unknown"


class ProcessEvidence(Struct, frozen=True):
    """The process of a rank, or the one below it that explains most."""

    state: TaskState
    name: Word = ""
    pid: Count = 0
    syscall: Word = ""
    """The name of the system call in which it waits. Empty: none, or not permitted to read."""
    wchan: Word = ""
    """The kernel function in which it waits."""
    processes: Count = 0
    """The size of the tree."""


class Activity(Struct, frozen=True):
    """Rates since the gang became silent."""

    cpu: float | None = None
    """Cores."""
    io: float | None = None
    """Bytes per second, read and written."""
    network: float | None = None
    """Bytes per second, NICs and RDMA."""
    gpu_utilisation: float | None = None
    """Percent."""
    gpu_power: float | None = None
    """Watts."""


class Stack(Struct, frozen=True):
    """Python functions of the main thread, the innermost first."""

    frames: Annotated[tuple[Frame, ...], Meta(max_length=MOST_FRAMES)]


class Frame(Struct, frozen=True):
    """One function. *file* is the end of its path."""

    function: Word
    file: Word = ""
    line: Count = 0


class Source(StrEnum):
    """Which witness speaks."""

    RECORDER = "flight recorder"
    RAS = "NCCL RAS"
    PROCESS = "process"
    STACK = "stack"
    ACTIVITY = "activity"


class Collective(Struct, frozen=True):
    """An operation that a rank entered in a group."""

    number: Count
    """Its place in the sequence of the group."""
    name: Word = ""


class GroupProgress(Struct, frozen=True):
    """How far a rank came in one communicator."""

    group: Word
    """The same text on every member, and on no member of another group."""
    number: Count
    """Operations that the rank entered."""
    source: Source = Source.RECORDER
    waits: bool | None = None
    """It is in an operation that has not ended. None: the source cannot see that."""
    size: Count = 0
    """Members of the communicator. 0: the source does not say."""
    recent: Annotated[tuple[Collective, ...], Meta(max_length=MOST_RECENT)] = ()
    """The newest last."""


class RankEvidence(Struct, frozen=True):
    """All that is known of one rank."""

    rank: Count
    pod: Name = ""
    node: Name = ""
    gpus: Annotated[tuple[Word, ...], Meta(max_length=MOST_GPUS)] = ()
    process: ProcessEvidence | None = None
    activity: Activity | None = None
    stack: Stack | None = None
    groups: Annotated[tuple[GroupProgress, ...], Meta(max_length=MOST_GROUPS)] = ()
    lost_by_ras: Word = ""
    """Why RAS has no answer from it: *dead*, *unresponsive*. Empty: it has one, or was not asked."""
    log: Annotated[tuple[Line, ...], Meta(max_length=MOST_LOG_LINES)] = ()
    """The last lines that it wrote."""
    troubles: Annotated[tuple[Line, ...], Meta(max_length=MOST_TROUBLES)] = ()
    """What could not be read, and why."""
