"""When a gang leaves a node because a rank on it makes the gang slow, and when it must not."""

from __future__ import annotations

from dataclasses import replace as with_fields
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.api import (
    Attempt,
    Cause,
    ChosenCheckpoint,
    FencedPod,
    HangSuspect,
    Recovery,
    RecoveryStatus,
)
from healthd.core.api.model import CauseKind, Phase
from healthd.core.api.names import LABEL_STOPS
from healthd.core.config import BreakerPolicy, HangPolicy, RecoveryPolicy
from healthd.core.config.gangs import SilenceMode, StragglerMode
from healthd.core.hang.straggler import LONGEST_REASON, Straggler
from healthd.core.recovery import breaker
from healthd.core.recovery.decide import decide, open_recovery
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.gang import GangOptions, GangView, Root
from healthd.core.recovery.hangs.suspicion import times_suspected
from healthd.core.recovery.nodes.foreign_signs import Effect, Sign
from healthd.core.recovery.nodes.placement import PlacementPlan, place
from healthd.core.recovery.planned.moving import cause_to_move, nodes_to_leave, nodes_to_move_to
from healthd.core.recovery.planned.restarts import is_planned, is_still_wanted
from healthd.core.recovery.planned.slow_nodes import MOST, left_slow, may_swap, to_swap_for, with_history
from healthd.core.recovery.progress import Progress
from tests.builders import a_cause, a_node, a_recovery
from tests.core.gangs import a_recovery_in, a_root
from tests.core.recovery.silences import NOW, a_gang, a_rank, ago

POLICY = RecoveryPolicy()
EVERY = POLICY.swap_every
HANG = HangPolicy()
ALLOWED = GangOptions(restart=True, checkpoint="/checkpoints", stragglers=StragglerMode.SWAP)
JUST_SAVED = Progress(step=9, at=NOW, intervals=[60.0] * 3)
SLOW = Straggler(
    rank="1", slower=0.12, since=ago(700), seen_at=ago(30), ran=1, starved=0, peers_ran=0.9, peers_starved=0,
    confidence=0.9, pod="train-1", node="node-1", reason="it works, and its peers wait",
)  # fmt: skip


def but(**fields: Any) -> Straggler:
    """The straggler, but for this."""
    return msgspec.structs.replace(SLOW, **fields)


def a_slow_root(*record: Straggler, **fields: Any) -> Root:
    """A gang that allows it, has just saved, and has this on record."""
    known = {"options": ALLOWED, "progress": JUST_SAVED, "stragglers": record or (SLOW,)}
    return a_root(**{**known, **fields})


def seen(root: Root | None = None, **fields: Any) -> GangView:
    """Two ranks on `node-0` and `node-1`, and a spare."""
    nodes = {name: a_node(name, spare=name == "spare") for name in ("node-0", "node-1", "spare")}
    return a_gang(**{"root": root or a_slow_root(), "nodes": nodes, "health": {}, **fields})


def slow_view(**fields: Any) -> GangView:
    """The same, with the rank for which it is to leave its node."""
    return seen(**{"slow": (SLOW,), **fields})


def a_swap(rank: str = "1", node: str = "node-1", *, age: timedelta = 2 * EVERY, **fields: Any) -> Recovery:
    """An earlier recovery of the gang, by which it left *node* because of *rank*."""
    suspects = [HangSuspect(member=rank, node=node)]
    cause = Cause(kind=CauseKind.STRAGGLER, message="slow", at=NOW - age, suspects=suspects)
    attempts = [Attempt(number=1, checkpoint=ChosenCheckpoint())]
    status = RecoveryStatus(phase=Phase.RECOVERED, causes=[cause], **{"attempts": attempts, **fields})
    return a_recovery(cause=cause, status=status, creation_timestamp=NOW - age)


def test_a_gang_that_allows_it_leaves_the_node_of_a_rank_that_has_been_slow_for_long() -> None:
    assert to_swap_for(seen(), [SLOW], HANG, NOW) == (SLOW,)


@pytest.mark.parametrize(
    ("option", "policy", "is_swapped"),
    [
        (None, HANG, False),
        (StragglerMode.REPORT, HangPolicy(stragglers=StragglerMode.SWAP), False),
        (StragglerMode.IGNORE, HangPolicy(stragglers=StragglerMode.SWAP), False),
        (StragglerMode.SWAP, HangPolicy(stragglers=StragglerMode.IGNORE), False),
        (StragglerMode.SWAP, HangPolicy(silence=SilenceMode.IGNORE), False),
        (StragglerMode.SWAP, HangPolicy(enabled=False), False),
        (StragglerMode.SWAP, HANG, True),
        (None, HangPolicy(stragglers=StragglerMode.SWAP), True),
    ],
)
def test_the_owner_decides_and_else_the_configuration(
    option: StragglerMode | None, policy: HangPolicy, is_swapped: bool
) -> None:
    root = a_slow_root(options=with_fields(ALLOWED, stragglers=option))

    assert bool(to_swap_for(seen(root), [SLOW], policy, NOW)) is is_swapped


@pytest.mark.parametrize(
    "straggler",
    [
        pytest.param(but(since=ago(629)), id="for less than ten minutes"),
        pytest.param(but(since=ago(1000), seen_at=ago(401)), id="for longer, but that was not seen"),
        pytest.param(but(slower=0.09), id="by less than a tenth"),
        pytest.param(but(confidence=0.6), id="not sure"),
        pytest.param(but(from_start=True), id="from the start"),
        pytest.param(but(rank="0", pod="train-0", node="node-0", from_start=True), id="rank 0, from its start"),
        pytest.param(but(node=""), id="no node known"),
        pytest.param(but(node="node-0"), id="on another node than its pod"),
        pytest.param(but(pod="train-9"), id="another pod"),
        pytest.param(but(rank="7"), id="no such rank"),
        pytest.param(but(since=NOW + timedelta(hours=1)), id="from the time to come"),
        pytest.param(but(since=ago(3700)), id="from before its pod"),
        pytest.param(but(ended_at=ago(10)), id="over"),
    ],
)
def test_a_straggler_that_is_not_certain_is_only_reported(straggler: Straggler) -> None:
    assert to_swap_for(seen(a_slow_root(straggler)), [straggler], HANG, NOW) == ()


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(a_slow_root(but(rank="0")), id="nothing of it is on record"),
        pytest.param(a_slow_root(but(since=ago(800))), id="another time is on record"),
        pytest.param(a_slow_root(but(ended_at=ago(1))), id="it is over by the record"),
        pytest.param(a_slow_root(started_at=ago(5)), id="it was started since"),
        pytest.param(a_slow_root(suspended=True), id="its user stopped it"),
        pytest.param(a_slow_root(deleting=True), id="it is deleted"),
        pytest.param(a_slow_root(world=3), id="a member is missing"),
        pytest.param(a_slow_root(invalid=("healthd.dev/min-nodes: what?",)), id="it cannot be read"),
        pytest.param(a_slow_root(queue="research"), id="it is in a queue"),
    ],
)
def test_a_gang_that_is_another_than_it_was_is_left_alone(root: Root) -> None:
    assert to_swap_for(seen(root), [SLOW], HANG, NOW) == ()


def test_what_agents_do_not_show_now_is_no_straggler_whatever_is_on_record() -> None:
    assert to_swap_for(seen(), [], HANG, NOW) == ()


def test_two_slow_ranks_on_one_node_are_left_together_and_on_two_nodes_not() -> None:
    pods = (a_rank(0), a_rank(1), a_rank(2, node="node-1"))
    also = but(rank="2", pod="train-2")
    elsewhere = but(rank="0", pod="train-0", node="node-0")
    view = seen(a_slow_root(SLOW, also, elsewhere, world=3), pods=pods)

    assert to_swap_for(view, [SLOW, also], HANG, NOW) == (SLOW, also)
    assert to_swap_for(view, [SLOW, elsewhere], HANG, NOW) == ()


def test_members_that_nothing_tells_apart_cannot_be_known_again_so_they_stay() -> None:
    pods = (a_rank(0, index=None), a_rank(1, index=None))
    straggler = but(rank="train-1")

    assert to_swap_for(seen(a_slow_root(straggler), pods=pods), [straggler], HANG, NOW) == ()


@pytest.mark.parametrize(
    ("node", "pid", "is_swapped"),
    [("node-1", 0, True), ("node-0", 0, False), ("", 0, False), ("node-0", 4711, True)],
    ids=["the same", "another", "unknown", "another, of a rank within a pod, which is another one"],
)
def test_a_rank_that_was_slow_on_another_node_has_more_to_do(node: str, pid: int, is_swapped: bool) -> None:
    before = but(since=ago(3000), seen_at=ago(2900), ended_at=ago(2000), node=node, pid=pid)

    assert bool(to_swap_for(seen(a_slow_root(before, SLOW)), [SLOW], HANG, NOW)) is is_swapped


@pytest.mark.parametrize(
    ("earlier", "may"),
    [
        pytest.param([], True, id="never"),
        pytest.param([a_swap("1")], False, id="the same rank"),
        pytest.param([a_swap("1", "node-9", age=300 * EVERY)], False, id="the same rank, long ago, elsewhere"),
        pytest.param([a_swap("0")], True, id="another rank"),
        pytest.param([a_swap("0", age=EVERY - timedelta(minutes=1))], False, id="another rank, today"),
        pytest.param([a_swap("0", age=-timedelta(hours=1))], False, id="in the time to come: a clock was set"),
        pytest.param([a_swap("1", attempts=[])], True, id="one that never stopped it"),
        pytest.param([a_swap(f"{n}", age=(n + 2) * EVERY) for n in range(10, 10 + MOST)], False, id="many"),
        pytest.param([a_recovery_in(Phase.RECOVERED)], True, id="of a fault"),
    ],
)
def test_a_rank_is_swapped_once_and_a_gang_seldom(earlier: list[Recovery], may: bool) -> None:
    assert may_swap({"1"}, earlier, POLICY, NOW) is may


def the_cause(view: GangView | None = None) -> Cause:
    view = view or slow_view()
    departures = nodes_to_leave(CauseKind.STRAGGLER, view)
    return cause_to_move(CauseKind.STRAGGLER, departures, nodes_to_move_to(departures, view, POLICY), NOW)


def test_the_cause_says_which_rank_by_how_much_since_when_and_why_and_blames_no_node() -> None:
    cause = the_cause()

    assert cause.message == (
        f"since {SLOW.since:%Y-%m-%d %H:%M} UTC rank 1 (pod train-1, node node-1) makes its gang about 12% slower "
        "(90% sure): it works, and its peers wait: moves to spare, after a save"
    )
    assert not blames_node(cause)
    (suspect,) = cause.suspects
    assert (suspect.member, suspect.node, suspect.words) == ("1", "node-1", ["it works, and its peers wait"])


@pytest.mark.parametrize(
    "doubt",
    [
        pytest.param({"busy": {"spare"}}, id="busy"),
        pytest.param({"occupied": {"spare": "team-b/other"}}, id="occupied"),
        pytest.param({"is_silent": lambda name: name == "spare"}, id="a silent agent"),
        pytest.param({"left_slow": {"spare"}}, id="another gang left it because it was slow"),
        pytest.param({"nodes": {n: a_node(n) for n in ("node-0", "node-1")}}, id="none"),
    ],
)
def test_a_spare_in_doubt_is_no_place_to_go(doubt: dict[str, Any]) -> None:
    view = slow_view(**doubt)

    assert nodes_to_move_to(nodes_to_leave(CauseKind.STRAGGLER, view), view, POLICY) == {}


def announced(node: str) -> Sign | None:
    sign = Sign(effect=Effect.MOVE, node=node, row="r", message="it goes", cause=CauseKind.MAINTENANCE)
    return sign if node == "node-0" else None


def test_a_maintenance_has_the_spares_first() -> None:
    view = slow_view(sign_on=announced)

    assert nodes_to_leave(CauseKind.STRAGGLER, view) == []
    assert [each.node for each in nodes_to_leave(CauseKind.MAINTENANCE, view)] == ["node-0"]


def test_it_is_wanted_as_long_as_the_same_ranks_are_slow() -> None:
    cause = the_cause()
    other = but(rank="0", pod="train-0", node="node-0")

    assert is_still_wanted(cause, [], slow_view(), POLICY, NOW)
    assert not is_still_wanted(cause, [], slow_view(slow=()), POLICY, NOW)
    assert not is_still_wanted(cause, [], slow_view(slow=(other,)), POLICY, NOW)
    assert not is_still_wanted(cause, [a_swap()], slow_view(), POLICY, NOW)


def opened(view: GangView | None = None, faults: tuple[Cause, ...] = (), refusal: str = "") -> tuple[Phase, str]:
    """What a recovery that was opened for it becomes, as all is *now*."""
    recovery = open_recovery(a_slow_root(), the_cause())
    found = decide(recovery, view or slow_view(), faults, POLICY, NOW, refusal)
    assert found.record is not None
    return found.record.phase, found.record.message


def test_it_is_stopped_when_all_is_as_it_was() -> None:
    assert opened() == (Phase.STOPPING, "a planned restart: the gang leaves a node on which a rank makes it slow")


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (slow_view(slow=()), "it is not moved: nothing asks for it any more, or there is no spare for it"),
        (slow_view(busy={"spare"}), "it is not moved: nothing asks for it any more, or there is no spare for it"),
        (
            slow_view(root=a_slow_root(progress=Progress(step=9, at=ago(300), intervals=[60.0] * 3))),
            "it is not moved now: its last save is too old, so steps would be lost",
        ),
        (slow_view(root=a_slow_root(suspended=True)), "the user suspended the gang; it stays so"),
    ],
)
def test_it_is_not_stopped_when_something_changed_since(view: GangView, why: str) -> None:
    assert opened(view) == (Phase.SUPERSEDED, why)


@pytest.mark.parametrize(
    ("age", "labels", "faults", "stops"),
    [
        pytest.param(0, {}, (), True, id="at once"),
        pytest.param(300, {}, (), False, id="by the next controller, minutes later"),
        pytest.param(300, {LABEL_STOPS: "1"}, (), True, id="it was being stopped: it is stopped to its end"),
        pytest.param(300, {}, (a_cause(CauseKind.SOFTWARE),), True, id="it has a fault by now"),
    ],
)
def test_a_controller_that_died_before_the_stop_leaves_no_stop_that_loses_steps(
    age: float, labels: dict[str, str], faults: tuple[Cause, ...], stops: bool
) -> None:
    recovery = a_recovery_in(Phase.STOPPING, causes=[the_cause()], attempt=1)
    recovery = replace(recovery, metadata=replace(recovery.metadata, labels=labels))
    saved = Progress(step=9, at=ago(age), intervals=[60.0] * 3)
    view = slow_view(root=a_slow_root(progress=saved))
    found = decide(recovery, replace(view, pods=()), faults, POLICY, NOW)

    assert bool(found.actions) is stops
    assert stops or (found.record is not None and found.record.phase is Phase.SUPERSEDED)


def test_a_fault_of_the_same_moment_has_a_recovery_of_its_own_and_an_open_breaker_ends_it() -> None:
    assert opened(faults=(a_cause(CauseKind.SOFTWARE, message="rank-0 exited with code 1"),)) == (
        Phase.SUPERSEDED,
        "it is not moved now: rank-0 exited with code 1",
    )
    assert opened(refusal="the breaker is open: x")[0] is Phase.SUPERSEDED


def test_neither_the_breaker_nor_the_limits_count_it() -> None:
    swapped = [a_recovery_in(Phase.RECOVERED, causes=[the_cause()]) for _ in range(5)]

    assert all(map(is_planned, swapped))
    assert breaker.open_over(swapped, breaker.Outage(0, 9), BreakerPolicy(restarts=2), NOW) == frozenset()
    assert times_suspected(swapped) == {}


def plan(*causes: Cause, **fields: Any) -> PlacementPlan:
    pods = [FencedPod(name=f"train-{i}", uid=f"u{i}", node=f"node-{i}", index=str(i)) for i in range(2)]
    root = a_slow_root()
    found = place(RecoveryStatus(pods=pods, causes=[*causes]), seen(root, **fields), root, "train-1", POLICY)
    assert isinstance(found, PlacementPlan), found
    return found


def test_the_spare_takes_the_place_of_the_node_and_the_other_members_stay() -> None:
    found = plan(the_cause())

    assert found.placement == {"0": "node-0", "1": "spare"}
    assert found.message == "spare in place of node-1; a rank was slow on node-1: it stays in service"


def test_a_fault_that_joins_has_the_only_spare() -> None:
    nodes = {"node-0": a_node("node-0", unschedulable=True), "node-1": a_node("node-1"), "spare": seen().nodes["spare"]}
    found = plan(the_cause(), a_cause(node="node-0"), nodes=nodes)

    assert found.placement == {"0": "spare", "1": "node-1"}
    assert found.message.endswith("a rank was slow on node-1: no spare is free for it now, so it is used again")


def test_the_slow_node_has_the_spare_before_one_that_is_only_advised_against() -> None:
    def avoided(node: str) -> Sign | None:
        sign = Sign(effect=Effect.AVOID, node=node, row="r", message="it is old", cause=CauseKind.HARDWARE)
        return sign if node == "node-0" else None

    assert plan(the_cause(), sign_on=avoided).replacements == {"node-1": "spare"}


def test_a_node_that_was_left_comes_last_among_the_spares_until_it_is_called_repaired() -> None:
    nodes = {"node-0": a_node("node-0"), "node-1": a_node("node-1", unschedulable=True)}
    nodes |= {name: a_node(name, spare=True) for name in ("a", "b")}
    left = a_swap(node="a")
    repaired = a_node("a", spare=True, annotations={"healthd.dev/repaired": NOW.isoformat()})

    assert plan(nodes=nodes).replacements == {"node-1": "a"}
    assert plan(nodes=nodes, left_slow=left_slow([left], nodes)).replacements == {"node-1": "b"}
    assert left_slow([left], {**nodes, "a": repaired}) == set()


def reason_of(straggler: Straggler, root: Root, *earlier: Recovery) -> str:
    return with_history(straggler, root, earlier, HANG).reason


def test_a_rank_that_is_slow_on_its_next_node_is_reported_as_uneven_work() -> None:
    on_spare = but(node="spare")
    why = "it was slow on node-1, too, so it is most likely the job that gives it more to do: it is not swapped"

    assert reason_of(on_spare, a_slow_root(SLOW), a_swap()) == f"it works, and its peers wait; {why}"
    assert reason_of(on_spare, a_slow_root(SLOW)) == f"it works, and its peers wait; {why}"
    swapped = reason_of(SLOW, a_slow_root(), a_swap())
    assert swapped.endswith("; it was swapped for that before: it is not swapped again")
    assert reason_of(SLOW, a_slow_root()) == SLOW.reason
    assert len(reason_of(but(node="spare", reason="x" * LONGEST_REASON), a_slow_root(SLOW))) == LONGEST_REASON


def test_nothing_more_is_said_of_a_gang_that_did_not_allow_it() -> None:
    root = a_slow_root(SLOW, options=GangOptions(restart=True))

    assert reason_of(but(node="spare"), root, a_swap()) == SLOW.reason


def test_what_a_tenant_wrote_is_bounded_and_printable_in_the_cause() -> None:
    evil = but(reason="\x1b[2J" * 100, slower=1000, confidence=1000)
    cause = the_cause(slow_view(slow=(evil,)))

    assert cause.message.isprintable()
    assert len(cause.message) <= 1024
    assert cause.suspects[0].confidence == 1
