"""What an agent makes of what NVML tells."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from healthd.core.findings import Ledger
from healthd.core.model import Verdict
from healthd.core.signals.engine import Engine
from healthd.core.signals.entering import reconcile
from healthd.core.signals.nvml import RULES
from healthd.probes.nvml.process import Pace
from tests.probes.nvml.stage import GPU1, NOW, World, of
from tests.standin.nvml import StandIn


class Judge:
    """What an agent makes of all this."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._engine = Engine(RULES)
        self._ledger = Ledger()

    def verdict(self, *, after: timedelta) -> tuple[Verdict, list[str]]:
        """Of what is so now, and still so after a while."""
        for now in (NOW, NOW + after):
            self._world.look_until(lambda look: look.trouble or look.readings)
            self._engine.take(self._world.pulse.look(now))
            self._engine.take(replace(self._world.probe.look(now), at=now))
            self._ledger = reconcile(self._ledger, self._engine, now=now, boot_id="boot")
        return self._ledger.verdict()[0], sorted(finding.rule for finding in self._ledger.standing)


def test_a_machine_that_is_well_is_healthy(world: World) -> None:
    assert Judge(world).verdict(after=timedelta(minutes=20)) == (Verdict.HEALTHY, [])


def test_a_lost_gpu_takes_the_node_out(world: World) -> None:
    world.values()
    world.standin.play("error * 1 15")
    world.look_until(lambda look: of(look, GPU1, "nvml.state") == "lost")

    assert Judge(world).verdict(after=timedelta(minutes=1)) == (Verdict.UNHEALTHY, ["nvml-gpu-lost"])


def test_a_driver_that_hangs_takes_no_node_out(standin: StandIn, tmp_path: Path) -> None:
    world = World(standin, tmp_path, pace=Pace(first=timedelta(seconds=1)))
    standin.play("hang nvmlInit *")
    while world.responds() != ["no"]:
        world.probe.wait(0.01)

    verdict = Judge(world).verdict(after=timedelta(hours=1))
    world.probe.close()

    assert verdict == (Verdict.DEGRADED, ["nvml-hangs"])


def test_a_driver_that_says_no_is_no_fault(world: World) -> None:
    world.standin.play("error nvmlInit * 18")

    assert Judge(world).verdict(after=timedelta(hours=1)) == (Verdict.HEALTHY, [])
