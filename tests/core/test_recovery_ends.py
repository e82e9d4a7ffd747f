"""How a recovery ends when somebody else decides about the gang."""

from __future__ import annotations

from msgspec.structs import replace

from healthd.core.gang import Ending, GangView, Root
from healthd.core.model import CauseKind, Phase
from healthd.core.objects import Cause, Recovery, TimelineEntry
from healthd.core.policy import RecoveryPolicy
from healthd.core.recovery import decide, open_recovery
from tests.core.gangs import a_root
from tests.fakes import START


def a_recovery_in(phase: Phase) -> Recovery:
    """The recovery that starts attempt 1 of the gang of `a_root`."""
    cause = Cause(kind=CauseKind.SOFTWARE, message="train-0 exited with code 1", at=START)
    opened = open_recovery(a_root(attempt=0), cause)
    begun = TimelineEntry(phase=phase, at=START)
    status = replace(opened.status, phase=phase, phase_since=START, attempt=1, causes=[cause], timeline=[begun])
    return replace(opened, status=status)


def outcome(recovery: Recovery, root: Root | None) -> Phase | None:
    decision = decide(recovery, GangView(root=root), [], RecoveryPolicy(), START)
    return decision.record.phase if decision.record else None


def test_a_gang_that_finishes_right_after_its_restart_was_recovered() -> None:
    finished = a_root(attempt=1, ending=Ending.COMPLETE)

    assert outcome(a_recovery_in(Phase.STARTING), finished) is Phase.RECOVERED
    assert outcome(a_recovery_in(Phase.CONFIRMING), finished) is Phase.RECOVERED


def test_a_gang_that_finishes_before_it_was_restarted_needed_no_recovery() -> None:
    finished = a_root(attempt=0, ending=Ending.COMPLETE)

    assert outcome(a_recovery_in(Phase.STOPPING), finished) is Phase.SUPERSEDED


def test_a_root_that_failed_for_good_is_not_rebuilt() -> None:
    assert outcome(a_recovery_in(Phase.STOPPING), a_root(ending=Ending.FAILED)) is Phase.GAVE_UP


def test_what_the_user_suspended_stays_so() -> None:
    assert outcome(a_recovery_in(Phase.STOPPING), a_root(suspended=True)) is Phase.SUPERSEDED


def test_what_the_user_deleted_stays_so() -> None:
    assert outcome(a_recovery_in(Phase.FENCING), None) is Phase.SUPERSEDED
