"""A rank that the others of its gang wait for, as it is reported and recorded."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from healthd.core.untrusted import LARGEST_NUMBER, Moment

LONGEST_NAME = 320
"""Characters of a rank, a pod or a node: an index has no more."""
LONGEST_REASON = 600
"""Characters."""
LARGEST_AMOUNT = 1000
Amount = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_AMOUNT)]
"""The record of a gang is on its root, where its owner can write it."""
Number = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_NUMBER)]


class ShownBy(StrEnum):
    """By what a straggler is seen."""

    WORK = "work"
    """Its host works more of the time than those of its peers."""
    CLOCK = "clock"
    """The clock of its GPU."""
    HOST_BOUND = "host-bound"
    """Its GPUs wait for their host."""
    AGENT = "agent"
    """The agent of its node compared it with others there: a process, or one GPU. The controller only follows that."""


class Straggler(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One member that the others wait for. Shares are of the time, from 0 to 1."""

    rank: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
    slower: Amount
    """How much longer a step takes for it, or because of it: 0.1 is 10 %."""
    since: Moment
    """The beginning of the first window that shows it."""
    seen_at: Moment
    ran: Amount
    starved: Amount
    peers_ran: Amount
    """The median of its peers."""
    peers_starved: Amount
    stalled: Amount = 0.0
    peers_stalled: Amount = 0.0
    own_waits: Amount = 0.0
    peers_own_waits: Amount = 0.0
    stopped: Amount = 0.0
    """A part of its own waits, as far as is seen: its process was stopped."""
    from_start: bool = False
    """It has been so since its shares are known: the job itself may give it more to do."""
    confidence: Amount
    """An estimate."""
    pod: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    node: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=LONGEST_REASON)] = ""
    """Why, for a person. Empty: it follows from the shares. On Kubernetes shares are of cores, and no main thread's."""
    ended_at: Moment | None = None
    """
    When it began to keep up again, about a minute before that was reported, or was stopped. None: it is still slow, as
    far as is known.
    """
    gpu: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    """The PCI address of the GPU that shows it. Empty: the processors of its host do, or the GPUs of a local rank."""
    idle: Amount = 0.0
    """The part of the time in which its GPU ran no kernel, where that shows it. Else 0."""
    peers_idle: Amount = 0.0
    pid: Number = 0
    """Its process on the node, where it is slower than the other ranks of its own pod. 0: pods were compared."""
    was_stopped: bool = False
    """It ended because the ranks were stopped."""
    was_lost: bool = False
    """It ended because its agent lists it no more: that has begun anew, and it is not known whether it keeps up."""
    hung: bool = False
    """The gang hung from `ended_at` on, until the ranks were stopped."""

    @property
    def identity(self) -> tuple[str, str, datetime]:
        """What is the same of all that is known of one at different times: rank, GPU, and since when."""
        return self.rank, self.gpu, self.since

    @property
    def shown_by(self) -> ShownBy:
        """Which comparison it is of."""
        if self.pid or (self.gpu and self.idle):
            return ShownBy.AGENT
        if self.idle:
            return ShownBy.HOST_BOUND
        return ShownBy.CLOCK if self.gpu else ShownBy.WORK

    @property
    def is_only_reported(self) -> bool:
        """Its gang is not moved for it, also where its owner allows that."""
        return self.shown_by in {ShownBy.AGENT, ShownBy.HOST_BOUND}
