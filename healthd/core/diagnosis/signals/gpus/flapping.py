"""How to write rules about GPUs that come and go: one fault, whichever source shows it."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.rule import Changes, Rule

_HOUR = timedelta(hours=1)


def comes_and_goes(name: str, reads: str) -> Rule:
    """For a GPU that is never away long enough to be called lost."""
    return Rule(
        name=name,
        reads=reads,
        test=Changes(times=6, within=_HOUR),
        tier="serious",
        blame=Blame.DEVICE,
        summary="the GPU was lost and came back three times in an hour",
        advice="Look at its seat and power; unless somebody resets it by hand, drain the node and replace it.",
        clears_after=_HOUR,
        same_as="gpu-lost",
        source="own choice: a GPU that is reset on purpose is away once or twice",
    )
