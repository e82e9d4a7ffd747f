"""
The words of the judging side: readings become findings, findings add up to a verdict.
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
    """A fault of the application: tell its owner; the device is fine."""
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    INSPECT = "inspect"
    """Run diagnostics or look at the mechanics (cable, seat, cooling) when idle."""
    CONTACT_SUPPORT = "contact_support"
    """Hardware to be replaced: only a repair clears it."""


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
    """What all findings of a node add up to."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """Where a recovery stands. The last four are entered from anywhere; only `Held` is left again."""

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
"""Phases in which a recovery does nothing more."""


class Hold(StrEnum):
    """What a held recovery waits for: each is somebody else's to bring."""

    BUDGET = "budget"
    """Its bad node is not out of service: the budget is used up, or healthd may not cordon."""
    BREAKER = "breaker"
    """Faults come in crowds."""
    FENCE = "fence"
    """Nobody has proven that an old pod can no longer write."""
    CHECKPOINT = "checkpoint"
    """None will load."""
    SPARE = "spare"
    """There is no node to take the place of the bad one."""
    INVALID = "invalid"
    """Its owner wrote what cannot be read."""


class BreakerTrigger(StrEnum):
    """What comes in crowds and opens the breaker."""

    NODES = "nodes"
    RESTARTS = "restarts"


class CauseKind(StrEnum):
    """Why a gang is restarted."""

    HARDWARE = "hardware"
    """A node under it was quarantined."""
    SOFTWARE = "software"
    """A rank failed and every node is healthy."""
    HANG = "hang"
    """No progress for longer than its own rhythm, everything else alive."""
    INTERRUPTED = "interrupted"
    """The supervisor of its processes went away (healthd itself was killed, the machine rebooted)."""


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """
    One record of a kernel log, as read; nothing is judged yet.

    `priority` is facility * 8 + level as in `/dev/kmsg`. `text` is the message with `\\xNN` escapes undone;
    `tags` are the `KEY=value` continuation lines. `at` is the kernel's own time stamp as wall time.
    """

    sequence: int
    at: Moment
    text: str
    priority: int = 3
    boot_id: str = ""
    source: str = "kmsg"
    """`kmsg`, `journal` or `file`: each numbers its records in its own way."""
    tags: dict[str, str] = {}

    @property
    def facility(self) -> int:
        """0 for the kernel; user space cannot forge it."""
        return self.priority >> 3


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One thing that was seen: *source* is `kmsg`, `nvml`, …; *sequence* is the kernel record's number, or -1."""

    source: str
    """Who saw it: `kmsg`, `nvml`, …"""
    at: Moment
    """When it was seen."""
    text: str
    """What was seen, word for word."""
    sequence: int = -1
    """The kernel record's number; -1 where it is none."""
    job: str = ""
    """The gang or process that used the device then, where known."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """
    A judged fact about one device; identity is `id` = `<device>/<rule>`.

    `device` is a PCI address `dddd:bb:dd.f`, or `node` for the machine as a whole.
    """

    id: str
    """`<device>/<rule>`: one finding for each."""
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
    """A lower bound: drivers and logs drop repeats."""
    quarantines: bool = False
    """By its rule, this alone takes the node out of service."""
    evidence: list[Evidence] = []
    """The newest few, oldest first."""
    cleared_at: Moment | None = None
    """When it was cleared; absent while it stands."""
    cleared_by: str = ""
    """`repair`, `reset`, `reboot`, `decay`, `recovered` or `configuration`; empty while the finding stands."""
    cause: str = ""
    """The fault that it tells of, where several kinds of witnesses can tell of the same."""
    also: list[str] = []
    """The rules of other witnesses of the same fault: `xid-79` beside `nvml-gpu-lost`."""
    parts: list[str] = []
    """Which parts of the device: `port 1`, `nvlink 3`; absent for the device as a whole."""
    watched: bool = False
    """Its state is looked at again and again: it ends when that is good for long enough, and not by time."""
    shadow: bool = False
    """Its rule is being tried: it says what it would do and does nothing."""
