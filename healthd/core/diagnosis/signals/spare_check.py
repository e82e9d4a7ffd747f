"""
The rule about the check of idle spares: see `healthd.core.remediation.spare_checks`.

The controller writes on a spare that it failed its check (`healthd.core.node.failed_check`). The agent reads that like
any other reading. The controller takes it off once this finding is published, so what ends the finding is a repair, a
reset or a reboot, as for a fault of a GPU.
"""

from __future__ import annotations

from datetime import datetime

from healthd.core.api.model import Blame
from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.core.diagnosis.signals.rule import IsNot, Rule

SOURCE = "spare-check"
NO_FAILURE = "no failure"
"""The value of the reading while nothing is reported."""

SPARE_CHECK_FAILED = Rule(
    name="spare-check-failed",
    reads="spare-check.result",
    test=IsNot(frozenset({NO_FAILURE})),
    tier="reboot",
    blame=Blame.NODE,
    summary="the node was idle, held free as a spare, and failed its check under load",
    advice="Reboot the node, then check it: `healthd check --deep`.",
    clears_after=None,
    source="own choice: another spare of its kind has passed the same check since",
)
RULES = (SPARE_CHECK_FAILED,)


def spare_check_sample(why: str, now: datetime) -> Sample:
    """Why the node failed its check as a spare; empty: nothing says that it did."""
    return Sample(source=SOURCE, at=now, readings=[Reading(NODE, SPARE_CHECK_FAILED.reads, why or NO_FAILURE)])
