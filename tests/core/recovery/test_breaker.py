"""The breaker: too many restarts, or too many bad nodes, in too short a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.api import ANNOTATION_QUARANTINE, Condition, Node, Recovery, RecoveryStatus
from healthd.core.api.model import BreakerTrigger, CauseKind, Phase, Verdict
from healthd.core.config import BreakerPolicy
from healthd.core.node.quarantine import Record
from healthd.core.recovery.breaker import Outage, open_over, outage_of, refuses
from tests.builders import a_cause, a_finding, a_node, a_nodehealth, a_recovery
from tests.fakes import START

POLICY = BreakerPolicy(restarts=2, window=timedelta(minutes=10))
NOW = START + timedelta(hours=4)
CALM = Outage(0, 100)


def begun(minutes_ago: float, **status: Any) -> Recovery:
    """A recovery that was let through so long ago."""
    return waiting(minutes_ago, let_through=NOW - timedelta(minutes=minutes_ago), **status)


def waiting(minutes_ago: float, phase: Phase = Phase.DETECTED, **status: Any) -> Recovery:
    """One that was opened so long ago and has not been let through yet."""
    created = NOW - timedelta(minutes=minutes_ago)
    known = RecoveryStatus(phase=phase, **status)
    return a_recovery(f"r{minutes_ago}", uid=f"uid-{minutes_ago}", creation_timestamp=created, status=known)


def refused(*others: Recovery, recovery: Recovery | None = None, outage: Outage = CALM) -> str:
    """Why a recovery that was opened just now is held."""
    return refuses(recovery or waiting(0), others, outage, POLICY, NOW)


def crowd(namespace: str, *, size: int = 12, kind: CauseKind = CauseKind.SOFTWARE) -> list[Recovery]:
    """So many of one namespace began a minute ago."""
    status = RecoveryStatus(let_through=NOW - timedelta(minutes=1))
    return [a_recovery(f"{n}", namespace=namespace, cause=a_cause(kind), status=status) for n in range(size)]


def a_late_one(kind: CauseKind = CauseKind.HARDWARE) -> Recovery:
    """Of another namespace than any crowd."""
    return a_recovery("late", namespace="late", uid="uid-late", creation_timestamp=NOW, cause=a_cause(kind))


def test_a_recovery_dated_hours_ahead_holds_no_gang_until_then() -> None:
    assert refused(begun(1), begun(2))
    assert not refused(begun(-60 * 26), begun(-60 * 26 - 1))


SHARED = BreakerPolicy(restarts=10, per_other_namespace=3)


@pytest.mark.parametrize(
    ("kind", "crowds", "held"),
    [
        pytest.param(CauseKind.HARDWARE, crowd("a"), False, id="software of one tenant"),
        pytest.param(CauseKind.SOFTWARE, crowd("a"), False, id="not for software either"),
        pytest.param(
            CauseKind.HARDWARE, [r for n in "abcdef" for r in crowd(n)], False, id="software of all the others"
        ),
        pytest.param(CauseKind.SOFTWARE, [r for n in "abc" for r in crowd(n)], False, id="of three"),
        pytest.param(CauseKind.SOFTWARE, [r for n in "abcd" for r in crowd(n)], True, id="of four"),
        pytest.param(CauseKind.HARDWARE, crowd("a", kind=CauseKind.HARDWARE), False, id="hardware of one tenant"),
        pytest.param(
            CauseKind.HARDWARE,
            [r for n in "abcd" for r in crowd(n, kind=CauseKind.HARDWARE)],
            True,
            id="hardware of four",
        ),
    ],
)
def test_a_burst_in_one_namespace_holds_no_other(kind: CauseKind, crowds: list[Recovery], held: bool) -> None:
    assert bool(refuses(a_late_one(kind), crowds, CALM, SHARED, NOW)) is held


def test_a_burst_holds_the_gangs_of_its_own_namespace() -> None:
    late = a_recovery("late", namespace="a", uid="uid-late", creation_timestamp=NOW)

    assert refuses(late, crowd("a"), CALM, SHARED, NOW) == "the breaker is open: 12 recoveries began within 0:10:00"


def test_what_others_add_is_said() -> None:
    crowds = [r for n in "abcd" for r in crowd(n)]

    assert refuses(a_late_one(CauseKind.SOFTWARE), crowds, CALM, SHARED, NOW) == (
        "the breaker is open: 0 recoveries began within 0:10:00; those of other namespaces count as 12"
    )


def test_it_is_open_where_some_namespace_is_held() -> None:
    assert open_over(crowd("a"), CALM, SHARED, NOW) == {BreakerTrigger.RESTARTS}
    assert open_over([*crowd("a", size=9), *crowd("b", size=1)], CALM, SHARED, NOW) == {BreakerTrigger.RESTARTS}
    assert open_over([*crowd("a", size=5), *crowd("b", size=5)], CALM, SHARED, NOW) == set()


def test_fewer_than_the_limit_are_let_through() -> None:
    assert refused(begun(1)) == ""


def test_at_the_limit_the_next_one_is_held_with_a_reason() -> None:
    assert refused(begun(1), begun(3)) == "the breaker is open: 2 recoveries began within 0:10:00"


def test_what_is_older_than_the_window_does_not_count() -> None:
    assert refused(begun(1), begun(10)) == ""


def test_what_was_let_through_is_never_held_again() -> None:
    assert refused(begun(1), begun(3), begun(4), recovery=begun(2), outage=Outage(9, 10)) == ""


def test_of_several_that_come_at_once_only_the_oldest_are_let_through() -> None:
    crowd = [waiting(minutes) for minutes in (4, 3, 2, 1)]

    held = [each.metadata.name for each in crowd if refused(*crowd, recovery=each)]

    assert held == ["r2", "r1"]


@pytest.mark.parametrize(
    ("phase", "message", "counts"),
    [
        (Phase.DETECTED, "", True),
        (Phase.RESERVING, "", True),
        (Phase.HELD, "the breaker is open: 2 recoveries began within 0:10:00", True),
        (Phase.HELD, "node-1 is not quarantined", False),
        (Phase.FENCING, "", False),
        (Phase.SUPERSEDED, "", False),
    ],
)
def test_only_those_in_front_that_wait_for_the_breaker_itself_count(phase: Phase, message: str, counts: bool) -> None:
    assert bool(refused(begun(1), waiting(2, phase, message=message))) is counts


@pytest.mark.parametrize(
    ("bad", "total", "held"),
    [
        pytest.param(11, 100, True, id="more than one in ten"),
        pytest.param(10, 100, False, id="one in ten"),
        pytest.param(2, 4, False, id="two of a few"),
        pytest.param(3, 4, True, id="three of a few"),
    ],
)
def test_too_many_bad_nodes_hold_every_restart(bad: int, total: int, held: bool) -> None:
    reported = f"the breaker is open: {bad} of {total} nodes went bad within 1:00:00"

    assert refused(outage=Outage(bad, total)) == (reported if held else "")


def ago(minutes: float) -> datetime:
    """So long before now."""
    return NOW - timedelta(minutes=minutes)


def quarantined(name: str, minutes: float) -> Node:
    """Taken out of service by healthd so long ago."""
    record = Record(finding="gpu/xid-79", message="it fell off the bus", since=ago(minutes))
    return a_node(name, annotations={ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()})


def not_ready(name: str, minutes: float) -> Node:
    """Silent for so long."""
    return a_node(name, conditions=[Condition(type="Ready", status="Unknown", last_transition_time=ago(minutes))])


@pytest.mark.parametrize(
    ("node", "counts"),
    [
        pytest.param(a_node("n"), False, id="healthy"),
        pytest.param(quarantined("n", 5), True, id="quarantined"),
        pytest.param(quarantined("n", 61), False, id="quarantined for long"),
        pytest.param(not_ready("n", 5), True, id="not ready"),
        pytest.param(not_ready("n", 61), False, id="not ready for long"),
        pytest.param(a_node("n", unschedulable=True), False, id="cordoned by a person"),
    ],
)
def test_a_node_counts_while_it_is_bad_and_that_is_new(node: Node, counts: bool) -> None:
    assert outage_of([node, a_node("other")], {}, NOW) == Outage(int(counts), 2)


def test_so_does_one_whose_agent_calls_it_unhealthy() -> None:
    def reported(minutes: float) -> Outage:
        finding = a_finding(at=ago(minutes))
        report = a_nodehealth("n", verdict=Verdict.UNHEALTHY, findings=[finding])
        return outage_of([a_node("n")], {"n": report}, NOW)

    assert reported(5) == Outage(1, 1)
    assert reported(61) == Outage(0, 1)


def test_a_known_bad_node_that_is_rebooted_for_its_repair_is_not_new() -> None:
    node = quarantined("n", 90)
    rebooting = replace(node, status=not_ready("n", 1).status)

    assert outage_of([rebooting], {}, NOW) == Outage(0, 1)


def test_only_nodes_with_accelerators_count_where_there_are_any() -> None:
    gpu = not_ready("gpu", 5)
    gpu = replace(gpu, status=replace(gpu.status, capacity={"cpu": "8", "nvidia.com/gpu": "8"}))

    assert outage_of([gpu, a_node("a"), a_node("b")], {}, NOW) == Outage(1, 1)


@pytest.mark.parametrize(
    ("recoveries", "outage", "over"),
    [
        ([begun(1)], CALM, set()),
        ([begun(1), begun(3)], CALM, {BreakerTrigger.RESTARTS}),
        ([begun(1), waiting(3)], CALM, {BreakerTrigger.RESTARTS}),
        ([begun(1), begun(11)], CALM, set()),
        ([], Outage(50, 100), {BreakerTrigger.NODES}),
        ([begun(1), begun(3)], Outage(50, 100), {BreakerTrigger.NODES, BreakerTrigger.RESTARTS}),
    ],
)
def test_it_is_open_also_while_there_is_no_gang_to_hold(
    recoveries: list[Recovery], outage: Outage, over: set[BreakerTrigger]
) -> None:
    assert open_over(recoveries, outage, POLICY, NOW) == over
