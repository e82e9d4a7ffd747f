"""What an owner declared of his checkpoints and cannot have meant."""

from __future__ import annotations

import pytest

from healthd.controller.checkpoints.declaration import misdeclared
from healthd.core.recovery.gang import GangOptions
from tests.core.gangs import a_root

LAYOUT = 'steps: "snap_{step}"\nfiles: ["weights-*.raw"]\nmarker: DONE\n'


@pytest.mark.parametrize("location", ["pvc://data/runs", "file:///runs", "/runs", "s3://bucket/runs", "az://box"])
@pytest.mark.parametrize("declared", ["", "orbax", "marked:DONE", LAYOUT])
def test_what_can_be_used_is_not_complained_about(location: str, declared: str) -> None:
    assert misdeclared(a_root(options=GangOptions(checkpoint=location, checkpoint_format=declared))) == ""


def test_the_annotation_that_is_wrong_is_named() -> None:
    place = a_root(options=GangOptions(checkpoint="http://server/runs"))
    form = a_root(options=GangOptions(checkpoint="/runs", checkpoint_format="pickle"))

    assert misdeclared(place).startswith("healthd.dev/checkpoint: ")
    assert misdeclared(form).startswith("healthd.dev/checkpoint-format: unknown checkpoint format 'pickle'")
