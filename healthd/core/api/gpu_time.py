"""
Where the time of a gang's GPUs went: the account that is stored on its root. Values only; `healthd.core.accounting`
divides the time.

All times are whole milliseconds (Unix time), all amounts whole GPU-milliseconds: sums are exact.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Annotated

import msgspec

from healthd.core.untrusted import LARGEST_STEP, Step

KEPT_INTERVALS = 32
"""Enough for the last few recoveries, small enough for an annotation. Older intervals are added to the totals."""
LARGEST_TIME = 10**13
"""Milliseconds: the year 2286."""
LARGEST_SIZE = 10**7
"""GPUs."""

Time = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TIME)]
Size = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_SIZE)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_STEP)]


class Part(StrEnum):
    """What a stretch of time was spent on."""

    PRODUCTIVE = "productive"
    """Training that a later step shows."""
    REDONE = "redone"
    """Work between the checkpoint that was resumed from and the fault: it is done again."""
    DETECTION = "detection"
    """From the fault until a recovery was opened."""
    DETECTED = "detected"
    """From then until the stop began."""
    STOPPING = "stopping"
    FENCING = "fencing"
    CHOOSING = "choosing"
    RESERVING = "reserving"
    STARTING = "starting"
    HELD = "held"
    """On hold, but not for a spare."""
    NO_SPARE = "no_spare"
    """On hold until there is a node."""
    STARTUP = "startup"
    """Every member ran, and training did not yet: libraries and checkpoints are loaded, code is compiled."""
    GAVE_UP = "gave_up"
    """Stopped by healthd, until somebody starts it again."""
    SHRUNK = "shrunk"
    """Of members that are left out because there was no node for them."""
    UNVERIFIED = "unverified"
    """It ran, and no step shows whether that was training."""
    QUEUED = "queued"
    """Not every member had started yet, after its user started it."""
    SUSPENDED = "suspended"
    """Its user had stopped it."""


NOT_LOST = frozenset({Part.PRODUCTIVE, Part.UNVERIFIED, Part.QUEUED, Part.SUSPENDED})
LOST = tuple(part for part in Part if part not in NOT_LOST)
"""Time that a fault or a start costs."""
NOT_OURS = frozenset({Part.QUEUED, Part.SUSPENDED})
"""Time in which the gang is not to train."""


class LossCause(StrEnum):
    """What a loss is due to: for hardware, the family of the rule that found it."""

    XID = "xid"
    SXID = "sxid"
    NVML = "nvml"
    DCGM = "dcgm"
    PCIE = "pcie"
    INFINIBAND = "infiniband"
    ROCE = "roce"
    EFA = "efa"
    ETHERNET = "ethernet"
    HARDWARE = "hardware"
    """Another rule, another detector, or a node that is gone."""
    SOFTWARE = "software"
    """A member failed, and no node is to blame."""
    HANG = "hang"
    INTERRUPTED = "interrupted"
    """Its processes were ended from outside."""
    CAPACITY = "capacity"
    """It grew back to its own size."""
    MAINTENANCE = "maintenance"
    """It left nodes before their maintenance."""
    STRAGGLER = "straggler"
    """It left a node on which a rank made it slow."""
    USER = "user"
    """Its user started, stopped or changed it."""
    UNKNOWN = "unknown"


class GangState(StrEnum):
    """What a gang does since the end of the divided time."""

    QUEUED = "queued"
    RUNNING = "running"
    RESTARTING = "restarting"
    """Its own controller starts it again."""
    SUSPENDED = "suspended"
    GAVE_UP = "gave_up"
    OVER = "over"


@cache
def key(part: Part, cause: LossCause = LossCause.UNKNOWN) -> str:
    """The name of a part and a cause in `GpuTime.totals`: `starting/xid`. Only a loss has a cause."""
    return part.value if part in NOT_LOST else f"{part}/{cause}"


KEYS = {name: name for name in (key(part, cause) for part in Part for cause in LossCause)}
"""The same strings for all accounts: a controller keeps hundreds of them."""


class Interval(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stretch of time, from the end of the one before it. *cause* of productive time: why members are missing."""

    until: Time
    part: Part
    cause: LossCause
    gpus: Size
    """GPUs of the whole gang."""
    missing: Size = 0
    """Of these, the GPUs of members that are left out."""


class GpuTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """
    The account of one gang. Its time from *since* is divided without a gap: first what is in the *totals*, then from
    *start* the *recent* intervals. What comes after them is not divided yet; *state* says what the gang does there.
    """

    since: Time
    """When the account began."""
    start: Time
    """When the first of the recent intervals began."""
    recent: Annotated[list[Interval], msgspec.Meta(max_length=KEPT_INTERVALS + 1)] = []
    totals: Annotated[dict[str, Amount], msgspec.Meta(max_length=512)] = {}
    """GPU-milliseconds by `<part>/<cause>`, of intervals older than the recent ones."""
    owed: Annotated[dict[str, Amount], msgspec.Meta(max_length=512)] = {}
    """What the counters have too much: a later recovery went back behind time that had been counted."""
    state: GangState = GangState.QUEUED
    run_since: Time = 0
    """Since when every member runs."""
    run_cause: LossCause = LossCause.USER
    """Why the gang was started the last time."""
    stepped: bool = False
    """A step of this run was seen."""
    step: Step = -1
    """The furthest step that counted."""
    entered: Time = 0
    """When the newest recovery that is in the account was detected."""
    own_restarts: Size = 0
    """How often its own controller had restarted it."""
    world: Size = 0
    full_world: Size = 0
    """Members that its user asked for; more than *world* while healthd leaves some out."""
    gpus: Size = 0
    """GPUs of the whole gang, with those of members that are left out."""
    missing: Size = 0
    shrunk_by: LossCause = LossCause.UNKNOWN

    def __post_init__(self) -> None:
        """The owner of a root can write there. Raises ValueError for what cannot be an account."""
        ends = [self.since, self.start, *(interval.until for interval in self.recent)]
        if ends != sorted(ends):
            raise ValueError("the intervals are not in order")
        if unknown := (self.totals.keys() | self.owed.keys()) - KEYS.keys():
            raise ValueError(f"there is no part {min(unknown)!r}")
        if self.totals:
            msgspec.structs.force_setattr(self, "totals", {KEYS[name]: size for name, size in self.totals.items()})

    @property
    def until(self) -> int:
        """The end of the divided time."""
        return self.recent[-1].until if self.recent else self.start
