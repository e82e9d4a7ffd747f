"""Which recoveries are kept, and which are deleted."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from healthd.core.api import Attempt, ChosenCheckpoint, Recovery, RecoveryStatus
from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.retention import outdated
from tests.builders import a_cause, a_recovery
from tests.fakes import START

POLICY = RecoveryPolicy(keep=2, keep_for=timedelta(days=1))
LIVING = (a_recovery().spec.gang,)


def the(attempt: int, phase: Phase = Phase.RECOVERED, *, name: str = "") -> Recovery:
    """The recovery of the gang `train` that began with *attempt*."""
    status = RecoveryStatus(phase=phase, phase_since=START)
    return a_recovery(name or f"train-{attempt}", first_attempt=attempt, status=status)


def names(recoveries: list[Recovery]) -> list[str]:
    return sorted(recovery.metadata.name for recovery in recoveries)


def test_the_newest_of_a_gang_are_kept() -> None:
    recoveries = [the(attempt) for attempt in (1, 2, 3, 10)]

    assert names(outdated(recoveries, LIVING, POLICY, START)) == ["train-1", "train-2"]


def test_one_that_goes_on_is_never_deleted() -> None:
    recoveries = [the(1, Phase.HELD), the(2), the(3), the(4)]

    assert names(outdated(recoveries, LIVING, POLICY, START)) == ["train-2"]


def test_those_of_one_attempt_stay_together_as_their_names_count_them() -> None:
    recoveries = [the(1, Phase.SUPERSEDED, name=f"train-1-{number}") for number in range(5)]

    assert outdated([*recoveries, the(2)], LIVING, POLICY, START) == []


def test_those_by_which_a_living_gang_left_a_slow_node_are_kept_as_a_rank_is_swapped_once() -> None:
    start = Attempt(number=1, checkpoint=ChosenCheckpoint())
    status = RecoveryStatus(phase=Phase.RECOVERED, phase_since=START, attempts=[start])
    swapped = a_recovery("train-1", cause=a_cause(CauseKind.STRAGGLER), status=status)
    in_vain = a_recovery("train-2", first_attempt=2, cause=a_cause(CauseKind.STRAGGLER), status=the(2).status)
    recoveries = [swapped, in_vain, the(3), the(4)]

    assert names(outdated(recoveries, LIVING, POLICY, START)) == ["train-2"]
    assert "train-1" in names(outdated(recoveries, (), POLICY, START + timedelta(days=1)))


def test_each_gang_has_its_own() -> None:
    other = msgspec.structs.replace(the(9).spec.gang, uid="uid-other")
    recoveries = [the(1), the(2)]
    recoveries += [
        msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, gang=other)) for each in recoveries
    ]

    assert outdated(recoveries, (*LIVING, other), POLICY, START) == []


def test_the_history_of_a_gang_that_is_gone_is_kept_for_a_while() -> None:
    assert outdated([the(1)], (), POLICY, START + timedelta(hours=23)) == []
    assert names(outdated([the(1)], (), POLICY, START + timedelta(hours=24))) == ["train-1"]


def test_the_history_of_a_gang_that_lives_is_kept_however_old_it_is() -> None:
    assert outdated([the(1)], LIVING, POLICY, START + timedelta(days=999)) == []


def test_recoveries_that_another_namespace_made_for_the_same_uid_push_none_out() -> None:
    forged = [a_recovery(f"forged-{n}", namespace="team-a", first_attempt=n, status=the(n).status) for n in range(9)]

    assert not [each for each in outdated([the(1), *forged], LIVING, POLICY, START) if each.metadata.name == "train-1"]
