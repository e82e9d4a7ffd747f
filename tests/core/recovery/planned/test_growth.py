"""A gang that healthd made smaller grows back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from healthd.core.api import Attempt, Cause, ChosenCheckpoint, FencedPod, Node, Recovery, RecoveryStatus, Shrunk
from healthd.core.api.model import CauseKind, Phase
from healthd.core.api.save_stats import Save, Saves
from healthd.core.config import BreakerPolicy, RecoveryPolicy
from healthd.core.recovery import breaker
from healthd.core.recovery.decide import decide, open_recovery
from healthd.core.recovery.gang import Elastic, GangOptions, GangView, Numbered, Root
from healthd.core.recovery.nodes.placement import PlacementPlan, place
from healthd.core.recovery.planned.growth import (
    added_members,
    at_own_size,
    left_out_of,
    record_of,
    recorded,
    room,
)
from healthd.core.recovery.planned.restarts import is_due, is_planned, recently_saved
from healthd.core.recovery.progress import Progress
from tests.builders import a_cause, a_node, a_pod, a_recovery
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

POLICY = RecoveryPolicy()
OPTIONS = GangOptions(restart=True, checkpoint="/checkpoints", min_nodes=1, grow_back=True)
ONE_LEFT = Shrunk(size=3, members=2, nodes=["gone"])
CAPACITY = Cause(kind=CauseKind.CAPACITY, message="gone can be used", at=START)
HERE = [a_node("here-0"), a_node("here-1")]
MINUTE = timedelta(minutes=1)
JUST_SAVED = Progress(step=9, at=START, intervals=[60.0] * 3)


def a_gang(world: int = 2, **fields: Any) -> Root:
    return a_root(world=world, options=fields.pop("options", OPTIONS), **fields)


def seen(*nodes: Node, root: Root | None = None, **fields: Any) -> GangView:
    """The view of a gang of two on `here-0` and `here-1`, beside *nodes*."""
    pods = tuple(a_pod(f"rank-{i}", node=f"here-{i}", index=i) for i in range(2))
    known = {node.metadata.name: node for node in (*HERE, *nodes)}
    return GangView(root=root or a_gang(), pods=pods, nodes=known, **fields)


def a_plan(*nodes: Node, shrunk: Shrunk | None = ONE_LEFT, bad: Sequence[str] = (), **root: Any) -> PlacementPlan:
    pods = [FencedPod(name=f"p{i}", uid=f"u{i}", node=f"here-{i}", index=str(i)) for i in range(2)]
    gang = a_gang(**root)
    view = seen(*nodes, *(a_node(name, unschedulable=True) for name in bad), root=gang)
    plan = place(RecoveryStatus(pods=pods), view, gang, "train-2", POLICY, shrunk)
    assert isinstance(plan, PlacementPlan), plan
    return plan


def a_start(number: int, shrunk: Shrunk | None, **status: Any) -> Recovery:
    """A recovery that started attempt *number* and left out *shrunk*."""
    attempt = Attempt(number=number, checkpoint=ChosenCheckpoint(), shrunk=shrunk)
    return a_recovery_in(Phase.RECOVERED, attempts=[attempt], **status)


def test_every_plan_tries_the_size_that_the_gang_had() -> None:
    plan = a_plan(a_node("gone"))

    assert plan.placement == {"0": "here-0", "1": "here-1", "2": "gone"}
    assert plan.message == "grows back from 2 to 3 members"
    assert plan.left_out == ()


def test_a_free_spare_takes_the_place_of_a_node_that_is_still_bad() -> None:
    plan = a_plan(a_node("spare", spare=True), bad=["gone"])

    assert plan.placement == {"0": "here-0", "1": "here-1", "2": "spare"}
    assert plan.replacements == {"member 2": "spare"}


def test_with_no_node_for_it_the_plan_is_as_without_a_record() -> None:
    plan = a_plan(bad=["gone"])

    assert plan.placement == {"0": "here-0", "1": "here-1"}
    assert plan.left_out == ("gone",)


def test_a_node_that_returned_stands_in_for_one_that_broke_now() -> None:
    plan = a_plan(a_node("gone"), bad=["here-0"])

    assert plan.placement == {"0": "here-1", "1": "gone"}
    assert plan.left_out == ("here-0",)


def test_without_the_annotation_no_plan_grows() -> None:
    options = GangOptions(restart=True, min_nodes=1)

    assert len(a_plan(a_node("gone"), options=options).placement) == 2


def test_a_launcher_stays_one() -> None:
    root = a_gang(world=3, indexes=(Numbered("", (2,)),), elastic=Elastic(2))
    pods = [FencedPod(name=f"p{i}", uid=f"u{i}", node=f"here-{i}", index=str(i)) for i in range(2)]
    pods.append(FencedPod(name="launcher", uid="l", node="launching"))
    view = seen(a_node("gone"), a_node("launching"), root=root)

    plan = place(RecoveryStatus(pods=pods), view, root, "train-2", POLICY, ONE_LEFT)

    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "here-0", "1": "here-1", "2": "gone", "+0": "launching"}
    assert record_of(plan.placement, (), root, ONE_LEFT) is None


@pytest.mark.parametrize("members", [1, 3, 4])
def test_the_record_is_void_for_a_gang_of_another_size(members: int) -> None:
    assert recorded([a_start(1, ONE_LEFT)], a_gang(world=members, attempt=1)) is None


def test_the_record_is_that_of_the_start_of_the_present_attempt() -> None:
    starts = [a_start(2, None), a_start(1, ONE_LEFT)]

    assert recorded(starts, a_gang(attempt=1)) == ONE_LEFT
    assert recorded(starts, a_gang(attempt=2)) is None
    assert recorded([], a_gang(attempt=1)) is None


def test_a_recovery_that_started_nothing_has_a_copy_of_the_record() -> None:
    gang = a_gang(attempt=1)
    declined = open_recovery(gang, CAPACITY, [a_start(1, ONE_LEFT)])

    assert recorded([declined], gang) == ONE_LEFT
    assert open_recovery(gang, CAPACITY, [declined]).spec.shrunk == ONE_LEFT


def test_a_recovery_keeps_the_record_from_before_it_until_it_has_started_the_gang() -> None:
    opened = open_recovery(a_gang(attempt=1), CAPACITY, [a_start(1, ONE_LEFT)])

    assert opened.spec.shrunk == ONE_LEFT
    assert left_out_of(opened, a_gang(attempt=1)) == ONE_LEFT
    assert left_out_of(a_start(2, None), a_gang(world=3, attempt=2)) is None


def test_a_start_that_leaves_members_out_keeps_the_size_from_before() -> None:
    assert record_of({"0": "a"}, ["b", "c"], a_gang(), ONE_LEFT) == Shrunk(size=3, members=1, nodes=["b", "c"])
    assert record_of({"0": "a"}, ["b"], a_gang(), None) == Shrunk(size=2, members=1, nodes=["b"])
    assert record_of({}, [], a_gang(), ONE_LEFT) == ONE_LEFT


def test_there_is_room_on_a_node_that_returned_and_on_a_spare() -> None:
    two = Shrunk(size=4, members=2, nodes=["gone", "bad"])
    view = seen(a_node("gone"), a_node("bad", unschedulable=True), a_node("spare", spare=True))

    assert room(view, two, POLICY) == ["gone", "spare"]


@pytest.mark.parametrize(
    "doubt",
    [
        {"busy": {"gone", "spare"}},
        {"occupied": {"gone": "team-b/other", "spare": "team-b/other"}},
        {"is_silent": lambda name: name in ("gone", "spare")},
    ],
)
def test_a_node_in_doubt_is_no_room(doubt: dict[str, Any]) -> None:
    assert room(seen(a_node("gone"), a_node("spare", spare=True), **doubt), ONE_LEFT, POLICY) == []


def test_a_node_on_probation_is_no_room() -> None:
    assert room(seen(a_node("gone", labels={"healthd.dev/probation": "true"})), ONE_LEFT, POLICY) == []


@pytest.mark.parametrize(
    ("ago", "usual", "recent"),
    [(50, 60, True), (70, 60, False), (290, 1200, True), (310, 1200, False), (590, 36000, True), (610, 36000, False)],
)
def test_a_save_is_recent_for_a_part_of_the_usual_interval(ago: float, usual: float, recent: bool) -> None:
    root = a_gang(progress=Progress(step=9, at=START, intervals=[usual] * 3))

    assert recently_saved(root, START + timedelta(seconds=ago)) is recent


def test_a_step_of_an_earlier_attempt_is_no_recent_save() -> None:
    root = a_gang(attempt=1, progress=Progress(step=9, at=START, intervals=[60.0] * 3))

    assert not recently_saved(root, START)


def test_where_steps_cannot_be_seen_the_checked_saves_count() -> None:
    good = [Save(step=i, at=START + i * 20 * MINUTE) for i in range(4)]

    assert recently_saved(a_gang(saves=Saves(good=good)), START + 64 * MINUTE)
    assert not recently_saved(a_gang(saves=Saves(good=good, refused="/checkpoints/4")), START + 64 * MINUTE)
    assert not recently_saved(a_gang(), START)


def test_a_gang_waits_after_its_last_recovery() -> None:
    last = a_start(1, ONE_LEFT, ended_at=START)

    assert not is_due([last], POLICY, START + POLICY.grow_every - MINUTE)
    assert is_due([last], POLICY, START + POLICY.grow_every)


def test_the_breaker_counts_no_planned_restart() -> None:
    policy = BreakerPolicy(restarts=2)
    planned = [a_recovery_in(Phase.RECOVERED, causes=[CAPACITY]) for _ in range(5)]

    assert all(map(is_planned, planned))
    assert breaker.open_over(planned, breaker.Outage(0, 9), policy, START) == frozenset()


def test_a_fault_that_joins_makes_it_a_restart_like_others() -> None:
    assert not is_planned(a_recovery_in(Phase.STOPPING, causes=[CAPACITY, a_cause(CauseKind.HARDWARE)]))


def detected(**given: Any) -> tuple[Phase | None, str]:
    """What a recovery that was just opened to grow back becomes."""
    recovery = a_recovery(cause=CAPACITY)
    recovery = Recovery(metadata=recovery.metadata, spec=_with_record(recovery))
    view = given.pop("view", None) or seen(a_node("gone"), root=a_gang(progress=JUST_SAVED))
    found = decide(recovery, view, given.pop("faults", ()), POLICY, given.pop("now", START), given.pop("refusal", ""))
    assert found.record is not None
    return found.record.phase, found.record.message


def _with_record(recovery: Recovery) -> Any:
    return type(recovery.spec)(gang=a_gang().ref, first_attempt=1, cause=CAPACITY, pod_labels={}, shrunk=ONE_LEFT)


def test_it_is_stopped_when_all_is_as_it_was() -> None:
    assert detected() == (Phase.STOPPING, "a planned restart: the gang grows back")


def test_a_fault_of_the_same_moment_has_a_recovery_of_its_own() -> None:
    phase, message = detected(faults=[a_cause(CauseKind.SOFTWARE, message="rank-0 exited with code 1")])

    assert (phase, message) == (Phase.SUPERSEDED, "it does not grow back now: rank-0 exited with code 1")


def test_it_does_not_begin_while_the_breaker_is_open() -> None:
    assert detected(refusal="the breaker is open: x")[0] is Phase.SUPERSEDED


def test_it_does_not_begin_when_the_node_is_bad_again_or_the_size_is_another() -> None:
    bad = seen(a_node("gone", unschedulable=True), root=a_gang(progress=JUST_SAVED))
    larger = seen(a_node("gone"), root=a_gang(world=3, progress=JUST_SAVED))
    why = "it does not grow back: its size was changed, or there is no node for it"

    assert detected(view=bad) == (Phase.SUPERSEDED, why)
    assert detected(view=larger) == (Phase.SUPERSEDED, why)


def test_it_does_not_begin_when_its_save_is_old_as_after_a_controller_that_died() -> None:
    phase, message = detected(now=START + 2 * MINUTE)

    assert phase is Phase.SUPERSEDED
    assert message == "it does not grow back now: its last save is too old, so steps would be lost"


def test_a_gang_with_its_own_size_is_planned_as_ever() -> None:
    assert at_own_size(a_gang(), None) == a_gang()


def test_an_added_member_that_found_no_node_is_left_out_again() -> None:
    root = a_gang(world=3, placement={"0": "here-0", "1": "here-1", "2": "gone"})
    pods = [FencedPod(name=f"p{i}", uid=f"u{i}", node=f"here-{i}" if i < 2 else "", index=str(i)) for i in range(3)]
    grown = Recovery(metadata=a_recovery(cause=CAPACITY).metadata, spec=_with_record(a_recovery(cause=CAPACITY)))
    added = added_members(grown, root)

    plan = place(RecoveryStatus(pods=pods), seen(a_node("gone"), root=root), root, "train-2", POLICY, None, added)

    assert added == ("2",)
    assert isinstance(plan, PlacementPlan)
    assert plan.placement == {"0": "here-0", "1": "here-1"}


def test_one_that_ran_there_returns_there() -> None:
    root = a_gang(world=3, placement={"0": "here-0", "1": "here-1", "2": "gone"})
    pods = [
        FencedPod(name=f"p{i}", uid=f"u{i}", node=n, index=str(i)) for i, n in enumerate(("here-0", "here-1", "gone"))
    ]

    plan = place(RecoveryStatus(pods=pods), seen(a_node("gone"), root=root), root, "train-2", POLICY, None, ["2"])

    assert isinstance(plan, PlacementPlan)
    assert plan.placement["2"] == "gone"


@pytest.mark.parametrize(("kind", "minutes", "phase"), [("capacity", 11, "Stopping"), ("hardware", 11, None)])
def test_a_gang_that_could_run_smaller_waits_less_long_for_its_members(
    kind: str, minutes: float, phase: str | None
) -> None:
    cause = a_cause(CauseKind(kind))
    recovery = a_recovery_in(Phase.STARTING, causes=[cause], attempts=a_start(1, None).status.attempts)
    view = seen(root=a_gang(world=3, attempt=1, started_at=START))
    found = decide(recovery, view, (), POLICY, START + minutes * MINUTE)

    assert (found.record.phase if found.record else None) == phase
