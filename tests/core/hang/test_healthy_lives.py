"""Healthy jobs of the model of `tests.bench.healthy_hours` that were once restarted, as `healthd run` sees them."""

from __future__ import annotations

import pytest

from tests.bench._job_model import Job
from tests.bench._judges import OfRun
from tests.bench.healthy_hours import samples_of

pytestmark = pytest.mark.slow


def restarts(job: Job, hours: float) -> int:
    """How often `healthd run --hang restart` restarts it for silence."""
    run = OfRun()
    for sample in samples_of(job, hours * 3600):
        run.observe(sample)
    return len(run.restarts)


def test_the_first_evaluation_of_eighteen_minutes_that_only_waits_for_gpus_restarts_nothing() -> None:
    assert restarts(Job(931070, shape="long evaluations"), hours=1.3) == 0
