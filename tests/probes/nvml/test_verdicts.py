"""What an agent makes of what NVML tells."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.core.api.model import Verdict
from healthd.core.diagnosis.blindness import Sources
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.gpus.nvml import RULES
from healthd.core.diagnosis.signals.reconcile_findings import reconcile
from healthd.probes.nvml.process import Pace
from tests.probes.nvml.simulated_node import GPU1, NOW, SimulatedNode, of
from tests.standin.nvml import StandIn


class Judge:
    """What an agent makes of all this, on a machine with *on_bus* GPUs."""

    def __init__(self, world: SimulatedNode, *, on_bus: int = 8) -> None:
        self._world = world
        self._engine = Engine(RULES)
        self._ledger = Ledger()
        self._sources = Sources()
        gpus = [Reading(f"0000:{0x3B + at:02x}:00.0", "pcie.gpu_driver", "nvidia") for at in range(on_bus)]
        self._sources.ingest_sample(
            Sample(source="pcie", at=NOW, readings=[Reading("node", "pcie.gpus", on_bus), *gpus])
        )

    def verdict(self, *, after: timedelta) -> tuple[Verdict, list[str]]:
        """Of what is so now, and still so after a while."""
        for now in (NOW, NOW + after):
            self._world.sample_until(lambda sample: sample.trouble or sample.readings or "answered" not in sample.empty)
            self._engine.ingest(self._world.pulse.sample(now))
            sample = replace(self._world.probe.sample(now), at=now)
            self._sources.ingest_sample(sample)
            self._engine.ingest(sample)
            self._ledger = reconcile(self._ledger, self._engine, now=now, boot_id="boot")
        blind = self._sources.blind(NOW + after)
        return self._ledger.verdict(blind)[0], sorted(finding.rule for finding in self._ledger.standing)


def test_a_machine_that_is_well_is_healthy(world: SimulatedNode) -> None:
    assert Judge(world).verdict(after=timedelta(minutes=20)) == (Verdict.HEALTHY, [])


def test_a_lost_gpu_takes_the_node_out(world: SimulatedNode) -> None:
    world.values()
    world.standin.play("error * 1 15")
    world.sample_until(lambda sample: of(sample, GPU1, "nvml.state") == "lost")

    assert Judge(world).verdict(after=timedelta(minutes=1)) == (Verdict.UNHEALTHY, ["nvml-gpu-lost"])


@pytest.mark.slow
def test_a_driver_that_hangs_takes_no_node_out(standin: StandIn, tmp_path: Path) -> None:
    world = SimulatedNode(standin, tmp_path, pace=Pace(first=timedelta(seconds=1)))
    standin.play("hang nvmlInit *")
    while world.responds() != ["no"]:
        world.probe.wait(0.01)

    verdict = Judge(world).verdict(after=timedelta(hours=1))
    world.probe.close()

    assert verdict == (Verdict.UNKNOWN, ["nvml-hangs"])


@pytest.mark.parametrize("code", [1, 4, 9, 12, 13, 15, 17, 18, 999])
def test_an_nvml_that_does_not_start_leaves_a_node_with_gpus_unknown_and_one_without_alone(
    world: SimulatedNode, code: int
) -> None:
    world.standin.play(f"error nvmlInit * {code}")

    assert Judge(world).verdict(after=timedelta(hours=1)) == (Verdict.UNKNOWN, [])
    assert Judge(world, on_bus=0).verdict(after=timedelta(hours=1)) == (Verdict.HEALTHY, [])


def test_no_gpu_at_all_is_not_healthy_where_there_should_be_some(world: SimulatedNode) -> None:
    world.standin.play("gpus 0")

    assert Judge(world).verdict(after=timedelta(hours=1)) == (Verdict.UNKNOWN, [])
    assert Judge(world, on_bus=0).verdict(after=timedelta(hours=1)) == (Verdict.HEALTHY, [])


@pytest.mark.parametrize("there", [0, 3])
def test_fewer_gpus_than_the_configuration_expects_are_reported_down_to_none(
    standin: StandIn, tmp_path: Path, there: int
) -> None:
    world = SimulatedNode(standin, tmp_path, expected=8)
    standin.play(f"gpus {there}")

    _, findings = Judge(world).verdict(after=timedelta(hours=1))
    world.probe.close()

    assert findings == ["nvml-too-few-gpus"]


def test_all_gpus_that_were_there_and_are_gone_are_missing(world: SimulatedNode) -> None:
    judge = Judge(world)
    judge.verdict(after=timedelta(minutes=1))
    world.standin.play("gpus 0", "error * 1 15")
    world.sample_until(lambda sample: sample.empty)

    assert judge.verdict(after=timedelta(hours=1)) == (Verdict.UNKNOWN, ["nvml-gpu-missing"] * 8)


@pytest.mark.parametrize("code", [4, 15, 999])
def test_gpus_of_which_none_can_be_named_are_reported_and_leave_the_node_unknown(
    world: SimulatedNode, code: int
) -> None:
    world.standin.play(f"error nvmlDeviceGetHandleByIndex * {code}")

    verdict = Judge(world, on_bus=0).verdict(after=timedelta(hours=1))

    assert verdict == (Verdict.UNKNOWN, ["nvml-gpu-unreadable"] if code != 4 else [])


@pytest.mark.parametrize("code", [2, 3, 4, 6, 13, 22, 25])
def test_a_gpu_that_refuses_every_question_is_a_blind_spot_without_old_values(world: SimulatedNode, code: int) -> None:
    judge = Judge(world)
    judge.verdict(after=timedelta(minutes=1))
    world.standin.play(f"error * 1 {code}")
    sample = world.sample_until(lambda sample: of(sample, GPU1, "nvml.state") == "mute")

    assert of(sample, GPU1, "nvml.uuid") is None
    assert judge.verdict(after=timedelta(hours=1)) == (Verdict.UNKNOWN, [])


def test_nvlinks_that_mig_turns_off_are_no_fault(world: SimulatedNode) -> None:
    judge = Judge(world)
    judge.verdict(after=timedelta(minutes=1))
    world.standin.play("value nvmlDeviceGetMigMode 1 1 1", "field 165 1 * 1 0")
    world.sample_until(lambda sample: of(sample, GPU1, "nvml.mig") == "on")

    assert judge.verdict(after=timedelta(hours=1)) == (Verdict.HEALTHY, [])


@pytest.mark.parametrize("action", [8, 9, 255])
def test_an_action_that_is_not_known_yet_is_reported(world: SimulatedNode, action: int) -> None:
    world.standin.play(f"field 230 1 * 1 {action}")

    assert Judge(world).verdict(after=timedelta(hours=1)) == (Verdict.DEGRADED, ["nvml-wants-unknown"])
