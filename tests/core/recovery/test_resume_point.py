"""Which checkpoint is resumed from, and how often, one decision at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.api import Attempt, ChosenCheckpoint, Recovery, RecoveryStatus, RejectedCheckpoint, TimelineEntry
from healthd.core.api.model import CauseKind, Phase
from healthd.core.api.save_stats import Save, Saves
from healthd.core.config import RecoveryPolicy, StartFresh
from healthd.core.recovery.decide import Decision, decide
from healthd.core.recovery.gang import CheckpointRead, GangOptions, GangView, Root
from healthd.core.recovery.resume_point import FRESH, READ_AGAIN, UNREAD_FOR, doubted
from tests.builders import a_cause, a_recovery
from tests.core.gangs import SOFTWARE, STOPPED, a_recovery_in, a_root
from tests.fakes import START

NOW = START + timedelta(minutes=5)
POLICY = RecoveryPolicy(max_no_advance=3, backoff_max=timedelta(seconds=30))
HEALTHD_ENDED = replace(a_cause(CauseKind.INTERRUPTED), healthd_ended=True)


def decided(
    recovery: Recovery,
    *,
    root: Root | None = None,
    previous: Recovery | None = None,
    policy: RecoveryPolicy = POLICY,
    asked: datetime | None = NOW,
    ended: datetime | None = NOW,
    **answer: Any,
) -> Decision:
    """The decision about a stopped gang when the search for a checkpoint has come to *answer*."""
    read = CheckpointRead(asked=asked, ended=ended, **answer)
    view = GangView(root=root or a_root(**STOPPED), resume=read, previous=previous)
    return decide(recovery, view, [], policy, NOW)


def chosen(
    found: int | None = None,
    *,
    root: Root | None = None,
    rejected: int | None = None,
    policy: RecoveryPolicy = POLICY,
    previous: Recovery | None = None,
    rejected_before: Sequence[RejectedCheckpoint] = (),
    **status: Any,
) -> RecoveryStatus:
    """What is recorded when the newest whole checkpoint is of step *found*."""
    checkpoint = None if found is None else ChosenCheckpoint(path=f"/step_{found}", step=found)
    refused = () if rejected is None else (RejectedCheckpoint(path="/torn", step=rejected, reason="it is torn"),)
    recovery = a_recovery_in(Phase.CHOOSING, rejected=list(rejected_before), **status)
    decision = decided(recovery, root=root, previous=previous, policy=policy, found=checkpoint, rejected=refused)
    assert decision.record is not None
    return decision.record


def loaded(step: int) -> list[Attempt]:
    """One attempt that was started from *step*."""
    return [Attempt(number=1, checkpoint=ChosenCheckpoint(path=f"/step_{step}", step=step))]


def test_the_newest_whole_checkpoint_is_taken_and_the_refused_ones_are_reported() -> None:
    record = chosen(7, rejected=9)

    assert record.phase is Phase.RESERVING
    assert record.checkpoint == ChosenCheckpoint(path="/step_7", step=7)
    assert [one.step for one in record.rejected] == [9]
    assert record.step_at_fault == 9


@pytest.mark.parametrize(
    ("fresh", "rejected", "attempts", "phase"),
    [
        (StartFresh.NEVER_SAVED, None, [], Phase.RESERVING),
        (StartFresh.NEVER_SAVED, 3, [], Phase.HELD),
        (StartFresh.NEVER_SAVED, None, loaded(5), Phase.HELD),
        (StartFresh.NEVER_SAVED, None, [Attempt(number=1, checkpoint=ChosenCheckpoint(path="/last.pt"))], Phase.HELD),
        (StartFresh.NEVER, None, [], Phase.HELD),
        (StartFresh.ALWAYS, 3, [], Phase.RESERVING),
    ],
)
def test_a_fresh_start_is_made_only_where_nothing_can_be_lost_or_it_was_asked_for(
    fresh: StartFresh, rejected: int | None, attempts: list[Attempt], phase: Phase
) -> None:
    assert chosen(rejected=rejected, attempts=attempts, policy=RecoveryPolicy(start_fresh=fresh)).phase is phase


@pytest.mark.parametrize(("step", "step_text"), [(10, "step 10"), (-1, "/torn")])
def test_what_was_refused_and_has_vanished_since_is_remembered_at_every_read(step: int, step_text: str) -> None:
    record = chosen(rejected=step)
    for _ in range(3):
        record = chosen(rejected_before=record.rejected, step_at_fault=record.step_at_fault)

        assert record.phase is Phase.HELD
        assert f"any more, though {step_text} was seen" in record.message


@pytest.mark.parametrize(
    ("saves", "step_text"),
    [
        (Saves(good=[Save(step=8, at=START)]), "step 8"),
        (Saves(good=[Save(at=START)]), "a good one"),
        (Saves(refused="/last.pt"), "/last.pt"),
    ],
)
def test_what_was_seen_while_the_gang_ran_is_remembered(saves: Saves, step_text: str) -> None:
    record = chosen(root=dataclasses.replace(a_root(**STOPPED), saves=saves))

    assert record.phase is Phase.HELD
    assert f"any more, though {step_text} was seen" in record.message


@pytest.mark.parametrize(("no_advance", "wait"), [(0, 10), (1, 20), (2, None)])
def test_each_restart_without_a_new_step_waits_longer_and_the_last_is_not_made(
    no_advance: int, wait: int | None
) -> None:
    record = chosen(5, attempts=loaded(5), no_advance=no_advance)

    if wait is None:
        assert record.phase is Phase.GAVE_UP
        assert record.message == "3 restarts in a row brought nothing beyond step 5: rank-0 exited with code 1"
    else:
        assert record.not_before == NOW + timedelta(seconds=wait)


def test_a_new_step_sets_the_count_back() -> None:
    record = chosen(6, attempts=loaded(5), no_advance=2)

    assert (record.no_advance, record.not_before) == (0, None)


def test_restarts_for_broken_hardware_do_not_count() -> None:
    record = chosen(5, attempts=loaded(5), no_advance=2, causes=[SOFTWARE, a_cause(node="node-1")])

    assert record.phase is Phase.RESERVING


def test_a_restart_of_which_some_members_were_never_made_neither_counts_nor_waits() -> None:
    """A quota has room for a part of the gang: those that run end by their own time-outs, however often."""
    lacking = [replace(each, lacked_members=True) for each in loaded(5)]

    record = chosen(5, attempts=lacking, no_advance=0)
    assert (record.phase, record.no_advance, record.not_before) == (Phase.RESERVING, 0, None)
    assert chosen(5, attempts=lacking, no_advance=2).phase is Phase.RESERVING
    assert chosen(5, attempts=[*lacking, *loaded(5)], no_advance=2).phase is Phase.GAVE_UP


def test_a_start_by_a_person_after_healthd_was_killed_neither_counts_nor_waits() -> None:
    record = chosen(5, attempts=loaded(5), no_advance=2, causes=[SOFTWARE, HEALTHD_ENDED])

    assert (record.phase, record.no_advance, record.not_before) == (Phase.RESERVING, 2, None)


def test_nor_does_the_first_one_after_a_recovery_that_had_progress() -> None:
    earlier = RecoveryStatus(phase=Phase.RECOVERED, attempts=loaded(5), no_advance=2)

    record = chosen(5, previous=a_recovery("train-0", status=earlier), causes=[HEALTHD_ENDED])

    assert (record.phase, record.no_advance, record.not_before) == (Phase.RESERVING, 2, None)


def test_a_rank_that_fails_after_such_a_start_counts_as_ever() -> None:
    assert chosen(5, attempts=loaded(5), no_advance=2, causes=[HEALTHD_ENDED, SOFTWARE]).phase is Phase.GAVE_UP


def test_any_other_interruption_counts() -> None:
    """On Kubernetes a member that is deleted again and again is a restart like another."""
    assert chosen(5, attempts=loaded(5), no_advance=2, causes=[a_cause(CauseKind.INTERRUPTED)]).phase is Phase.GAVE_UP


def test_the_count_goes_on_from_the_recovery_before() -> None:
    earlier = RecoveryStatus(phase=Phase.RECOVERED, attempts=loaded(5), no_advance=2)

    assert chosen(5, previous=a_recovery("train-0", status=earlier)).phase is Phase.GAVE_UP
    resumed_by_a_person = replace(earlier, phase=Phase.GAVE_UP)
    assert chosen(5, previous=a_recovery("train-0", status=resumed_by_a_person)).phase is Phase.RESERVING


def test_the_owner_may_set_the_limit() -> None:
    root = a_root(**STOPPED, options=GangOptions(restart=True, checkpoint="/checkpoints", max_no_advance=1))

    assert chosen(5, root=root, attempts=loaded(5)).phase is Phase.GAVE_UP


def test_a_file_that_was_saved_again_since_is_progress() -> None:
    earlier = [Attempt(number=1, checkpoint=ChosenCheckpoint(path="/ckpt.pt", saved_ns=1))]
    recovery = a_recovery_in(Phase.CHOOSING, attempts=earlier, no_advance=2)

    def counted(saved_ns: int) -> int | None:
        found = ChosenCheckpoint(path="/ckpt.pt", saved_ns=saved_ns)
        record = decided(recovery, found=found).record
        return record.no_advance if record else None

    assert counted(saved_ns=2) == 0
    assert counted(saved_ns=1) == 3


def test_while_somebody_else_verifies_that_is_said_once_and_asked_again_soon() -> None:
    recovery = a_recovery_in(Phase.CHOOSING)

    first = decided(recovery, pending="a pod reads")
    assert first.record is not None
    assert first.record.message == "a pod reads"
    second = decided(replace(recovery, status=first.record), pending="a pod reads")

    assert second.record is None
    assert second.recheck == timedelta(seconds=1)


def test_a_hold_keeps_its_reason_while_it_is_verified_again() -> None:
    held = a_recovery_in(Phase.HELD, held_in=Phase.CHOOSING)

    assert decided(held, pending="a pod reads").record is None


@pytest.mark.parametrize(
    ("how", "reason", "recheck"),
    [
        ({"asked": None, "ended": None}, READ_AGAIN.reason, 1),
        ({"ended": None}, "the checkpoints are being read", 10),
        ({"error": "the API server does not answer", "is_passing": True}, READ_AGAIN.reason, 1),
        (
            {"ended": NOW - timedelta(seconds=31), "found": ChosenCheckpoint(path="/step_5", step=5)},
            READ_AGAIN.reason,
            1,
        ),
    ],
    ids=["not asked yet", "under way", "the cluster failed, not the store", "too old to resume from"],
)
def test_a_gang_waits_for_a_result_of_the_search(how: dict[str, Any], reason: str, recheck: int) -> None:
    decision = decided(a_recovery_in(Phase.CHOOSING), **how)

    assert decision.waits
    assert (decision.reason, decision.recheck) == (reason, timedelta(seconds=recheck))


def test_a_slow_search_is_recorded_and_reported_once() -> None:
    recovery = a_recovery_in(Phase.CHOOSING)
    slow: dict[str, Any] = {"asked": NOW - timedelta(seconds=10), "ended": None}

    first = decided(recovery, **slow)
    assert first.record is not None
    assert first.event == "CheckpointsSlow"
    assert "more than 10 s" in first.record.message
    assert decided(replace(recovery, status=first.record), **slow).waits


def test_a_store_that_cannot_be_read_holds_the_gang_with_the_reason() -> None:
    record = decided(a_recovery_in(Phase.CHOOSING), error="permission denied").record

    assert record is not None
    assert record.phase is Phase.HELD
    assert "cannot be read: permission denied" in record.message


UNREAD = RejectedCheckpoint(path="/step_9", step=9, reason="model.pt: 503 Slow Down", unread=True)
OLDER = ChosenCheckpoint(path="/step_7", step=7)


def test_a_newer_checkpoint_that_cannot_be_read_is_waited_for_and_then_given_up() -> None:
    recovery, late = (
        a_recovery_in(Phase.CHOOSING, timeline=[TimelineEntry(phase=Phase.CHOOSING, at=since, message="so it was")])
        for since in (NOW - UNREAD_FOR / 2, NOW - UNREAD_FOR)
    )

    first = decided(recovery, found=OLDER, rejected=(UNREAD,))
    assert first.record is not None
    assert (first.record.phase, first.event) == (Phase.CHOOSING, "CheckpointsSlow")
    assert "/step_9 is newer than step 7, which loads, and cannot be read: model.pt: 503" in first.record.message

    waits = decided(replace(recovery, status=first.record), found=OLDER, rejected=(UNREAD,))
    assert waits.waits
    assert waits.recheck is not None
    assert waits.recheck <= FRESH

    given_up = decided(late, found=OLDER, rejected=(UNREAD,)).record
    assert given_up is not None
    assert (given_up.phase, given_up.checkpoint) == (Phase.RESERVING, OLDER)


@pytest.mark.parametrize(
    "answer", [{"rejected": (UNREAD,)}, {"error": "permission denied"}], ids=["one checkpoint", "the place"]
)
def test_a_checkpoint_that_cannot_be_read_is_no_damaged_one_to_begin_again_without(answer: dict[str, Any]) -> None:
    always = RecoveryPolicy(start_fresh=StartFresh.ALWAYS)

    held = decided(a_recovery_in(Phase.CHOOSING), policy=always, **answer).record
    assert held is not None
    assert held.phase is Phase.HELD

    again = decided(a_recovery("train-1", status=held), policy=always, found=OLDER).record
    assert again is not None
    assert again.checkpoint == OLDER


def test_a_gang_held_for_what_cannot_be_read_names_that_and_not_the_newest_damaged_one() -> None:
    torn = RejectedCheckpoint(path="/step_11", step=11, reason="model.pt: torn")

    record = decided(a_recovery_in(Phase.CHOOSING), rejected=(torn, UNREAD)).record

    assert record is not None
    assert record.message.endswith("/step_9 cannot be read, and may be good: model.pt: 503 Slow Down")


@pytest.mark.parametrize("later", ["/right", ""], ids=["another place", "no place"])
def test_a_place_that_could_not_be_read_is_no_checkpoint_that_has_vanished(later: str) -> None:
    unread = decided(a_recovery_in(Phase.CHOOSING), error="permission denied").record
    assert unread is not None
    corrected = a_root(**STOPPED, options=GangOptions(restart=True, checkpoint=later))

    record = decided(a_recovery_in(Phase.HELD, held_in=Phase.CHOOSING, rejected=unread.rejected), root=corrected).record

    assert unread.rejected == []
    assert record is not None
    assert (record.phase, record.message) == (Phase.RESERVING, "a fresh start")


def test_a_refused_checkpoint_is_remembered_while_its_place_cannot_be_read() -> None:
    torn = RejectedCheckpoint(path="/torn", step=9, reason="it is torn")

    record = decided(a_recovery_in(Phase.CHOOSING, rejected=[torn]), error="permission denied").record

    assert record is not None
    assert record.rejected == [torn]
    assert "cannot be read: permission denied" in record.message


def test_a_gang_without_a_location_waits_for_no_search() -> None:
    root = a_root(**STOPPED, options=GangOptions(restart=True))

    decision = decide(a_recovery_in(Phase.CHOOSING), GangView(root=root), [], POLICY, NOW)

    assert decision.record is not None
    assert decision.record.phase is Phase.RESERVING


def tried(step: int, *, times: int, early: bool = True) -> list[Attempt]:
    """Starts from one checkpoint."""
    checkpoint = ChosenCheckpoint(path=f"/step_{step}", step=step, saved_ns=1)
    return [Attempt(number=number, checkpoint=checkpoint, failed_early=early) for number in range(1, times + 1)]


@pytest.mark.parametrize(
    ("attempts", "steps"),
    [
        pytest.param(tried(9, times=1), [], id="it failed once"),
        pytest.param(tried(9, times=2), [9], id="it failed twice"),
        pytest.param(tried(9, times=3, early=False), [], id="it failed late, or for a node"),
        pytest.param([*tried(9, times=2), *tried(8, times=1)], [9], id="the older one failed once"),
        pytest.param([*tried(9, times=2), *tried(8, times=2)], [9, 8], id="so does the older one"),
        pytest.param(
            [Attempt(number=n, checkpoint=ChosenCheckpoint(), failed_early=True) for n in (1, 2)], [], id="fresh"
        ),
    ],
)
def test_a_checkpoint_is_doubted_after_two_starts_from_it_that_failed_early(
    attempts: list[Attempt], steps: list[int]
) -> None:
    assert [each.step for each in doubted(a_recovery_in(Phase.CHOOSING, attempts=attempts), None)] == steps


def test_the_start_by_its_user_is_one_of_the_two() -> None:
    def doubted_after(times: int) -> list[int]:
        recovery = a_recovery_in(Phase.CHOOSING, attempts=tried(9, times=times), fell_from="/step_9")
        return [each.step for each in doubted(recovery, None)]

    assert (doubted_after(0), doubted_after(1)) == ([], [9])


@pytest.mark.parametrize(("end", "steps"), [(Phase.RECOVERED, [9]), (Phase.GAVE_UP, []), (Phase.SUPERSEDED, [])])
def test_a_doubt_lasts_beyond_a_recovery_that_went_well_without_that_checkpoint(end: Phase, steps: list[int]) -> None:
    before = a_recovery(status=RecoveryStatus(phase=end, doubted=[tried(9, times=1)[0].checkpoint]))

    assert [each.step for each in doubted(a_recovery_in(Phase.CHOOSING), before)] == steps


def test_what_is_doubted_is_on_record() -> None:
    assert [each.step for each in chosen(8, attempts=tried(9, times=2), no_advance=1).doubted] == [9]
