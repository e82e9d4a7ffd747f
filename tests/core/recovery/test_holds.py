"""What a held recovery waits for, read from what is stored of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from healthd.core.api import RecoveryStatus
from healthd.core.api.model import Hold, Phase
from healthd.core.recovery.holds import hold_of


@pytest.mark.parametrize(
    ("held_in", "message", "hold"),
    [
        (Phase.DETECTED, "bad is not quarantined", Hold.BUDGET),
        (Phase.DETECTED, "the breaker is open: 2 recoveries began", Hold.BREAKER),
        (Phase.RESERVING, "the breaker is open: 2 recoveries began", Hold.BREAKER),
        (Phase.RESERVING, "no spare", Hold.SPARE),
        (Phase.FENCING, "no proof", Hold.FENCE),
        (Phase.CHOOSING, "none will load", Hold.CHECKPOINT),
        (Phase.CHOOSING, "the gang cannot be read: healthd.dev/min-nodes", Hold.INVALID),
        (Phase.STARTING, "it came back to a bad node: node-1", Hold.NODE),
        (Phase.CONFIRMING, "it came back to a bad node: node-1", Hold.NODE),
        (Phase.STARTING, "its queue does not let it run: it waits", Hold.PODS),
        (Phase.STARTING, "its members are not all made: Job train has made none of 2", Hold.PODS),
        (Phase.CONFIRMING, "it hangs again in the same place, after step 7", Hold.PROGRAM),
    ],
)
def test_what_a_held_recovery_waits_for_follows_from_what_any_version_has_stored(
    held_in: Phase, message: str, hold: Hold
) -> None:
    """The messages stand here as they are stored: other versions wrote them, and read them."""
    held = RecoveryStatus(phase=Phase.HELD, held_in=held_in, message=message)

    assert hold_of(held) is hold
    assert hold_of(replace(held, phase=held_in)) is None
