"""What follows from a suspicion in a hang: where the gang runs next, and what people read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api import Cause, FencedPod, HangSuspect, Node, RecoveryStatus
from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.hang.silence import Silence
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.hangs.suspicion import again_text, hang_cause, in_same_place, node_to_replace
from healthd.core.recovery.holds import SAME_PLACE
from healthd.core.recovery.nodes.placement import PlacementPlan, Shortage, place
from healthd.core.recovery.terms import ONE_SERVER
from tests.builders import a_cause, a_node
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

SLOTS = [a_node("slot-0"), a_node("slot-1")]
SPARE = a_node("spare", spare=True)


def a_hang(*suspects: HangSuspect) -> Cause:
    return replace(a_cause(CauseKind.HANG, message="no rank works"), suspects=list(suspects))


def suspect(node: str = "slot-1", witnesses: int = 2) -> HangSuspect:
    return HangSuspect(member=node[-1:], node=node, witnesses=witnesses)


def a_plan(causes: Sequence[Cause], *nodes: Node, **status: dict[str, str]) -> PlacementPlan | Shortage:
    """The plan after *causes* for two ranks that were on slot-0 and slot-1."""
    pods = [FencedPod(name=f"p{n}", uid=f"u{n}", node=f"slot-{n}", index=str(n)) for n in range(2)]
    root = a_root(terms=ONE_SERVER)
    view = GangView(root=root, nodes={node.metadata.name: node for node in nodes})
    given = RecoveryStatus(pods=pods, causes=list(causes), **status)  # type: ignore[arg-type]
    return place(given, view, root, "train-1", RecoveryPolicy())


def places(plan: PlacementPlan | Shortage) -> list[str]:
    assert isinstance(plan, PlacementPlan)
    return list(plan.placement.values())


class TestPlacement:
    def test_without_a_suspect_every_rank_stays(self) -> None:
        assert places(a_plan([a_hang()], *SLOTS, SPARE)) == ["slot-0", "slot-1"]

    def test_for_one_witness_no_spare_is_used(self) -> None:
        assert places(a_plan([a_hang(suspect(witnesses=1))], *SLOTS, SPARE)) == ["slot-0", "slot-1"]

    def test_for_two_a_spare_takes_its_place_and_the_plan_says_that_it_is_not_convicted(self) -> None:
        plan = a_plan([a_hang(suspect())], *SLOTS, SPARE)

        assert places(plan) == ["slot-0", "spare"]
        assert plan.message == (
            "spare in place of slot-1; slot-1 is only suspected, by 2 independent witnesses: it stays in service; "
            "`healthd check` it"
        )

    def test_without_a_spare_the_run_goes_on_with_it(self) -> None:
        plan = a_plan([a_hang(suspect())], *SLOTS)

        assert places(plan) == ["slot-0", "slot-1"]
        assert "slot-1 is suspected by 2 independent witnesses, and no spare is free" in plan.message

    def test_the_decision_is_the_same_again_once_it_is_recorded(self) -> None:
        plan = a_plan([a_hang(suspect())], *SLOTS, SPARE, replacements={"slot-1": "spare"})

        assert places(plan) == ["slot-0", "spare"]

    def test_suspects_on_two_nodes_are_not_replaced(self) -> None:
        both = a_hang(suspect("slot-0"), suspect("slot-1"))

        assert places(a_plan([both], *SLOTS, SPARE)) == ["slot-0", "slot-1"]

    def test_where_one_of_two_suspects_on_a_node_has_one_witness_it_is_not_replaced(self) -> None:
        assert places(a_plan([a_hang(suspect(), suspect(witnesses=1))], *SLOTS, SPARE)) == ["slot-0", "slot-1"]

    def test_a_node_that_is_certainly_bad_gets_the_only_spare_first(self) -> None:
        bad = a_node("slot-0", unschedulable=True)
        planned = {"slot-1": "spare"}
        for replacements in ({}, planned):
            plan = a_plan([a_hang(suspect())], bad, SLOTS[1], SPARE, replacements=replacements)

            assert places(plan) == ["spare", "slot-1"]

    def test_one_suspect_does_not_replace_another(self) -> None:
        earlier = a_hang(suspect("spare", 1))

        assert places(a_plan([earlier, a_hang(suspect())], *SLOTS, SPARE)) == ["slot-0", "slot-1"]

    def test_among_spares_a_suspect_is_the_last(self) -> None:
        bad = a_node("slot-1", unschedulable=True)
        nodes = [SLOTS[0], bad, a_node("spare-a", spare=True), a_node("spare-b", spare=True)]

        assert places(a_plan([a_hang(suspect("spare-a", 1))], *nodes)) == ["slot-0", "spare-b"]

    def test_the_newest_hang_counts(self) -> None:
        assert places(a_plan([a_hang(suspect()), a_hang()], *SLOTS, SPARE)) == ["slot-0", "slot-1"]

    def test_a_rank_that_fails_while_the_gang_is_stopped_changes_nothing(self) -> None:
        assert node_to_replace(RecoveryStatus(causes=[a_hang(suspect()), a_cause(CauseKind.SOFTWARE)])) == "slot-1"

    def test_a_suspect_without_a_node_is_not_replaced(self) -> None:
        assert node_to_replace(RecoveryStatus(causes=[a_hang(suspect(""))])) == ""


HERE, THERE = (HangSuspect(member="1", node="slot-1", doing="read (rows.py:7)", stack=text) for text in ("a1", "b2"))


def at_step(step: int, *suspects: HangSuspect) -> Cause:
    return replace(a_hang(*suspects), step=step)


class TestSamePlace:
    def test_the_same_stacks_at_the_same_step_are_said_to_be_the_program(self) -> None:
        moved = replace(HERE, member="0", node="slot-9")
        text = in_same_place(at_step(40, moved), [a_cause(), at_step(40, HERE)], ONE_SERVER)

        assert text.startswith(f"{SAME_PLACE}, after step 40, as before its restart: rank 0 is in read (rows.py:7). ")
        assert "not of a slot" in text

    @pytest.mark.parametrize(
        "earlier",
        [
            pytest.param(at_step(39, HERE), id="another step"),
            pytest.param(at_step(40, THERE), id="another place"),
            pytest.param(at_step(40, HERE, THERE), id="one more suspect"),
            pytest.param(at_step(40), id="no suspect"),
            pytest.param(a_cause(CauseKind.SOFTWARE), id="no hang"),
        ],
    )
    def test_another_hang_is_not(self, earlier: Cause) -> None:
        assert in_same_place(at_step(40, HERE), [earlier], ONE_SERVER) == ""

    @pytest.mark.parametrize(
        "hang", [at_step(-1, HERE), at_step(40, replace(HERE, stack="")), at_step(40, HERE, replace(HERE, stack=""))]
    )
    def test_what_is_unknown_is_never_the_same(self, hang: Cause) -> None:
        assert in_same_place(hang, [hang], ONE_SERVER) == ""


def test_the_cause_names_the_suspect_and_blames_no_node() -> None:
    silence = Silence(since=START, seen_at=START + timedelta(seconds=12), allowed=12, period=2, members=())
    who = HangSuspect(member="2", node="slot-2", witnesses=2, doing="read (rows.py:7)")
    cause = hang_cause(replace(silence, suspects=(who,)), 40, ONE_SERVER, START)

    assert (cause.node, cause.step, cause.suspects) == ("", 40, [who])
    assert cause.message.endswith("; rank 2 is suspected by 2 independent witnesses, in read (rows.py:7)")


@pytest.mark.parametrize(("times", "said"), [(0, ""), (1, "slot-1 (1 time)"), (3, "slot-1 (3 times)")])
def test_a_node_that_is_suspected_again_is_named(times: int, said: str) -> None:
    hangs = [a_hang(suspect(), suspect("slot-0")) for _ in range(times)]
    recoveries = [a_recovery_in(Phase.CONFIRMING, causes=hangs)] if hangs else []
    text = again_text(["slot-1", "slot-7"], recoveries)

    assert said in text
    assert bool(text) == bool(times)
