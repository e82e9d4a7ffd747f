"""What a pod does by its agent, where its processors alone do not show it and its GPUs do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api.health import MemberState, PodActivity, PodRhythm
from healthd.core.config import HangPolicy
from healthd.core.recovery.hangs.gang_silence import a_rank_works, observed_silence, quiet_ranks
from healthd.core.recovery.hangs.pod_reports import report_of
from healthd.core.recovery.hangs.silence_record import next_record
from tests.core.gangs import a_root
from tests.core.recovery.silences import (
    NOW,
    a_gpu_gang,
    a_rhythm,
    ago,
    gpus,
    polls_unseen,
)

POLICY = HangPolicy()
WORKING, WAITING, SILENT, UNKNOWN = MemberState.WORKING, MemberState.WAITING, MemberState.SILENT, MemberState.UNKNOWN


def judged(*listed: PodRhythm, capacity: str = "8") -> PodRhythm | None:
    """What the first rank does, by what the agent of its node lists."""
    view = a_gpu_gang([*listed], capacity=capacity)
    report = report_of(view.pods[0], view, NOW)
    return report.rhythm if report else None


def test_a_rank_that_polls_unseen_waits_when_its_gpus_are_silent() -> None:
    rhythm = judged(polls_unseen(0), gpus(allowed=14.0))

    assert rhythm is not None
    assert (rhythm.uid, rhythm.state, rhythm.since) == ("uid-train-0", WAITING, ago(60))
    assert (rhythm.allowed, rhythm.worked) == (14.0, 600.0)


def test_it_may_be_quiet_for_as_long_as_its_processors_or_its_gpus_allow() -> None:
    rhythm = judged(replace(polls_unseen(0), allowed=300.0), gpus())

    assert rhythm is not None
    assert rhythm.allowed == 300.0


def test_a_rank_that_hardly_uses_a_processor_is_silent_with_its_gpus() -> None:
    rhythm = judged(gpus())

    assert rhythm is not None
    assert (rhythm.uid, rhythm.state, rhythm.since) == ("uid-train-0", SILENT, ago(60))


@pytest.mark.parametrize("state", [SILENT, WAITING])
def test_a_rank_that_waits_for_its_gpus_works_while_they_do(state: MemberState) -> None:
    """As in an evaluation that only computes on the GPU."""
    rhythm = judged(a_rhythm(0, state=state), gpus(WORKING))

    assert rhythm is not None
    assert (rhythm.state, rhythm.since, rhythm.shows_polling) == (WORKING, None, True)


def test_a_rank_is_quiet_since_the_last_work_of_processors_and_gpus() -> None:
    rhythm = judged(a_rhythm(0, since=ago(70), allowed=12.0), gpus(since=ago(61), allowed=15.0))

    assert rhythm is not None
    assert (rhythm.state, rhythm.since, rhythm.allowed) == (SILENT, ago(61), 15.0)


def test_a_rank_whose_processors_are_seen_to_work_works_though_its_gpus_rest() -> None:
    """It loads data, or saves."""
    works = PodRhythm(uid="uid-train-0", state=WORKING, shows_polling=True)

    assert judged(works, gpus()) == works


def test_gpus_that_have_not_worked_since_the_rank_began_say_nothing() -> None:
    """What is usual for them may be that of another job."""
    before = gpus(since=ago(7200))

    assert judged(before) is None
    assert judged(polls_unseen(0), before) == polls_unseen(0)


@pytest.mark.parametrize("worked", [7200.0, 1e308])
def test_gpus_that_were_learned_before_the_rank_began_say_nothing(worked: float) -> None:
    """The new one has loaded its model once, and compiles."""
    assert judged(gpus(worked=worked)) is None


def test_a_rank_of_whose_processors_nothing_is_known_works_with_its_gpus() -> None:
    works = PodRhythm(uid="uid-train-0", state=WORKING, period=2.0, allowed=12.0, shows_polling=True)

    assert judged(gpus(WORKING)) == works


def test_an_unknown_state_stays_unknown_beside_silent_gpus() -> None:
    unknown = a_rhythm(0, state=UNKNOWN, since=None)

    assert judged(unknown, gpus()) == unknown


def test_a_silence_ends_when_gpus_work_of_whose_rank_nothing_else_is_known() -> None:
    found = observed_silence(a_gpu_gang(*([gpus()] for _ in range(3))), POLICY, NOW)
    assert found is not None
    view = replace(a_gpu_gang([gpus()], [gpus(WORKING)], [gpus()]), root=a_root(silence=found.silence))

    record = next_record(view, None, NOW + timedelta(seconds=5))

    assert record is not None
    assert record.ended_at is not None


def test_a_pod_with_some_gpus_is_judged_by_its_processors_alone() -> None:
    quiet = a_rhythm(0)

    assert judged(quiet, gpus(WORKING), capacity="16") == quiet


def test_a_gang_hangs_whose_ranks_poll_unseen_and_whose_gpus_are_all_silent() -> None:
    view = a_gpu_gang(*([polls_unseen(number), gpus()] for number in range(3)))
    found = observed_silence(view, POLICY, NOW)

    assert found is not None
    assert (found.silence.since, found.silence.worked, found.doubt) == (ago(60), 600.0, "")
    assert {each.state for each in found.silence.members} == {WAITING}


def test_a_gang_does_not_hang_while_the_gpus_of_one_rank_work() -> None:
    quiet = [[a_rhythm(number), gpus()] for number in range(2)]

    assert observed_silence(a_gpu_gang(*quiet), POLICY, NOW) is not None
    assert observed_silence(a_gpu_gang(*quiet, [a_rhythm(2), gpus(WORKING)]), POLICY, NOW) is None
    assert a_rank_works(a_gpu_gang(*quiet, [a_rhythm(2), gpus(WORKING)]), NOW)


def test_a_silence_goes_on_while_processors_poll_unseen() -> None:
    view = a_gpu_gang(*([polls_unseen(number), gpus()] for number in range(3)))
    found = observed_silence(view, POLICY, NOW)
    assert found is not None
    view = replace(view, root=a_root(silence=found.silence))

    assert next_record(view, observed_silence(view, POLICY, NOW), NOW + timedelta(seconds=5)) is None


def test_the_node_whose_gpu_runs_no_kernel_is_behind() -> None:
    """All others wait in a kernel for the one whose rank sleeps in its loader."""
    others = [[a_rhythm(number, activity=PodActivity(cpu=0.01)), gpus()] for number in range(3)]
    view = a_gpu_gang(*others, [a_rhythm(3, activity=PodActivity(cpu=0.01)), gpus(gpu_utilisation=0)])
    found = observed_silence(view, POLICY, NOW)

    assert found is not None
    assert [each.member for each in found.silence.suspects] == ["3"]
    assert "GPU utilisation 0 %; most ranks have 100" in found.silence.located


def test_ranks_of_whose_processors_nothing_is_known_are_compared_by_their_gpus() -> None:
    view = a_gpu_gang([gpus()], [gpus(gpu_utilisation=3)], [gpus()])

    assert [(each.activity.cpu, each.activity.gpu_utilisation) for each in quiet_ranks(view, NOW) if each.activity] == [
        (None, 100),
        (None, 3),
        (None, 100),
    ]


def test_what_its_agent_saw_of_a_rank_that_polls_unseen_counts_in_the_vote() -> None:
    polling = [[polls_unseen(number, activity=PodActivity(cpu=8.0)), gpus()] for number in range(3)]
    view = a_gpu_gang(*polling, [polls_unseen(3, activity=PodActivity(cpu=0.2)), gpus()])
    found = observed_silence(view, POLICY, NOW)

    assert found is not None
    assert [each.member for each in found.silence.suspects] == ["3"]
    assert "CPU 0.2 cores; most ranks have 8" in found.silence.located


def test_a_rank_that_works_is_listed_without_what_it_did_while_its_gpus_rested() -> None:
    rhythm = judged(polls_unseen(0, activity=PodActivity(cpu=8.0)), gpus(WORKING))

    assert rhythm is not None
    assert rhythm.activity is None
