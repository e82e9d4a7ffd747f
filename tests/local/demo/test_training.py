"""What the trainer's output tells of lost steps and lost time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from healthd.local.demo.training import Training
from tests.fakes import START


def after(*lines: tuple[int, float, str]) -> Training:
    """Training after *lines*: attempt, second, text."""
    training = Training()
    for attempt, second, line in lines:
        training.take_in(attempt, line, START + timedelta(seconds=second))
    return training


def steps(attempt: int, numbers: Sequence[int], begin: float) -> list[tuple[int, float, str]]:
    """One step a second from *begin* on."""
    return [(attempt, begin + n, f"step {number} loss 0.5") for n, number in enumerate(numbers)]


def test_an_undisturbed_training_loses_nothing() -> None:
    training = after(*steps(0, range(1, 20), 0))

    assert (training.all_lost_steps, training.lost_time) == (0, timedelta(0))


def test_steps_after_the_checkpoint_are_lost() -> None:
    training = after(*steps(0, range(1, 24), 0), (1, 30, "resumed from step 20"), *steps(1, [21, 22, 23, 24], 31))

    assert training.all_lost_steps == 3


def test_time_is_lost_until_training_is_beyond_where_it_was() -> None:
    training = after(*steps(0, [1, 2, 3], 0), (1, 9, "resumed from step 0"), *steps(1, [1, 2, 3, 4], 10))

    assert training.lost_time == timedelta(seconds=11)


def test_an_attempt_that_never_caught_up_counts_once() -> None:
    training = after(*steps(0, [1, 2, 3], 0), *steps(1, [1, 2], 10), *steps(2, [1, 2, 3, 4], 20))

    assert training.lost_time == timedelta(seconds=21)


def test_saved_checkpoints_are_known_by_attempt() -> None:
    training = after((0, 1, "saved step-000020"))

    assert training.has_saved(0, 20)
    assert not training.has_saved(1, 20)
    assert not training.has_saved(0, 30)


def test_other_lines_say_nothing() -> None:
    training = after(
        (0, 0, "start with 4 ranks"), (0, 1, "Traceback (most recent call last):"), (0, 2, "step x loss y")
    )

    assert training.present.step == 0
