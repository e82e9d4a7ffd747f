"""What is kept of each rank's last minutes before a hang."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import msgspec
import pytest

from healthd.core.hang.history import (
    MOST_RANKS,
    MOST_SIGNS,
    ActivityHistory,
    RankHistory,
    history_of,
    merged,
    most_telling,
)
from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import Silence
from tests.core.hang.sampled import SECOND, Gang, evaluates, is_stopped, sleeps, spins, steps
from tests.fakes import START

WORK, STOPS = "7" * 50, "7" * 25 + "0" * 25


def a_hang(*behaviour: object, before: int = 150) -> ActivityHistory:
    """Four ranks that worked for so many seconds, and then did *behaviour*."""
    gang = Gang(4)
    gang.run(before, steps())
    silence = gang.run(60, *behaviour)  # type: ignore[arg-type]
    assert silence is not None
    return history_of(gang.rhythm, silence)


def long_steps(_rank: int, at: int, dice: Random) -> Usage:
    """A rank that computes for 8 s without a wait or new memory, and then for 2 s with all that belongs to a step."""
    noise = dice.uniform(0.9, 1.1)
    if at % 10 >= 2:
        return Usage(cpu=noise, states="R")
    return Usage(cpu=noise, switches=200 * noise, faults=300 * noise, calls=30 * noise, states="R")


def signs_of(gang: Gang, silence: Silence | None) -> list[str]:
    assert silence is not None
    return [each.signs for each in history_of(gang.rhythm, silence).ranks]


def a_history(*signs: str) -> ActivityHistory:
    return ActivityHistory(
        start=START, interval=2, ranks=tuple(RankHistory(rank, text) for rank, text in enumerate(signs))
    )


class TestSigns:
    def test_usual_work_is_full_and_what_follows_it_shows(self) -> None:
        history = a_hang(sleeps, sleeps, is_stopped, spins)
        signs = [each.signs for each in history.ranks]
        assert all(set(text[:40]) <= {"6", "7"} for text in signs)
        assert [text[-4:] for text in signs] == ["0000", "0000", "0000", "wwww"]

    def test_it_covers_two_minutes_and_ends_when_the_hang_was_seen(self) -> None:
        history = a_hang(sleeps)
        assert history.interval == 2
        assert timedelta(minutes=2) <= history.end - history.start
        assert (history.end - START).total_seconds() == 150 + 12

    def test_a_long_silence_is_shown_with_what_was_before_it(self) -> None:
        gang = Gang(2)
        gang.run(150, steps())
        silence = gang.run(60, sleeps)
        assert silence is not None
        seen_late = msgspec.structs.replace(silence, seen_at=silence.since + 100 * SECOND)
        history = history_of(gang.rhythm, seen_late)
        assert (history.interval, history.end - history.start) == (4, 300 * SECOND)
        assert max(len(each.signs) for each in history.ranks) <= MOST_SIGNS

    def test_a_rank_that_computes_for_seconds_in_each_of_its_steps_does_its_usual_work(self) -> None:
        gang = Gang(4)
        gang.run(240, long_steps)
        silence = gang.run(120, spins, is_stopped, spins, spins)
        rank, stopped, *_ = signs_of(gang, silence)
        hung = rank.index("w")
        assert set(rank[:hung]) <= set("4567")
        assert set(rank[hung:]) == {"w"}
        assert set(stopped[hung + 1 :]) == {"0"}

    def test_the_polling_of_a_rank_that_waited_longer_than_its_steps_take_shows_though_work_followed(self) -> None:
        gang = Gang(4)
        gang.run(240, long_steps)
        gang.run(30, evaluates, spins, spins, spins)
        gang.run(60, long_steps)
        _, rank, *_ = signs_of(gang, gang.run(120, spins))
        assert rank.rstrip("w").count("w" * 3) > 0

    def test_before_the_first_sample_nothing_is_known(self) -> None:
        assert all(each.signs.startswith("....") for each in a_hang(sleeps, before=60).ranks)

    @pytest.mark.parametrize("hours", [-5, 5])
    def test_a_clock_that_was_set_leaves_a_picture_of_the_same_size(self, hours: int) -> None:
        gang = Gang(2)
        gang.run(150, steps())
        silence = gang.run(60, sleeps)
        assert silence is not None
        moved = msgspec.structs.replace(silence, seen_at=silence.seen_at + timedelta(hours=hours))
        history = history_of(gang.rhythm, moved)
        assert {len(each.signs) for each in history.ranks} <= set(range(1, MOST_SIGNS + 1))

    def test_members_without_a_number_are_left_out(self) -> None:
        gang = Gang(1)
        gang.run(60, steps())
        gang.rhythm.members["launcher"] = gang.rhythm.members["0"]
        silence = Silence(since=gang.now, seen_at=gang.now, allowed=12, period=2, members=())
        assert [each.rank for each in history_of(gang.rhythm, silence).ranks] == [0]

    def test_work_of_a_moment_is_not_lost_among_seconds_without(self) -> None:
        assert merged("7000" + "0w.." + "...." + "000", 4) == "2w.0"


class TestRoom:
    def test_a_small_gang_is_kept_as_it_is(self) -> None:
        history = a_history(*[WORK] * MOST_RANKS)
        assert most_telling(history, ()) is history

    def test_of_a_large_one_the_suspects_the_first_that_stopped_and_typical_ranks_are_kept(self) -> None:
        strange = "70" * 25
        history = a_history(*[WORK] * 40, *[strange] * 40, *["7" * 49 + "0"] * 400)
        stopped = RankHistory(999, STOPS)
        large = msgspec.structs.replace(history, ranks=(*history.ranks, stopped))
        kept = most_telling(large, {41}, most=10)
        assert (len(kept.ranks), kept.left_out) == (10, 471)
        assert {41, 999} <= {each.rank for each in kept.ranks}
        assert [each.signs for each in kept.ranks].count(strange) == 1

    def test_what_is_kept_can_be_read_again(self) -> None:
        history = a_hang(sleeps)
        assert msgspec.json.decode(msgspec.json.encode(history), type=ActivityHistory) == history

    @pytest.mark.parametrize("signs", ["8", "<script>", "7\n", "7" * (MOST_SIGNS + 1)])
    def test_other_signs_are_refused(self, signs: str) -> None:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode(a_history(signs)), type=ActivityHistory)
