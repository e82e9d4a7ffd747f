"""The head of `healthd top`."""

from __future__ import annotations

from healthd.core.api.model import Verdict
from healthd.core.recovery.terms import KUBERNETES, ONE_SERVER
from healthd.core.report.listing.fleet import sentences, summary
from tests.builders import a_node, a_nodehealth


def test_nodes_are_counted_by_verdict_and_a_silent_one_is_unknown() -> None:
    nodes = {name: a_node(name, spare=name == "c") for name in "abc"}
    health = {"a": a_nodehealth("a", verdict=Verdict.HEALTHY), "b": a_nodehealth("b", verdict=Verdict.UNHEALTHY)}

    assert sentences(summary(nodes, health, []), KUBERNETES) == [
        "nodes  3: 1 healthy, 1 unhealthy, 1 unknown, 1 spare free",
        "gangs  0",
    ]


def test_no_free_spare_is_said() -> None:
    first, _ = sentences(summary({}, {}, []), ONE_SERVER)

    assert first == "slots  0: 0 spares free"
