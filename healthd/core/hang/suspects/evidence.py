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
MOST_CONNECTIONS = 64
"""TCP connections of one rank. The lost ones are kept first."""
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
    computes: bool = False
    """Its main thread is awake, and would be asleep if it waited for others. False also where that is not known."""


class Stack(Struct, frozen=True):
    """Python functions of the thread that runs the program, mostly the main one, the innermost first."""

    frames: Annotated[tuple[Frame, ...], Meta(max_length=MOST_FRAMES)]
    thread_waits: bool = False
    """Another thread of the process waits for other ranks. Kept only where this one does not."""


class Frame(Struct, frozen=True, omit_defaults=True):
    """One function. *file* is the end of its path."""

    function: Word
    file: Word = ""
    line: Count = 0
    is_own: bool = False
    """Of the program's own code, and of no library. False also where an older healthd did not say it."""


class Connection(Struct, frozen=True):
    """An established TCP connection of a rank's process. An endpoint is an address and a port: `10.0.0.5:29500`."""

    local: Word
    remote: Word
    unacknowledged: Count = 0
    """Bytes that it sends again and again, and that are never acknowledged. 0: none, so it is not known to be lost."""
    is_awaited: bool = False
    """The main thread waits in a system call for the peer to send, or to read what was sent."""


class NetworkEvidence(Struct, frozen=True):
    """What a rank's process does with the network, by the kernel's socket tables. RDMA and NVLink are not in them."""

    connections: Annotated[tuple[Connection, ...], Meta(max_length=MOST_CONNECTIONS)] = ()
    is_elsewhere: bool = False
    """
    Each thread of it runs, or waits for something that is not on the network: a timer, a file, a pipe, a lock. False
    also where one of them waits for a notice of which it is not known whence it comes (poll).
    """
    namespace: Count = 0
    """The kernel's number of its network namespace: 127.0.0.1 is another place in each. 0: not known."""


class Source(StrEnum):
    """Which witness speaks."""

    RECORDER = "flight recorder"
    RAS = "NCCL RAS"
    PROCESS = "process"
    CONNECTIONS = "connections"
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
    network: NetworkEvidence | None = None
    groups: Annotated[tuple[GroupProgress, ...], Meta(max_length=MOST_GROUPS)] = ()
    lost_by_ras: Word = ""
    """Why RAS has no answer from it: *dead*, *unresponsive*. Empty: it has one, or was not asked."""
    log: Annotated[tuple[Line, ...], Meta(max_length=MOST_LOG_LINES)] = ()
    """The last lines that it wrote."""
    troubles: Annotated[tuple[Line, ...], Meta(max_length=MOST_TROUBLES)] = ()
    """What could not be read, and why."""
