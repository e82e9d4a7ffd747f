"""What is recorded about the checkpoints that a gang saves. `healthd.core.checkpoint.precheck` judges these values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from healthd.core.untrusted import LARGEST_STEP, Moment, Step

KEPT_SAVES = 12
"""Enough to know what is usual, and small enough for an annotation."""
LONGEST_WRITE = 1e9
"""Seconds."""


class Concern(StrEnum):
    """What may be wrong with the checkpoints of a gang."""

    LATE = "late"
    """There has been no good checkpoint for much longer than usual."""
    REFUSED = "refused"
    """healthd would not resume from the newest one."""
    SLOWER = "slower"
    """Writing one takes much longer than before."""
    FULL = "full"
    """The store has room for only a few more."""


class Save(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One good checkpoint. *at* is the store's time of its newest file, *size* bytes, *seconds* what writing took."""

    step: Step = -1
    at: Moment
    size: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_STEP)] = 0
    seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WRITE)] = 0.0


class Saves(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is recorded about a gang's checkpoints, on its root. The good ones are listed oldest first."""

    watched_since: Moment | None = None
    """When its checkpoints were first read; None: not yet, or not recorded yet."""
    good: Annotated[list[Save], msgspec.Meta(max_length=KEPT_SAVES)] = []
    refused: str = ""
    """The newest one, if it was not good at the last check."""
    why_refused: str = ""
    refused_since: Moment | None = None
    """Since when this one is refused. A checkpoint that is being written is also refused for a while."""
    none_loads: bool = False
    """At the last check there were checkpoints and none of them was good: a fault would hold the gang."""
    concerns: Annotated[list[Concern], msgspec.Meta(max_length=len(Concern))] = []
    """The concerns at the last check, so that each is reported once."""


NO_SAVES = Saves()
"""Not checked yet."""
