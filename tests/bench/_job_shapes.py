"""
Jobs unlike those of the model's middle: what each shape does to a `Job`. A shape is drawn from the job's own dice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, log
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench._job_model import Job

HOUR = 3600.0


def spread_evenly(dice: Random, least: float, most: float) -> float:
    """A value of which the logarithm is uniform."""
    return exp(dice.uniform(log(least), log(most)))


def _light(job: Job, dice: Random) -> None:
    """Steps that use a thousandth of a core to a twentieth, as of a rank that sleeps while its GPU works."""
    job.polls, job.cores, job.background = False, spread_evenly(dice, 0.002, 0.05), dice.uniform(0, 0.002)
    job.rates = {
        "switches": spread_evenly(dice, 0.5, 20),
        "faults": spread_evenly(dice, 0.01, 5),
        "calls": spread_evenly(dice, 0.1, 5),
        "bytes": spread_evenly(dice, 10, 1e4),
    }
    job.compiles_every, job.compiles_for = 2 * HOUR, (10, 1500)


def _bursty(job: Job, dice: Random) -> None:
    """It computes for a few seconds, and waits for a minute or two: other parts of it sample or simulate meanwhile."""
    job.period, job.work = spread_evenly(dice, 20, 120), dice.uniform(0.02, 0.15)
    job.jitter, job.cores = dice.uniform(0.1, 0.4), spread_evenly(dice, 1, 8)


def _long_steps(job: Job, dice: Random) -> None:
    job.period, job.work = spread_evenly(dice, 60, 600), dice.uniform(0.1, 0.9)


def _long_evaluations(job: Job, dice: Random) -> None:
    job.evaluates_every, job.evaluation_takes = (
        spread_evenly(dice, 0.5 * HOUR, 2 * HOUR),
        spread_evenly(dice, 400, 2400),
    )


def _elastic(job: Job, dice: Random) -> None:
    """Members come and go, and it is stopped and started again."""
    job.members_change_every, job.members_change_for = 0.5 * HOUR, (15, 480)
    job.starts_again_every = dice.uniform(1, 3) * HOUR


def _compiles(job: Job, dice: Random) -> None:
    """For long, at its start and again, with much more of a processor than its steps use."""
    job.compiles_every, job.compiles_for = spread_evenly(dice, 0.5 * HOUR, 3 * HOUR), (60, 2400)
    job.compiles_at_start, job.cores = (60, 2400), spread_evenly(dice, 0.02, 0.5)


def _sharded_saves(job: Job, dice: Random) -> None:
    """All ranks write their parts of a large model to a slow file system, and wait for it at the end."""
    job.save, job.save_takes = "all write shards", spread_evenly(dice, 20, 600)


SHAPES: Mapping[str, Callable[[Job, Random], None]] = {
    "light": _light,
    "bursty": _bursty,
    "long steps": _long_steps,
    "long evaluations": _long_evaluations,
    "elastic": _elastic,
    "compiles": _compiles,
    "sharded saves": _sharded_saves,
}
