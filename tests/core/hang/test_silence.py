"""When a gang hangs, and when it does not, by what its members use each second."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from healthd.core.api.health import MemberState
from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import Silence, cannot_go_on
from tests.core.hang.sampled import (
    Gang,
    Second,
    bursts,
    evaluates,
    is_starved,
    is_stopped,
    is_traced,
    reads,
    sleeps,
    spins,
    steps,
    writes,
)


def trained(period: float = 0.3, seconds: int = 120, **other: float) -> Gang:
    """A gang whose rhythm is known."""
    gang = Gang()
    assert gang.run(seconds, steps(period, **other)) is None
    return gang


def after(silence: Silence | None) -> timedelta:
    """From the last sign of work to the moment in which the hang was seen."""
    assert silence is not None
    return silence.seen_at - silence.since


HANGS: dict[str, tuple[Second, ...]] = {
    "one is stopped, the others wait": (is_stopped, sleeps, sleeps, sleeps),
    "a loader sleeps, and so do all": (sleeps,),
    "one spins, the others wait": (sleeps, sleeps, spins, sleeps),
    "all poll": (spins,),
}


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
@pytest.mark.parametrize("period", [0.1, 1, 2])
def test_a_hang_of_a_gang_with_short_steps_is_seen_within_fifteen_seconds(
    hang: tuple[Second, ...], period: float
) -> None:
    gang = trained(period)

    assert after(gang.run(30, *hang)) <= timedelta(seconds=15)


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
@pytest.mark.parametrize("period", [3, 6, 12])
def test_a_hang_of_a_gang_with_long_steps_is_seen_within_five_periods_and_ten_seconds(
    hang: tuple[Second, ...], period: int
) -> None:
    gang = trained(period, seconds=20 * period)

    assert after(gang.run(7 * period + 10, *hang)) <= timedelta(seconds=5 * period + 10)


@pytest.mark.parametrize("period", [1.05, 1.1, 1.2, 1.35, 1.7])
def test_samples_that_show_no_step_because_a_step_takes_longer_than_a_sample_are_no_period(period: float) -> None:
    gang = Gang()
    assert gang.run(120, bursts(period)) is None

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


@pytest.mark.parametrize("period", [2.3, 2.5, 3.5, 4.5, 6.3])
def test_steps_that_take_no_whole_number_of_samples_have_no_longer_period(period: float) -> None:
    gang = Gang()
    assert gang.run(120, bursts(period)) is None

    assert after(gang.run(60, sleeps)) <= timedelta(seconds=5 * period + 10)


@pytest.mark.parametrize(("for_", "within"), [(1, 15), (7, 50)])
def test_what_comes_each_half_a_minute_beside_short_steps_does_not_make_a_hang_late(for_: int, within: int) -> None:
    """Metrics are written, or it evaluates for some seconds, in which the processors do nothing else."""

    def trains(rank: int, at: int, dice: random.Random) -> Usage:
        return spins(rank, at, dice) if at % 30 < for_ else steps()(rank, at, dice)

    gang = Gang()
    assert gang.run(240, trains) is None

    assert after(gang.run(60, sleeps)) <= timedelta(seconds=within)


def test_a_gang_that_uses_little_is_judged_too() -> None:
    gang = trained(cpu=0.0099, switches=1.9, faults=0, calls=0, written=0)

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


@pytest.mark.parametrize("period", [3, 6, 12])
def test_the_period_is_learned_from_the_samples(period: int) -> None:
    gang = trained(period, seconds=20 * period)

    assert gang.rhythm.period == pytest.approx(period, abs=1)


def test_each_member_of_a_hang_is_shown_with_its_state_and_its_last_work() -> None:
    gang = trained()
    ended = gang.now

    silence = gang.run(30, is_stopped, sleeps, spins, sleeps)

    assert silence is not None
    assert [member.state for member in silence.members] == ["silent", "silent", "waiting", "silent"]
    assert {member.last_active for member in silence.members} == {ended}
    assert silence.members[0].states == "T"


def test_a_rank_that_had_ended_is_shown_and_is_no_sign_that_the_others_cannot_go_on() -> None:
    """They may evaluate for a last time, which looks the same."""
    gang = trained()
    gang.end(1)
    gang.run(3, steps())

    silence = gang.run(30, sleeps)

    assert silence is not None
    assert silence.ended == ("1",)
    assert [member.rank for member in silence.members] == ["0", "2", "3"]
    assert not cannot_go_on(silence)


def test_the_ends_of_an_earlier_attempt_are_none_of_this_one() -> None:
    gang = trained()
    gang.end(1)
    gang.run(3, steps())
    gang.rhythm.restart()
    gang.run(120, steps())

    silence = gang.run(30, sleeps)

    assert silence is not None
    assert silence.ended == ()


@pytest.mark.parametrize("period", [0.3, 6])
def test_one_member_that_is_late_is_no_hang(period: float) -> None:
    gang = trained(period, seconds=180)

    assert gang.run(300, sleeps, steps(period)) is None


@pytest.mark.parametrize("work", [reads, writes, evaluates])
def test_a_gang_that_waits_for_one_that_does_other_work_is_no_hang(work: Second) -> None:
    gang = trained()

    assert gang.run(300, work, sleeps, sleeps, sleeps) is None


def test_a_gang_that_evaluates_is_no_hang() -> None:
    assert trained().run(300, evaluates) is None


def test_a_gang_that_slows_down_to_a_third_is_no_hang() -> None:
    gang = trained(cpu=0.6)

    assert gang.run(300, steps(cpu=0.2, switches=13, faults=20, calls=2)) is None


def test_a_gang_that_starts_up_is_no_hang() -> None:
    gang = Gang()

    assert gang.run(20, evaluates) is None
    assert gang.run(300, sleeps) is None


def test_a_start_that_takes_much_work_for_a_moment_delays_nothing() -> None:
    gang = Gang()
    gang.run(2, evaluates)
    gang.run(62, steps(cpu=0.02, faults=0, calls=0))

    assert gang.rhythm.is_known
    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_a_gang_whose_level_was_never_steady_is_not_judged() -> None:
    gang = Gang()

    for level in (0.05, 0.15, 0.5, 1.5, 4.5):
        gang.run(23, steps(cpu=level))

    assert gang.run(60, sleeps) is None


@pytest.mark.parametrize("unknown", [is_traced, is_starved])
def test_a_member_of_which_it_is_not_known_what_it_does_is_no_hang(unknown: Second) -> None:
    gang = trained()

    assert gang.run(300, unknown, sleeps, sleeps, sleeps) is None


def test_a_gang_that_was_stopped_as_a_whole_was_stopped_by_a_person() -> None:
    assert trained().run(300, is_stopped) is None


def test_a_gang_that_a_person_stops_and_lets_go_on_rank_by_rank_is_no_hang() -> None:
    gang = trained()
    gang.run(600, is_stopped)

    assert gang.run(3, sleeps, is_stopped, is_stopped, is_stopped) is None
    assert gang.run(3, sleeps, sleeps, is_stopped, is_stopped) is None
    assert gang.run(60, steps()) is None


def test_a_rank_that_a_person_forgets_to_let_go_on_is_a_hang_since_the_others_go_on() -> None:
    gang = trained()
    gang.run(600, is_stopped)
    went_on = gang.now

    silence = gang.run(15, sleeps, is_stopped, sleeps, sleeps)

    assert silence is not None
    assert abs(silence.since - went_on) <= timedelta(seconds=2)


@pytest.mark.parametrize("unknown", [is_traced, is_starved])
def test_a_silence_after_a_time_that_says_nothing_lasts_since_that_time(unknown: Second) -> None:
    gang = trained()
    gang.run(600, unknown, sleeps, sleeps, sleeps)
    known_again = gang.now

    silence = gang.run(15, sleeps)

    assert silence is not None
    assert abs(silence.since - known_again) <= timedelta(seconds=5)


def test_a_silence_after_the_machine_slept_lasts_since_it_woke() -> None:
    gang = trained()
    gang.now += timedelta(hours=8)
    woke = gang.now

    silence = gang.run(15, sleeps)

    assert silence is not None
    assert silence.since >= woke


def test_a_member_that_cannot_be_sampled_is_no_hang() -> None:
    gang = trained()
    for _ in range(60):
        gang.now += timedelta(seconds=1)
        assert gang.rhythm.observe({"0": None, "1": None, "2": None, "3": None}, gang.now) is None


def test_time_in_which_nothing_was_sampled_is_no_silence() -> None:
    gang = trained()
    gang.run(5, sleeps)
    gang.now += timedelta(hours=8)

    assert gang.run(4, sleeps) is None
    assert gang.run(6, sleeps) is not None


def test_a_pause_that_ended_by_itself_may_come_again_and_last_twice_as_long() -> None:
    gang = trained()
    assert gang.run(40, sleeps) is not None
    assert gang.run(60, steps()) is None

    assert gang.run(75, sleeps) is None
    assert gang.run(10, sleeps) is not None


def test_the_end_of_a_signal_to_stop_is_no_pause_of_the_gang() -> None:
    gang = trained()
    assert gang.run(100, is_stopped, sleeps, sleeps, sleeps) is not None
    gang.run(150, steps())

    assert after(gang.run(30, is_stopped, sleeps, sleeps, sleeps)) <= timedelta(seconds=15)


def test_a_silence_that_begins_with_a_save_is_reported_after_minutes_before_saves_are_known() -> None:
    """As the first save of a job to a dead file server. It may be a slow one, so nothing is restarted for it."""
    gang = trained()

    assert gang.run(299, sleeps, saves_at=[0]) is None

    seen = gang.run(5, sleeps)
    assert seen is not None
    assert (seen.allowed, seen.worked) == (300.0, 0.0)


def test_a_silence_that_begins_with_a_save_is_judged_by_earlier_saves() -> None:
    gang = trained()
    for seconds in (100, 130, 200):
        gang.run(20, sleeps, saves_at=[0])
        gang.run(seconds, steps())

    assert gang.run(38, sleeps, saves_at=[0]) is None
    assert gang.run(4, sleeps) is not None


def test_a_gang_that_saves_every_few_seconds_is_judged() -> None:
    gang = trained()
    gang.run(100, steps(), saves_at=range(0, 100, 4))

    assert after(gang.run(30, sleeps, saves_at=[0])) <= timedelta(seconds=15)


@pytest.mark.parametrize("every", [6, 12])
def test_a_gang_that_writes_more_than_its_young_rhythm_shows_and_saves_again_and_again_is_judged(every: int) -> None:
    gang = trained(seconds=50, written=0.0)
    gang.run(60, steps(written=20_000.0), saves_at=range(0, 60, every))

    assert after(gang.run(30, sleeps, saves_at=[0])) <= timedelta(seconds=15)


def test_the_many_files_of_one_slow_save_are_not_saves_by_which_a_silence_is_judged() -> None:
    gang = trained()
    gang.run(90, writes, saves_at=range(0, 90, 11))

    assert gang.run(200, sleeps, saves_at=[0]) is None


@pytest.mark.parametrize("seconds", [60, 90, 400])
def test_the_wait_at_the_end_of_a_slow_save_by_all_ranks_is_no_hang(seconds: int) -> None:
    gang = trained(seconds=300)
    gang.run(seconds, writes, saves_at=[0])

    assert gang.run(60, sleeps) is None


@pytest.mark.parametrize("steps_before", [20, 30, 40])
def test_the_wait_at_the_end_of_a_save_that_began_before_the_rhythm_was_known_is_no_hang(steps_before: int) -> None:
    gang = Gang()
    gang.run(steps_before, steps())
    gang.run(20, writes, saves_at=[0])

    assert gang.run(60, sleeps) is None


@pytest.mark.parametrize("pauses_every", [300, 60])
def test_ranks_that_write_in_each_step_are_judged_though_a_file_appeared_before_their_first_step(
    pauses_every: int,
) -> None:
    gang = Gang()
    gang.run(20, reads, saves_at=[19])
    for _ in range(300 // pauses_every):
        gang.run(pauses_every - 3, steps(written=1_000_000.0))
        gang.run(3, evaluates)

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_after_a_slow_save_a_hang_is_seen_as_before() -> None:
    gang = trained(seconds=300)
    gang.run(90, writes, saves_at=[0])

    assert gang.run(60, steps()) is None
    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_what_became_usual_after_a_slow_save_is_learned() -> None:
    gang = trained(seconds=300)
    gang.run(90, writes, saves_at=[0])
    gang.run(600, steps(cpu=0.06, switches=6, faults=9, calls=0.75))

    assert gang.run(600, steps(cpu=0.05, switches=5, faults=7.5, calls=0.6)) is None
    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_ranks_that_write_for_longer_than_any_save_do_so_as_their_work() -> None:
    gang = trained(seconds=300)
    gang.run(900, steps(written=200_000.0), saves_at=[0])

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_a_silence_soon_after_a_save_that_all_came_back_from_is_no_save() -> None:
    gang = trained()
    gang.run(4, steps(), saves_at=[0])

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_long_saves_do_not_make_other_hangs_late() -> None:
    gang = trained()
    for _ in range(3):
        gang.run(20, sleeps, saves_at=[0])
        gang.run(200, steps())

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_a_gang_that_saves_while_it_seems_silent_works() -> None:
    gang = trained(cpu=1.0)
    quiet = steps(cpu=0.1, switches=4, faults=6, calls=0.5)
    assert gang.run(30, quiet) is not None
    gang.run(1, quiet, saves_at=[0])

    assert gang.run(300, quiet) is None
    assert gang.run(30, sleeps) is not None


def lightly(_rank: int, at: int, _dice: random.Random) -> Usage:
    """Steps that use 0.2 % of a core."""
    return Usage(cpu=0.002, switches=2, calls=at % 2, states="S")


def test_a_rank_that_does_not_come_back_from_an_evaluation_after_which_the_first_one_saves_is_seen() -> None:
    gang = trained()
    for _ in range(4):
        gang.run(11, sleeps)
        gang.run(30, steps(), saves_at=[0])
    gang.run(11, sleeps)

    assert after(gang.run(90, sleeps, saves_at=[0])) <= timedelta(seconds=75)


def test_a_rank_that_seems_idle_from_save_to_save_is_learned_anew() -> None:
    """Its start used so much more that its steps look silent beside it: then only rank 0 shows that the gang works."""
    gang = Gang()
    gang.run(120, steps(cpu=0.65), saves_at=[60, 80, 100])
    for _ in range(4):
        gang.run(300, steps(cpu=0.65), lightly, saves_at=[0])
    assert gang.rhythm.is_known

    assert gang.run(60, sleeps, lightly) is None


def test_a_rank_that_waits_for_most_of_each_save_keeps_its_rhythm() -> None:
    gang = trained()
    for _ in range(5):
        saved(gang, 40, writes, sleeps, sleeps, sleeps)
        gang.run(120, steps())

        assert gang.rhythm.is_known


def test_minutes_of_compilation_are_not_usual_in_a_life_of_light_steps() -> None:
    gang = Gang(ranks=2)
    gang.run(3600, lightly)
    gang.run(900, evaluates)

    assert gang.run(900, lightly) is None


def test_it_is_known_for_how_long_every_member_had_worked() -> None:
    gang = trained(seconds=200)
    gang.run(100, sleeps, steps())
    silence = gang.run(30, sleeps)

    assert silence is not None
    assert silence.worked is not None
    assert 100 < silence.worked < 200


@pytest.mark.parametrize(("pause", "counts"), [(280, True), (320, False)])
def test_work_before_a_long_pause_does_not_count_as_work_without_one(pause: int, *, counts: bool) -> None:
    gang = trained(seconds=400)
    gang.run(pause, sleeps)
    gang.run(100, steps())
    silence = gang.run(700, sleeps)

    assert silence is not None
    assert silence.worked is not None
    assert (silence.worked > 200) == counts


def saved(gang: Gang, seconds: int, *behaviour: Second) -> Silence | None:
    """A save for so many seconds, which changes the folder when it begins and when it is complete. What was seen."""
    return gang.run(seconds, *behaviour, saves_at=[0, seconds - 1])


def test_a_slow_save_is_a_pause_also_where_its_end_is_seen_before_anyone_works() -> None:
    gang = trained()
    gang.run(2, writes, sleeps, sleeps, sleeps, saves_at=[0])
    gang.run(18, sleeps, saves_at=[17])
    gang.run(200, steps())

    for _ in range(3):
        assert saved(gang, 20, sleeps) is None
        gang.run(200, steps())


def test_a_gang_that_hangs_soon_after_a_slow_save_is_seen() -> None:
    gang = trained()
    for _ in range(3):
        saved(gang, 20, sleeps)
        gang.run(100, steps())
    saved(gang, 20, sleeps)
    gang.run(20, steps())

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_one_save_that_is_written_for_half_a_minute_is_one() -> None:
    gang = trained()
    gang.run(30, writes)
    gang.run(200, steps())

    assert gang.run(30, sleeps, saves_at=[0]) is None


def test_data_that_are_read_after_a_save_are_work_though_the_save_moved_much_more() -> None:
    def flushes(_rank: int, _at: int, _dice: random.Random) -> Usage:
        return Usage(cpu=0.3, switches=5, calls=3000, written=2e8, states="D")

    def loads(_rank: int, _at: int, _dice: random.Random) -> Usage:
        return Usage(cpu=0.01, calls=16, read=1e6, states="D")

    gang = trained()
    gang.run(30, flushes)
    gang.run(90, steps())

    assert gang.run(60, loads) is None


def polls_between_steps(period: int, seconds: int) -> Second:
    """A rank that computes for some seconds of each step, and polls for the rest of it."""

    def second(rank: int, at: int, dice: random.Random) -> Usage:
        return steps(0.3, cpu=0.5)(rank, at, dice) if at % period < seconds else spins(rank, at, dice)

    return second


def test_the_period_of_ranks_that_poll_is_not_taken_for_that_of_their_processor_time() -> None:
    gang = Gang()
    assert gang.run(300, polls_between_steps(12, 6)) is None

    assert gang.rhythm.period == 12
    assert gang.run(20, spins) is None


def test_a_long_pause_is_not_forgotten_for_the_short_ones_of_each_step() -> None:
    gang = Gang()
    gang.run(200, steps(9))
    gang.run(90, sleeps)
    gang.run(300, steps(9))

    assert gang.run(170, sleeps) is None


def test_a_rank_that_is_stopped_is_no_pause_however_long_the_pauses_of_the_gang_are() -> None:
    gang = trained()
    gang.run(100, sleeps)
    gang.run(200, steps())

    assert after(gang.run(30, is_stopped, sleeps, sleeps, sleeps)) <= timedelta(seconds=15)


def test_a_pause_in_which_one_rank_waits_for_data_says_nothing_of_another_rank() -> None:
    gang = trained()
    gang.run(100, sleeps, spins, spins, spins)
    gang.run(200, steps())

    assert gang.run(30, sleeps, spins, spins, spins) is None
    gang.run(200, steps())
    assert after(gang.run(30, spins, sleeps, spins, spins)) <= timedelta(seconds=15)


COMPILES = steps(cpu=1.5, switches=3, faults=2500, calls=5)
TRAINS_LIGHTLY = steps(cpu=0.2, switches=8, faults=20, calls=2)


def test_the_steps_after_a_long_compilation_are_learned_though_they_are_much_less_work() -> None:
    gang = Gang()
    gang.run(100, COMPILES)
    gang.run(130, TRAINS_LIGHTLY)

    assert gang.run(300, TRAINS_LIGHTLY) is None
    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_a_compilation_does_not_make_light_steps_look_silent() -> None:
    gang = trained(cpu=0.01)
    assert gang.run(170, COMPILES) is None

    assert gang.run(300, steps(cpu=0.01)) is None
    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


def test_a_hang_after_much_more_work_is_seen_too() -> None:
    gang = trained(cpu=0.01)
    gang.run(900, COMPILES)

    assert after(gang.run(30, sleeps)) <= timedelta(seconds=15)


EVALUATES_LIGHTLY = steps(cpu=1.0, switches=5, faults=10, calls=0, written=0)
"""It uses a processor, and does two other things far less than in steps."""


def test_other_work_that_was_learned_soon_after_the_start_is_work_when_it_comes_again() -> None:
    gang = Gang()
    gang.run(100, steps())
    assert gang.run(90, EVALUATES_LIGHTLY)
    assert gang.silences[-1] is None

    assert gang.run(900, steps()) is None
    assert gang.run(90, EVALUATES_LIGHTLY) is None
    assert gang.run(300, steps()) is None
    assert after(gang.run(30, sleeps, spins, spins, spins)) <= timedelta(seconds=15)


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_a_hang_soon_after_the_start_is_not_taken_for_other_work(hang: tuple[Second, ...]) -> None:
    gang = Gang()
    gang.run(100, steps())

    assert gang.run(900, *hang) is not None
    assert gang.silences[-1] is not None


def test_a_sample_that_shows_nothing_ends_no_silence() -> None:
    gang = trained()
    silence = gang.run(30, sleeps)

    gang.run(3, is_starved)
    assert gang.silences == [silence] * 3


def test_another_attempt_starts_up_again() -> None:
    gang = trained()
    gang.rhythm.restart()

    assert gang.run(60, sleeps) is None


def test_a_member_whose_rhythm_is_known_works() -> None:
    gang = trained()

    assert {member.state for member in gang.rhythm.members.values()} == {MemberState.WORKING}
