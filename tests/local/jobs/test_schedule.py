"""Which slot a pod gets, and why it gets none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from healthd.core.api import (
    ANNOTATION_PLACEMENT,
    LABEL_SPARE,
    TAINT_QUARANTINED,
    TAINT_RESERVED,
    Condition,
    Node,
    OwnerReference,
    Pod,
    PodStatus,
    Taint,
    Toleration,
)
from healthd.core.recovery.nodes.spares import reservation
from healthd.local.jobs.schedule import Bind, decide_bindings, refused, tolerates
from tests.builders import a_node, a_pod
from tests.fakes import START

SPARE = Taint(key=LABEL_SPARE)
THE_JOB = OwnerReference(kind="Job", name="train", uid="uid-train", controller=True)
QUARANTINED = Taint(key=TAINT_QUARANTINED, value="xid-79")


def waiting(index: int, placement: Mapping[str, str] | str | None = None, **fields: Any) -> Pod:
    text = placement if isinstance(placement, str) else json.dumps(placement)
    notes = {} if placement is None else {ANNOTATION_PLACEMENT: text}
    return a_pod(f"train-{index}", index=index, gang="train", annotations=notes, **fields)


def placed(pods: Sequence[Pod], nodes: Sequence[Node]) -> dict[str, str]:
    """Pod name -> node, or the reason of the refusal."""
    return {
        decision.pod.metadata.name: decision.node if isinstance(decision, Bind) else decision.why
        for decision in decide_bindings(pods, nodes)
    }


def test_each_pod_gets_a_slot_of_its_own_in_order() -> None:
    nodes = [a_node(f"slot-{number}") for number in (10, 0, 2)]

    assert placed([waiting(2), waiting(0), waiting(1)], nodes) == {
        "train-0": "slot-0",
        "train-1": "slot-2",
        "train-2": "slot-10",
    }


def test_a_slot_is_busy_until_its_pod_has_ended() -> None:
    leaving = a_pod("old", node="slot-0", deletion_timestamp=START, status=PodStatus(phase="Running"))
    ended = a_pod("older", node="slot-1", status=PodStatus(phase="Failed"))

    assert placed([leaving, ended, waiting(0)], [a_node("slot-0"), a_node("slot-1")]) == {"train-0": "slot-1"}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (a_node("slot-0", unschedulable=True), "out of service (unschedulable)"),
        (a_node("slot-0", taints=[QUARANTINED]), f"kept free by taint {TAINT_QUARANTINED}"),
        (a_node("slot-0", conditions=[Condition(type="Ready", status="False")]), "not ready"),
        (a_node("slot-0", conditions=[]), "not ready"),
    ],
)
def test_no_pod_goes_to_a_slot_out_of_service_not_even_by_placement(node: Node, why: str) -> None:
    assert placed([waiting(0)], [node]) == {"train-0": f"0/1 slots are free: 1 {why}"}
    assert placed([waiting(0, {"0": "slot-0"})], [node]) == {"train-0": f"placed on slot-0, which is {why}"}


def test_a_spare_is_left_alone_without_a_placement() -> None:
    spare = a_node("slot-1", spare=True, taints=[SPARE])

    assert placed([waiting(0), waiting(1)], [a_node("slot-0"), spare]) == {
        "train-0": "slot-0",
        "train-1": f"0/2 slots are free: 1 busy, 1 kept free by taint {LABEL_SPARE}",
    }


def test_a_placement_is_kept_to_the_letter() -> None:
    ours = Taint(key=TAINT_RESERVED, value=reservation("train", "uid-train"))
    nodes = [a_node("slot-0"), a_node("slot-1"), a_node("slot-2", taints=[ours])]
    placement = {"0": "slot-2", "1": "slot-1"}
    ranks = [waiting(rank, placement, owner_references=[THE_JOB]) for rank in range(2)]

    assert placed(ranks, nodes) == {"train-0": "slot-2", "train-1": "slot-1"}


def test_a_spare_that_another_gang_claimed_is_not_ours_by_placement() -> None:
    others = Taint(key=TAINT_RESERVED, value=reservation("train", "uid-of-a-namesake"))
    node = a_node("slot-0", taints=[others])

    assert placed([waiting(0, {"0": "slot-0"}, owner_references=[THE_JOB])], [node]) == {
        "train-0": f"placed on slot-0, which is kept free by taint {TAINT_RESERVED}"
    }


def test_a_spare_that_no_recovery_holds_any_more_is_left_alone_even_by_placement() -> None:
    """A member that its user wants again, after healthd gave back the spare on which it had run."""
    spare = a_node("slot-1", spare=True, taints=[SPARE])

    assert placed([waiting(0, {"0": "slot-1"}, owner_references=[THE_JOB])], [spare]) == {
        "train-0": f"placed on slot-1, which is kept free by taint {LABEL_SPARE}"
    }


@pytest.mark.parametrize(
    ("placement", "why"),
    [
        ({"0": "slot-9"}, "placed on slot-9, which does not exist"),
        ("[1]", f"annotation {ANNOTATION_PLACEMENT} is not a JSON object of index -> node: "),
    ],
)
def test_a_placement_that_cannot_be_is_refused_with_the_reason(placement: Mapping[str, str] | str, why: str) -> None:
    [reason] = placed([waiting(0, placement)], [a_node("slot-0")]).values()

    assert reason.startswith(why)


def test_a_member_that_the_placement_does_not_know_gets_any_slot_that_is_free() -> None:
    ranks = [waiting(rank, {"0": "slot-1"}) for rank in range(2)]

    assert placed(ranks, [a_node("slot-0"), a_node("slot-1")]) == {"train-0": "slot-1", "train-1": "slot-0"}


def test_a_placed_pod_waits_for_its_busy_slot() -> None:
    old = a_pod("old", node="slot-0", status=PodStatus(phase="Running"))
    nodes = [a_node("slot-0"), a_node("slot-1")]

    assert placed([old, waiting(0, {"0": "slot-0"})], nodes) == {"train-0": "placed on slot-0, which is busy"}


def test_bound_ended_and_deleted_pods_are_not_placed() -> None:
    pods = [
        a_pod("bound", node="slot-0"),
        a_pod("ended", status=PodStatus(phase="Failed")),
        a_pod("deleted", deletion_timestamp=START),
    ]

    assert placed(pods, [a_node("slot-0"), a_node("slot-1")]) == {}


def test_a_machine_without_slots_says_so() -> None:
    assert placed([waiting(0)], []) == {"train-0": "0/0 slots are free: there are none"}


def test_a_refusal_is_a_condition_of_the_pod() -> None:
    [condition] = refused(waiting(0), "no slot", START).conditions

    assert (condition.type, condition.status, condition.message) == ("PodScheduled", "False", "no slot")


@pytest.mark.parametrize(
    ("toleration", "does"),
    [
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v", effect="NoExecute"), False),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="j", operator="Exists"), False),
    ],
)
def test_tolerations_match_as_in_kubernetes(toleration: Toleration, does: bool) -> None:
    assert tolerates([toleration], Taint(key="k", value="v")) is does
