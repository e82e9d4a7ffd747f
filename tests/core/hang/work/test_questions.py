"""When agents are asked for the newest minutes of a gang, and which of them."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.core.hang.work.questions import (
    AGAIN,
    AN_HOUR,
    ASKED,
    CLOSE,
    ENDS,
    FIRST_ENDS,
    LATE,
    LATER,
    MOST,
    OLD,
    ONE_ANSWER,
    SHOWN,
    UNANSWERED,
    Doubt,
    Questions,
)
from tests.fakes import START

WROTE = {str(rank): START + timedelta(seconds=rank) for rank in range(64)}
SECOND = timedelta(seconds=1)


def a_doubt(shown_for: timedelta = timedelta(seconds=30), since: datetime = START) -> Doubt:
    return Doubt("3", since, since + shown_for)


def test_nothing_is_asked_while_it_may_be_a_pause() -> None:
    assert Questions(8).next([a_doubt()], WROTE, START + OLD - SECOND) == {}


def test_first_the_suspect_and_the_three_peers_that_wrote_last_are_asked_for_one_answer() -> None:
    now = START + OLD

    assert Questions(8).next([a_doubt()], WROTE, now) == dict.fromkeys(["3", "63", "62", "61"], now + ONE_ANSWER)


def test_a_rank_that_is_still_slow_then_is_asked_about_until_it_can_be_named() -> None:
    questions, doubt = Questions(8), a_doubt(shown_for=SHOWN)

    assert questions.next([doubt], WROTE, START + CLOSE - SECOND) == {}
    first = questions.next([doubt], WROTE, START + CLOSE)
    assert (len(first), set(first.values())) == (ASKED, {START + FIRST_ENDS})
    assert "3" in first
    assert questions.next([doubt], WROTE, START + FIRST_ENDS - SECOND) == {}
    second = questions.next([doubt], WROTE, START + FIRST_ENDS)
    assert (second.keys(), set(second.values())) == (first.keys(), {START + ENDS})


def test_the_second_of_these_questions_is_spared_where_the_first_showed_a_pause() -> None:
    questions = Questions(8)
    assert questions.next([a_doubt(shown_for=SHOWN)], WROTE, START + CLOSE)

    assert questions.next([], WROTE, START + FIRST_ENDS) == {}


def test_there_is_one_question_at_a_time_and_a_while_between_two_about_a_rank() -> None:
    questions, now = Questions(8), START + OLD
    assert questions.next([a_doubt()], WROTE, now)

    assert questions.next([a_doubt()], WROTE, now + ONE_ANSWER) == {}
    assert questions.next([a_doubt()], WROTE, now + AGAIN - SECOND) == {}
    assert questions.next([a_doubt()], WROTE, now + AGAIN)


def test_nothing_is_asked_about_what_is_known_for_long() -> None:
    assert Questions(8).next([a_doubt()], WROTE, START + LATER + SECOND) == {}


def test_one_that_lasts_is_asked_about_when_five_minutes_may_name_it_and_once_more() -> None:
    questions, asked = Questions(8), list[timedelta]()
    for seconds in range(0, 600, 15):
        now = START + timedelta(seconds=seconds)
        if names := questions.next([], WROTE, now, lasting=[a_doubt()]):
            assert (len(names), set(names.values())) == (ASKED, {now + ONE_ANSWER})
            asked.append(now - START)
            questions.answered()

    assert len(asked) == len(LATE)
    assert all(at <= when < at + timedelta(seconds=15) for at, when in zip(LATE, asked, strict=True))


def test_a_gang_whose_agents_never_answer_is_asked_once_in_a_while() -> None:
    """They are of an older healthd."""
    questions, now = Questions(8), START + OLD
    for _ in range(UNANSWERED):
        assert questions.next([a_doubt(since=now - OLD)], WROTE, now)
        now += timedelta(minutes=1)
    assert questions.next([a_doubt(since=now - OLD)], WROTE, now) == {}

    later = now + AN_HOUR
    assert questions.next([a_doubt(since=later - OLD)], WROTE, later)
    questions.answered()
    later += timedelta(minutes=1)
    assert questions.next([a_doubt(since=later - OLD)], WROTE, later)


def test_a_gang_is_asked_about_so_often_in_an_hour_and_no_more() -> None:
    questions, asked = Questions(8), 0
    for number in range(3600 // 15):
        now = START + number * timedelta(seconds=15)
        asked += bool(questions.next([a_doubt(since=now - OLD)], WROTE, now))
        questions.answered()

    assert asked == MOST
