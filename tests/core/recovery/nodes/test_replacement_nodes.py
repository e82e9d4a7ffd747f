"""Spares for members whose nodes others took while the gang was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CLAIM,
    ANNOTATION_PLACEMENT,
    Condition,
    Node,
    Pod,
    PodStatus,
    Recovery,
)
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.actions import ClaimSpare
from healthd.core.recovery.decide import Decision, decide
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.nodes.replacement_nodes import MOST_LEFT, SPARE_AFTER, deserted
from healthd.core.recovery.nodes.spares import Claim
from healthd.core.recovery.recovery_status import dressed
from tests.builders import a_node, a_pod
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

NOW = START + timedelta(minutes=1)
POLICY = RecoveryPolicy()
NODES = {name: a_node(name) for name in ("node-0", "node-1")}
SPARE = a_node("spare", spare=True)
TAKEN = {"node-1": "others/notebook"}
PLACEMENT = {"0": "node-0", "1": "node-1"}


def a_member(rank: int, node: str = "", *, refused_for: float | None = None, why: str = "Unschedulable") -> Pod:
    """A pod of attempt 1; the scheduler may have found no node for it since so many seconds."""
    said = Condition(type="PodScheduled", status="False", reason=why)
    since = NOW - timedelta(seconds=refused_for or 0)
    conditions = [] if refused_for is None else [msgspec.structs.replace(said, last_transition_time=since)]
    status = PodStatus(phase="Running" if node else "Pending", conditions=conditions)
    notes = {ANNOTATION_ATTEMPT: "1"}
    return a_pod(f"rank-{rank}", node=node, index=rank, uid=f"pod-{rank}", annotations=notes, status=status)


def claimed(name: str = "spare", *, instead_of: str = "node-1") -> Node:
    claim = Claim(recovery="train-1", namespace="default", gang="train", gang_uid="uid-train", instead_of=instead_of)
    return a_node(name, annotations={ANNOTATION_CLAIM: msgspec.json.encode(claim).decode()})


def starting(**status: Any) -> Recovery:
    return a_recovery_in(Phase.STARTING, placement=PLACEMENT, **status)


def decided(
    recovery: Recovery, *pods: Pod, nodes: Sequence[Node] = (SPARE,), taken: Mapping[str, str] | None = TAKEN
) -> Decision:
    """The next move of a gang that was started on its two nodes."""
    known = NODES | {node.metadata.name: node for node in nodes}
    view = GangView(root=a_root(attempt=1, placement=PLACEMENT), pods=pods, nodes=known, taken=taken)
    return decide(recovery, view, [], POLICY, NOW)


REFUSED = (a_member(0, "node-0"), a_member(1, refused_for=30))


def test_a_member_whose_node_was_taken_gets_a_spare_and_the_intent_is_recorded_first() -> None:
    intent = decided(starting(), *REFUSED)
    act = decided(starting(stand_ins={"node-1": "spare"}), *REFUSED)

    assert intent.actions == ()
    assert intent.record is not None
    assert intent.record.stand_ins == {"node-1": "spare"}
    assert intent.record.message == "spare in place of node-1, which others/notebook took"
    assert act.actions == (ClaimSpare("spare", "node-1"),)


def test_a_spare_that_was_claimed_is_waited_for() -> None:
    decision = decided(starting(stand_ins={"node-1": "spare"}), *REFUSED, nodes=[claimed(), a_node("next", spare=True)])

    assert (decision.record, decision.actions) == (None, ())


def test_a_spare_that_was_claimed_for_another_node_of_an_earlier_plan_is_claimed_anew() -> None:
    spare = claimed(instead_of="node-0")

    decision = decided(starting(stand_ins={"node-1": "spare"}), *REFUSED, nodes=[spare])

    assert decision.actions == (ClaimSpare("spare", "node-1"),)


def test_the_hint_names_the_spare_and_not_the_node_that_was_taken() -> None:
    recovery = starting(stand_ins={"node-1": "spare"})

    hint = dressed(recovery, recovery.status, NOW).hint
    assert hint is not None
    assert hint.prefer == ["node-0", "spare"]
    assert hint.avoid == []


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param((a_member(0, "node-0"), a_member(1, refused_for=5)), id="refused a moment ago"),
        pytest.param((a_member(0, "node-0"), a_member(1)), id="not looked at yet"),
        pytest.param((a_member(0, "node-0"), a_member(1, refused_for=30, why="SchedulingGated")), id="gated"),
    ],
)
def test_no_spare_is_spent_on_a_member_that(pods: tuple[Pod, ...]) -> None:
    assert decided(starting(), *pods).record is None


def test_a_member_that_the_scheduler_refuses_for_another_cause_gets_no_spare() -> None:
    assert decided(starting(), *REFUSED, taken={}).record is None


def test_a_node_that_no_member_can_run_on_is_as_good_as_taken() -> None:
    cordoned = a_node("node-1", unschedulable=True)

    record = decided(starting(), *REFUSED, nodes=[cordoned, SPARE], taken={}).record
    assert record is not None
    assert record.stand_ins == {"node-1": "spare"}


def test_a_member_with_a_node_in_its_hint_waits_for_it() -> None:
    reported = msgspec.structs.replace(
        REFUSED[1].metadata, annotations={**REFUSED[1].metadata.annotations, ANNOTATION_PLACEMENT: "{}"}
    )

    assert decided(starting(), REFUSED[0], msgspec.structs.replace(REFUSED[1], metadata=reported)).record is None


def test_one_late_member_costs_one_spare_however_many_nodes_were_taken() -> None:
    pods = (a_member(0), a_member(1, refused_for=30))
    spares = [SPARE, a_node("spare-2", spare=True)]

    record = decided(starting(), *pods, nodes=spares, taken={"node-0": "others/a", "node-1": "others/b"}).record
    assert record is not None
    assert record.stand_ins == {"node-0": "spare"}


def test_it_is_checked_again_when_the_member_has_waited_long_enough() -> None:
    decision = decided(starting(), a_member(0, "node-0"), a_member(1, refused_for=5))

    assert decision.recheck == SPARE_AFTER - timedelta(seconds=5)


def test_a_spare_that_another_recovery_took_is_replaced_by_the_next() -> None:
    other = a_node("spare", annotations={ANNOTATION_CLAIM: "{}"})
    known = starting(stand_ins={"node-1": "spare"})

    record = decided(known, *REFUSED, nodes=[other, a_node("spare-2", spare=True)]).record
    assert record is not None
    assert record.stand_ins == {"node-1": "spare-2"}


def test_a_gang_for_whose_taken_node_there_is_no_spare_says_so_until_its_member_has_a_node() -> None:
    held = decided(starting(), *REFUSED, nodes=[]).record
    assert held is not None
    assert (held.phase, held.held_in) == (Phase.HELD, Phase.STARTING)
    assert held.message == "no spare for node-1, which others/notebook took"

    waits = a_recovery_in(Phase.HELD, held_in=Phase.STARTING, message=held.message, placement=PLACEMENT)
    going_on = decided(waits, REFUSED[0], a_member(1)).record
    assert (decided(waits, *REFUSED, nodes=[]).record, decided(waits, *REFUSED, nodes=[]).actions) == (None, ())
    assert going_on is not None
    assert (going_on.phase, going_on.message) == (Phase.STARTING, "every member has a node")


def test_nothing_is_done_while_half_a_large_gang_waits() -> None:
    placement = {str(rank): f"node-{rank}" for rank in range(MOST_LEFT + 1)}
    recovery = a_recovery_in(Phase.STARTING, placement=placement)

    assert deserted(recovery.status, GangView(root=a_root(attempt=1)), "train-1") == []
