"""What is wrong with a running gang."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    Cause,
    ContainerState,
    ContainerStatus,
    Node,
    NodeHealth,
    NodeHealthStatus,
    Pod,
    PodStatus,
    RepairSeen,
    Terminated,
)
from healthd.core.api.health import MemberState
from healthd.core.api.kubernetes.pods import Running
from healthd.core.api.model import CauseKind, Verdict
from healthd.core.api.recoveries import LONGEST_MESSAGE, HangSuspect
from healthd.core.config import HangPolicy
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.node.quarantine import Record
from healthd.core.recovery.faults import cause_text, find_faults
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.nodes.foreign_signs import Effect, Sign
from healthd.core.recovery.progress import Progress
from healthd.core.recovery.situation import begin
from tests.builders import a_cause, a_finding, a_node, a_nodehealth, a_pod, a_recovery
from tests.core.gangs import a_root
from tests.core.recovery.silences import a_gang, a_rank, a_report, a_rhythm
from tests.fakes import START

NOW = START + timedelta(hours=1)
HANG = HangPolicy(factor=5, floor=timedelta(minutes=10))
QUARANTINED = a_node(
    "node-1",
    unschedulable=True,
    annotations={
        ANNOTATION_QUARANTINE: msgspec.json.encode(
            Record(finding="gpu/xid-79", message="it fell off the bus", since=START)
        ).decode()
    },
)


def a_member(
    index: int, phase: str = "Running", *, attempt: int = 0, end: Terminated | None = None, **meta: Any
) -> Pod:
    """The member *index* on the node of the same number."""
    containers = [ContainerStatus(name="main", state=ContainerState(terminated=end))] if end else []
    return a_pod(
        f"rank-{index}",
        node=f"node-{index}",
        index=index,
        status=PodStatus(
            phase=phase,
            reason=meta.pop("reason", ""),
            message=meta.pop("message", ""),
            container_statuses=containers,
        ),
        annotations={"healthd.dev/attempt": str(attempt)},
        **meta,
    )


def kinds(
    *pods: Pod,
    root: Root | None = None,
    nodes: tuple[Node, ...] = (a_node("node-0"), a_node("node-1")),
    health: tuple[NodeHealth, ...] = (),
    last_activity: datetime | None = None,
    last_work: datetime | None = None,
    usual_work: datetime | None = None,
    signs: dict[str, Sign] | None = None,
) -> list[CauseKind]:
    """The kinds of the faults that are found."""
    view = GangView(
        root=root or a_root(),
        pods=pods,
        nodes={node.metadata.name: node for node in nodes},
        health={report.metadata.name: report for report in health},
        last_activity=last_activity,
        last_work=last_work,
        usual_work=usual_work,
        sign_on=(signs or {}).get,
    )
    return [cause.kind for cause in find_faults(view, HANG, NOW)]


def test_a_gang_that_runs_on_healthy_nodes_has_no_fault() -> None:
    assert kinds(a_member(0), a_member(1)) == []


@pytest.mark.parametrize("state", [{"deleting": True}, {"invalid": ("healthd.dev/min-nodes: 'x' is not a number",)}])
def test_a_gang_that_goes_or_cannot_be_read_has_no_fault_that_is_acted_on(state: dict[str, Any]) -> None:
    assert kinds(a_member(0), a_member(1, "Failed"), root=a_root(gone=("1",), **state)) == []


def test_a_quarantined_node_under_a_member_is_a_fault_of_the_hardware() -> None:
    view = GangView(root=a_root(), pods=(a_member(1),), nodes={"node-1": QUARANTINED})

    (cause,) = find_faults(view, HANG, NOW)

    assert (cause.kind, cause.node, cause.message, cause.at) == (
        CauseKind.HARDWARE,
        "node-1",
        "it fell off the bus",
        START,
    )


def test_so_is_an_unhealthy_verdict_before_the_quarantine() -> None:
    report = a_nodehealth("node-1", verdict=Verdict.UNHEALTHY, findings=[a_finding()])

    assert kinds(a_member(0), a_member(1), health=(report,)) == [CauseKind.HARDWARE]


@pytest.mark.parametrize(
    ("repaired", "seen", "expected"),
    [
        (timedelta(minutes=1), None, []),
        (timedelta(minutes=1), timedelta(0), []),
        (timedelta(minutes=1), timedelta(minutes=1), [CauseKind.HARDWARE]),
        (timedelta(minutes=-1), None, [CauseKind.HARDWARE]),
    ],
    ids=["not seen yet", "an earlier one was seen", "seen, and still unhealthy", "before the fault"],
)
def test_a_verdict_from_before_a_repair_that_the_agent_has_not_seen_is_no_fault(
    repaired: timedelta, seen: timedelta | None, expected: list[CauseKind]
) -> None:
    status = NodeHealthStatus(
        verdict=Verdict.UNHEALTHY,
        findings=[a_finding()],
        repair_seen=None if seen is None else RepairSeen(stamp=START + seen, at=START + seen),
    )
    report = a_nodehealth("node-1", status=status)
    node = a_node("node-1", annotations={ANNOTATION_REPAIRED: (START + repaired).isoformat()})

    assert kinds(a_member(0), a_member(1), nodes=(a_node("node-0"), node), health=(report,)) == expected


def test_so_is_a_node_that_is_gone() -> None:
    assert kinds(a_member(0), a_member(1), nodes=(a_node("node-0"),)) == [CauseKind.HARDWARE]


@pytest.mark.parametrize("verdict", [Verdict.DEGRADED, Verdict.UNKNOWN])
def test_a_node_that_is_not_known_to_be_bad_is_none(verdict: Verdict) -> None:
    assert kinds(a_member(0), a_member(1), health=(a_nodehealth("node-1", verdict=verdict),)) == []


def test_a_cordon_of_a_person_is_no_fault() -> None:
    assert kinds(a_member(0), a_member(1), nodes=(a_node("node-0"), a_node("node-1", unschedulable=True))) == []


def test_a_failed_member_on_a_healthy_node_is_a_fault_of_the_software() -> None:
    assert kinds(a_member(0), a_member(1, "Failed", end=Terminated(exit_code=1))) == [CauseKind.SOFTWARE]


def test_a_failed_member_on_a_bad_node_is_the_hardwares_fault_alone() -> None:
    failed = a_member(1, "Failed", end=Terminated(exit_code=134))

    assert kinds(a_member(0), failed, nodes=(a_node("node-0"), QUARANTINED)) == [CauseKind.HARDWARE]


def test_the_hardware_comes_first_when_the_others_die_with_it() -> None:
    peer = a_member(0, "Failed", end=Terminated(exit_code=1))

    found = kinds(peer, a_member(1), nodes=(a_node("node-0"), QUARANTINED))

    assert found == [CauseKind.HARDWARE, CauseKind.SOFTWARE]


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(a_member(1, deletion_timestamp=START), id="deleted under the gang"),
        pytest.param(a_member(1, "Failed", reason="Lost"), id="its supervisor went away"),
        pytest.param(a_member(1, "Failed", reason="EndedWithHealthd"), id="healthd itself was killed"),
    ],
)
def test_a_member_that_was_taken_away_is_an_interruption(member: Pod) -> None:
    assert kinds(a_member(0), member) == [CauseKind.INTERRUPTED]


@pytest.mark.parametrize(("reason", "with_healthd"), [("EndedWithHealthd", True), ("Lost", False), ("Error", False)])
def test_only_a_rank_that_ended_with_healthd_is_known_not_to_have_failed(reason: str, with_healthd: bool) -> None:
    """What kills the supervisor of one rank may be the program; healthd itself is started again by a person."""
    view = GangView(root=a_root(), pods=(a_member(1, "Failed", reason=reason),), nodes={"node-1": a_node("node-1")})

    (cause,) = find_faults(view, HANG, NOW)

    assert cause.healthd_ended is with_healthd


def test_a_rank_that_failed_before_healthd_was_killed_is_the_cause() -> None:
    """Its end was on record. The ranks that ended with healthd are no reason to let it start for nothing."""
    failed, ended = a_member(1, "Failed", end=Terminated(exit_code=1)), a_member(0, "Failed", reason="EndedWithHealthd")

    assert kinds(failed, ended) == [CauseKind.SOFTWARE, CauseKind.INTERRUPTED]


def test_one_that_goes_because_the_gang_was_made_smaller_is_none() -> None:
    assert kinds(a_member(0), a_member(1, deletion_timestamp=START), root=a_root(world=1)) == []
    assert kinds(a_member(0), a_member(1), root=a_root(world=1), nodes=(a_node("node-0"),)) == []


def test_members_that_have_succeeded_are_left_out() -> None:
    assert kinds(a_member(0, "Succeeded"), a_member(1, "Succeeded", deletion_timestamp=START)) == []


def test_what_an_earlier_attempt_left_behind_is_history() -> None:
    old = a_member(1, "Failed", attempt=0, end=Terminated(exit_code=1))

    assert kinds(old, root=a_root(attempt=1)) == []


def test_so_is_what_failed_before_the_user_stopped_the_gang_and_let_it_go_on() -> None:
    old = a_member(1, "Failed", end=Terminated(exit_code=1, finished_at=START))
    successor = a_member(1)

    assert kinds(old, successor, root=a_root(started_at=START)) == [CauseKind.SOFTWARE]
    assert kinds(old, successor, root=a_root(started_at=NOW)) == []
    assert kinds(old, successor, root=a_root(has_begun=False)) == []


@pytest.mark.parametrize("made", [START - timedelta(seconds=1), START])
def test_a_pod_that_goes_in_the_second_of_the_start_counts_if_that_start_made_it(made: datetime) -> None:
    gone = a_member(1, creation_timestamp=made, deletion_timestamp=START)
    successor = a_member(1, creation_timestamp=START)

    assert bool(kinds(gone, successor, root=a_root(started_at=START))) is (made == START)


def test_thousands_of_pods_of_an_earlier_life_are_looked_at_once_each() -> None:
    """Each is within the time that a test may take; beside every other one they would not be."""
    world, before = 3000, START - timedelta(minutes=1)
    ended = Terminated(exit_code=143, finished_at=before)
    old = [a_member(rank, "Failed", end=ended, creation_timestamp=before) for rank in range(world)]
    new = [a_member(rank, creation_timestamp=START) for rank in range(world)]
    nodes = tuple(a_node(f"node-{rank}") for rank in range(world))

    assert kinds(*old, *new, root=a_root(world=world, started_at=START), nodes=nodes) == []


def test_a_rank_that_fails_at_its_start_counts_also_where_its_clock_is_behind() -> None:
    failed = a_member(1, "Failed", end=Terminated(exit_code=1, finished_at=START))

    assert kinds(failed, root=a_root(started_at=START + timedelta(seconds=2))) == [CauseKind.SOFTWARE]


def test_a_suspended_gang_has_no_faults() -> None:
    assert kinds(a_member(1, "Failed"), root=a_root(suspended=True)) == []


def test_a_signal_is_named_in_the_message() -> None:
    killed = a_member(1, "Failed", end=Terminated(exit_code=137, signal=9))

    (cause,) = find_faults(GangView(root=a_root(), pods=(killed,), nodes={"node-1": a_node("node-1")}), HANG, NOW)

    assert cause.message == "rank-1 was killed (signal 9)"


SILENT = a_root(progress=Progress(step=9, at=NOW - timedelta(minutes=20), intervals=[60, 60, 60]))


def test_silence_against_its_own_rhythm_is_a_hang() -> None:
    assert kinds(a_member(0), a_member(1), root=SILENT) == [CauseKind.HANG]


@pytest.mark.parametrize(
    ("root", "sign"),
    [
        pytest.param(SILENT, NOW - timedelta(minutes=1), id="a member was seen doing something"),
        pytest.param(a_root(), None, id="nothing is known of its rhythm"),
        pytest.param(a_root(progress=SILENT.progress, started_at=NOW), None, id="it has just started"),
        pytest.param(a_root(progress=SILENT.progress, world=3), None, id="a member is missing"),
    ],
)
def test_other_silence_is_not(root: Root, sign: datetime | None) -> None:
    assert kinds(a_member(0), a_member(1), root=root, last_activity=sign) == []


AN_HOUR_AGO = NOW - timedelta(hours=1)
THREE_HOURS_AGO = NOW - timedelta(hours=3)
HUNG = a_root(progress=Progress(step=9, at=THREE_HOURS_AGO, intervals=[60, 60, 60]))
NODES = {name: a_node(name) for name in ("node-0", "node-1")}


def test_a_gang_that_does_nothing_at_all_before_its_first_steps_hangs() -> None:
    root, members = a_root(started_at=AN_HOUR_AGO), (a_member(0), a_member(1))
    view = GangView(root=root, pods=members, nodes=NODES, last_activity=AN_HOUR_AGO, last_work=AN_HOUR_AGO)

    (cause,) = find_faults(view, HANG, NOW)

    assert cause.kind is CauseKind.HANG
    assert "no rank has printed or done anything for 3600 s" in cause.message
    assert "hang.first_step" in cause.message


@pytest.mark.parametrize(
    ("signs", "policy"),
    [
        pytest.param({"last_work": NOW - timedelta(minutes=1)}, HANG, id="a rank uses a processor"),
        pytest.param({"last_activity": NOW - timedelta(minutes=1)}, HANG, id="a rank prints"),
        pytest.param({"last_work": None}, HANG, id="whether they work is not seen"),
        pytest.param({}, HangPolicy(enabled=False), id="hangs are not looked for"),
        pytest.param({}, HangPolicy(first_step=timedelta(hours=2)), id="it has more time"),
    ],
)
def test_a_gang_whose_first_steps_take_long_does_not(signs: dict[str, datetime | None], policy: HangPolicy) -> None:
    root, members = a_root(started_at=AN_HOUR_AGO), (a_member(0), a_member(1))
    seen: dict[str, Any] = {"last_activity": AN_HOUR_AGO, "last_work": AN_HOUR_AGO, **signs}

    assert find_faults(GangView(root=root, pods=members, nodes=NODES, **seen), policy, NOW) == []


def test_that_a_gang_of_known_rhythm_uses_processors_is_no_sign_of_life() -> None:
    assert kinds(a_member(0), a_member(1), root=SILENT, last_work=NOW) == [CauseKind.HANG]


@pytest.mark.parametrize(
    ("minutes", "worked", "found"),
    [
        pytest.param(20, timedelta(0), [], id="its first long evaluation"),
        pytest.param(20, timedelta(minutes=2), [CauseKind.HANG], id="it worked before, and no more"),
        pytest.param(31, timedelta(0), [CauseKind.HANG], id="it may be caught in a loop"),
    ],
)
def test_a_gang_of_which_a_member_works_as_usual_has_as_long_as_for_its_first_steps(
    minutes: int, worked: timedelta, found: list[CauseKind]
) -> None:
    progress = Progress(step=9, at=NOW - timedelta(minutes=minutes), intervals=[60, 60, 60])

    assert kinds(a_member(0), a_member(1), root=a_root(progress=progress), usual_work=NOW - worked) == found


def printing(root: Root, inactive: timedelta | None) -> list[Cause]:
    """The faults of a gang that has printed just now, and done next to nothing else for so long."""
    pods = (a_member(0, attempt=root.attempt), a_member(1, attempt=root.attempt))
    view = GangView(root=root, pods=pods, nodes=NODES, last_activity=NOW, inactive_for=inactive)
    return find_faults(view, HANG, NOW)


STARTED = dataclasses.replace(HUNG, started_at=NOW - timedelta(minutes=29))
RESTARTED = dataclasses.replace(HUNG, attempt=1, started_at=THREE_HOURS_AGO)


@pytest.mark.parametrize(
    ("root", "minutes", "hangs"),
    [
        pytest.param(HUNG, None, False, id="it works, or nothing speaks against its output"),
        pytest.param(HUNG, 30, False, id="a long evaluation"),
        pytest.param(HUNG, 31, True, id="it only prints that it tries again"),
        pytest.param(STARTED, 31, False, id="it has just started"),
        pytest.param(SILENT, 31, False, id="it saved meanwhile"),
        pytest.param(RESTARTED, 31, False, id="the same evaluation again, after a restart"),
        pytest.param(RESTARTED, 121, True, id="the same hang again, after a restart"),
        pytest.param(a_root(started_at=THREE_HOURS_AGO), 170, False, id="how often it saves is not known"),
    ],
)
def test_output_of_a_gang_that_does_next_to_nothing_else_is_a_sign_of_life_for_half_an_hour(
    root: Root, minutes: int | None, hangs: bool
) -> None:
    faults = printing(root, None if minutes is None else timedelta(minutes=minutes))

    assert bool(faults) is hangs


def test_the_cause_says_that_it_only_printed() -> None:
    (cause,) = printing(HUNG, timedelta(minutes=31))

    assert cause.message == (
        "no new step for 10800 s, and hardly anything but output for 1860 s, more than the 1800 s for which that is a "
        "sign of life"
    )


def test_a_gang_that_printed_once_in_a_hang_is_restarted_after_its_usual_time() -> None:
    view = GangView(
        root=HUNG, pods=(a_member(0), a_member(1)), nodes=NODES, last_activity=NOW - timedelta(minutes=11),
        inactive_for=timedelta(minutes=15),
    )  # fmt: skip

    assert [cause.message for cause in find_faults(view, HANG, NOW)] == [
        "no new step and no sign of life for 660 s, more than the 600 s that its own rhythm allows"
    ]


BEGUN = NOW - timedelta(minutes=40)
WORKS: dict[str, Any] = {"state": MemberState.WORKING, "since": None, "shows_polling": True}


def late_by(minutes: int, *ranks: Pod, seen_at: datetime = NOW, **rhythm: Any) -> list[Cause]:
    """Of a gang on Kubernetes that saved every minute, and of which rank 0 does what *rhythm* says: its faults."""
    progress = Progress(step=9, at=NOW - timedelta(minutes=minutes), intervals=[60, 60, 60])
    reports = [a_report(0, a_rhythm(0, **{**WORKS, **rhythm}), seen_at=seen_at), a_report(1, a_rhythm(1))]
    health = {report.metadata.name: report for report in reports}
    pods = ranks or (a_rank(0), a_rank(1))
    return find_faults(a_gang(root=a_root(progress=progress), pods=pods, health=health), HANG, NOW)


def test_a_gang_of_which_an_agent_sees_a_rank_work_is_not_restarted_in_its_first_long_evaluation() -> None:
    assert late_by(20) == []


def test_it_is_restarted_when_that_takes_longer_than_its_first_steps_may() -> None:
    (cause,) = late_by(31)

    assert cause.message == "no new step for 1860 s, more than 1800 s, though a member works as usual"


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({"shows_polling": False}, id="it may only poll, or its agent is older"),
        pytest.param({"state": MemberState.WAITING, "since": BEGUN}, id="it polls"),
        pytest.param({"state": MemberState.UNKNOWN}, id="it is not known"),
        pytest.param({"seen_at": START - timedelta(minutes=1)}, id="it is what its node said before it began"),
        pytest.param({"uid": "of-another-pod"}, id="another pod works"),
    ],
)
def test_what_is_no_work_of_a_rank_gives_no_more_time(unknown: dict[str, Any]) -> None:
    assert [cause.kind for cause in late_by(20, **unknown)] == [CauseKind.HANG]


def test_the_work_of_an_earlier_container_gives_no_more_time() -> None:
    running = ContainerStatus(name="main", state=ContainerState(running=Running(started_at=NOW)))
    again = a_rank(0, status=PodStatus(phase="Running", container_statuses=[running]))

    found = late_by(20, again, a_rank(1), seen_at=NOW - timedelta(seconds=30))
    assert [cause.kind for cause in found] == [CauseKind.HANG]


def test_members_that_wait_for_one_that_has_finished_hang() -> None:
    assert kinds(a_member(0, "Succeeded"), a_member(1), root=SILENT) == [CauseKind.HANG]


def test_a_gang_whose_members_have_all_finished_does_not_hang() -> None:
    assert kinds(a_member(0, "Succeeded"), a_member(1, "Succeeded"), root=SILENT) == []


def test_an_exit_code_that_says_it_all_is_not_explained_again() -> None:
    end = Terminated(exit_code=7)
    failed = a_member(1, "Failed", end=end, reason="Error", message="exit code 7; no process of it is left")

    (cause,) = find_faults(GangView(root=a_root(), pods=(failed,), nodes={"node-1": a_node("node-1")}), HANG, NOW)

    assert cause.message == "rank-1 exited with code 7"


def test_of_a_member_that_failed_it_is_said_which_one_had_ended_before_it() -> None:
    """The others lost their peer, and the first of them that failed is not the cause."""
    gone = a_member(2, "Succeeded", end=Terminated(exit_code=0, finished_at=NOW - timedelta(seconds=20)))
    failed = a_member(1, "Failed", end=Terminated(exit_code=1, finished_at=NOW - timedelta(seconds=9)))
    later = a_member(0, "Succeeded", end=Terminated(exit_code=0, finished_at=NOW))

    def message(*pods: Pod) -> str:
        (cause,) = find_faults(GangView(root=a_root(), pods=pods, nodes={"node-1": a_node("node-1")}), HANG, NOW)
        return cause.message

    assert message(gone, failed, later) == "rank-1 exited with code 1, after rank-2 had exited with code 0"
    assert message(failed, later) == "rank-1 exited with code 1"


def test_a_member_that_waits_for_a_node_is_no_hang() -> None:
    assert kinds(a_member(0), a_member(1, "Pending"), root=SILENT) == []


def a_sign(effect: Effect = Effect.RESTART, **fields: Any) -> Sign:
    """What another detector says of node-1."""
    return Sign(row="r", node="node-1", effect=effect, message="node-1: so it is said", **{**ABOUT, **fields})


ABOUT: dict[str, Any] = {"cause": CauseKind.HARDWARE, "since": NOW - timedelta(minutes=2)}
SILENT_NODE = a_sign(of_readiness=True)


def test_a_sign_of_another_detector_is_a_fault_of_the_machine_that_names_its_row() -> None:
    view = GangView(
        root=a_root(), pods=(a_member(1),), nodes={"node-1": a_node("node-1")}, sign_on={"node-1": a_sign()}.get
    )

    (cause,) = find_faults(view, HANG, NOW)

    assert (cause.node, cause.finding, cause.message) == ("node-1", "r", "node-1: so it is said")
    assert cause.at == NOW - timedelta(minutes=2)


@pytest.mark.parametrize("effect", [Effect.AVOID, Effect.TELL])
def test_a_sign_that_only_advises_against_a_node_restarts_nothing(effect: Effect) -> None:
    assert kinds(a_member(0), a_member(1), signs={"node-1": a_sign(effect)}) == []


def test_a_machine_that_is_taken_back_is_an_interruption() -> None:
    taken_back = a_sign(cause=CauseKind.INTERRUPTED)

    assert kinds(a_member(0), a_member(1), signs={"node-1": taken_back}) == [CauseKind.INTERRUPTED]


def a_gang_whose_last_step_was(minutes_ago: float) -> Root:
    """One that makes a step every minute."""
    return a_root(progress=Progress(step=9, at=NOW - timedelta(minutes=minutes_ago), intervals=[60, 60]))


def test_a_gang_that_still_makes_steps_needs_no_kubelet() -> None:
    def with_last_step(minutes_ago: float, sign: Sign = SILENT_NODE) -> list[CauseKind]:
        root = a_gang_whose_last_step_was(minutes_ago)
        return kinds(a_member(0), a_member(1), root=root, signs={"node-1": sign})

    assert with_last_step(1) == []
    assert with_last_step(3) == [CauseKind.HARDWARE]
    assert with_last_step(1, sign=a_sign()) == [CauseKind.HARDWARE]


def test_it_stands_still_when_its_next_step_is_late() -> None:
    long_silent = a_sign(of_readiness=True, since=NOW - timedelta(minutes=30))
    root = a_gang_whose_last_step_was(2.5)

    assert kinds(a_member(0), a_member(1), root=root, signs={"node-1": long_silent}) == [CauseKind.HARDWARE]


def test_a_member_that_no_one_makes_again_is_missed() -> None:
    assert kinds(a_member(0), root=a_root(gone=("rank-1",))) == [CauseKind.INTERRUPTED]


def restarted_in_place(*, after: timedelta) -> Pod:
    """A member whose container ended so long after its start, and runs again."""
    end = Terminated(exit_code=134, started_at=START, finished_at=START + after)
    status = ContainerStatus(name="main", restart_count=1, last_state=ContainerState(terminated=end))
    return a_pod("rank-0", node="node-0", index=0, status=PodStatus(phase="Running", container_statuses=[status]))


def test_a_rank_that_its_kubelet_started_again_alone_is_lost_to_the_others() -> None:
    assert kinds(restarted_in_place(after=timedelta(minutes=5)), a_member(1)) == [CauseKind.SOFTWARE]


def test_a_rank_that_is_started_again_while_it_waits_for_its_peers_is_no_fault() -> None:
    assert kinds(restarted_in_place(after=timedelta(seconds=20)), a_member(1)) == []


RUNS = PodStatus(phase="Running")


def a_late_one(index: int, *, lost: timedelta, phase: str = "Failed") -> Pod:
    """The last state of a member that is gone."""
    end = Terminated(exit_code=1, started_at=START, finished_at=START + lost)
    return a_member(index, phase, end=end, creation_timestamp=START)


@pytest.mark.parametrize(
    ("made", "phase", "world", "found"),
    [
        pytest.param([0, 600], "Failed", 2, [CauseKind.SOFTWARE], id="it was made again while the other lived on"),
        pytest.param([500, 600], "Failed", 2, [], id="all of them were made again"),
        pytest.param([0, 600], "Succeeded", 2, [], id="it had done its work"),
        pytest.param([0], "Failed", 1, [], id="the gang was made smaller"),
    ],
)
def test_a_member_that_was_gone_before_anybody_looked_is_a_fault(
    made: list[int], phase: str, world: int, found: list[CauseKind]
) -> None:
    present = [a_member(i, creation_timestamp=START + timedelta(seconds=s)) for i, s in enumerate(made)]
    nodes = {name: a_node(name) for name in ("node-0", "node-1")}
    deleted = (a_late_one(1, lost=timedelta(seconds=300), phase=phase),)
    view = GangView(root=a_root(world=world), pods=tuple(present), deleted=deleted, nodes=nodes)

    assert [cause.kind for cause in find_faults(view, HANG, NOW)] == found


def test_members_from_before_a_stop_by_the_user_are_no_fault_while_others_of_them_are_still_being_removed() -> None:
    """The clock of a node is ahead: its pod seems to have ended after the start."""
    stopped, started = START + timedelta(seconds=298), START + timedelta(seconds=299)
    end = Terminated(exit_code=143, started_at=START, finished_at=stopped)
    leaving = a_member(0, "Failed", end=end, creation_timestamp=START, deletion_timestamp=stopped)
    new = [a_pod(f"new-{i}", node=f"node-{i}", index=i, creation_timestamp=NOW, status=RUNS) for i in range(2)]
    view = GangView(
        root=a_root(started_at=started),
        pods=(leaving, *new),
        deleted=(a_late_one(1, lost=timedelta(seconds=301)),),
        nodes={name: a_node(name) for name in ("node-0", "node-1")},
    )

    assert find_faults(view, HANG, NOW) == []


def test_a_member_that_went_because_the_gang_was_made_smaller_for_a_while_is_no_fault() -> None:
    gone = a_late_one(1, lost=timedelta(seconds=300))
    going = a_late_one(2, lost=timedelta(seconds=500))
    meta = msgspec.structs.replace(going.metadata, deletion_timestamp=START + timedelta(seconds=520))
    going = msgspec.structs.replace(going, metadata=meta)
    made = [a_member(i, creation_timestamp=START + timedelta(seconds=s)) for i, s in enumerate([0, 600])]
    view = GangView(
        root=a_root(world=3),
        pods=(*made, going),
        deleted=(gone,),
        nodes={name: a_node(name) for name in ("node-0", "node-1", "node-2")},
    )
    let_go = {gone.metadata.uid, going.metadata.uid}

    assert len(find_faults(view, HANG, NOW)) == 2
    assert find_faults(msgspec.structs.replace(view, resized_away=let_go), HANG, NOW) == []


def test_what_a_pod_says_is_kept_in_short() -> None:
    view = GangView(
        root=a_root(), pods=(a_member(1, "Failed", message="m" * 30_000),), nodes={"node-1": a_node("node-1")}
    )

    assert len(find_faults(view, HANG, NOW)[0].message) <= LONGEST_MESSAGE


QUIET = Silence(
    since=NOW - timedelta(seconds=12),
    seen_at=NOW,
    allowed=12,
    period=2,
    members=(SilentMember(rank="1", state=MemberState.SILENT, last_active=NOW, states="T"),),
    worked=36000,
)


SAVES = a_root(progress=Progress(step=5, at=NOW, intervals=[60.0, 60.0, 60.0]))


def silent(root: Root, states: str = "T", seconds: float = 12, others: str = "S", **more: Any) -> list[Cause]:
    """The faults of a gang whose members have fallen silent, and which is to be restarted for that."""
    waits = SilentMember(rank="0", state=MemberState.SILENT, last_active=NOW, states=others)
    members = (msgspec.structs.replace(QUIET.members[0], states=states), waits)
    silence = msgspec.structs.replace(QUIET, since=NOW - timedelta(seconds=seconds), members=members, **more)
    pods = (a_member(0, attempt=root.attempt), a_member(1, attempt=root.attempt))
    view = GangView(root=root, pods=pods, nodes=NODES, silence=silence, last_activity=NOW)
    return find_faults(view, HANG, NOW)


@pytest.mark.parametrize("states", ["", "S", "SSR", "D", "SZ"])
def test_members_that_may_go_on_by_themselves_are_waited_for(states: str) -> None:
    assert silent(SAVES, states, HANG.floor.total_seconds() - 1) == []
    assert [cause.kind for cause in silent(SAVES, states, HANG.floor.total_seconds())] == [CauseKind.HANG]


def test_a_gang_that_makes_no_step_and_hangs_is_not_said_to_work_because_it_worked_a_moment_ago() -> None:
    pods, silence = (a_member(0), a_member(1)), msgspec.structs.replace(QUIET, since=NOW - timedelta(seconds=40))
    waits = msgspec.structs.replace(QUIET.members[0], rank="0", states="S")
    silence = msgspec.structs.replace(silence, members=(waits, msgspec.structs.replace(waits, rank="1")))
    worked = NOW - timedelta(seconds=40)
    view = GangView(root=SILENT, pods=pods, nodes=NODES, silence=silence, usual_work=worked)

    (cause,) = find_faults(view, HANG, NOW)

    assert "works as usual" not in cause.message
    assert "no sign of life for 1200 s" in cause.message


@pytest.mark.parametrize("root", [SILENT, a_root(started_at=NOW - timedelta(hours=1))])
def test_time_in_which_healthd_did_not_run_is_not_held_against_a_gang(root: Root) -> None:
    """The machine slept, and the ranks with it: they may have made their step a minute after it woke."""
    an_hour_ago = NOW - timedelta(hours=1)
    seen: dict[str, Any] = {"last_activity": an_hour_ago, "last_work": an_hour_ago}
    awake = GangView(root=root, pods=(a_member(0), a_member(1)), nodes=NODES, **seen)
    slept = msgspec.structs.replace(awake, missed_since=lambda moment: NOW - moment - timedelta(minutes=1))

    assert [cause.kind for cause in find_faults(awake, HANG, NOW)] == [CauseKind.HANG]
    assert find_faults(slept, HANG, NOW) == []


def test_a_gang_of_which_all_members_are_stopped_is_waited_for() -> None:
    assert silent(SAVES, others="T") == []


def test_a_silence_before_the_first_save_of_an_attempt_is_believed_if_two_witnesses_name_a_member() -> None:
    root, long = a_root(attempt=1, progress=SAVES.progress), HANG.floor.total_seconds()
    named = (HangSuspect(member="1", node="node-1", witnesses=2),)

    assert silent(root, "S", long) == []
    assert [cause.kind for cause in silent(root, "S", long, suspects=named)] == [CauseKind.HANG]


@pytest.mark.parametrize("worked", [0.0, 599.0, 899.0, None])
def test_a_silence_that_is_longer_than_the_work_before_it_may_be_what_is_usual(worked: float | None) -> None:
    named = (HangSuspect(member="1", node="node-1", witnesses=2),)

    assert silent(SAVES, "S", 900, worked=worked) == []
    assert silent(SAVES, "S", 900, worked=worked, suspects=named) == []
    assert [cause.kind for cause in silent(SAVES, "S", 900, worked=900.0, suspects=named)] == [CauseKind.HANG]


def test_a_silence_in_which_no_rank_stands_out_may_be_an_evaluation_that_comes_now_and_then() -> None:
    one_witness = (HangSuspect(member="1", node="node-1", witnesses=1),)

    assert silent(SAVES, "S", 900, worked=12 * 900.0 - 1) == []
    assert silent(SAVES, "S", 900, worked=12 * 900.0 - 1, suspects=one_witness) == []
    assert [cause.kind for cause in silent(SAVES, "S", 900, worked=12 * 900.0)] == [CauseKind.HANG]


@pytest.mark.parametrize("states", ["T", "ST", "Z"])
def test_members_that_cannot_go_on_are_not_waited_for(states: str) -> None:
    assert [cause.kind for cause in silent(SAVES, states)] == [CauseKind.HANG]


def test_in_a_start_they_are_waited_for_as_long_as_others_for_they_may_be_helpers() -> None:
    floor = HANG.floor.total_seconds()

    assert silent(SAVES, "ST", floor - 1, is_start=True, worked=0.0) == []
    assert [cause.kind for cause in silent(SAVES, "ST", floor, is_start=True, worked=0.0)] == [CauseKind.HANG]
    assert silent(SAVES, "S", 100 * floor, is_start=True, worked=0.0) == []


def test_a_gang_whose_members_have_fallen_silent_hangs_whatever_its_checkpoints_say() -> None:
    (cause,) = silent(a_root(progress=Progress(step=5, at=NOW, intervals=[60.0, 60.0, 60.0])))

    assert cause.kind is CauseKind.HANG
    assert cause.message == (
        "no rank has worked for 12 s, and the gang's own rhythm allows 12 s: rank 1 is stopped (SIGSTOP); rank 0 sleeps"
    )


def test_a_restart_for_want_of_a_new_step_names_the_suspects_of_the_silence_beside_it() -> None:
    """It is replaced like any other suspect, and a hang in the same place after that is seen to be the same."""
    named = HangSuspect(member="1", node="node-1", witnesses=2, doing="read (rows.py:7)", stack="a1")
    silence = msgspec.structs.replace(QUIET, worked=1.0, suspects=(named,), members=())
    view = GangView(root=SILENT, pods=(a_member(0), a_member(1)), nodes=NODES, silence=silence)

    (cause,) = find_faults(view, HANG, NOW)

    assert (cause.suspects, cause.step) == ([named], SILENT.progress.step)
    assert cause.message.startswith("no new step and no sign of life for 1200 s")
    assert cause.message.endswith("member 1 is suspected by 2 independent witnesses, in read (rows.py:7)")


def test_silent_members_are_not_acted_on_before_the_gang_has_saved_a_few_times() -> None:
    assert silent(a_root(progress=Progress(step=5, at=NOW, intervals=[60.0]))) == []


@pytest.mark.parametrize(
    ("node", "message", "text"),
    [
        ("bad", "Xid 79 on 0000:3b:00.0.", "bad: Xid 79 on 0000:3b:00.0"),
        ("bad", "node bad is gone", "node bad is gone"),
        ("", "rank 3 exited with code 1", "rank 3 exited with code 1"),
    ],
)
def test_a_cause_in_words_names_its_node_once(node: str, message: str, text: str) -> None:
    assert cause_text(a_cause(node=node, message=message)) == text


def test_so_does_the_first_entry_of_a_recovery() -> None:
    (entry,) = begin(a_recovery(cause=a_cause(node="bad", message="Xid 79 on 0000:3b:00.0")), NOW).timeline

    assert entry.message == "hardware: bad: Xid 79 on 0000:3b:00.0"
