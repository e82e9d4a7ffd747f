"""What is remembered of how a gang saves. Values only; `healthd.core.checkpoint.precheck` judges them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from healthd.core.untrusted import LARGEST_STEP, Moment, Step

KEPT_SAVES = 12
"""Enough to know what is usual; small enough for an annotation."""
LONGEST_WRITE = 1e9
"""Seconds."""


class Concern(StrEnum):
    """What may be wrong with the saving of a gang."""

    LATE = "late"
    """No good checkpoint for much longer than usual."""
    REFUSED = "refused"
    """The newest one would not be resumed from."""
    SLOWER = "slower"
    """Writing one takes much longer than it did."""
    FULL = "full"
    """There is room for only a few more."""


class Save(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One good checkpoint. *at* is the store's time of its newest file, *size* bytes, *seconds* what writing took."""

    step: Step = -1
    at: Moment
    size: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_STEP)] = 0
    seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WRITE)] = 0.0


class Saves(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is remembered of a gang's saving, on its root; the good ones oldest first."""

    watched_since: Moment | None = None
    """When its checkpoints were first looked at; None: nobody has, or it was not written down yet."""
    good: Annotated[list[Save], msgspec.Meta(max_length=KEPT_SAVES)] = []
    refused: str = ""
    """The newest one, where it was not good at the last look."""
    why_refused: str = ""
    refused_since: Moment | None = None
    """Since when the same one is refused: one that is being written is refused, too, for a while."""
    none_loads: bool = False
    """At the last look there was something, and nothing of it would be resumed from: a fault would hold the gang."""
    concerns: Annotated[list[Concern], msgspec.Meta(max_length=len(Concern))] = []
    """Those that stood at the last look, so that each is told once."""


NO_SAVES = Saves()
"""Nobody has looked."""
