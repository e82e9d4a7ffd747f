"""Where the next attempt runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pytest

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CLAIM,
    Attempt,
    ChosenCheckpoint,
    FencedPod,
    Node,
    Pod,
    PodStatus,
    RecoveryStatus,
)
from healthd.core.api.model import CauseKind
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import Elastic, GangOptions, GangView, Numbered
from healthd.core.recovery.nodes.foreign_signs import Effect, Sign
from healthd.core.recovery.nodes.placement import PlacementPlan, Shortage, held_nodes, place
from healthd.core.recovery.nodes.spares import Claim
from tests.builders import a_node, a_pod
from tests.core.gangs import a_root


def a_plan(
    pods: Sequence[tuple[int, str]],
    *nodes: Node,
    world: int = 2,
    min_nodes: int | None = None,
    reported: dict[str, str] | None = None,
    signs: dict[str, Sign] | None = None,
    silent: Collection[str] = (),
    **status: Any,
) -> PlacementPlan | Shortage:
    """The plan for a gang whose pods, as (index, node) in the order they were made, are to be made again."""
    fenced = [FencedPod(name=f"p{n}", uid=f"u{n}", node=node, index=str(i)) for n, (i, node) in enumerate(pods)]
    root = a_root(world=world, placement=reported or {}, options=GangOptions(restart=True, min_nodes=min_nodes))
    known = {node.metadata.name: node for node in nodes}
    view = GangView(root=root, nodes=known, sign_on=(signs or {}).get, is_silent=lambda name: name in silent)
    return place(RecoveryStatus(pods=fenced, **status), view, root, "train-1", RecoveryPolicy())


MUST_AND_MAY = (Effect.RESTART, Effect.AVOID)
GOOD, BAD = a_node("good"), a_node("bad", unschedulable=True)
SPARE, SPARE_2 = a_node("spare", spare=True), a_node("spare-2", spare=True)


def held(name: str, instead_of: str) -> Node:
    claim = Claim(recovery="train-1", namespace="default", gang="train", gang_uid="uid-train", instead_of=instead_of)
    return a_node(name, annotations={ANNOTATION_CLAIM: msgspec.json.encode(claim).decode()})


def test_every_member_returns_to_its_node() -> None:
    plan = a_plan([(0, "good"), (1, "other")], GOOD, a_node("other"), SPARE)

    assert plan == PlacementPlan({"0": "good", "1": "other"}, {}, "every member stays on its node")


def test_a_bad_node_is_replaced_and_no_other_moves() -> None:
    plan = a_plan([(0, "good"), (1, "bad")], GOOD, BAD, SPARE)

    assert plan == PlacementPlan({"0": "good", "1": "spare"}, {"bad": "spare"}, "spare in place of bad")


def test_a_node_that_went_back_into_the_pool_is_claimed_again_before_a_member_returns_to_it() -> None:
    plan = a_plan([(0, "good"), (1, "")], GOOD, SPARE, reported={"0": "good", "1": "spare"})

    assert isinstance(plan, PlacementPlan)
    assert (plan.placement, plan.replacements) == ({"0": "good", "1": "spare"}, {"member 1": "spare"})


def test_a_spare_that_no_one_watches_over_is_taken_where_there_is_no_other_and_that_is_said() -> None:
    nodes = (GOOD, BAD, SPARE, SPARE_2)
    both = a_plan([(0, "good"), (1, "bad")], *nodes, silent=("spare",))
    neither = a_plan([(0, "good"), (1, "bad")], *nodes, silent=("spare", "spare-2"))

    assert isinstance(both, PlacementPlan)
    assert both.placement["1"] == "spare-2"
    assert isinstance(neither, PlacementPlan)
    assert neither.message == "spare in place of bad; no agent knows whether spare is good"


def test_two_bad_nodes_get_two_spares() -> None:
    plan = a_plan([(0, "bad"), (1, "gone")], BAD, SPARE, SPARE_2)

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "spare", "1": "spare-2"}


def test_what_another_detector_says_ends_the_stay_of_a_member_or_makes_it_leave_if_it_can() -> None:
    must, may = (Sign(row="r", node="other", effect=e, cause=CauseKind.HARDWARE, message="m") for e in MUST_AND_MAY)
    pods = [(0, "good"), (1, "other")]
    moved = PlacementPlan({"0": "good", "1": "spare"}, {"other": "spare"}, "spare in place of other")

    assert a_plan(pods, GOOD, a_node("other"), SPARE, signs={"other": must}) == moved
    assert isinstance(a_plan(pods, GOOD, a_node("other"), signs={"other": must}), Shortage)
    assert a_plan(pods, GOOD, a_node("other"), SPARE, signs={"other": may}) == moved
    assert isinstance(a_plan(pods, GOOD, a_node("other"), signs={"other": may}), PlacementPlan)


def test_a_broken_node_gets_the_last_spare_before_one_that_is_only_doubtful() -> None:
    may = Sign(row="r", node="other", effect=Effect.AVOID, cause=CauseKind.HARDWARE, message="m")

    plan = a_plan([(0, "other"), (1, "bad")], BAD, a_node("other"), SPARE, signs={"other": may})

    assert plan == PlacementPlan({"0": "other", "1": "spare"}, {"bad": "spare"}, "spare in place of bad")


def test_a_choice_on_record_stands() -> None:
    plan = a_plan([(0, "good"), (1, "bad")], GOOD, BAD, SPARE, SPARE_2, replacements={"bad": "spare-2"})

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "good", "1": "spare-2"}


def test_a_spare_that_a_member_runs_on_already_is_not_given_to_another() -> None:
    assert isinstance(a_plan([(0, "bad"), (1, "mine")], BAD, held("mine", "gone")), Shortage)


PODS_ON_A_SPARE = [(0, "good"), (1, "bad"), (2, "own")]
"""A person has made the node of a member a spare while the gang was stopped."""


def test_the_plan_stands_when_its_claims_are_written_also_for_a_node_that_was_the_gangs_own() -> None:
    before = a_plan(PODS_ON_A_SPARE, GOOD, BAD, a_node("own", spare=True), SPARE, world=3)
    assert isinstance(before, PlacementPlan)
    assert before.replacements == {"bad": "own", "member 2": "spare"}

    claimed = [held(spare, bad) for bad, spare in before.replacements.items()]
    after = a_plan(PODS_ON_A_SPARE, GOOD, BAD, *claimed, world=3, replacements=before.replacements)

    assert after == before


def test_a_claimed_spare_that_the_gang_was_started_on_is_its_own() -> None:
    spares = {"0": "good", "1": "own", "2": "spare"}
    started = Attempt(number=1, checkpoint=ChosenCheckpoint(), placement=spares)
    pods = [(0, "good"), (1, "own"), (2, "spare")]
    on_record: dict[str, Any] = {
        "attempt": 2,
        "attempts": [started],
        "replacements": {"bad": "own", "member 2": "spare"},
    }

    plan = a_plan(pods, GOOD, BAD, held("own", "bad"), held("spare", "member 2"), world=3, **on_record)

    assert isinstance(plan, PlacementPlan)
    assert (plan.placement, plan.replacements) == (spares, {})


def test_without_a_spare_it_says_what_is_missing() -> None:
    plan = a_plan([(0, "good"), (1, "bad")], GOOD, BAD)

    assert plan == Shortage("no spare for bad: needs 1 more healthy node")


def test_without_a_spare_it_shrinks_where_the_owner_allows() -> None:
    plan = a_plan([(0, "bad"), (1, "good")], GOOD, BAD, min_nodes=1)

    assert plan == PlacementPlan({"0": "good"}, {}, "no spare for bad: shrinks from 2 to 1 members", ("bad",))


def test_it_never_shrinks_below_what_the_owner_allows() -> None:
    plan = a_plan([(0, "bad"), (1, "good")], GOOD, BAD, min_nodes=2)

    assert isinstance(plan, Shortage)
    assert "fewer than min-nodes 2" in plan.message


def test_a_member_that_was_made_again_elsewhere_stays_on_its_last_node() -> None:
    plan = a_plan([(0, "good"), (1, "other"), (0, "third"), (1, "good")], GOOD, a_node("other"), a_node("third"))

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "third", "1": "good"}


def test_a_member_that_lost_its_node_to_another_takes_one_that_the_gang_has_left() -> None:
    plan = a_plan([(0, "good"), (1, "other"), (0, "other"), (1, "")], GOOD, a_node("other"))

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "other", "1": "good"}


def test_a_member_that_was_put_on_a_bad_node_takes_the_one_of_the_plan_that_is_empty() -> None:
    plan = a_plan([(0, "good"), (1, "bad")], GOOD, BAD, a_node("other"), SPARE, reported={"0": "good", "1": "other"})

    assert isinstance(plan, PlacementPlan)
    assert (plan.placement, plan.replacements) == ({"0": "good", "1": "other"}, {})


@pytest.mark.parametrize(
    "planned",
    [pytest.param("good", id="it is not empty"), pytest.param("bad-2", id="bad"), pytest.param("gone", id="gone")],
)
def test_it_takes_no_node_of_the_plan_that_is_of_no_use(planned: str) -> None:
    others = [a_node("bad-2", unschedulable=True), SPARE]
    plan = a_plan([(0, "good"), (1, "bad")], GOOD, BAD, *others, reported={"0": "good", "1": planned})

    assert isinstance(plan, PlacementPlan)
    assert plan.replacements == {"bad": "spare"}


def test_a_replacement_on_record_stands_also_when_its_node_is_empty() -> None:
    claim = Claim(recovery="train-1", namespace="default", gang="train", gang_uid="uid-train", instead_of="bad")
    claimed = a_node("spare", spare=True, annotations={ANNOTATION_CLAIM: msgspec.json.encode(claim).decode()})
    pods, reported = [(0, "good"), (1, "bad")], {"0": "good", "1": "spare"}
    plan = a_plan(pods, GOOD, BAD, claimed, reported=reported, replacements={"bad": "spare"})

    assert isinstance(plan, PlacementPlan)
    assert (plan.placement, plan.replacements) == ({"0": "good", "1": "spare"}, {"bad": "spare"})


@pytest.mark.parametrize(
    ("spare", "second"),
    [
        pytest.param(a_node("spare"), "spare", id="the scheduler put another member on it"),
        pytest.param(a_node("spare", unschedulable=True), "other", id="it went bad"),
    ],
)
def test_a_replacement_of_no_use_gives_way_to_the_empty_node_of_the_plan(spare: Node, second: str) -> None:
    reported = {"0": "spare", "1": "good"}
    plan = a_plan(
        [(0, "bad"), (1, second)], BAD, GOOD, a_node("other"), spare, reported=reported, replacements={"bad": "spare"}
    )

    assert isinstance(plan, PlacementPlan)
    assert (plan.placement, plan.replacements) == ({"0": "good", "1": second}, {})


def test_two_members_that_were_on_a_node_after_each_other_do_not_meet_there() -> None:
    plan = a_plan([(0, "good"), (1, "other"), (1, "good")], GOOD, a_node("other"))

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "other", "1": "good"}


def test_members_that_share_a_node_go_on_doing_so() -> None:
    plan = a_plan([(0, "good"), (1, "good")], GOOD, SPARE)

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "good", "1": "good"}


def test_a_member_that_did_not_come_up_is_expected_on_the_node_of_its_hint() -> None:
    plan = a_plan([(0, ""), (1, "other")], BAD, a_node("other"), SPARE, reported={"0": "bad", "1": "other"})

    assert plan == PlacementPlan({"0": "spare", "1": "other"}, {"bad": "spare"}, "spare in place of bad")


def test_two_members_never_share_a_node_because_one_of_them_used_to_be_there() -> None:
    plan = a_plan([(0, "good"), (0, ""), (1, "good")], GOOD, SPARE)

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "spare", "1": "good"}


@pytest.mark.parametrize("pods", [[(0, "good")], [(0, "good"), (1, "")]])
def test_a_member_that_never_had_a_node_is_not_forgotten(pods: list[tuple[int, str]]) -> None:
    assert a_plan(pods, GOOD) == Shortage(
        "no spare for member 1: needs 1 more healthy node in the pool (healthd.dev/spare), "
        "or a user who suspends and resumes the gang: others are not taken"
    )

    plan = a_plan(pods, GOOD, SPARE)
    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "good", "1": "spare"}


def test_members_without_numbers_are_left_to_the_scheduler() -> None:
    root = a_root()
    pods = [FencedPod(name="a", uid="a", node="bad"), FencedPod(name="b", uid="b", node="good")]

    plan = place(RecoveryStatus(pods=pods), GangView(root=root, nodes={"bad": BAD}), root, "train-1", RecoveryPolicy())

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {}


def test_members_without_indexes_get_a_spare_too() -> None:
    root = a_root(indexes=())
    pods = [FencedPod(name=name, uid=name, node=node) for name, node in [("a", "bad"), ("b", "good"), ("c", "bad")]]
    view = GangView(root=root, nodes={node.metadata.name: node for node in (GOOD, BAD, SPARE)})

    plan = place(RecoveryStatus(pods=pods), view, root, "train-1", RecoveryPolicy())

    assert isinstance(plan, PlacementPlan)
    assert (set(plan.placement.values()), plan.replacements) == ({"good", "spare"}, {"bad": "spare"})


def test_members_are_placed_by_what_identifies_them() -> None:
    root = a_root(indexes=("leader-0-0", "workers-0-0"))
    places = [("leader-0-0", "good"), ("workers-0-0", "bad")]
    pods = [FencedPod(name=index, uid=index, node=node, index=index) for index, node in places]
    view = GangView(root=root, nodes={node.metadata.name: node for node in (GOOD, BAD, SPARE)})

    plan = place(RecoveryStatus(pods=pods), view, root, "train-1", RecoveryPolicy())

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"leader-0-0": "good", "workers-0-0": "spare"}


def a_member(node: str, attempt: int = 1) -> Pod:
    """A pod of the gang; without a node it waits for one."""
    return a_pod(f"on-{node or 'none'}", node=node, annotations={ANNOTATION_ATTEMPT: str(attempt)})


HINTED = a_root(attempt=1, placement={"0": "good", "1": "spare"})


@pytest.mark.parametrize(
    ("nodes", "held"),
    [
        pytest.param([], {"good", "spare"}, id="it is about to start"),
        pytest.param(["good", ""], {"good", "spare"}, id="a member waits for its node"),
        pytest.param(["good", "spare"], {"good", "spare"}, id="all are where they should be"),
        pytest.param(["good", "other"], {"good", "other"}, id="the scheduler chose another node"),
    ],
)
def test_a_gang_holds_the_nodes_that_its_members_are_on_or_may_come_to(nodes: list[str], held: set[str]) -> None:
    assert held_nodes(HINTED, [a_member(node) for node in nodes]) == held


def test_a_gang_that_was_made_smaller_leaves_the_nodes_of_those_that_went() -> None:
    pods = [a_pod(f"rank-{i}", node=f"node-{i}", index=i, annotations={ANNOTATION_ATTEMPT: "1"}) for i in range(3)]

    assert held_nodes(HINTED, pods) == {"node-0", "node-1"}


def test_a_gang_holds_the_planned_node_of_a_member_that_is_made_again_beside_the_pod_that_has_ended() -> None:
    """As in seed 3640008643: its user had stopped it and started it again."""
    ended = a_pod("ended", node="good", status=PodStatus(phase="Failed"), annotations={ANNOTATION_ATTEMPT: "1"})

    assert held_nodes(HINTED, [ended, a_member("good"), a_member("")]) == {"good", "spare"}


def test_a_gang_all_of_whose_members_live_does_not_hold_the_node_of_one_that_was_replaced() -> None:
    """As in seed 8400000649: a person deleted a member on a spare, and the one in its place came to another node."""
    ended = a_pod("ended", node="spare", status=PodStatus(phase="Failed"), annotations={ANNOTATION_ATTEMPT: "1"})

    assert held_nodes(HINTED, [ended, a_member("good"), a_member("other")]) == {"good", "other"}


def test_a_gang_that_was_made_smaller_holds_the_planned_node_of_a_member_that_it_still_has() -> None:
    """As in seed 3640002678: the pod that goes is the only one with a node."""
    root = a_root(world=1, indexes=("0",), attempt=1, placement={"0": "spare", "1": "good"})
    goes = a_pod("rank-1", node="good", index=1, annotations={ANNOTATION_ATTEMPT: "1"})

    assert held_nodes(root, [goes]) >= {"spare"}


def test_members_of_an_earlier_attempt_hold_nothing() -> None:
    assert held_nodes(HINTED, [a_member("old", attempt=0), a_member("older", attempt=0)]) == {"good", "spare"}


@pytest.mark.slow
def test_a_gang_that_names_a_hundred_thousand_members_and_has_few_is_planned() -> None:
    reported = a_plan([(0, "bad"), (1, "good")], GOOD, BAD, world=100_000)

    assert isinstance(reported, Shortage)


def test_a_launcher_on_a_bad_node_gets_a_spare_and_is_no_rank() -> None:
    root = a_root(
        world=3,
        indexes=(Numbered("", (2,)),),
        elastic=Elastic(2),
        options=GangOptions(restart=True, min_nodes=1),
    )
    places = [("0", "good"), ("1", "other"), ("", "bad")]
    pods = [FencedPod(name=node, uid=node, node=node, index=index) for index, node in places]
    nodes = {node.metadata.name: node for node in (GOOD, a_node("other"), BAD, SPARE)}

    plan = place(RecoveryStatus(pods=pods), GangView(root=root, nodes=nodes), root, "train-1", policy=RecoveryPolicy())

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "good", "1": "other", "+0": "spare"}


def test_a_gang_that_shrinks_counts_its_ranks_anew_and_keeps_its_launcher() -> None:
    root = a_root(
        world=3,
        indexes=(Numbered("", (2,)),),
        elastic=Elastic(2),
        options=GangOptions(restart=True, min_nodes=1),
    )
    places = [("0", "bad"), ("1", "good"), ("", "other")]
    pods = [FencedPod(name=node, uid=node, node=node, index=index) for index, node in places]
    nodes = {node.metadata.name: node for node in (GOOD, a_node("other"), BAD)}

    plan = place(RecoveryStatus(pods=pods), GangView(root=root, nodes=nodes), root, "train-1", policy=RecoveryPolicy())

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "good", "+0": "other"}
