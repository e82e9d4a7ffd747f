"""What people and the API server read from a recovery follows from its state, and stays small."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api import (
    Attempt,
    ChosenCheckpoint,
    Condition,
    HangSuspect,
    PodHint,
    Recovery,
    RecoveryStatus,
    TimelineEntry,
)
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.recovery.nodes.spares import NO_NODE, reservation
from healthd.core.recovery.recovery_status import (
    KEPT_ATTEMPTS,
    KEPT_CAUSES,
    KEPT_ENTRIES,
    dressed,
    kind_named,
    label_value,
)
from tests.builders import a_cause, a_recovery
from tests.fakes import START

LATER = START + timedelta(minutes=2, seconds=13)


def reported(status: RecoveryStatus, before: Recovery | None = None) -> RecoveryStatus:
    """*status* as it is written two minutes after the start."""
    return dressed(before or a_recovery(), status, LATER)


def says(status: RecoveryStatus) -> dict[str, str]:
    """The conditions."""
    return {condition.type: condition.status for condition in reported(status).conditions}


def test_a_recovery_under_way_progresses_and_no_one_knows_its_end() -> None:
    assert says(RecoveryStatus(phase=Phase.STARTING)) == {
        "Progressing": "True",
        "Held": "False",
        "Recovered": "Unknown",
    }


def test_a_held_one_does_not_progress() -> None:
    assert says(RecoveryStatus(phase=Phase.HELD)) == {"Progressing": "False", "Held": "True", "Recovered": "Unknown"}


def test_only_one_that_brought_its_gang_back_recovered() -> None:
    assert says(RecoveryStatus(phase=Phase.RECOVERED))["Recovered"] == "True"
    assert says(RecoveryStatus(phase=Phase.GAVE_UP))["Recovered"] == "False"


def test_the_time_of_a_condition_moves_only_with_its_status() -> None:
    known = [Condition(type="Progressing", status="True", last_transition_time=START)]
    before = a_recovery(status=RecoveryStatus(phase=Phase.STOPPING, conditions=known))

    conditions = {each.type: each for each in reported(RecoveryStatus(phase=Phase.STARTING), before).conditions}

    assert conditions["Progressing"].last_transition_time == START
    assert conditions["Held"].last_transition_time == LATER


def test_one_line_names_gang_nodes_checkpoint_and_duration() -> None:
    causes = [a_cause(node=f"node-{number}") for number in range(4)]
    timeline = [TimelineEntry(phase=Phase.DETECTED, at=START), TimelineEntry(phase=Phase.RECOVERED, at=LATER)]
    status = reported(
        RecoveryStatus(
            phase=Phase.RECOVERED,
            phase_since=LATER,
            causes=causes,
            checkpoint=ChosenCheckpoint(path="/step_7", step=7),
            timeline=timeline,
        )
    )

    assert status.gang == "job/train"
    assert status.bad_nodes == "node-0, node-1 and 2 more"
    assert status.resumes_from == "step 7"
    assert (status.ended_at, status.took) == (LATER, "2m13s")


@pytest.mark.parametrize(
    ("seconds", "says"), [(4.6789, "4.6s"), (4.02, "4s"), (0, "0s"), (-3, "0s"), (14.9, "14s"), (3723, "1h2m3s")]
)
def test_how_long_it_took_reads_as_ages_in_kubectl(seconds: float, says: str) -> None:
    began = LATER - timedelta(seconds=seconds)
    timeline = [TimelineEntry(phase=Phase.DETECTED, at=began), TimelineEntry(phase=Phase.RECOVERED, at=LATER)]

    assert reported(RecoveryStatus(phase=Phase.RECOVERED, phase_since=LATER, timeline=timeline)).took == says


@pytest.mark.parametrize("said", ["pods", "pod", "PodGang", "pg"])
def test_plain_pods_are_one_kind_however_they_are_spelled(said: str) -> None:
    assert kind_named(said) == "podgang"


def test_the_hint_names_the_checkpoint_and_the_nodes_to_avoid() -> None:
    recovery = a_recovery()
    hint = reported(
        RecoveryStatus(
            phase=Phase.STARTING,
            attempt=3,
            causes=[a_cause(node="bad")],
            checkpoint=ChosenCheckpoint(path="/step_7", step=7),
            replacements={"bad": "spare"},
            placement={"0": "good", "1": "spare"},
        )
    ).hint

    assert hint is not None
    assert (hint.attempt, hint.resume_from, hint.resume_step) == (3, "/step_7", 7)
    assert (hint.avoid, hint.prefer) == (["bad"], ["good", "spare"])
    assert hint.reserved_for == reservation(recovery.spec.gang.name, recovery.spec.gang.uid)


def test_pods_of_a_large_gang_name_fewer_nodes_that_they_prefer_and_its_spares_among_them() -> None:
    def preferred(members: int) -> list[str]:
        placement = {str(rank): f"node-{rank:05}" for rank in range(members - 1)} | {str(members - 1): "spare"}
        status = RecoveryStatus(phase=Phase.STARTING, replacements={"bad": "spare"}, placement=placement)
        hint = reported(status).hint
        assert hint is not None
        return hint.prefer

    assert [len(preferred(members)) for members in (2, 256, 1024, 30_000)] == [2, 256, 64, 2]
    assert preferred(1024)[0] == "node-00000"
    assert preferred(30_000) == ["node-00000", "spare"]


def test_pods_prefer_other_nodes_than_a_suspected_one_and_may_run_on_it() -> None:
    hang = replace(a_cause(CauseKind.HANG), suspects=[HangSuspect(member="1", node="suspected", witnesses=1)])
    status = RecoveryStatus(phase=Phase.STARTING, causes=[hang], placement={"0": "good", "1": "suspected"})

    hint = reported(status).hint

    assert hint is not None
    assert (hint.avoid, hint.prefer) == ([], ["good"])


def test_a_node_that_was_to_blame_and_is_used_again_is_not_avoided() -> None:
    status = RecoveryStatus(phase=Phase.STARTING, causes=[a_cause(node="repaired")], placement={"0": "repaired"})

    hint = reported(status).hint

    assert hint is not None
    assert hint.avoid == []


def test_no_pod_is_to_avoid_the_node_that_a_member_never_had() -> None:
    """The API server refuses a pod with a node affinity for a name that no node can have."""
    replaced = {"bad": "spare-1", f"{NO_NODE}1": "spare-2"}
    status = RecoveryStatus(phase=Phase.STARTING, replacements=replaced, placement={"0": "spare-1", "1": "spare-2"})

    written = reported(status)

    assert written.hint is not None
    assert (written.hint.avoid, written.hint.prefer) == (["bad"], ["spare-1", "spare-2"])
    assert written.bad_nodes == "bad"


def test_the_hint_stays_the_same_during_an_attempt() -> None:
    started = reported(RecoveryStatus(phase=Phase.STARTING, attempt=3, placement={"0": "a"}))

    assert reported(RecoveryStatus(phase=Phase.CONFIRMING, attempt=3, hint=started.hint)).hint == started.hint


@pytest.mark.parametrize("end", sorted(ENDED))
def test_after_the_end_the_hint_has_the_place_but_no_old_checkpoint(end: Phase) -> None:
    hint = PodHint(attempt=3, resume_from="/step_7", resume_step=7, reserved_for="train-1", avoid=["bad"], prefer=["a"])

    after = reported(RecoveryStatus(phase=end, attempt=3, hint=hint)).hint

    assert after == PodHint(attempt=3, reserved_for="train-1", avoid=["bad"], prefer=["a"])


def test_lists_stay_bounded_and_keep_how_it_began() -> None:
    entries = [TimelineEntry(phase=Phase.STOPPING, at=START, message=str(number)) for number in range(1000)]
    attempts = [Attempt(number=number, checkpoint=ChosenCheckpoint()) for number in range(1000)]
    status = reported(RecoveryStatus(timeline=entries, attempts=attempts))

    assert len(status.timeline) == KEPT_ENTRIES
    assert (status.timeline[0], status.timeline[-1]) == (entries[0], entries[-1])
    assert len(status.attempts) == KEPT_ATTEMPTS
    assert status.attempts[-1] == attempts[-1]


def test_a_node_that_is_to_blame_is_never_forgotten() -> None:
    software = [a_cause(CauseKind.SOFTWARE, message=f"rank {number}") for number in range(300)]
    causes = [*software[:150], a_cause(node="bad"), *software[150:]]

    kept = reported(RecoveryStatus(causes=causes)).causes

    assert [cause.node for cause in kept if cause.node] == ["bad"]
    assert (kept[0], kept[-1]) == (causes[0], causes[-1])
    assert len(kept) <= KEPT_CAUSES + 3


def test_a_long_name_makes_a_label_that_the_api_server_takes() -> None:
    assert label_value("a" * 62 + ".b") == "a" * 62
    assert label_value("train") == "train"


def test_only_the_newest_attempts_keep_the_places_of_a_large_gang() -> None:
    places = {str(rank): f"node-{rank}" for rank in range(600)}
    attempts = [
        Attempt(number=number, checkpoint=ChosenCheckpoint(), placement=places, ran_on=places) for number in (1, 2)
    ]

    status = reported(RecoveryStatus(phase=Phase.CONFIRMING, attempts=attempts))
    assert [len(attempt.ran_on) for attempt in status.attempts] == [0, 600]


def test_since_when_it_runs_is_distinguished_from_whether_that_is_confirmed() -> None:
    ran = START + timedelta(seconds=5)
    entries = [TimelineEntry(phase=Phase.DETECTED, at=START), TimelineEntry(phase=Phase.CONFIRMING, at=ran)]
    confirming = RecoveryStatus(phase=Phase.CONFIRMING, phase_since=ran, timeline=entries)
    again = replace(confirming, phase=Phase.STOPPING)

    reported = dressed(a_recovery(), confirming, ran)

    assert (reported.running_since, reported.running_after, reported.took) == (ran, "5s", "")
    assert dressed(a_recovery(), again, ran).running_since is None
