"""The decisions of a recovery, one at a time; whole recoveries are in tests/scenarios."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_FENCE_OVERRIDE,
    Attempt,
    Cause,
    ChosenCheckpoint,
    ContainerState,
    ContainerStatus,
    FencedPod,
    FenceOverride,
    GangRef,
    Pod,
    PodStatus,
    Recovery,
    RecoveryStatus,
    Shrunk,
    Terminated,
    TimelineEntry,
)
from healthd.core.api.model import ENDED, CauseKind, Hold, Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.actions import RemovePods, StartGang, StopGang
from healthd.core.recovery.decide import Decision, Situation, decide, open_recovery
from healthd.core.recovery.faults import DISK_FULL, NOT_WRITABLE
from healthd.core.recovery.gang import CheckpointRead, GangOptions, GangView, Root, RootOutcome
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.phases.starting import MADE_WITHIN
from healthd.core.recovery.phases.stopping import BAD_STATE, with_latecomers
from healthd.core.recovery.progress import Progress
from healthd.core.recovery.resume_point import READ_AGAIN
from tests.builders import a_cause, a_node, a_pod, a_recovery
from tests.core.gangs import SOFTWARE, STOPPED, a_recovery_in, a_root
from tests.fakes import START

NOW = START + timedelta(minutes=5)
POLICY = RecoveryPolicy(max_no_advance=3, backoff_max=timedelta(seconds=30))
PROVEN = [FencedPod(name=f"r{i}", uid=f"u{i}", node=f"node-{i}", index=str(i), proof="gone") for i in range(2)]
NODES = {name: a_node(name) for name in ("node-0", "node-1")}
PLACED = {"0": "node-0", "1": "node-1"}


def decided(recovery: Recovery, root: Root | None, faults: list[Cause] | None = None, **view: Any) -> Decision:
    """The next move."""
    return decide(recovery, GangView(root=root, nodes=NODES, **view), faults or [], POLICY, NOW)


def seen(checkpoint: ChosenCheckpoint) -> CheckpointRead:
    """The search for newer checkpoints has found this one."""
    return CheckpointRead(asked=NOW, ended=NOW, found=checkpoint)


def entered(decision: Decision) -> tuple[Phase, str]:
    """The phase that a decision records, and its message."""
    assert decision.record is not None, decision.reason
    return decision.record.phase, decision.record.message


def test_two_controllers_that_see_the_same_fault_name_the_same_recovery() -> None:
    first, second = open_recovery(a_root(), SOFTWARE), open_recovery(a_root(), a_cause())

    assert first.metadata.name == second.metadata.name
    assert first.spec.first_attempt == 1


def test_a_recovery_that_ended_before_it_started_anything_leaves_room_for_the_next() -> None:
    first = open_recovery(a_root(), SOFTWARE)

    assert open_recovery(a_root(), SOFTWARE, [first]).metadata.name != first.metadata.name


def test_a_recovery_finds_a_name_of_its_own_where_a_person_deleted_an_earlier_one() -> None:
    first = open_recovery(a_root(), SOFTWARE)
    second = open_recovery(a_root(), SOFTWARE, [first])
    third = open_recovery(a_root(), SOFTWARE, [second])
    fourth = open_recovery(a_root(), SOFTWARE, [first, third])

    assert [each.metadata.name for each in (first, second, third, fourth)] == [
        "train-uid-t-1",
        "train-uid-t-1-1",
        "train-uid-t-1-2",
        "train-uid-t-1-3",
    ]


def test_the_recovery_of_a_gang_that_was_made_anew_finds_a_name_where_the_two_uids_begin_alike() -> None:
    taken = open_recovery(a_root(ref=a_ref("11111-2222")), SOFTWARE).metadata.name

    opened = open_recovery(a_root(ref=a_ref("11111-3333")), SOFTWARE, [], [taken])

    assert opened.metadata.name == "train-11111-33-1"


def a_ref(uid: str) -> GangRef:
    return GangRef(kind="Job", name="train", namespace="default", uid=uid)


@pytest.mark.parametrize("phase", sorted(set(Phase) - ENDED - {Phase.HELD}))
@pytest.mark.parametrize(
    ("root", "outcome"),
    [
        pytest.param(
            None, (Phase.SUPERSEDED, "the gang is not there: no Job train in default has the uid uid-train"), id="gone"
        ),
        pytest.param(a_root(deleting=True), (Phase.SUPERSEDED, "the gang was deleted"), id="being deleted"),
        pytest.param(
            a_root(suspended=True), (Phase.SUPERSEDED, "the user suspended the gang; it stays so"), id="suspended"
        ),
        pytest.param(
            a_root(suspended=True, stopped_by="given-up-before"),
            (Phase.SUPERSEDED, "the user suspended the gang; it stays so"),
            id="suspended with an old mark",
        ),
        pytest.param(
            a_root(options=GangOptions(restart=False)),
            (
                Phase.SUPERSEDED,
                "restarts of the gang were switched off (healthd.dev/restart); it is left as it is",
            ),
            id="switched off",
        ),
        pytest.param(
            a_root(ending=RootOutcome.FAILED),
            (
                Phase.GAVE_UP,
                (
                    "the root is failed for good and may not be rebuilt; to run it again delete it and make it from "
                    "its manifest: kubectl replace --force -n default -f FILE; healthd.dev/rebuild: enabled lets "
                    "healthd do so where a node is to blame"
                ),
            ),
            id="failed for good",
        ),
    ],
)
def test_what_others_decided_about_the_gang_ends_the_recovery_in_every_phase(
    phase: Phase, root: Root | None, outcome: tuple[Phase, str]
) -> None:
    assert entered(decided(a_recovery_in(phase), root)) == outcome


@pytest.mark.parametrize("phase", [Phase.FENCING, Phase.CHOOSING, Phase.RESERVING])
def test_a_gang_that_somebody_else_resumed_is_left_alone(phase: Phase) -> None:
    assert entered(decided(a_recovery_in(phase), a_root()))[0] is Phase.SUPERSEDED


def test_times_of_a_controller_whose_clock_is_ahead_make_no_gang_wait_for_that_hour() -> None:
    ahead = NOW + timedelta(hours=1)
    record = decided(a_recovery_in(Phase.RESERVING, phase_since=ahead, not_before=ahead), a_root(**STOPPED)).record

    assert record is not None
    assert (record.phase, record.phase_since) == (Phase.RESERVING, NOW)
    assert record.not_before == NOW + POLICY.backoff_max


def test_times_a_little_ahead_stay_as_they_are() -> None:
    ahead = NOW + timedelta(seconds=30)
    waiting = a_recovery_in(Phase.RESERVING, phase_since=ahead, not_before=ahead + POLICY.backoff_max)
    record = decided(waiting, a_root(**STOPPED)).record

    assert record is None or record.not_before == waiting.status.not_before


@pytest.mark.parametrize(
    ("phase", "attempt", "outcome"),
    [
        (Phase.STOPPING, 0, Phase.SUPERSEDED),
        (Phase.STARTING, 1, Phase.RECOVERED),
        (Phase.CONFIRMING, 1, Phase.RECOVERED),
    ],
)
def test_a_gang_that_finishes_has_recovered_only_if_it_was_restarted(
    phase: Phase, attempt: int, outcome: Phase
) -> None:
    root = a_root(attempt=attempt, ending=RootOutcome.COMPLETE)

    assert entered(decided(a_recovery_in(phase), root))[0] is outcome


@pytest.mark.parametrize("kind", [CauseKind.HARDWARE, CauseKind.HANG])
def test_a_fault_that_is_gone_before_the_stop_restarts_no_gang(kind: CauseKind) -> None:
    recovery = a_recovery_in(Phase.DETECTED, causes=[a_cause(kind)])

    assert entered(decided(recovery, a_root()))[0] is Phase.SUPERSEDED


def test_a_record_that_is_older_than_the_stop_goes_on_with_the_stop() -> None:
    recovery = a_recovery_in(Phase.DETECTED)

    decision = decided(recovery, a_root(suspended=True, stopped_by=recovery.metadata.name))

    assert entered(decision) == (Phase.STOPPING, "the gang was stopped already")


def a_restarted(rank: int, node: str, phase: str = "Running") -> Pod:
    """A member of attempt 1."""
    status = PodStatus(phase=phase)
    return a_pod(
        f"r{rank}", uid=f"u{rank}", node=node, index=rank, annotations={ANNOTATION_ATTEMPT: "1"}, status=status
    )


PENDING = a_restarted(0, "node-0", "Pending")


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.CONFIRMING])
def test_a_record_from_before_the_stop_of_its_own_attempt_goes_on_with_that_stop(phase: Phase) -> None:
    ran = [a_restarted(0, "node-0", "Failed"), a_restarted(1, "node-1", "Failed")]

    record = decided(a_recovery_in(phase), a_root(attempt=1, **STOPPED), pods=ran).record

    assert record is not None
    assert (record.phase, record.attempt) == (Phase.STOPPING, 2)
    assert [pod.name for pod in record.pods] == ["r0", "r1"]
    assert "the gang was stopped again; the record of why was deleted" in record.message


@pytest.mark.parametrize(
    ("first", "stopped"), [("Failed", True), ("Running", False)], ids=["one has ended", "its controller stops it"]
)
def test_a_stop_that_is_not_done_yet_is_no_start_of_which_a_write_is_missing(first: str, *, stopped: bool) -> None:
    """As in seed 6100010972: a person deleted the record of a stop that the Job's controller had not seen yet."""
    living = [a_restarted(0, "node-0", first), a_restarted(1, "node-1")]
    root = a_root(attempt=1, **{**STOPPED, "stopped": stopped})

    record = decided(a_recovery_in(Phase.STARTING), root, pods=living).record

    assert record is not None
    assert (record.phase, record.attempt) == (Phase.STOPPING, 2)


@pytest.mark.parametrize(("phase", "back_to"), [(Phase.RESERVING, Phase.CHOOSING), (Phase.STARTING, Phase.RESERVING)])
def test_no_gang_begins_at_step_0_of_which_a_step_was_seen_after_a_fresh_start_was_chosen(
    phase: Phase, back_to: Phase
) -> None:
    """As in seed 3650035506: the store did not answer while the gang ran, and was looked at while it was stopped."""
    chosen = a_recovery_in(phase, pods=PROVEN, placement=PLACED, checkpoint=ChosenCheckpoint(), phase_since=NOW)

    assert entered(decided(chosen, a_root(**STOPPED, progress=Progress(step=2))))[0] is back_to
    assert decided(chosen, a_root(**STOPPED)).reason.startswith(("start attempt 1", "Starting"))


@pytest.mark.parametrize("begun", [[], [a_restarted(0, "node-0")]], ids=["no member yet", "the launcher is missing"])
def test_a_start_in_a_queue_of_which_only_the_first_write_was_done_is_completed(begun: list[Pod]) -> None:
    placed = a_recovery_in(Phase.STARTING, pods=PROVEN, placement={"0": "node-0", "1": "node-1"}, phase_since=NOW)

    [start] = decided(placed, a_root(attempt=1, queue="team-a", **STOPPED), pods=begun).actions

    assert isinstance(start, StartGang)


def test_a_gang_that_was_stopped_again_and_whose_pods_are_gone_is_not_started_as_the_same_attempt() -> None:
    """As in seed 8100029603: a person deleted the record, and a cache from before the second stop made it again."""
    placed = a_recovery_in(Phase.STARTING, pods=PROVEN, placement={"0": "node-0", "1": "node-1"}, phase_since=NOW)

    record = decided(placed, a_root(attempt=1, **STOPPED)).record

    assert record is not None
    assert (record.phase, record.attempt) == (Phase.STOPPING, 2)


def test_a_bad_node_that_could_not_be_quarantined_holds_the_recovery_and_the_gang_runs_on() -> None:
    fault = a_cause(node="node-1")

    phase, message = entered(decided(a_recovery_in(Phase.DETECTED, causes=[fault]), a_root(), [fault]))
    assert phase is Phase.HELD
    assert message.startswith("node-1 is not quarantined")


def test_the_stop_is_recorded_before_it_is_done() -> None:
    intent = decided(a_recovery_in(Phase.DETECTED), a_root(), [SOFTWARE])
    act = decided(a_recovery_in(Phase.STOPPING), a_root())

    assert entered(intent)[0] is Phase.STOPPING
    assert intent.actions == ()
    assert act.actions == (StopGang("train-1"),)


def test_a_stopped_gang_whose_own_controller_has_not_said_so_is_waited_for() -> None:
    root = a_root(**{**STOPPED, "stopped": False})

    assert "to say that it stopped" in decided(a_recovery_in(Phase.STOPPING), root).reason


def test_a_start_that_was_held_up_gives_members_the_whole_deadline() -> None:
    long_ago = NOW - POLICY.start_deadline
    placement = {"0": "node-0", "1": "node-1"}
    recovery = a_recovery_in(Phase.STARTING, pods=PROVEN, phase_since=long_ago, placement=placement)

    record = decided(recovery, a_root(**STOPPED)).record

    assert record is not None
    assert (record.phase, record.phase_since, record.message) == (Phase.STARTING, NOW, "the start was held up")


@pytest.mark.parametrize(
    ("delay", "phase"),
    [
        pytest.param(timedelta(minutes=-5), Phase.STOPPING, id="before the phase: another clock"),
        pytest.param(timedelta(), Phase.STOPPING, id="at once"),
        pytest.param(timedelta(minutes=10), None, id="some time after the phase began"),
        pytest.param(timedelta(hours=26), None, id="a clock that is a day ahead"),
    ],
)
def test_members_have_the_whole_deadline_from_the_start_of_the_gang(delay: timedelta, phase: Phase | None) -> None:
    since = NOW - POLICY.start_deadline
    recovery = a_recovery_in(Phase.STARTING, pods=PROVEN, phase_since=since)

    decision = decided(recovery, a_root(attempt=1, started_at=since + delay), pods=(PENDING,))

    assert (decision.record.phase if decision.record else None) is phase
    assert phase is not None or decision.recheck == min(delay, POLICY.start_deadline / 2)


def test_a_gang_that_its_user_made_smaller_runs_when_every_member_it_has_left_does() -> None:
    """One of world 2 whose third rank still runs, and whose second has no node yet."""
    third = a_restarted(2, "node-2")
    starting, root = a_recovery_in(Phase.STARTING), a_root(attempt=1)

    waits = decided(starting, root, pods=(a_restarted(0, "node-0"), a_restarted(1, "", "Pending"), third))
    goes_on = decided(starting, root, pods=(a_restarted(0, "node-0"), a_restarted(1, "node-1"), third))

    assert waits.reason == "1 of 2 members run"
    assert waits.record is None
    assert entered(goes_on)[0] is Phase.CONFIRMING


def test_a_gang_of_which_nothing_says_yet_how_many_members_it_has_does_not_run() -> None:
    started = a_recovery_in(Phase.STARTING, phase_since=NOW)

    assert decided(started, a_root(attempt=1, world=0)).waits


def test_where_the_members_run_in_the_end_is_recorded_with_the_attempt() -> None:
    pods = tuple(a_restarted(rank, node) for rank, node in enumerate(("node-1", "node-0")))
    attempt = Attempt(number=1, checkpoint=ChosenCheckpoint(), placement={"0": "node-0", "1": "node-1"})

    record = decided(a_recovery_in(Phase.STARTING, attempts=[attempt]), a_root(attempt=1), pods=pods).record
    assert record is not None
    assert record.phase is Phase.CONFIRMING
    assert record.attempts == [replace(attempt, ran_on={"0": "node-1", "1": "node-0"})]


def test_a_fault_of_the_software_waits_for_evidence_of_broken_hardware() -> None:
    fresh = a_recovery_in(Phase.CHOOSING, timeline=[TimelineEntry(phase=Phase.STOPPING, at=NOW)])
    root = a_root(**STOPPED)

    assert decided(fresh, root).recheck == POLICY.fault_window
    assert decided(a_recovery_in(Phase.CHOOSING), root) == READ_AGAIN


def test_each_attempt_waits_for_the_evidence_of_its_own_fault() -> None:
    fields: dict[str, Any] = {
        "causes": [a_cause(node="node-0"), SOFTWARE],
        "timeline": [TimelineEntry(phase=Phase.DETECTED, at=START), TimelineEntry(phase=Phase.STOPPING, at=NOW)],
    }

    assert decided(a_recovery_in(Phase.CHOOSING, **fields), a_root(**STOPPED)).recheck == POLICY.fault_window


def test_a_start_waits_for_the_back_off() -> None:
    recovery = a_recovery_in(Phase.RESERVING, pods=PROVEN, not_before=NOW + timedelta(seconds=7))

    assert decided(recovery, a_root(**STOPPED)).recheck == timedelta(seconds=7)


def test_nothing_waits_for_a_clock_that_was_hours_ahead_to_come_there_again() -> None:
    hours = timedelta(hours=26)
    choosing = a_recovery_in(Phase.CHOOSING, timeline=[TimelineEntry(phase=Phase.STOPPING, at=NOW + hours)])
    reserving = a_recovery_in(Phase.RESERVING, pods=PROVEN, not_before=NOW + hours)

    assert decided(choosing, a_root(**STOPPED)) == READ_AGAIN
    assert decided(reserving, a_root(**STOPPED)).record is not None


def test_the_placement_is_recorded_before_the_attempt_and_the_attempt_before_the_start() -> None:
    root = a_root(**STOPPED)
    recovery = a_recovery_in(Phase.RESERVING, pods=PROVEN, checkpoint=ChosenCheckpoint(path="p", step=7))
    planned = decided(recovery, root).record
    assert planned is not None
    assert planned.placement == {"0": "node-0", "1": "node-1"}

    starting = decided(replace(recovery, status=planned), root).record
    assert starting is not None
    assert [attempt.number for attempt in starting.attempts] == [1]

    (act,) = decided(replace(recovery, status=starting), root).actions
    assert isinstance(act, StartGang)
    assert (act.hint.attempt, act.hint.checkpoint.step) == (1, 7)


def test_a_start_that_was_done_is_not_done_again() -> None:
    recovery = a_recovery_in(Phase.STARTING, pods=PROVEN, placement={"0": "node-0", "1": "node-1"})

    assert decided(recovery, a_root(attempt=1)).actions == ()


def test_a_node_that_goes_bad_between_plan_and_start_leads_back_to_the_plan() -> None:
    recovery = a_recovery_in(Phase.STARTING, pods=PROVEN, placement={"0": "node-0", "1": "gone"})

    assert entered(decided(recovery, a_root(**STOPPED)))[0] is Phase.RESERVING


def test_the_intent_to_start_stays_on_record_until_there_is_a_better_one() -> None:
    intent = Attempt(number=1, checkpoint=ChosenCheckpoint(), placement={"0": "node-0", "1": "gone"})
    starting = a_recovery_in(Phase.STARTING, pods=PROVEN, placement=intent.placement, attempts=[intent])
    back = decided(starting, a_root(**STOPPED)).record
    assert back is not None
    assert back.attempts == [intent]

    planned = decided(replace(starting, status=back), a_root(**STOPPED)).record
    assert planned is not None
    again = decided(replace(starting, status=planned), a_root(**STOPPED)).record

    assert again is not None
    assert [attempt.placement for attempt in again.attempts] == [{"0": "node-0", "1": "node-1"}]


def test_a_size_that_its_owner_chose_before_the_start_is_the_gangs_own() -> None:
    shrinks = Attempt(number=1, checkpoint=ChosenCheckpoint(), shrunk=Shrunk(size=2, members=1, nodes=["node-1"]))
    reserved: dict[str, Any] = {"pods": PROVEN[:1], "placement": {"0": "node-0"}, "attempts": [shrinks]}
    options = GangOptions(restart=True, checkpoint="/checkpoints", min_nodes=1)

    back = decided(a_recovery_in(Phase.STARTING, **reserved), a_root(world=1, options=options, **STOPPED)).record

    assert back is not None
    assert (back.phase, back.message) == (Phase.RESERVING, "the size of the gang was changed before the start")


def test_a_start_that_another_controller_made_after_all_is_followed() -> None:
    reserving = a_recovery_in(Phase.RESERVING, pods=PROVEN)

    assert entered(decided(reserving, a_root(attempt=1)))[0] is Phase.STARTING
    assert entered(decided(reserving, a_root(attempt=0)))[0] is Phase.SUPERSEDED


def test_a_new_step_is_what_recovered_means() -> None:
    recovery = a_recovery_in(Phase.CONFIRMING, checkpoint=ChosenCheckpoint(path="p", step=7))
    root = a_root(attempt=1)

    assert decided(recovery, root, newer=seen(ChosenCheckpoint(path="p", step=7))).record is None
    later = ChosenCheckpoint(path="q", step=8)
    assert entered(decided(recovery, root, newer=seen(later))) == (
        Phase.RECOVERED,
        "training moved on to step 8",
    )


def test_one_file_that_is_written_again_and_again_is_progress_too() -> None:
    loaded = ChosenCheckpoint(path="/out/ckpt.pt", saved_ns=1)
    recovery = a_recovery_in(Phase.CONFIRMING, checkpoint=loaded)
    again = ChosenCheckpoint(path="/out/ckpt.pt", saved_ns=2)

    assert decided(recovery, a_root(attempt=1), newer=seen(loaded)).record is None
    assert entered(decided(recovery, a_root(attempt=1), newer=seen(again))) == (
        Phase.RECOVERED,
        "training saved /out/ckpt.pt again",
    )


RUNNING = tuple(
    a_pod(f"rank-{i}", index=i, status=PodStatus(phase="Running"), annotations={"healthd.dev/attempt": "1"})
    for i in range(2)
)
LONG_AFTER = START + POLICY.confirm_after


def test_a_gang_that_saves_nothing_has_recovered_when_it_still_shows_life_after_a_while() -> None:
    seen_at = LONG_AFTER + timedelta(milliseconds=10)
    decision = decided(a_recovery_in(Phase.CONFIRMING), a_root(attempt=1), pods=RUNNING, last_activity=seen_at)

    assert entered(decision) == (
        Phase.RECOVERED,
        "every member runs and shows life after 10m; no new step was seen yet",
    )


@pytest.mark.parametrize(
    ("root", "view"),
    [
        pytest.param({}, {"last_activity": None}, id="it is not known"),
        pytest.param({}, {"last_activity": START + timedelta(minutes=9)}, id="no sign of life at the end"),
        pytest.param({}, {"pods": RUNNING[:1]}, id="a member is missing"),
        pytest.param({"progress": Progress(step=7, intervals=[60.0])}, {}, id="its rhythm is known"),
    ],
)
def test_else_a_gang_with_a_place_for_checkpoints_has_recovered_only_with_a_step(
    root: dict[str, Any], view: dict[str, Any]
) -> None:
    seen = {"pods": RUNNING, "last_activity": LONG_AFTER, **view}

    assert decided(a_recovery_in(Phase.CONFIRMING), a_root(attempt=1, **root), **seen).record is None


def test_a_fault_after_the_start_begins_the_next_attempt_of_the_same_recovery() -> None:
    again = decided(a_recovery_in(Phase.CONFIRMING), a_root(attempt=1), [SOFTWARE]).record

    assert again is not None
    assert (again.phase, again.attempt, len(again.causes)) == (Phase.STOPPING, 2, 2)


@pytest.mark.parametrize(
    ("cause", "minutes", "early"),
    [
        pytest.param(SOFTWARE, 1, True, id="soon after its start"),
        pytest.param(SOFTWARE, 11, False, id="after it had run for a while"),
        pytest.param(a_cause(node="node-1"), 1, False, id="with its node"),
        pytest.param(a_cause(CauseKind.INTERRUPTED), 1, False, id="by a deletion"),
    ],
)
def test_an_attempt_that_fails_early_by_itself_is_marked(cause: Cause, minutes: int, early: bool) -> None:
    attempts = [Attempt(number=1, checkpoint=ChosenCheckpoint(path="p", step=7))]
    recovery = a_recovery_in(Phase.CONFIRMING, attempts=attempts, phase_since=NOW - timedelta(minutes=minutes))

    again = decided(recovery, a_root(attempt=1), [cause]).record

    assert again is not None
    assert [attempt.failed_early for attempt in again.attempts] == [early]


@pytest.mark.parametrize(
    ("runs", "early"),
    [
        pytest.param([1, 1], True, id="each for a minute"),
        pytest.param([1, 11], False, id="one for longer"),
        pytest.param([None, None], False, id="for a time that is not known"),
    ],
)
def test_a_failure_that_the_controller_sees_late_is_early_by_the_times_of_the_kubelets(
    runs: list[int | None], early: bool
) -> None:
    began = NOW - timedelta(hours=2)
    ends = [began + timedelta(minutes=ran) if ran else None for ran in runs]
    failed = [Terminated(exit_code=1, started_at=began, finished_at=end) for end in ends]
    containers = [ContainerStatus(name="main", state=ContainerState(terminated=each)) for each in failed]
    pods = tuple(
        replace(pod, status=PodStatus(phase="Failed", container_statuses=[container]))
        for pod, container in zip(RUNNING, containers, strict=True)
    )
    attempts = [Attempt(number=1, checkpoint=ChosenCheckpoint(path="p", step=7))]
    recovery = a_recovery_in(Phase.CONFIRMING, attempts=attempts, phase_since=began)

    again = decided(recovery, a_root(attempt=1), [SOFTWARE], pods=pods).record

    assert again is not None
    assert [attempt.failed_early for attempt in again.attempts] == [early]


@pytest.mark.parametrize(
    ("cause", "minutes", "fell_from"),
    [
        pytest.param(SOFTWARE, 1, "/step_7", id="soon after its start"),
        pytest.param(SOFTWARE, 11, "", id="after it had run for a while"),
        pytest.param(SOFTWARE, None, "", id="it is not known when it was started"),
        pytest.param(a_cause(CauseKind.INTERRUPTED), 1, "", id="by a deletion"),
    ],
)
def test_the_checkpoint_of_an_attempt_that_failed_early_is_on_record(
    cause: Cause, minutes: int | None, fell_from: str
) -> None:
    started = None if minutes is None else cause.at - timedelta(minutes=minutes)
    root = a_root(template_resumes_from="/step_7", started_at=started)

    stopping = decided(a_recovery_in(Phase.DETECTED, causes=[cause]), root, [cause]).record

    assert stopping is not None
    assert stopping.fell_from == fell_from


@pytest.mark.parametrize(
    ("code", "minutes", "bad"),
    [
        pytest.param(BAD_STATE, 0, True, id="beside a peer that failed of it first"),
        pytest.param(BAD_STATE, 30, False, id="long ago"),
        pytest.param(1, 0, False, id="with another code"),
    ],
)
def test_a_member_says_by_its_exit_code_that_its_state_is_bad(code: int, minutes: int, bad: bool) -> None:
    end = Terminated(exit_code=code, finished_at=SOFTWARE.at - timedelta(minutes=minutes))
    ended = ContainerStatus(name="main", state=ContainerState(terminated=end))
    pod = a_pod("r0", index=0, status=PodStatus(phase="Failed", container_statuses=[ended]))
    fenced = with_latecomers(a_situation(pods=(pod,)))

    decision = decided(a_recovery_in(Phase.STOPPING, pods=fenced), a_root(), pods=(pod,))

    assert (decision.record is not None and decision.record.bad_state) is bad


def test_a_member_whose_state_is_bad_casts_no_doubt_on_what_it_had_loaded() -> None:
    end = Terminated(exit_code=BAD_STATE, finished_at=SOFTWARE.at)
    ended = ContainerStatus(name="main", state=ContainerState(terminated=end))
    pod = a_pod("r0", index=0, status=PodStatus(phase="Failed", container_statuses=[ended]))
    loaded = Attempt(number=1, checkpoint=ChosenCheckpoint(path="/step_5", step=5), failed_early=True)
    fenced = with_latecomers(a_situation(pods=(pod,)))
    recovery = a_recovery_in(Phase.STOPPING, pods=fenced, attempts=[loaded], fell_from="/step_5")

    record = decided(recovery, a_root(), pods=(pod,)).record

    assert record is not None
    assert [attempt.failed_early for attempt in record.attempts] == [False]
    assert record.fell_from == ""


def a_situation(recovery: Recovery | None = None, **view: Any) -> Situation:
    recovery = recovery or a_recovery_in(Phase.STOPPING)
    root = a_root()
    return Situation(recovery, recovery.status, Phase.STOPPING, GangView(root=root, **view), root, (), POLICY, NOW)


def vanished(minutes: float) -> Pod:
    """A pod that was created so long after START, and whose object is gone; nothing says that it ended."""
    made = START + timedelta(minutes=minutes)
    return a_pod(f"r-{minutes}", uid=f"u-{minutes}", node="node-0", index=0, creation_timestamp=made)


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param(timedelta(0), id="a clock that is right"),
        pytest.param(timedelta(hours=-3.5), id="a clock that is hours behind"),
        pytest.param(timedelta(hours=3.5), id="a clock that is hours ahead"),
    ],
)
def test_which_pods_came_while_a_gang_was_stopped_is_no_matter_of_the_controllers_clock(clock: timedelta) -> None:
    """The gang was started at 10 minutes, the recovery opened at 20, the stop recorded then (seed 1208670426)."""
    opened = a_recovery(creation_timestamp=START + timedelta(minutes=20), gang_started_at=START + timedelta(minutes=10))
    stop = TimelineEntry(phase=Phase.STOPPING, at=START + timedelta(minutes=20) + clock, message="stop first")
    status = replace(opened.status, phase=Phase.STOPPING, timeline=[stop], attempt=1)
    pods = (vanished(5), vanished(21))

    fenced = with_latecomers(a_situation(replace(opened, status=status), deleted=pods))

    assert [pod.uid for pod in fenced] == ["u-21"]


def test_a_latecomer_counts_also_where_its_recovery_was_deleted_and_made_again_since() -> None:
    again = a_recovery(creation_timestamp=START + timedelta(hours=1), gang_started_at=START)
    stop = TimelineEntry(phase=Phase.STOPPING, at=START + timedelta(minutes=20), message="stop first")
    status = replace(again.status, phase=Phase.STOPPING, timeline=[stop], attempt=1)

    fenced = with_latecomers(a_situation(replace(again, status=status), deleted=(vanished(5), vanished(21))))

    assert [pod.uid for pod in fenced] == ["u-21"]


def test_a_start_that_is_stamped_later_than_its_recovery_leaves_no_latecomer_out() -> None:
    opened = a_recovery(creation_timestamp=START + timedelta(minutes=20), gang_started_at=START + timedelta(hours=1))
    stop = TimelineEntry(phase=Phase.STOPPING, at=START + timedelta(minutes=20), message="stop first")
    status = replace(opened.status, phase=Phase.STOPPING, timeline=[stop], attempt=1)

    fenced = with_latecomers(a_situation(replace(opened, status=status), deleted=(vanished(21),)))

    assert [pod.uid for pod in fenced] == ["u-21"]


def test_a_recovery_says_when_its_gang_was_started() -> None:
    assert open_recovery(a_root(started_at=START), SOFTWARE).spec.gang_started_at == START


@pytest.mark.parametrize("reason", [DISK_FULL, NOT_WRITABLE])
def test_a_checkpoint_is_not_suspected_for_a_disk_that_took_nothing(reason: str) -> None:
    attempts = [Attempt(number=1, checkpoint=ChosenCheckpoint(path="p", step=7))]
    recovery = a_recovery_in(Phase.CONFIRMING, attempts=attempts, phase_since=NOW - timedelta(minutes=1))
    failed = [replace(pod, status=replace(pod.status, phase="Failed", reason=reason)) for pod in RUNNING]

    again = decided(recovery, a_root(attempt=1), [SOFTWARE], pods=failed).record

    assert again is not None
    assert [attempt.failed_early for attempt in again.attempts] == [False]


def test_nor_is_the_one_that_its_user_started_from() -> None:
    root = a_root(template_resumes_from="/step_7", started_at=SOFTWARE.at - timedelta(minutes=1), attempt=1)
    failed = [replace(pod, status=replace(pod.status, phase="Failed", reason=DISK_FULL)) for pod in RUNNING]

    stopping = decided(a_recovery_in(Phase.DETECTED, causes=[SOFTWARE]), root, [SOFTWARE], pods=failed).record

    assert stopping is not None
    assert stopping.fell_from == ""


def test_ranks_that_fail_beside_a_broken_gpu_are_not_blamed() -> None:
    hardware = a_cause(node="node-1")

    again = decided(a_recovery_in(Phase.CONFIRMING), a_root(attempt=1), [hardware, SOFTWARE]).record

    assert again is not None
    assert again.causes == [SOFTWARE, hardware]


def test_a_held_recovery_records_a_reason_once() -> None:
    cause = a_cause(node="gone")
    recovery = a_recovery_in(Phase.RESERVING, causes=[cause], pods=[replace(PROVEN[0], node="gone"), PROVEN[1]])
    held = decided(recovery, a_root(**STOPPED)).record
    assert held is not None
    assert (held.phase, held.held_in) == (Phase.HELD, Phase.RESERVING)

    assert decided(replace(recovery, status=held), a_root(**STOPPED)).record is None


def test_a_hold_whose_reason_changes_stays_one_entry_of_the_timeline() -> None:
    fencing = a_recovery_in(Phase.FENCING)
    first = enter_held(fencing, "no proof that a can no longer write")
    second = enter_held(replace(fencing, status=first), "no proof that b can no longer write")

    assert len(first.timeline) == len(fencing.status.timeline) + 1
    assert len(second.timeline) == len(first.timeline)
    assert second.timeline[-1].message == "no proof that b can no longer write"


def enter_held(recovery: Recovery, message: str) -> RecoveryStatus:
    situation = Situation(recovery, recovery.status, Phase.FENCING, GangView(root=a_root()), a_root(), (), POLICY, NOW)
    record = situation.hold(message).record
    assert record is not None
    return record


OPEN = FencedPod(name="r1", uid="u1", node="node-1", index="1", boot_id="boot-1")
STUCK = a_pod("r1", uid="u1", node="node-1", index=1, status=PodStatus(phase="Running"), deletion_timestamp=START)


def test_a_person_who_answers_for_the_old_pods_lets_the_gang_go_on_and_is_on_record() -> None:
    answered = {ANNOTATION_FENCE_OVERRIDE: "node-1: burnt"}
    fencing = a_recovery_in(Phase.FENCING, pods=[PROVEN[0], OPEN], annotations=answered)

    record = decided(fencing, a_root(**STOPPED)).record

    assert record is not None
    assert record.pods[1].proof == "a person answers for it (healthd.dev/fence-override: node-1: burnt)"
    assert record.fence_override == FenceOverride(said="node-1: burnt", attempt=1)


def test_an_override_counts_for_one_attempt_only() -> None:
    answered = {ANNOTATION_FENCE_OVERRIDE: "all"}
    used = FenceOverride(said="all", attempt=1)
    next_attempt = a_recovery_in(
        Phase.FENCING, attempt=2, pods=[PROVEN[0], OPEN], fence_override=used, annotations=answered
    )

    assert entered(decided(next_attempt, a_root(attempt=1, **STOPPED)))[0] is Phase.HELD


def test_the_owner_of_a_gang_may_say_how_long_the_fence_waits() -> None:
    options = GangOptions(restart=True, fence_timeout=timedelta(minutes=5))
    fencing = a_recovery_in(Phase.FENCING, pods=[PROVEN[0], OPEN])

    record = decided(fencing, a_root(options=options, **STOPPED)).record

    assert record is not None
    assert record.pods[1].proof == "none: fence_timeout of 0:05:00 is over"


def test_a_pod_that_no_kubelet_will_ever_delete_is_removed_once_its_end_is_proven() -> None:
    proven = [PROVEN[0], replace(OPEN, proof="node-1 has booted since")]

    decision = decided(a_recovery_in(Phase.FENCING, pods=proven), a_root(**STOPPED), pods=(STUCK,))

    assert decision.actions == (RemovePods(("r1",)),)


def an_ended_pod(*, grace: int = 30, asked: datetime = NOW) -> Pod:
    """Its containers have ended, and its object is still there."""
    deadline = asked + timedelta(seconds=grace)
    ended = a_pod("r1", uid="u1", node="node-1", deletion_timestamp=deadline, deletion_grace_period_seconds=grace)
    return replace(ended, status=PodStatus(phase="Failed"))


@pytest.mark.parametrize("counts", [True, False])
def test_a_pod_that_its_controller_would_count_as_failed_is_gone_before_the_start(counts: bool) -> None:
    root = a_root(**STOPPED, counts_ended_pods=counts)
    fencing = a_recovery_in(
        Phase.FENCING, pods=PROVEN, timeline=[TimelineEntry(phase=Phase.FENCING, at=NOW, message="")]
    )

    leaving, gone = decided(fencing, root, pods=(an_ended_pod(),)), decided(fencing, root)

    assert leaving.waits is counts
    assert leaving.reason.startswith("waiting until r1 is removed" if counts else "Choosing")
    assert entered(gone)[0] is Phase.CHOOSING


@pytest.mark.parametrize(
    ("pod", "conditions"),
    [
        pytest.param(an_ended_pod(), [], id="its node is silent"),
        pytest.param(an_ended_pod(asked=NOW - timedelta(minutes=2)), None, id="its kubelet does not do it"),
    ],
)
def test_one_that_no_kubelet_removes_is_removed_for_that(pod: Pod, conditions: list[Any] | None) -> None:
    fencing = a_recovery_in(Phase.FENCING, pods=PROVEN)
    nodes = {**NODES, **({} if conditions is None else {"node-1": a_node("node-1", conditions=conditions)})}
    view = GangView(root=a_root(**STOPPED, counts_ended_pods=True), pods=(pod,), nodes=nodes)

    assert decide(fencing, view, [], POLICY, NOW).actions == (RemovePods(("r1",)),)


def test_one_that_a_finalizer_keeps_is_removed_once_and_then_holds_the_start() -> None:
    root = a_root(**STOPPED, counts_ended_pods=True)
    kept = an_ended_pod(grace=0, asked=NOW - timedelta(hours=1))

    assert entered(decided(a_recovery_in(Phase.FENCING, pods=PROVEN), root, pods=(kept,)))[0] is Phase.HELD


def test_it_is_not_waited_for_either() -> None:
    proven = [replace(OPEN, proof="node-1 was powered off")]
    silent = {"node-1": a_node("node-1", conditions=[])}
    stopping = a_recovery_in(Phase.STOPPING, pods=proven)
    just_deleted = replace(STUCK, metadata=replace(STUCK.metadata, deletion_timestamp=NOW))

    waits = decide(stopping, GangView(root=a_root(**STOPPED), pods=(just_deleted,), nodes=NODES), [], POLICY, NOW)
    goes_on = decide(stopping, GangView(root=a_root(**STOPPED), pods=(just_deleted,), nodes=silent), [], POLICY, NOW)

    assert waits.reason == "waiting for r1 to end"
    assert entered(goes_on)[0] is Phase.FENCING


OPEN_BREAKER = "the breaker is open: it is a bad day"


def held_back(recovery: Recovery, root: Root, faults: list[Cause], **view: Any) -> Decision:
    """The next move while the breaker is open."""
    return decide(recovery, GangView(root=root, nodes=NODES, **view), faults, POLICY, NOW, OPEN_BREAKER)


def test_a_gang_that_still_runs_is_not_stopped_while_the_breaker_is_open() -> None:
    quarantined = {**NODES, "node-1": a_node("node-1", unschedulable=True)}
    fault = a_cause(node="node-1")
    detected = a_recovery_in(Phase.DETECTED, causes=[fault], let_through=None)
    view = GangView(root=a_root(), nodes=quarantined)

    assert entered(decide(detected, view, [fault], POLICY, NOW, OPEN_BREAKER)) == (Phase.HELD, OPEN_BREAKER)


FAILED = a_pod("rank-1", uid="u1", node="node-1", index=1, status=PodStatus(phase="Failed"))


def test_one_that_lost_a_member_is_stopped_before_it_fails_for_good_and_not_started_yet() -> None:
    detected = a_recovery_in(Phase.DETECTED, let_through=None)

    stopping = held_back(detected, a_root(), [SOFTWARE], pods=(FAILED,)).record
    reserving = a_recovery_in(Phase.RESERVING, pods=PROVEN, let_through=None)

    assert stopping is not None
    assert (stopping.phase, stopping.let_through) == (Phase.STOPPING, None)
    assert entered(held_back(reserving, a_root(**STOPPED), [])) == (Phase.HELD, OPEN_BREAKER)


def test_when_the_breaker_closes_that_is_recorded_before_anything_else() -> None:
    reserving = a_recovery_in(Phase.RESERVING, pods=PROVEN, let_through=None)

    record = decided(reserving, a_root(**STOPPED)).record

    assert record is not None
    assert (record.phase, record.let_through) == (Phase.RESERVING, NOW)


def test_a_recovery_that_was_let_through_is_not_held_by_a_breaker_that_opens_later() -> None:
    reserving = a_recovery_in(Phase.RESERVING, pods=PROVEN)

    record = held_back(reserving, a_root(**STOPPED), []).record

    assert record is not None
    assert record.phase is Phase.RESERVING
    assert record.placement == {"0": "node-0", "1": "node-1"}


def test_a_new_recovery_sets_out_to_stop_the_gang_in_its_first_write() -> None:
    opened = open_recovery(a_root(), SOFTWARE)

    first = decided(opened, a_root(), [SOFTWARE], pods=(FAILED,)).record

    assert first is not None
    assert [entry.phase for entry in first.timeline] == [Phase.DETECTED, Phase.STOPPING]
    assert (first.attempt, first.let_through) == (1, NOW)


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.FENCING, Phase.CHOOSING, Phase.RESERVING, Phase.STARTING])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"edited_since_stop": True},
            "somebody changed the gang while it was stopped; it stays stopped until they resume it",
        ),
        (
            {"options": GangOptions(restart=False)},
            "restarts of the gang were switched off (healthd.dev/restart); it stays stopped",
        ),
    ],
)
def test_what_the_user_does_to_a_stopped_gang_is_not_fought_over(
    phase: Phase, change: dict[str, Any], message: str
) -> None:
    recovery = a_recovery_in(phase, pods=PROVEN)

    assert entered(decided(recovery, a_root(**{**STOPPED, **change}))) == (Phase.SUPERSEDED, message)


def test_a_change_that_came_before_the_start_does_not_end_what_was_started() -> None:
    confirming = a_recovery_in(Phase.CONFIRMING, pods=PROVEN)

    assert decided(confirming, a_root(attempt=1, edited_since_stop=True)).record is None


def made(minutes: float, index: int = 0) -> Pod:
    """A member of attempt 0 that was made so long after the fault."""
    at = SOFTWARE.at + timedelta(minutes=minutes)
    return a_pod(f"rank-{index}", index=index, status=PodStatus(phase="Running"), creation_timestamp=at)


def test_a_pod_that_was_proven_gone_stays_so_when_the_gang_is_stopped_again() -> None:
    """This controller has not noticed yet that it is gone, and will learn no more than that."""
    noticed = a_pod("r0", uid="u0", node="node-0", index=0, status=PodStatus(phase="Running"))
    recovery = a_recovery_in(Phase.CONFIRMING, pods=PROVEN)

    again = decided(recovery, a_root(attempt=1), [SOFTWARE], pods=(noticed,)).record

    assert again is not None
    assert again.phase is Phase.STOPPING
    assert again.pods == [PROVEN[0]]


@pytest.mark.parametrize(
    ("pods", "phase"),
    [
        pytest.param((made(1), made(1, 1)), Phase.SUPERSEDED, id="all are new"),
        pytest.param((made(-1), made(1, 1)), Phase.STOPPING, id="one is old: it waits for the others in vain"),
        pytest.param((made(1),), Phase.STOPPING, id="one is missing"),
    ],
)
def test_a_gang_that_its_own_controller_restarted_as_a_whole_is_not_restarted_again(
    pods: tuple[Pod, ...], phase: Phase
) -> None:
    assert entered(decided(a_recovery_in(Phase.DETECTED), a_root(), pods=pods))[0] is phase


def test_a_start_whose_pods_its_controller_makes_late_says_so_and_waits() -> None:
    recovery = a_recovery_in(Phase.STARTING, pods=PROVEN, phase_since=NOW)

    decision = decided(recovery, a_root(attempt=1), pods=RUNNING[:1])

    assert decision.reason == "1 of 2 members run; Job train has made 1 so far"
    assert decision.recheck == MADE_WITHIN


NONE_MADE = "its members are not all made: Job train has made none of 2 since its start; its Events say why"


def in_starting(waited: timedelta, **more: Any) -> Recovery:
    """A gang that was started *waited* ago."""
    return a_recovery_in(Phase.STARTING, pods=PROVEN, phase_since=NOW - waited, **more)


@pytest.mark.parametrize("waited", [MADE_WITHIN, POLICY.start_deadline])
def test_a_start_without_any_pod_is_held_and_is_no_restart_without_progress(waited: timedelta) -> None:
    record = decided(in_starting(waited), a_root(attempt=1), pods=()).record

    assert record is not None
    assert (record.phase, record.held_in, record.message) == (Phase.HELD, Phase.STARTING, NONE_MADE)
    assert hold_of(record) is Hold.PODS


def test_a_start_has_a_moment_for_its_first_pod() -> None:
    decision = decided(in_starting(MADE_WITHIN / 2), a_root(attempt=1), pods=())

    assert (decision.waits, decision.recheck) == (True, MADE_WITHIN / 2)


def held_unmade() -> Recovery:
    """Held for its pods for a day."""
    recovery = in_starting(timedelta(days=1))
    held = replace(recovery.status, phase=Phase.HELD, held_in=Phase.STARTING, message=NONE_MADE)
    return replace(recovery, status=held)


def test_a_gang_whose_pods_are_made_at_last_has_the_whole_deadline_to_run() -> None:
    assert decided(held_unmade(), a_root(attempt=1), pods=()).waits

    record = decided(held_unmade(), a_root(attempt=1), pods=(PENDING,)).record

    assert record is not None
    assert (record.phase, record.phase_since, record.message) == (Phase.STARTING, NOW, "its members are made")


def test_a_start_of_which_only_some_pods_are_made_is_held_at_its_deadline_and_not_restarted() -> None:
    early = decided(in_starting(POLICY.start_deadline / 2), a_root(attempt=1), pods=RUNNING[:1])
    record = decided(in_starting(POLICY.start_deadline), a_root(attempt=1), pods=RUNNING[:1]).record

    assert (early.record, early.reason) == (None, "1 of 2 members run; Job train has made 1 so far")
    assert record is not None
    assert (record.phase, record.message) == (Phase.HELD, NONE_MADE.replace("none", "1"))
    assert hold_of(record) is Hold.PODS


@pytest.mark.parametrize(
    ("waited", "ended", "is_early"),
    [(POLICY.confirm_after, [0], False), (MADE_WITHIN / 2, [0], True), (POLICY.confirm_after, [0, 1], True)],
    ids=["the other one is not made", "it may be made yet", "both are made"],
)
def test_a_member_that_gave_up_waiting_for_one_that_is_not_made_says_nothing_of_the_checkpoint(
    waited: timedelta, ended: list[int], is_early: bool
) -> None:
    recovery = in_starting(waited, attempts=[Attempt(number=1, checkpoint=ChosenCheckpoint(path="/step_9", step=9))])
    pods = tuple(a_restarted(rank, f"node-{rank}", "Failed") for rank in ended)

    record = decided(recovery, a_root(attempt=1), faults=[SOFTWARE], pods=pods).record

    assert record is not None
    assert (record.phase, record.attempts[0].failed_early) == (Phase.STOPPING, is_early)


def lacked_members(pods: tuple[Pod, ...], waited: timedelta = 2 * MADE_WITHIN, **more: Any) -> bool:
    """What is recorded of an attempt of which a member failed."""
    recovery = in_starting(waited, attempts=[Attempt(number=1, checkpoint=ChosenCheckpoint(path="/step_9", step=9))])
    record = decided(recovery, a_root(attempt=1), faults=[SOFTWARE], pods=pods, **more).record

    assert record is not None
    assert ("does not count" in record.message) is record.attempts[0].lacked_members
    return record.attempts[0].lacked_members


def test_an_attempt_that_fails_while_members_are_not_made_is_no_restart_without_progress() -> None:
    ended, other = a_restarted(0, "node-0", "Failed"), a_restarted(1, "node-1", "Failed")

    assert lacked_members((ended,))
    assert not lacked_members((ended,), MADE_WITHIN / 2), "a program that always ends at once may be faster"
    assert not lacked_members((ended, other))
    assert not lacked_members((ended,), deleted=(other,)), "the other one was made, and is gone"


def test_nor_is_one_whose_time_to_start_has_passed() -> None:
    """One of three is made and runs, one waits for its image, and a quota has no room for the third."""
    recovery = in_starting(POLICY.start_deadline, attempts=[Attempt(number=1, checkpoint=ChosenCheckpoint())])
    three = dataclasses.replace(a_root(attempt=1), world=3)

    record = decided(recovery, three, pods=(PENDING, RUNNING[1])).record

    assert record is not None
    assert (record.phase, record.attempts[0].lacked_members) == (Phase.STOPPING, True)


def test_the_restart_after_that_is_held_as_soon_as_it_lacks_members_too() -> None:
    """Else no one would learn of it: the members that run end again before the time to start has passed."""
    attempts = [Attempt(number=n, checkpoint=ChosenCheckpoint(), lacked_members=n == 1) for n in (1, 2)]
    recovery = in_starting(MADE_WITHIN, attempt=2, attempts=attempts)
    pod = a_pod("r0", node="node-0", index=0, annotations={ANNOTATION_ATTEMPT: "2"}, status=PodStatus(phase="Running"))

    record = decided(recovery, a_root(attempt=2), pods=(pod,)).record

    assert record is not None
    assert hold_of(record) is Hold.PODS


def test_a_gang_held_for_some_of_its_pods_goes_on_when_all_run() -> None:
    waiting = decided(held_unmade(), a_root(attempt=1), pods=RUNNING[:1]).record

    assert waiting is not None
    assert waiting.phase is Phase.HELD
    assert entered(decided(held_unmade(), a_root(attempt=1), pods=RUNNING))[0] is Phase.CONFIRMING


def test_a_pod_that_did_not_get_its_attempt_is_a_pod_that_was_made() -> None:
    pod = a_pod("rank-0", index=0, status=PodStatus(phase="Running"))
    decision = decided(in_starting(2 * MADE_WITHIN), a_root(attempt=1), pods=(pod,))

    assert (decision.waits, decision.record) == (True, None)
    assert decision.recheck == POLICY.start_deadline - 2 * MADE_WITHIN


def test_what_others_said_of_a_fault_is_recorded_without_what_a_terminal_would_obey() -> None:
    cause = replace(SOFTWARE, message="train-0 said \x1b]0;title\x07")
    opened = open_recovery(a_root(), cause)
    status = decide(opened, GangView(root=a_root(suspended=True)), [], RecoveryPolicy(), START).record

    assert status is not None
    assert opened.spec.cause.message == r"train-0 said \u001b]0;title\u0007"
    assert all(entry.message.isprintable() for entry in status.timeline)
    assert all(each.message.isprintable() for each in status.causes)
