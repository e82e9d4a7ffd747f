"""The page of one gang, one recovery, one node."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import CauseKind, Evidence, Phase
from healthd.core.recovery.terms import KUBERNETES
from healthd.core.report.page.details import NodeObjects, gang_detail, node_detail, recovery_detail
from tests.builders import a_cause, a_finding, a_node, a_nodehealth, a_recovery
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

CAUSE = a_cause(CauseKind.HARDWARE, node="gpu-17", finding="0000:3b:00.0/xid-79")
SEEN = a_finding(evidence=[Evidence(source="kmsg", at=START, text="NVRM: Xid 79 <b>\x07", sequence=7, job="train")])
MENDED = a_finding("xid-31", cleared_at=START + timedelta(hours=1), cleared_by="decay")
OBJECTS = NodeObjects({"gpu-17": a_node("gpu-17")}, {"gpu-17": a_nodehealth("gpu-17", findings=[MENDED, SEEN])})


def text(sections: list[object]) -> str:
    return repr(sections)


def test_a_recovery_is_explained_with_the_evidence_on_its_node() -> None:
    detail = recovery_detail(a_recovery(cause=CAUSE), OBJECTS, KUBERNETES, START)

    assert [title for title, _ in detail.sections][1:3] == ["Cause", "Decision"]
    assert "Xid 79" in text([*detail.sections])


def test_who_may_not_read_nodes_gets_no_evidence_and_no_state_of_them() -> None:
    detail = recovery_detail(a_recovery(cause=CAUSE), None, KUBERNETES, START)

    assert "Xid 79" not in text([*detail.sections])
    assert "no node gpu-17" not in text([*detail.sections])


def test_a_gang_without_a_recovery_says_what_a_fault_would_cost_or_why_that_is_unknown() -> None:
    detail = gang_detail(a_root(), ["b", "a", "a", ""], [], OBJECTS, START)

    assert detail.sections[-1].title == "The next fault"
    assert (detail.nodes, detail.recoveries) == (["a", "b"], [])


def test_a_gang_is_explained_by_its_newest_recovery() -> None:
    newest = a_recovery_in(Phase.HELD)
    detail = gang_detail(a_root(), [], [newest], OBJECTS, START)

    assert detail.recoveries == [f"{newest.metadata.namespace}/{newest.metadata.name}"]
    assert newest.metadata.name in detail.sections[0].title


def test_a_node_shows_what_stands_what_ended_and_which_recoveries_name_it() -> None:
    recoveries = [a_recovery("train-1", cause=CAUSE), a_recovery("other-1")]
    detail = node_detail(
        OBJECTS.nodes["gpu-17"], OBJECTS.health["gpu-17"], ["team-a/job/train"], recoveries, "rack", START
    )

    assert [each.rule for each in detail.standing] == ["xid-79"]
    assert [each.rule for each in detail.cleared] == ["xid-31"]
    assert detail.recoveries == ["default/train-1"]
    assert detail.standing[0].evidence[0].text == "NVRM: Xid 79 <b>\\u0007"


def test_a_node_without_an_agent_has_no_findings() -> None:
    detail = node_detail(a_node("gpu-17"), None, [], [], "rack", START)

    assert (detail.standing, detail.cleared, detail.repair) == ([], [], "")
