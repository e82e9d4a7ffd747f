"""What the doctor says of a node: the next rung and why, what would come after, and what is in the way."""

from __future__ import annotations

from healthd.core.api import OwnerReference, PodStatus
from healthd.core.api.model import RepairAction
from healthd.core.api.remediations import NodePhase, Rung
from healthd.core.remediation.occupants import occupants_of
from healthd.core.remediation.situation import PersonsWord
from healthd.core.report.node_plan import plan_of, plan_text
from tests.builders import a_node, a_pod
from tests.core.remediation.situations import (
    DEVICE,
    a_finding,
    a_hand,
    a_quarantined_node,
    a_situation,
    an_attempt,
)


def test_the_whole_ladder_is_said_as_if_nothing_helped() -> None:
    hands = (a_hand(Rung.RESET_GPU), a_hand(Rung.REPLACE))
    situation = a_situation(NodePhase.IN_SERVICE, findings=[a_finding(action=RepairAction.RESET_GPU)], hands=hands)

    assert plan_text(plan_of(situation, ["kured: not served"])).splitlines() == [
        "node/gpu-17: the next rung is to reset its GPUs, by the-reset_gpu",
        f"because    {DEVICE}/xid-79 asks for it",
        "then       replace it, by the-replace",
        "then       wait for a person",
        "not here   kured: not served",
        (
            "Rungs are taken by themselves only where `remediation` is configured. "
            "After the repair: healthd repair gpu-17"
        ),
    ]


def test_where_healthd_repairs_the_node_it_says_where_that_stands_and_what_comes_after() -> None:
    tried = an_attempt(Rung.RESET_GPU)
    situation = a_situation(NodePhase.REMEDIATING, tried, status={"message": "waits for the-reset_gpu"})
    plan = plan_of(situation)

    assert "now        Remediating: waits for the-reset_gpu" in plan_text(plan).splitlines()
    assert plan.steps[0].rung is Rung.REBOOT


def test_what_is_in_the_way_is_said() -> None:
    situation = a_situation(
        NodePhase.IN_SERVICE,
        node=a_quarantined_node(cordoned=False),
        word=PersonsWord.OFF,
        occupants=("ml/train-0",),
        other_remediator="kured (annotation x)",
    )

    assert plan_of(situation).waits == (
        "a person said off (healthd.dev/remediation)",
        "a person uncordoned it during its quarantine",
        "kured (annotation x) repairs it: that must end",
        "the end of ml/train-0: nothing that runs is killed",
    )


def test_a_node_in_service_needs_nothing() -> None:
    text = plan_text(plan_of(a_situation(NodePhase.IN_SERVICE, node=a_node("gpu-17"))))

    assert text == "node/gpu-17 is in service: there is nothing to do"


def test_pods_that_belong_to_the_node_or_have_ended_keep_nothing_waiting() -> None:
    daemon = OwnerReference(kind="DaemonSet", name="exporter", uid="u", controller=True)
    pods = [
        a_pod("train-0", namespace="ml", node="gpu-17"),
        a_pod("exporter", node="gpu-17", owner_references=[daemon]),
        a_pod("static", node="gpu-17", annotations={"kubernetes.io/config.mirror": "x"}),
        a_pod("ended", node="gpu-17", status=PodStatus(phase="Succeeded")),
    ]

    assert occupants_of(pods) == ("ml/train-0",)
