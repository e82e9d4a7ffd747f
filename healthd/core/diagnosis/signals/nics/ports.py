"""How to write rules about network ports. The rules and readings of one family begin with the family's name."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.rule import OutOfLine, Rule, Test

_NO_WAIT = timedelta(0)


def port_rule(
    family: str,
    name: str,
    reads: str,
    test: Test,
    tier: str,
    blame: Blame,
    summary: str,
    source: str,
    advice: str = "",
    holds: timedelta = _NO_WAIT,
    same_as: str = "",
) -> Rule:
    """A rule `family-name` about `family.reads`."""
    return Rule(
        name=f"{family}-{name}",
        reads=f"{family}.{reads}",
        test=test,
        tier=tier,
        blame=blame,
        summary=summary,
        advice=advice,
        holds=holds,
        same_as=same_as,
        source=source,
    )


def beyond_peers(floor: float) -> OutOfLine:
    """Far more than at the node's other ports: a congested fabric moves the counters of all of them."""
    return OutOfLine(score=6, floor=floor, within=timedelta(minutes=5))
