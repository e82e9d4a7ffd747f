"""
How to write rules that compare the present state with what the node had at its best: see
`healthd.core.diagnosis.node_shape`.

None of these rules takes a node out: the change may be intended, and `healthd repair` records that it is.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.rule import Below, Is, Rule

ADVICE = "Look for what is missing or slow since the boot; where it is meant so, say `healthd repair` for the node."
_SOURCE = "own choice: compared with the best that the node ever showed since its last repair"


def fewer_than_before(name: str, reads: str, summary: str) -> Rule:
    """For a count over the whole node."""
    return Rule(
        name=name,
        reads=reads,
        test=Below(other=f"{reads}.before"),
        tier="serious",
        blame=Blame.NODE,
        summary=summary,
        advice=ADVICE,
        holds=timedelta(minutes=1),
        source=_SOURCE,
    )


def slower_than_before(name: str, reads: str) -> Rule:
    """For the rate of a port."""
    return Rule(
        name=name,
        reads=reads,
        test=Below(other=f"{reads}.before"),
        tier="serious",
        blame=Blame.LINK,
        summary="the port runs slower than it did",
        advice=ADVICE,
        holds=timedelta(minutes=1),
        same_as="nic-link-slow",
        source=_SOURCE,
    )


def not_up_since_boot(name: str, reads: str) -> Rule:
    """For a port that was up in earlier boots."""
    return Rule(
        name=name,
        reads=reads,
        test=Is(frozenset({"no"})),
        tier="serious",
        blame=Blame.LINK,
        summary="a port that was up before was never up since the node booted",
        advice=ADVICE,
        holds=timedelta(minutes=10),
        same_as="nic-port-down",
        source=f"{_SOURCE}; ten minutes, because fabrics boot slowly",
    )
