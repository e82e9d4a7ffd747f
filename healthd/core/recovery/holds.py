"""
Why a recovery is held, read from what is stored of it.

Where the phase that cannot go on does not tell it, the message begins with words of this module, and only of this one.
They are stored, and read by later controllers and by older ones beside them: a beginning is never reworded.

It is no field of its own. An older controller that takes over knows no such field: it would leave the old value beside
its own message, and that value would be believed.
"""

from __future__ import annotations

from collections.abc import Mapping

from healthd.core.api import RecoveryStatus
from healthd.core.api.model import Hold, Phase

OPEN = "the breaker is open"
UNREADABLE = "the gang cannot be read"
"""Its root is invalid."""
CAME_BACK = "it came back to a bad node"
"""It runs on a node that it was moved away from."""
QUEUED = "its queue does not let it run"
NOT_MADE = "its members are not all made"
"""It was started."""
SAME_PLACE = "it hangs again in the same place"
"""It hangs where it hung before its restart."""

_BY_BEGINNING: Mapping[str, Hold] = {
    OPEN: Hold.BREAKER,
    UNREADABLE: Hold.INVALID,
    CAME_BACK: Hold.NODE,
    QUEUED: Hold.PODS,
    NOT_MADE: Hold.PODS,
    SAME_PLACE: Hold.PROGRAM,
}
_BY_PHASE: Mapping[Phase, Hold] = {
    Phase.DETECTED: Hold.BUDGET,
    Phase.FENCING: Hold.FENCE,
    Phase.CHOOSING: Hold.CHECKPOINT,
    Phase.RESERVING: Hold.SPARE,
    Phase.STARTING: Hold.SPARE,
}
"""What a phase waits for otherwise."""


def hold_of(status: RecoveryStatus) -> Hold | None:
    """What a recovery with this status waits for; None when it is not held."""
    if status.phase is not Phase.HELD:
        return None
    said = next((hold for beginning, hold in _BY_BEGINNING.items() if status.message.startswith(beginning)), None)
    return said or _BY_PHASE.get(status.held_in or Phase.DETECTED)


def is_held_as(status: RecoveryStatus, beginning: str) -> bool:
    """Whether it is held, and its message has this beginning, one of this module."""
    return status.phase is Phase.HELD and status.message.startswith(beginning)
