"""What nodes, and the agents on them, are to the person on call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.alerts.agents import agent_problems
from healthd.core.alerts.nodes import node_problems
from healthd.core.alerts.problem import Problem, Shared
from healthd.core.api import ANNOTATION_QUARANTINE, Condition, Node, NodeHealth, NodeHealthStatus, Recovery
from healthd.core.api.incidents import Severity
from healthd.core.api.model import Phase, Verdict
from healthd.core.config import AlertsPolicy, QuarantinePolicy
from healthd.core.node.conditions import ACCELERATOR_HEALTHY
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.core.node.reporting import SILENT_AFTER
from tests.builders import a_cause, a_finding, a_node, a_nodehealth
from tests.core.alerts.problems import at
from tests.core.gangs import a_recovery_in
from tests.fakes import START

POLICY = AlertsPolicy()
LONG = timedelta(days=3)


def quarantined(name: str = "n1", since: datetime = START) -> Node:
    """A node that healthd took out of service."""
    record = Record(finding="0000:3b:00.0/xid-79", message="GPU has fallen off the bus", since=since)
    note = cordon_patch(a_node(name), record)["metadata"]["annotations"][ANNOTATION_QUARANTINE]
    return a_node(name, unschedulable=True, annotations={ANNOTATION_QUARANTINE: note})


def problems(
    node: Node,
    now: datetime,
    *,
    health: NodeHealth | None = None,
    recoveries: Sequence[Recovery] = (),
    quarantine: QuarantinePolicy | None = None,
    policy: AlertsPolicy = POLICY,
) -> list[Problem]:
    """What is wrong with one node."""
    name = node.metadata.name
    out = {name} if ANNOTATION_QUARANTINE in node.metadata.annotations else set()
    known = {name: health} if health else {}
    return node_problems({name: node}, known, out, recoveries, quarantine or QuarantinePolicy(), policy, now)


def test_a_node_that_was_taken_out_without_a_gang_is_a_notice() -> None:
    (found,) = problems(quarantined(), at(60))

    assert (found.severity, found.key, found.shared) == (Severity.NOTICE, "node/n1/20260101T000000Z", Shared.NODE)
    assert found.title == "n1 is out of service, for 0000:3b:00.0/xid-79"
    assert "healthd repair n1" in found.todo


def test_one_that_a_recovery_explains_is_not_reported_twice() -> None:
    recovery = a_recovery_in(Phase.RECOVERED, causes=[a_cause(node="n1", at=at(-2))])

    assert problems(quarantined(), at(60), recoveries=[recovery]) == []


def test_one_that_a_recovery_of_last_week_blamed_is_reported() -> None:
    recovery = a_recovery_in(Phase.RECOVERED, causes=[a_cause(node="n1", at=START - timedelta(days=7))])

    assert len(problems(quarantined(), at(60), recoveries=[recovery])) == 1


def test_one_that_is_out_for_long_is_a_page_whatever_going_on_it() -> None:
    recovery = a_recovery_in(Phase.RECOVERED, causes=[a_cause(node="n1")])
    (found,) = problems(quarantined(), START + LONG, recoveries=[recovery])

    assert found.severity is Severity.PAGE
    assert "since 2026-01-01 00:00 UTC" in found.title


def test_how_long_is_too_long_can_be_never() -> None:
    (found,) = problems(quarantined(), START + 9 * LONG, policy=AlertsPolicy(node_out_after=None))

    assert found.severity is Severity.NOTICE


def unhealthy(**finding: Any) -> NodeHealth:
    return a_nodehealth("n1", verdict=Verdict.UNHEALTHY, findings=[a_finding(**finding)])


def test_a_broken_node_that_stays_in_service_is_a_page() -> None:
    (found,) = problems(a_node("n1"), at(60), health=unhealthy())

    assert (found.severity, found.shared, found.runbook) == (Severity.PAGE, Shared.NODES, "budget-used-up")
    assert found.since == at(15)


@pytest.mark.parametrize(
    ("node", "seconds", "cordon"),
    [
        (a_node("n1"), 5, True),
        (a_node("n1", unschedulable=True), 60, True),
        (quarantined(), 60, True),
        (a_node("n1"), 60, False),
    ],
    ids=["its agent is about to", "cordoned by a person", "in quarantine", "healthd is not to cordon"],
)
def test_else_a_broken_node_is_no_page(node: Node, seconds: float, cordon: bool) -> None:
    found = problems(node, at(seconds), health=unhealthy(), quarantine=QuarantinePolicy(cordon=cordon))

    assert [each for each in found if each.severity is Severity.PAGE] == []


def a_gpu_node(name: str, *conditions: Condition) -> Node:
    node = a_node(name, conditions=conditions, creation_timestamp=START)
    return replace(node, status=replace(node.status, capacity={"nvidia.com/gpu": "8"}))


def seen(name: str, moment: datetime, verdict: Verdict = Verdict.HEALTHY) -> NodeHealth:
    status = NodeHealthStatus(verdict=verdict, seen_at=moment, message="nvml cannot be read: no driver.")
    return a_nodehealth(name, status=status)


def missing(count: int, *, of: int = 10) -> list[Problem]:
    """Problems of a cluster in which *count* agents are silent."""
    now = START + timedelta(days=1)
    nodes = {f"n{number}": a_gpu_node(f"n{number}") for number in range(of)}
    last = {name: now - SILENT_AFTER - timedelta(hours=1) if n < count else now for n, name in enumerate(nodes)}
    return agent_problems(nodes, {name: seen(name, moment) for name, moment in last.items()}, POLICY, now)


def test_agents_that_are_missing_are_one_notice_and_many_are_a_page() -> None:
    (few,) = missing(2)
    (many,) = missing(4)

    assert (few.severity, few.nodes) == (Severity.NOTICE, ("n0", "n1"))
    assert (many.severity, many.title) == (
        Severity.PAGE,
        "Nothing is heard of the agents on 4 nodes: n0, n1, n2 and 1 more",
    )
    assert missing(0) == []


def test_an_agent_that_never_reported_is_missing_after_a_while() -> None:
    nodes = {"n1": a_gpu_node("n1")}

    assert agent_problems(nodes, {}, POLICY, at(60)) == []
    assert [each.nodes for each in agent_problems(nodes, {}, POLICY, at(1000))] == [("n1",)]


def test_a_node_without_gpus_needs_no_agent() -> None:
    assert agent_problems({"n1": a_node("n1", creation_timestamp=START)}, {}, POLICY, at(10_000)) == []


def test_a_blind_node_is_going_on_when_it_stays_so() -> None:
    unknown = Condition(type=ACCELERATOR_HEALTHY, status="Unknown", last_transition_time=START)
    nodes = {"n1": a_gpu_node("n1", unknown)}
    health = {"n1": seen("n1", START, Verdict.UNKNOWN)}

    assert agent_problems(nodes, health, POLICY, at(60)) == []
    (found,) = agent_problems(nodes, health, POLICY, at(400))
    assert (found.severity, found.happened) == (Severity.NOTICE, "n1: nvml cannot be read: no driver.")
