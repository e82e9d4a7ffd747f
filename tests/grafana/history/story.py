"""Three hours of a cluster: what breaks, when, and when it is repaired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from healthd.core.diagnosis.readings import Reading
from tests.controller.alerts.sinks import NOT_NOW, TOOK
from tests.fakes import START
from tests.grafana.history.agents import COUNTERS, NICS
from tests.grafana.history.exporters import Exporters
from tests.grafana.history.scrapes import Scrapes
from tests.grafana.history.stage import Stage

SCRAPE_EVERY = timedelta(minutes=1)
HOURS = 3
END = START + timedelta(hours=HOURS)
OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
APPLICATION = "NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python, Graphics Exception: ESR 0x404600=0x80000002"
ROW_REMAPPED = "NVRM: Xid (PCI:0000:3b:00): 63, pid=1234, name=python, Row Remapper: New row marked for remapping"
CONTAINED = "NVRM: Xid (PCI:0000:3b:00): 94, pid=1234, name=python, Contained: SM. RST: No, D-RST: No"

Act = Callable[[Stage], Awaitable[None] | None]


async def play() -> Scrapes:
    """All that Prometheus would have scraped."""
    stage = Stage(nodes=12, spares=2, budget=3)
    stage.submit("llama-70b", "team-a", 6)
    stage.submit("mixtral", "team-b", 3)
    await stage.start()
    scrapes, exporters = Scrapes(), Exporters(stage)
    plot = Plot()
    for minute in range(60 * HOURS):
        await plot.act(stage, minute)
        await stage.clock.run_for(SCRAPE_EVERY)
        scrapes.take(stage.clock.now(), stage, exporters.scrape(SCRAPE_EVERY.total_seconds()))
    await stage.close()
    return scrapes


class Plot:
    """What happens in which minute."""

    def __init__(self) -> None:
        self._broken: dict[str, str] = {}
        """What broke -> the node on which it did."""
        self._acts: dict[int, Act] = {
            20: lambda stage: self._break_gpu(stage, "llama-70b", 2),
            26: lambda stage: stage.kernel_says("gpu-08", APPLICATION),
            35: lambda stage: stage.agents["gpu-05"].silent.add("nvml"),
            45: lambda stage: stage.crash("mixtral", 1),
            51: lambda stage: setattr(stage.links["gpu-04"], "cut", True),
            52: lambda stage: stage.kernel_says("gpu-04", ROW_REMAPPED),
            54: lambda stage: setattr(stage.links["gpu-04"], "cut", False),
            55: lambda stage: stage.agents["gpu-05"].silent.discard("nvml"),
            62: lambda stage: self._pull_cable(stage, "mixtral", 2),
            65: lambda stage: stage.agents["gpu-03"].growing.update(dict.fromkeys(_port(NICS[1]), 4e6)),
            80: lambda stage: self._repair(stage, "llama-70b"),
            95: lambda stage: self._plug_in(stage, "mixtral"),
            100: lambda stage: stage.kernel_says("gpu-04", CONTAINED, lost=12),
            105: lambda stage: self._break_gpu(stage, "llama-70b", 0),
            107: lambda stage: self._break_gpu(stage, "mixtral", 0),
            112: lambda stage: self._break_gpu(stage, "llama-70b", 4, "again"),
            125: lambda stage: self._service_is_away(stage, True),
            128: lambda stage: self._repair(stage, "llama-70b"),
            132: lambda stage: self._repair(stage, "again"),
            135: lambda stage: self._service_is_away(stage, False),
            140: lambda stage: stage.kill("gpu-07"),
            145: lambda stage: stage.kill("controller-a"),
            148: lambda stage: stage.start_controller("controller-a"),
            150: lambda stage: self._stop_saving(stage),
            155: lambda stage: stage.start_agent("gpu-07"),
            158: lambda stage: stage.agents["gpu-06"].silent.add("nvml"),
            165: lambda stage: stage.crash("llama-70b", 3),
            167: lambda stage: self._break_gpu(stage, "llama-70b", 5),
            172: lambda stage: stage.kernel_says(stage.node_of("llama-70b", 1), ROW_REMAPPED),
            170: lambda stage: self._break_gpu(stage, "mixtral", 1),
        }

    async def act(self, stage: Stage, minute: int) -> None:
        """What is due."""
        if (act := self._acts.get(minute)) is not None and (done := act(stage)) is not None:
            await done

    def _break_gpu(self, stage: Stage, gang: str, index: int, name: str = "") -> None:
        node = self._broken[name or gang] = stage.node_of(gang, index)
        stage.kernel_says(node, OFF_THE_BUS, breaks=True)

    def _repair(self, stage: Stage, name: str) -> None:
        stage.repair(self._broken.pop(name))

    def _pull_cable(self, stage: Stage, gang: str, index: int) -> None:
        node = self._broken["cable"] = stage.node_of(gang, index)
        stage.machines.all[node].broken = True
        stage.agents[node].shows(Reading(NICS[0], "ib.rail_link", "down", "port 1"))

    def _plug_in(self, stage: Stage, gang: str) -> None:
        node = self._broken["cable"]
        stage.agents[node].shows(Reading(NICS[0], "ib.rail_link", "up", "port 1"))
        self._repair(stage, "cable")

    def _service_is_away(self, stage: Stage, is_away: bool) -> None:
        stage.sinks[1].answer = lambda _: NOT_NOW if is_away else TOOK

    def _stop_saving(self, stage: Stage) -> None:
        stage.stores["mixtral"].is_stopped = True
        stage.stores["llama-70b"].free = 60 * 2**30


def _port(nic: str) -> list[tuple[str, str]]:
    return [(nic, name) for name in COUNTERS]
