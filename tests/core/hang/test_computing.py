"""When a rank that uses a processor and nothing else computes, by its main thread, while the others wait for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, cycle, islice
from math import nan

import pytest

from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import MOST_LOOKED_AT, Silence
from tests.core.hang.sampled import SECOND, Gang, Second, computes, evaluates, is_stopped, sleeps, spins, steps

EVALUATES: tuple[Second, ...] = (spins, sleeps, sleeps, sleeps)
"""The first rank, which touches no new memory; the others wait for it."""
LAYERS = ("Linear.forward", "relu", "cross_entropy", "collate")


@dataclass
class Watched:
    """A gang whose ranks are looked at when it asks for that."""

    functions: Callable[[], Sequence[str | None]]
    """Of packages, in which a rank is seen, in as many looks."""
    native: int = 0
    """Of these looks, so many are in compiled code."""
    gang: Gang = field(default_factory=Gang)
    looked_at: list[tuple[datetime, str]] = field(default_factory=list)

    def run(self, seconds: int, *behaviour: Second) -> Silence | None:
        """The first silence within this time."""
        first = None
        for _ in range(seconds):
            first = self.gang.run(1, *behaviour) or first
            for rank in self.gang.rhythm.to_look_at():
                self.looked_at.append((self.gang.now, rank))
                for number, function in enumerate(self.functions()):
                    self.gang.rhythm.saw(rank, function, is_native=number < self.native)
            if first is not None:
                break
        return first


def trained(functions: Sequence[str], *, ranks: int = 4, ran: float = 0.0) -> Watched:
    """
    A gang whose rhythm is known. A rank that is looked at is in these functions. *ran*: of the time of its main thread,
    the share in which that usually uses a processor; 0: it is not known.
    """
    dice = random.Random(7)
    watched = Watched(lambda: dice.choices(functions, k=4) if functions else [], gang=Gang(ranks))
    assert watched.run(120, steps(ran=ran)) is None
    return watched


def has_ended(_rank: int, _at: int, _dice: random.Random) -> Usage:
    """Nothing has collected it yet."""
    return Usage(states="Z")


def lasted(silence: Silence | None) -> timedelta:
    """From the last work to the report."""
    assert silence is not None
    return silence.seen_at - silence.since


def test_a_rank_that_evaluates_alone_is_no_hang() -> None:
    assert trained(LAYERS).run(290, *EVALUATES) is None


def test_one_that_does_so_for_more_than_five_minutes_is_reported_and_is_no_reason_for_a_restart() -> None:
    silence = trained(LAYERS).run(400, *EVALUATES)

    assert timedelta(minutes=5) <= lasted(silence) <= timedelta(minutes=5, seconds=5)
    assert silence is not None
    assert silence.worked == 0, "so no silence is short enough to be restarted for"


def test_ranks_that_all_evaluate_are_no_hang() -> None:
    assert trained(LAYERS).run(290, spins) is None


SLEEPS_TO_WAIT, SPINS_TO_WAIT = 0.7, 0.99


def test_ranks_that_all_use_a_processor_and_sleep_while_they_wait_are_no_hang_for_five_minutes() -> None:
    silence = trained([], ran=SLEEPS_TO_WAIT).run(400, computes)

    assert timedelta(minutes=5) <= lasted(silence) <= timedelta(minutes=5, seconds=5)
    assert silence is not None
    assert silence.worked == 0


@pytest.mark.parametrize(
    ("ranks", "ran", "hang"),
    [
        (4, SPINS_TO_WAIT, (computes,)),
        (4, SLEEPS_TO_WAIT, (spins,)),
        (4, SLEEPS_TO_WAIT, (computes, sleeps, sleeps, sleeps)),
        (4, SLEEPS_TO_WAIT, (sleeps,)),
        (1, SLEEPS_TO_WAIT, (computes,)),
    ],
    ids=["they spin while they wait", "other threads spin", "one of them spins", "all sleep", "there is one rank"],
)
def test_a_hang_is_seen_as_soon_as_ever_unless_it_is_seen_that_none_waits(
    ranks: int, ran: float, hang: tuple[Second, ...]
) -> None:
    assert lasted(trained([], ranks=ranks, ran=ran).run(30, *hang)) <= timedelta(seconds=15)


@pytest.mark.parametrize("gpu", [0.3, nan], ids=["its use is known", "its use is not known"])
def test_ranks_that_wait_for_their_gpus_awake_do_not_compute(gpu: float) -> None:
    watched = Watched(lambda: [None] * 4, native=4)
    assert watched.run(120, steps(ran=SLEEPS_TO_WAIT, gpu=gpu, kernels=gpu)) is None

    assert lasted(watched.run(30, without_gpu(gpu))) <= timedelta(seconds=15)


def without_gpu(usual: float) -> Second:
    """Its processes use a processor, and its GPU does nothing, as far as that was known."""
    return lambda *at: computes(*at)._replace(gpu=0.0 * usual, kernels=0.0 * usual)


@pytest.mark.parametrize(
    ("ran", "native", "seconds"),
    [(SLEEPS_TO_WAIT, 2, 300), (SLEEPS_TO_WAIT, 1, 10), (SPINS_TO_WAIT, 4, 10), (0.0, 4, 10)],
    ids=["it computes", "mostly in Python", "it may wait there", "it may wait there, as far as is known"],
)
def test_a_rank_in_compiled_code_computes_where_it_would_be_asleep_if_it_waited(
    ran: float, native: int, seconds: int
) -> None:
    watched = trained([], ran=ran)
    watched.functions, watched.native = lambda: [None] * 4, native

    silence = watched.run(400, computes, sleeps, sleeps, sleeps)

    assert timedelta(seconds=seconds) <= lasted(silence) <= timedelta(seconds=seconds + 5)


def test_a_rank_that_goes_on_alone_is_looked_at_before_it_is_reported() -> None:
    watched = trained([], ranks=3, ran=SLEEPS_TO_WAIT)
    watched.functions, watched.native = lambda: [None] * 4, 4
    ended = watched.run(10, computes, has_ended, has_ended)
    for rank in (1, 2):
        watched.gang.end(rank)

    assert ended is None
    assert watched.run(60, computes) is None


def test_a_few_looks_at_compiled_code_are_not_enough() -> None:
    watched = trained([], ran=SLEEPS_TO_WAIT)
    looks = iter([None] * 5)
    watched.functions, watched.native = lambda: [*islice(looks, 1)], 1

    assert lasted(watched.run(30, computes, sleeps, sleeps, sleeps)) <= timedelta(seconds=15)


def test_ranks_of_which_one_falls_asleep_after_all_computed_are_seen() -> None:
    watched = trained([], ran=SLEEPS_TO_WAIT)
    assert watched.run(60, computes) is None
    asleep_at = watched.gang.now

    silence = watched.run(30, sleeps, computes, computes, computes)

    assert silence is not None
    assert silence.seen_at - asleep_at <= timedelta(seconds=25)


def test_a_rank_that_is_caught_in_a_loop_is_seen_as_soon_as_without_looks() -> None:
    for functions in ([], ["tanh"], ["norm", "matmul"]):
        assert lasted(trained(functions).run(30, *EVALUATES)) <= timedelta(seconds=15)


def test_functions_of_several_ranks_are_not_those_of_one() -> None:
    watched = trained([])
    each = cycle(["relu", "tanh", "gelu", "norm"])  # of the four ranks, which are looked at in turn
    watched.functions = lambda: [next(each)]

    assert lasted(watched.run(30, spins)) <= timedelta(seconds=15)
    assert len(watched.looked_at) % 4 == 0


def test_a_rank_that_falls_asleep_in_its_evaluation_is_seen_as_soon_as_any_and_no_sooner() -> None:
    watched = trained(LAYERS)
    assert watched.run(60, *EVALUATES) is None
    asleep_at = watched.gang.now

    silence = watched.run(60, sleeps)

    assert silence is not None
    assert timedelta(seconds=10) <= silence.seen_at - asleep_at <= timedelta(seconds=15)


def test_an_evaluation_that_pauses_for_some_seconds_is_no_hang() -> None:
    watched = trained(LAYERS)
    for _ in range(4):
        assert watched.run(20, *EVALUATES) is None
        assert watched.run(8, sleeps) is None


def test_an_evaluation_that_comes_again_may_pause_for_some_seconds_as_the_first_one() -> None:
    watched = trained([])
    watched.gang.run(40, *EVALUATES)
    watched.run(60, steps())

    assert watched.run(20, *EVALUATES) is None
    assert watched.run(8, sleeps) is None
    assert watched.run(20, *EVALUATES) is None


def test_an_evaluation_that_asks_a_service_at_its_end_may_come_again() -> None:
    watched = trained([])
    watched.gang.run(20, *EVALUATES)
    watched.gang.run(4, sleeps)
    watched.run(60, steps())

    assert watched.run(40, *EVALUATES) is None


def test_a_rank_that_is_stopped_in_an_evaluation_is_seen_at_once() -> None:
    watched = trained(LAYERS)
    assert watched.run(60, *EVALUATES) is None

    assert watched.run(2, spins, is_stopped, sleeps, sleeps) is not None


def test_a_rank_that_is_caught_in_a_loop_after_its_evaluation_is_seen_half_a_minute_later() -> None:
    watched = trained(LAYERS)
    assert watched.run(60, *EVALUATES) is None
    caught_at, watched.functions = watched.gang.now, lambda: ["tanh"]

    silence = watched.run(60, *EVALUATES)

    assert silence is not None
    assert silence.seen_at - caught_at <= timedelta(seconds=31)


def test_what_was_seen_before_a_step_says_nothing_of_a_silence_after_it() -> None:
    watched = trained(LAYERS)
    watched.run(12, *EVALUATES)
    watched.run(2, steps())
    watched.functions = lambda: ["tanh"]

    assert lasted(watched.run(40, *EVALUATES)) <= timedelta(seconds=30)


def test_what_was_seen_of_an_earlier_attempt_says_nothing_of_the_next_one() -> None:
    watched = trained(LAYERS)
    watched.run(20, *EVALUATES)
    watched.gang.rhythm.restart()
    watched.functions = lambda: ["tanh"]
    watched.run(120, steps())

    assert lasted(watched.run(30, *EVALUATES)) <= timedelta(seconds=15)


def test_a_rank_that_is_stopped_is_a_hang_whatever_another_one_does() -> None:
    watched = trained(LAYERS)
    assert lasted(watched.run(30, spins, is_stopped, sleeps, sleeps)) <= timedelta(seconds=15)
    assert watched.looked_at == []


def test_it_is_looked_at_the_ranks_that_use_a_processor_shortly_before_they_would_be_reported() -> None:
    watched = trained([])
    began = watched.gang.now
    silence = watched.run(30, *EVALUATES)

    assert {rank for _, rank in watched.looked_at} == {"0"}
    assert min(at for at, _ in watched.looked_at) - began >= 4 * SECOND
    assert silence is not None
    assert len(watched.looked_at) >= 5


def test_it_is_looked_at_no_rank_of_a_gang_that_works_or_sleeps() -> None:
    watched = trained([])
    watched.run(200, steps())
    watched.run(100, evaluates, sleeps, sleeps, sleeps)
    watched.run(30, sleeps)

    assert watched.looked_at == []


def test_a_rank_that_is_known_to_compute_is_looked_at_rarely() -> None:
    watched = trained(LAYERS)
    watched.run(120, *EVALUATES)

    assert 15 <= len(watched.looked_at) <= 30


def test_it_is_looked_at_a_few_of_many_ranks() -> None:
    watched = trained([], ranks=16)
    watched.run(30, spins)

    assert len({rank for _, rank in watched.looked_at}) == MOST_LOOKED_AT


def test_a_clock_that_is_set_back_does_not_end_the_looks() -> None:
    watched = trained(LAYERS)
    watched.run(30, *EVALUATES)
    before = len(watched.looked_at)
    watched.gang.now -= timedelta(hours=1)
    watched.run(30, *EVALUATES)

    assert len(watched.looked_at) > before


def test_an_evaluation_that_ended_by_itself_may_come_again_and_last_twice_as_long() -> None:
    watched = trained(LAYERS)
    watched.run(100, *EVALUATES)
    watched.run(120, steps())
    watched.functions = lambda: [f"unknown-{next(numbers) % 2}"]
    numbers = count()

    assert watched.run(190, *EVALUATES) is None
