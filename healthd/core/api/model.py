"""
The terms of diagnosis: readings become findings, and the findings of a node give its verdict.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from healthd.core.untrusted import Moment


class Severity(StrEnum):
    """How bad one kernel message or finding is by itself."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"


class RepairAction(StrEnum):
    """What should be done about a finding, from nothing to a new part."""

    NONE = "none"
    CHECK_APP = "check_app"
    """A fault of the application: inform its owner. The device is fine."""
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    INSPECT = "inspect"
    """Run diagnostics or look at the mechanics (cable, seat, cooling) when idle."""
    CONTACT_SUPPORT = "contact_support"
    """The hardware must be replaced. Only a repair clears the finding."""


class Blame(StrEnum):
    """Whose fault a finding is."""

    APPLICATION = "application"
    DEVICE = "device"
    """A GPU, a NIC or one of its ports, a disk: the part that the finding names."""
    LINK = "link"
    """The cable, or what it is plugged into at either end."""
    PEER = "peer"
    """The far end: another GPU, a switch."""
    NODE = "node"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """The state of a node that follows from all its findings."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """The phase of a recovery. Each phase may lead to one of the last four; only `Held` goes back to another phase."""

    DETECTED = "Detected"
    STOPPING = "Stopping"
    FENCING = "Fencing"
    CHOOSING = "Choosing"
    RESERVING = "Reserving"
    STARTING = "Starting"
    CONFIRMING = "Confirming"
    RECOVERED = "Recovered"
    HELD = "Held"
    GAVE_UP = "GaveUp"
    SUPERSEDED = "Superseded"


ENDED = frozenset({Phase.RECOVERED, Phase.GAVE_UP, Phase.SUPERSEDED})
"""The final phases."""


class Hold(StrEnum):
    """What a held recovery waits for. healthd cannot provide any of these itself."""

    BUDGET = "budget"
    """The bad node is still in service: the budget is used up, or healthd may not cordon it."""
    BREAKER = "breaker"
    """Too many faults at once: the breaker is open."""
    FENCE = "fence"
    """There is no proof yet that every old pod can no longer write."""
    CHECKPOINT = "checkpoint"
    """No checkpoint will load."""
    SPARE = "spare"
    """No spare node replaces the bad one."""
    NODE = "node"
    """The gang came back to a bad node: nothing keeps its pods off."""
    PODS = "pods"
    """The gang was started, and its pods are not made: its queue does not let it run, or something refuses them."""
    PROGRAM = "program"
    """The gang hangs again in the same place of its program, at the same step."""
    INVALID = "invalid"
    """The object of the gang has an unreadable value."""


class BreakerTrigger(StrEnum):
    """Which count opened the breaker."""

    NODES = "nodes"
    RESTARTS = "restarts"


class CauseKind(StrEnum):
    """Why a gang is restarted."""

    HARDWARE = "hardware"
    """A node of the gang was quarantined."""
    SOFTWARE = "software"
    """A rank failed and every node is healthy."""
    HANG = "hang"
    """Every member runs, and no progress was made for much longer than usual for this gang."""
    INTERRUPTED = "interrupted"
    """The supervisor of its processes ended: healthd was killed, or the machine rebooted."""
    CAPACITY = "capacity"
    """No fault: there are nodes again for members that were left out, so the gang grows back to its own size."""
    MAINTENANCE = "maintenance"
    """No fault: another detector says that a node of the gang will be drained or updated, so the gang leaves it."""
    STRAGGLER = "straggler"
    """No fault: a rank on a node makes the gang slow, so the gang leaves that node, as its owner allows it to."""


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """
    One record of a kernel log, as read and not judged yet.

    `priority` is facility * 8 + level as in `/dev/kmsg`. `text` is the message with `\\xNN` escapes undone;
    `tags` are the `KEY=value` continuation lines. `at` is the kernel's own time stamp as wall time.
    """

    sequence: int
    at: Moment
    text: str
    priority: int = 3
    boot_id: str = ""
    source: str = "kmsg"
    """`kmsg`, `journal` or `file`. Each numbers its records in its own way."""
    tags: dict[str, str] = {}

    @property
    def facility(self) -> int:
        """0 for the kernel. User space cannot forge it."""
        return self.priority >> 3


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One thing that was seen: *source* is `kmsg`, `nvml`, …; *sequence* is the kernel record's number, or -1."""

    source: str
    """The source that reported it: `kmsg`, `nvml`, …"""
    at: Moment
    """When it was seen."""
    text: str
    """The text of the source, unchanged."""
    sequence: int = -1
    """The sequence number of the kernel record; -1 for other sources."""
    job: str = ""
    """The gang or process that used the device at that time, where known."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """
    A judged fact about one device; identity is `id` = `<device>/<rule>`.

    `device` is a PCI address `dddd:bb:dd.f`, or `node` for the machine as a whole.
    """

    id: str
    """`<device>/<rule>`. There is one finding for each pair."""
    device: str
    """A PCI address, or `node` for the machine as a whole."""
    rule: str
    """For example `xid-79`, `gpu-lost`, `kmsg-lost`."""
    severity: Severity
    action: RepairAction
    blame: Blame
    message: str
    """What happened and what a person should do."""
    raised_at: Moment
    """When it was first seen."""
    last_at: Moment
    """When it was last seen."""
    boot_id: str = ""
    """The boot in which it was seen."""
    count: int = 1
    """How often it was seen, at least: drivers and logs drop repeats."""
    quarantines: bool = False
    """This finding alone takes the node out of service, by its rule."""
    evidence: list[Evidence] = []
    """The newest few, oldest first."""
    cleared_at: Moment | None = None
    """When it was cleared; absent while it is active."""
    cleared_by: str = ""
    """`repair`, `reset`, `reboot`, `decay`, `recovered` or `configuration`; empty while the finding is active."""
    cause: str = ""
    """The fault behind it, where several sources can report the same fault."""
    also: list[str] = []
    """The rules of other sources that report the same fault: `xid-79` beside `nvml-gpu-lost`."""
    parts: list[str] = []
    """Which parts of the device: `port 1`, `nvlink 3`; absent for the device as a whole."""
    watched: bool = False
    """A probe reads its state periodically. It ends when the state is good for long enough, not after a fixed time."""
    shadow: bool = False
    """The rule runs in shadow: the finding says what would be done, and nothing is done."""
