"""What the component `hang-evidence` says to the agent of its node about the ranks of a pod that works."""

from __future__ import annotations

from typing import Annotated

import msgspec

from healthd.core.api.health import Number
from healthd.core.hang.suspects.rank_processes import MOST_RANKS

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class RankTime(msgspec.Struct, frozen=True, kw_only=True):
    """What the main thread of one rank has used since it began."""

    number: Number
    """As its launcher numbered it, else in the order of their start."""
    pid: Number
    """On the node."""
    ran: Seconds
    """It had a processor."""
    starved: Seconds
    """It was ready to run, and had none."""
    own_waits: Seconds = 0.0
    """It slept by itself, or waited for a file or another process of its own, since it was first asked for."""


RankTimes = Annotated[list[RankTime], msgspec.Meta(max_length=MOST_RANKS)]
"""Of one pod."""
