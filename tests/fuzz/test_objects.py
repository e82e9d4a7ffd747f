"""The fuzzing of objects itself, in small: it finds nothing, is the same each time, and would find something."""

from __future__ import annotations

import json

import pytest

from healthd.core.api import RESOURCES, Job, JobSet, Node, NodeHealth, Pod, PodGang, Recovery, StatefulSet
from healthd.core.recovery.gang import Root
from healthd.gangs import ADAPTERS
from healthd.gangs.job import JobAdapter
from tests.fuzz.hostile import BOMB, NOTES, objects
from tests.fuzz.objects import fuzz
from tests.seeds import first_fresh_seed

OBJECTS = 800


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, first_fresh_seed()])
def test_nothing_is_found(seed: int) -> None:
    print(f"python -m tests.fuzz.objects --objects {OBJECTS} --seed {seed}")

    report = fuzz(OBJECTS, seed)

    assert report.failures == []
    assert (report.objects, report.recovered) == (OBJECTS, 1)
    assert report.invalid > OBJECTS / 10


def test_the_same_seed_gives_the_same_objects() -> None:
    assert list(objects(200, 7)) == list(objects(200, 7)) != list(objects(200, 8))


def test_every_kind_is_met_and_every_annotation() -> None:
    made = list(objects(3000, 7))
    words = json.dumps([each.body for each in made])

    kinds = {Job, JobSet, Node, NodeHealth, Pod, PodGang, Recovery, StatefulSet}
    assert {each.kind for each in made} == kinds <= set(RESOURCES)
    assert [key for key in NOTES if f'"{key}"' not in words] == []
    assert BOMB in words


class Credulous(JobAdapter):
    """Computes with whatever stands there."""

    def read_any(self, obj: Job) -> Root:
        int(obj.metadata.annotations.get("healthd.dev/max-no-advance", "0"))
        return super().read_any(obj)


@pytest.mark.slow
def test_an_adapter_with_a_fault_is_found_out() -> None:
    assert fuzz(OBJECTS, seed=1, adapters={**ADAPTERS, "Job": Credulous()}).failures
