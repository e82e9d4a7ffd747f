"""The cells of the fleet grid."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api import Condition, NodeHealthStatus
from healthd.core.api.model import Verdict
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.core.report.page.nodes import NodeCell, NodeState, SpareState, node_cell, state_of
from tests.builders import a_finding, a_node, a_nodehealth
from tests.fakes import START

DOMAIN = "rack"
HEALTHY = a_nodehealth(verdict=Verdict.HEALTHY)
UNHEALTHY = a_nodehealth(status=NodeHealthStatus(verdict=Verdict.UNHEALTHY, message="lost a GPU"))
NOT_READY = [Condition(type="Ready", status="Unknown")]


def quarantined(**node: object) -> dict[str, str]:
    record = Record(finding="0000:3b:00.0/xid-79", message="GPU has fallen off the bus", since=START)
    annotations: dict[str, str] = cordon_patch(a_node(), record)["metadata"]["annotations"]
    return annotations


def test_a_healthy_node_has_its_domain_and_nothing_else() -> None:
    cell = node_cell(a_node(labels={DOMAIN: "rack-7"}), HEALTHY, DOMAIN, START)

    assert cell == NodeCell("rack-7", NodeState.HEALTHY, SpareState.NO, "")


def test_quarantine_comes_before_what_the_agent_says() -> None:
    cell = node_cell(a_node(annotations=quarantined()), UNHEALTHY, DOMAIN, START)

    assert (cell.state, cell.reason) == (
        NodeState.QUARANTINED,
        "0000:3b:00.0/xid-79: GPU has fallen off the bus",
    )


def test_a_bad_node_in_service_says_so() -> None:
    assert state_of(a_node(), UNHEALTHY, START) == (NodeState.UNHEALTHY, "in service, although: lost a GPU")


@pytest.mark.parametrize(
    ("node", "health", "state"),
    [
        (a_node(conditions=NOT_READY), HEALTHY, NodeState.NOT_READY),
        (a_node(unschedulable=True), HEALTHY, NodeState.CORDONED),
        (a_node(), None, NodeState.UNKNOWN),
        (a_node(), a_nodehealth(verdict=Verdict.DEGRADED, findings=[a_finding()]), NodeState.DEGRADED),
    ],
)
def test_other_states(node: object, health: object, state: NodeState) -> None:
    assert state_of(node, health, START)[0] is state  # type: ignore[arg-type]


def test_a_good_report_that_is_too_old_is_unknown() -> None:
    health = a_nodehealth(status=NodeHealthStatus(verdict=Verdict.HEALTHY, seen_at=START))

    assert state_of(a_node(), health, START + timedelta(hours=2))[0] is NodeState.HEALTHY
    assert state_of(a_node(), health, START + timedelta(hours=4))[0] is NodeState.UNKNOWN


def test_a_spare_is_marked() -> None:
    assert node_cell(a_node(spare=True), HEALTHY, DOMAIN, START).spare is SpareState.FREE


def test_text_from_the_cluster_is_made_safe_and_cut() -> None:
    node = a_node(labels={DOMAIN: "rack\u202e7"})
    health = a_nodehealth(status=NodeHealthStatus(verdict=Verdict.UNHEALTHY, message="\x1b[31m" + "x" * 9999))
    cell = node_cell(node, health, DOMAIN, START)

    assert cell.domain == "rack\\u202e7"
    assert cell.reason.isprintable()
    assert len(cell.reason) == 160
