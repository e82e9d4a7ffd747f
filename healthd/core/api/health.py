"""`NodeHealth`: what an agent knows about its node and must not forget."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.api.model import Finding, Verdict
from healthd.core.untrusted import Moment

MOST_RHYTHMS = 64
"""Whose rhythm is published on one node."""
MOST_PODS = MOST_RHYTHMS - 1
"""Pods among them: a node has no more ranks. One place is for `GPUS`."""
GPUS = "gpus"
"""In the place of a pod's uid: all GPUs of the node together. Which pod has which is not known to the agent."""
MOST_POWER = 64
"""No counter exceeds 2^64, and a power of two is computed from this exponent."""
Power = Annotated[int, msgspec.Meta(ge=0, le=MOST_POWER)]
LARGEST_RATE = 10**15
"""Of anything that a pod uses, per second. What is sampled is far below."""
Rate = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_RATE)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
LONGEST_SHORT_TEXT = 64
"""Characters."""
ShortText = Annotated[str, msgspec.Meta(max_length=LONGEST_SHORT_TEXT)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MOST_FRAMES = 12
"""Functions of a stack that are published, the innermost ones."""
MOST_CONNECTIONS = 24
"""TCP connections of a quiet pod that are published: the lost ones, and some of the others."""
MOST_GPUS = 64
"""GPUs of a node whose clocks are published, the slowest ones."""
MOST_LIMITS = 8
"""Reasons for the slow clock of a GPU."""
Clock = Annotated[float, msgspec.Meta(ge=0, le=100_000)]
"""MHz."""
MOST_WINDOWS = 24
"""Windows of a pod's work that are published: six minutes, where steps are short."""
LONGEST_WINDOW = 120
"""Seconds of such a window."""
MOST_SLOW_RANKS = 4
"""Ranks of a pod, or GPUs of a node, that are published as slow, the newest ones."""


class Device(Slim, frozen=True, kw_only=True):
    """One GPU of a node's inventory. `pci` is `dddd:bb:dd.f`, lower case."""

    pci: str
    """PCI address, `dddd:bb:dd.f`, lower case."""
    uuid: str = ""
    """The UUID that the driver gives it, `GPU-…`."""
    serial: str = ""
    """The serial number of its board, where the driver tells it."""
    name: str = ""
    """The product name."""
    index: int | None = None
    """The driver's number for it; it may change with a boot."""


class Nic(Slim, frozen=True, kw_only=True):
    """One RDMA port of a node's inventory."""

    pci: str
    """PCI address of its function, `dddd:bb:dd.f`, lower case."""
    port: int
    """Counted from 1."""
    device: str = ""
    """The kernel's name for it, such as `mlx5_0`."""
    family: str = ""
    """`ib`, `roce` or `efa`."""
    netdev: str = ""
    """The network interface of the same port, where it has one."""
    rate_gbps: float = 0
    """The speed of the link, in Gb/s; 0: not reported."""
    firmware: str = ""
    """The version of its firmware."""
    parent: str = ""
    """The address of the physical function, of which this is a virtual one."""
    rail: int | None = None
    """Its rail, counted from 0 in the order of the GPUs; absent: it is not the nearest port of any GPU."""
    gpu: str = ""
    """The address of the GPU whose traffic goes through it."""
    growth: dict[str, Power] = {}
    """
    By reading, such as `roce.out_of_sequence`: its growth in the last hour as a power of two, 0 below 2^10. An absent
    reading is not counted, or not yet for an hour.
    """


class KernelLogCursor(Slim, frozen=True, kw_only=True):
    """
    Where reading stopped: *sequence* is the last kernel record that was judged in boot *boot_id*.

    Each *source* (`kmsg`, `journal`, `file`) has its own numbers, so the number is valid for that source alone.
    """

    boot_id: str = ""
    """The boot whose log was read."""
    sequence: int = -1
    """The last kernel record that was judged; -1: none."""
    source: str = ""
    """`kmsg`, `journal` or `file`."""


class PodEnd(Slim, frozen=True, kw_only=True):
    """The agent saw processes of pod *uid* and later, at *at*, saw that none was left: proof for a fence."""

    uid: str
    """The pod."""
    at: Moment
    """When the agent saw that its last process had ended."""


class MemberState(StrEnum):
    """What a member of a gang does, by what is usual for it."""

    WORKING = "working"
    WAITING = "waiting"
    """It uses a processor and does nothing else: it polls for something that does not come."""
    SILENT = "silent"
    """It does nothing that it usually does."""
    UNKNOWN = "unknown"


class PodFrame(Slim, frozen=True, kw_only=True):
    """One function of a stack. Every text of it comes from a program of a user."""

    function: ShortText = ""
    """Its name."""
    file: ShortText = ""
    """The end of the path of its file."""
    line: Number = 0
    """The line in which it was."""
    own: bool = False
    """It is of the program's own code, and of no library. Absent: it is not, or the component is older."""


class PodConnection(Slim, frozen=True, kw_only=True):
    """An established TCP connection of a quiet pod. An endpoint is an address and a port, such as `10.0.0.5:29500`."""

    local: ShortText = ""
    """The endpoint of the pod."""
    remote: ShortText = ""
    """The endpoint of the peer."""
    unacknowledged: Number = 0
    """Bytes that the pod sends again and again, and that are never acknowledged; 0: none."""
    awaited: bool = False
    """The main thread of the process waits in a system call for the peer to send, or to read what was sent."""


class PodNetwork(Slim, frozen=True, kw_only=True):
    """What a quiet pod does with the network, by the socket tables of the kernel."""

    connections: Annotated[list[PodConnection], msgspec.Meta(max_length=MOST_CONNECTIONS)] = []
    """Of all its ranks, those first on which nothing is acknowledged; none to the pod's own loopback."""
    elsewhere: bool = False
    """Each thread of the process runs, or waits for something that is not on the network."""


class PodProcess(Slim, frozen=True, kw_only=True):
    """The process of a quiet pod that explains most, by the component `hang-evidence`."""

    state: ShortText = ""
    """`running`, `sleeping`, `uninterruptible`, `stopped`, `zombie`, `gone` or `unknown`."""
    name: ShortText = ""
    """What it calls itself."""
    pid: Number = 0
    """Its number on the node."""
    syscall: ShortText = ""
    """The system call in which it waits; empty: none, or it could not be read."""
    wchan: ShortText = ""
    """The kernel function in which it waits."""
    processes: Number = 0
    """How many it and its descendants are."""
    stack: Annotated[list[PodFrame], msgspec.Meta(max_length=MOST_FRAMES)] = []
    """Python functions of the thread that runs its program, the innermost first."""
    thread_waits: bool = False
    """Another thread waits for other ranks, where that one does not. False also from an older component."""
    network: PodNetwork | None = None
    """What it does with the network. Absent: that could not be read, or the component is of an older version."""


class PodActivity(Slim, frozen=True, kw_only=True):
    """What a quiet pod does, as its control group shows it: looked at once, when it fell quiet."""

    cpu: Rate = 0
    """Cores that it has used since it last worked."""
    io: Rate = 0
    """Bytes per second that it has since read from disks of the node and written to them."""
    io_wait: Share | None = None
    """
    The part of the last ten seconds in which a process of it waited for a disk or a file system. Absent: the kernel
    does not count it.
    """
    frozen: bool = False
    """A container of it is frozen, as by `crictl pause` or a snapshot."""
    gpu_utilisation: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    """Percent: the GPU that has run kernels for the least time since it last worked. Of `gpus` alone."""
    process: PodProcess | None = None
    """What its processes do. Absent: the component `hang-evidence` is not there, or had no answer."""


class PodWork(Slim, frozen=True, kw_only=True):
    """
    What a pod did in windows one after the other, by its control group. Values are the oldest first.

    The windows of all nodes begin at the same times: at multiples of their length since 1970 (UTC).
    """

    end: Moment
    """The end of the newest window."""
    seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_WINDOW)]
    """The length of each."""
    cores: Annotated[list[Rate], msgspec.Meta(max_length=MOST_WINDOWS)]
    """Cores that it used."""
    starved: Annotated[list[Share], msgspec.Meta(max_length=MOST_WINDOWS)] = []
    """The part of the time in which a process of it was ready to run and had no processor; empty: none, or it is not
    counted."""
    stalled: Annotated[list[Share], msgspec.Meta(max_length=MOST_WINDOWS)] = []
    """The part of the time in which a process of it waited for a disk or a file system; empty: as above."""


class PodSlowRank(Slim, frozen=True, kw_only=True):
    """
    A rank that the other ranks of its pod wait for, by the component `hang-evidence`. Shares are of the time of main
    threads.
    """

    rank: Number
    """As its launcher numbered it."""
    pid: Number
    """Its process on the node."""
    since: Moment
    """When it became slow."""
    ended_at: Moment | None = None
    """When it began to keep up again, or was stopped; absent: it is still slow."""
    slower: Rate
    """How much longer a step takes for it: 0.1 is 10 %."""
    ran: Share
    """Its main thread had a processor."""
    starved: Share
    """It was ready to run and had none."""
    peers_ran: Share
    """The median of the other ranks of the pod."""
    peers_starved: Share
    """The same."""
    own_waits: Share = 0.0
    """It slept by itself, or waited for a file or another process of its own."""
    peers_own_waits: Share = 0.0
    """The median of the other ranks of the pod."""
    from_start: bool = False
    """It has been so since it could be compared: the job itself may give it more to do."""
    confidence: Share
    """An estimate."""


class HostBoundGpu(Slim, frozen=True, kw_only=True):
    """
    A GPU that has nothing to do for a part of the time, while the other GPUs of its node wait for it in a kernel.
    Shares are of the time.
    """

    pci: ShortText
    """Its PCI address."""
    since: Moment
    """When that began."""
    ended_at: Moment | None = None
    """When it began to keep up again; absent: it is still late."""
    slower: Rate
    """How much longer a step takes for it: 0.1 is 10 %."""
    idle: Share
    """It ran no kernel."""
    peers_idle: Share
    """The median of the other GPUs of the node."""
    confidence: Share
    """An estimate."""


class GpuWork(Slim, frozen=True, kw_only=True):
    """
    What the GPUs of a node did in windows one after the other: the median GPU. Values are the oldest first.

    The windows of all nodes begin at the same times, as those of `PodWork`.
    """

    end: Moment
    """The end of the newest window."""
    seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_WINDOW)]
    """The length of each."""
    memory: Annotated[list[Share], msgspec.Meta(max_length=MOST_WINDOWS)]
    """The part of the time in which its memory was used."""
    idle: Annotated[list[Share], msgspec.Meta(max_length=MOST_WINDOWS)]
    """The part of the time in which it ran no kernel."""


class GpuClock(Slim, frozen=True, kw_only=True):
    """How fast one GPU runs while it works."""

    pci: ShortText
    """Its PCI address."""
    mhz: Clock
    """Its mean clock in the median window."""
    newest: Clock = 0
    """That in the newest window, where the median one has only begun to show a change; 0: not known."""
    limited_by: Annotated[list[ShortText], msgspec.Meta(max_length=MOST_LIMITS)] = []
    """What kept it down for much of the time, by its driver: `hw-thermal`, `sw-thermal`, `power-brake`,
    `hw-slowdown`, `power-cap`, `sync-boost`, `setting`."""


class GpuClocks(Slim, frozen=True, kw_only=True):
    """
    How fast the GPUs of a node run while they work, by the newest windows: a minute and three quarters, where they
    worked all the time. Clocks are those of their multiprocessors, in MHz.
    """

    begin: Moment
    """The beginning of the oldest window."""
    end: Moment
    """The end of the newest window."""
    usual: Clock
    """The clock of the median GPU."""
    highest: Clock
    """The highest clock of their model."""
    gpus: Annotated[list[GpuClock], msgspec.Meta(min_length=1, max_length=MOST_GPUS)]
    """Those that worked in all these windows, and say how fast; the slowest first."""


class PodRhythm(Slim, frozen=True, kw_only=True):
    """
    What is usual for pod *uid*, and whether it does that now. A pod whose rhythm is not known is not listed, but for
    one that fell silent before.

    *state* is `waiting` or `silent` only once that has lasted for longer than the pod's own rhythm allows.
    """

    uid: str
    """The pod; `gpus`: all GPUs of the node together."""
    state: MemberState
    """What it does now."""
    since: Moment | None = None
    """When it last worked; absent while it works."""
    period: float = 0
    """Seconds between two of its steps."""
    allowed: float = 0
    """Seconds without work that its own rhythm allows."""
    is_start: bool = False
    """Its rhythm is not known yet: it worked once and does next to nothing now, or did so for a while."""
    idle_gpus: Annotated[int, msgspec.Meta(ge=0, le=MOST_GPUS)] = 0
    """GPUs of the node that say what they do, and have not worked since. Of a silence with `isStart` alone."""
    worked: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds for which its agent had seen it work by this rhythm before, without a long pause; absent while it works,
    and from an older agent."""
    shows_polling: bool = False
    """Whether it would be seen if it only polled. If not, it may wait for others while *state* is `working`."""
    activity: PodActivity | None = None
    """What it does while it is quiet; absent while it works. Also while the GPUs of the node are silent and nothing of
    the pod would show that it only polls."""
    work: PodWork | None = None
    """How much it worked lately; absent: its steps are too long to compare, or its agent does not know it yet."""
    recent: PodWork | None = None
    """The newest minutes of that in windows of 5 s; absent: the controller did not ask for it lately."""
    slow_ranks: Annotated[list[PodSlowRank], msgspec.Meta(max_length=MOST_SLOW_RANKS)] = []
    """Ranks that the others of the pod wait for, and such that no longer are; empty: none was seen, or the component
    `hang-evidence` is not there."""
    clocks: GpuClocks | None = None
    """How fast the GPUs run while they work. Of `gpus` alone; absent: it is not known, or they do not work."""
    host_bound_gpus: Annotated[list[HostBoundGpu], msgspec.Meta(max_length=MOST_SLOW_RANKS)] = []
    """GPUs that the others of the node wait for, and such that no longer are. Of `gpus` alone; empty: none was seen."""
    gpu_work: GpuWork | None = None
    """How much the GPUs worked lately. Of `gpus` alone; absent: their steps are too long to compare, or not known."""


class RepairSeen(Slim, frozen=True, kw_only=True):
    """A declared repair, and since when it counts. One dated in the future counts from when it was seen."""

    stamp: Moment
    """The time in the annotation of the node."""
    at: Moment
    """Findings that are older no longer count."""


class Shape(Slim, frozen=True, kw_only=True):
    """The most hardware that was seen on a node since its last repair, over all boots."""

    gpus: int = 0
    """GPUs on the PCI bus."""
    rdma_devices: int = 0
    """RDMA devices, without virtual ones."""
    memory_kb: int = 0
    """Memory of the machine, in KiB."""
    rates: dict[str, float] = {}
    """Gb/s of each port that was ever up, by its name, such as `ib 0000:5c:00.0 port 1`."""


class NodeHealthStatus(Slim, frozen=True, kw_only=True):
    """The state of an agent that outlives it."""

    verdict: Verdict = Verdict.UNKNOWN
    message: str = ""
    """The worst finding, for a person."""
    findings: list[Finding] = []
    """All active findings, and those cleared recently."""
    inventory: list[Device] = []
    """The GPUs of the node."""
    nics: list[Nic] = []
    """The RDMA ports of the node."""
    boot_id: str = ""
    """The boot in which the agent runs."""
    seen_at: Moment | None = None
    """When the agent last wrote this. It does so every hour or two, even if nothing changed."""
    cursor: KernelLogCursor = KernelLogCursor()
    repair_seen: RepairSeen | None = None
    """The last repair that the agent has seen."""
    sources: list[str] = []
    """Sources that had readings since the last repair, sorted: without them the verdict is unknown."""
    best: Shape = Shape()
    """The hardware that should be present, because it was once."""
    lost_records: int = 0
    """Kernel records that were overwritten before they were read, in total."""
    live_pods: list[str] = []
    """Uids of the pods that have processes on the node, sorted."""
    gone_pods: list[PodEnd] = []
    """Pods whose processes ended recently, oldest first. A pod in neither list may still run."""
    rhythms: list[PodRhythm] = []
    """The pods whose rhythm is known, sorted by uid."""


class NodeHealth(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, cluster scope, named as its node."""

    metadata: ObjectMeta
    status: NodeHealthStatus = NodeHealthStatus()
