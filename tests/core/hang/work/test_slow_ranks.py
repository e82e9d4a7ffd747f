"""Which rank of a run is named on a machine whose processors are scarce: the windows are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from random import Random

import pytest

from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.slow_ranks import SlowRanks
from healthd.core.hang.work.straggler_text import sentence_of
from healthd.core.hang.work.work_share import ShareWindow, WorkShare
from tests.fakes import START

LENGTH = timedelta(seconds=5)
A_MINUTE = 12
EVEN = {str(rank): WorkShare(0.4) for rank in range(4)}
SLEEPS = {**EVEN, "2": WorkShare(0.4, own_waits=0.11)}
COMPUTES = {**EVEN, "2": WorkShare(0.51)}


class BusyMachine:
    """A run of four ranks that wait for a processor for a fifth of the time, now more and now less."""

    def __init__(self, looks: float = 0.0) -> None:
        """*looks*: how much what is seen of own waits differs from what they are, for want of looks."""
        self.ranks = SlowRanks()
        self.looks = looks
        self.dice = Random(3)
        self.now = START

    def run(self, minutes: int, shares: Mapping[str, WorkShare]) -> list[Straggler]:
        """So many minutes with these shares. What changed in them."""
        found: list[Straggler] = []
        for _ in range(minutes * A_MINUTE):
            window = {
                rank: share._replace(
                    starved=self.dice.gauss(0.2, 0.02), own_waits=share.own_waits + self.looks * self.dice.gauss(0, 1)
                )
                for rank, share in shares.items()
            }
            found += self.ranks.add(ShareWindow(self.now, self.now + LENGTH, window))
            self.now += LENGTH
        return found


def begun_and_over(changes: Sequence[Straggler]) -> list[tuple[str, bool]]:
    return [(each.rank, each.ended_at is not None) for each in changes]


def test_even_ranks_are_not_named() -> None:
    assert BusyMachine().run(120, EVEN) == []


@pytest.mark.parametrize(
    ("slow", "why"),
    [(SLEEPS, "its main thread sleeps, or waits for a file"), (COMPUTES, "its main thread computes 51% of the time")],
    ids=["sleeps", "computes"],
)
@pytest.mark.parametrize("before", [1, 60])
def test_a_rank_that_is_a_tenth_slower_is_named_within_two_minutes(
    slow: Mapping[str, WorkShare], why: str, before: int
) -> None:
    machine = BusyMachine()
    assert machine.run(before, EVEN) == []

    (straggler,) = machine.run(2, slow)

    assert straggler.rank == "2"
    assert why in sentence_of(straggler)


@pytest.mark.parametrize(
    ("stopped", "why"), [(0.1, "something stops its process (SIGSTOP) and continues it"), (0.01, "data may come late")]
)
def test_the_reason_for_a_rank_that_is_stopped_and_continued_again_and_again_says_so(stopped: float, why: str) -> None:
    machine = BusyMachine()
    machine.run(60, EVEN)

    (straggler,) = machine.run(2, {**EVEN, "2": WorkShare(0.4, own_waits=0.2, stopped=stopped)})

    assert straggler.stopped == pytest.approx(stopped, abs=0.005)
    assert sentence_of(straggler).count(why) == 1


def test_a_rank_that_sleeps_where_its_peers_compute_holds_up_nothing() -> None:
    machine = BusyMachine()
    machine.run(60, EVEN)

    assert machine.run(60, {**EVEN, "2": WorkShare(0.25, own_waits=0.15)}) == []


def test_a_rank_is_reported_once_whichever_parts_show_it_and_once_when_no_part_does() -> None:
    machine = BusyMachine()
    machine.run(60, EVEN)
    changes = machine.run(20, {**EVEN, "2": WorkShare(0.6, own_waits=0.2)})
    changes += machine.run(20, COMPUTES)
    changes += machine.run(20, EVEN)

    assert begun_and_over(changes) == [("2", False), ("2", True)]


def test_the_end_is_when_the_last_part_that_showed_it_began_to_keep_up() -> None:
    machine = BusyMachine()
    machine.run(60, EVEN)
    machine.run(20, {**EVEN, "2": WorkShare(0.6, own_waits=0.2)})
    machine.run(20, COMPUTES)
    kept_up = machine.now

    (over,) = machine.run(20, EVEN)

    assert over.ended_at is not None
    assert abs(over.ended_at - kept_up) <= 2 * LENGTH


def test_more_than_a_quarter_of_the_ranks_are_not_named_whatever_parts_show_them() -> None:
    machine = BusyMachine()
    machine.run(60, EVEN)

    assert len(machine.run(60, {**SLEEPS, "3": WorkShare(0.51)})) <= 1


def test_a_stopped_run_has_no_slow_rank() -> None:
    machine = BusyMachine()
    machine.run(60, EVEN)
    machine.run(5, SLEEPS)

    (ended,) = machine.ranks.restart(machine.now)

    assert (ended.rank, ended.ended_at, ended.was_stopped) == ("2", machine.now, True)
    assert machine.ranks.restart(machine.now) == []


def steps(excess: float, less: float, ranks: int = 4) -> dict[str, WorkShare]:
    """Ranks that sleep half of the time as if their GPUs worked, rank 2 *excess* more; all compute by *less* less."""
    return {str(rank): WorkShare(0.1 - less, own_waits=0.5 + (excess if rank == 2 else 0.0)) for rank in range(ranks)}


def test_that_its_peers_compute_less_than_before_is_a_second_sign_of_a_rank_that_is_not_clear_of_the_noise() -> None:
    named = {}
    for less in (0.0, 0.01):
        machine = BusyMachine(looks=0.05)
        assert machine.run(10, steps(0.0, 0.0)) == []
        named[less] = begun_and_over(machine.run(3, steps(0.1, less)))

    assert named == {0.0: [], 0.01: [("2", False)]}


@pytest.mark.parametrize(("ranks", "named"), [(4, []), (8, [("2", False)])])
def test_after_a_quarter_of_an_hour_a_second_sign_is_enough_in_the_noise_of_many_ranks_alone(
    ranks: int, named: Sequence[tuple[str, bool]]
) -> None:
    """How much few ranks differ is hardly known."""
    machine = BusyMachine(looks=0.07)
    assert machine.run(30, steps(0.0, 0.0, ranks)) == []

    assert begun_and_over(machine.run(3, steps(0.1, 0.01, ranks))) == named


def test_ranks_that_all_compute_less_than_before_are_not_slow() -> None:
    machine = BusyMachine(looks=0.03)
    machine.run(10, steps(0.0, 0.0))

    assert machine.run(60, steps(0.0, 0.03)) == []


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("before", [3, 8])
def test_of_few_ranks_one_that_becomes_slower_in_the_first_quarter_of_an_hour_is_named_within_two_minutes(
    ranks: int, before: int
) -> None:
    machine = BusyMachine()
    assert machine.run(before, {str(rank): WorkShare(0.4) for rank in range(ranks)}) == []

    slower = {str(rank): WorkShare(0.5 if rank == 1 else 0.34) for rank in range(ranks)}

    assert begun_and_over(machine.run(2, slower)) == [("1", False)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_of_few_ranks_one_that_only_does_more_beside_its_steps_is_not_named_in_the_first_quarter_of_an_hour(
    ranks: int,
) -> None:
    """Its peers compute as much as before, so they do not wait for it."""
    machine = BusyMachine()
    machine.run(3, {str(rank): WorkShare(0.4) for rank in range(ranks)})

    assert machine.run(10, {str(rank): WorkShare(0.5 if rank == 1 else 0.4) for rank in range(ranks)}) == []
