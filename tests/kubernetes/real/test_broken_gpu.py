"""A real record in the kernel log of this machine: real pods are killed, and train on elsewhere to the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from healthd.core.api import ANNOTATION_QUARANTINE
from healthd.local.demo.script import Script
from tests.kubernetes.real.scenario import RANKS, RealStage

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.kmsg]

DAMAGED = 30
"""The step whose checkpoint loses its end, as with a writer that does not wait for its disk."""
SCRIPT = Script(ranks=RANKS, steps=50, every=10, pace=0.5)
"""Five seconds between two checkpoints: all that happens, happens between the damaged one and the next."""


def test_gang_trains_on_elsewhere_to_the_same_weights(real_stage: RealStage, tmp_path: Path) -> None:
    spare = real_stage.installation.names[-1]
    real_stage.hold_free(spare)
    real_stage.train(SCRIPT, torn_at=DAMAGED)
    real_stage.until_running(0)
    bad = real_stage.ranks_of(0)["1"].node
    good = real_stage.ranks_of(0)["0"].node
    real_stage.until_saved(DAMAGED)

    real_stage.installation.break_gpu(bad)
    recovery = real_stage.until_phase("Recovered")
    real_stage.until_complete()

    status = recovery["status"]
    quarantine = json.loads(real_stage.node(bad)["metadata"]["annotations"][ANNOTATION_QUARANTINE])
    assert quarantine["finding"].endswith("/xid-79")
    assert status["checkpoint"]["step"] == DAMAGED - SCRIPT.every
    assert [each["step"] for each in status["rejected"]] == [DAMAGED]
    assert real_stage.nodes_of(1) == {good, spare}
    assert len(real_stage.lives()) == 2 * RANKS
    assert real_stage.overlaps == []
    assert real_stage.weights == real_stage.undisturbed_weights(tmp_path)
