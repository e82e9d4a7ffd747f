"""All that NVML tells of GPUs, asked by a real child of a stand-in library beneath the real binding."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.findings import Ledger
from healthd.core.model import Verdict
from healthd.core.readings import Look
from healthd.core.signals.engine import Engine
from healthd.core.signals.entering import reconcile
from healthd.core.signals.nvml import RULES
from healthd.core.waits import Waits, alone
from healthd.probes import nvml
from healthd.probes.nvml.health import Nvml, NvmlPulse
from healthd.probes.nvml.process import Pace, Process, asking
from tests.standin.nvml import StandIn, build

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PROGRAM = Path(nvml.__file__).with_name("child") / "watch.py"
QUICK = Pace(every=timedelta(milliseconds=20), whole=timedelta(0), anew=timedelta(0))
GPU0, GPU1, GPU2 = "0000:3b:00.0", "0000:3c:00.0", "0000:3d:00.0"
ENOUGH = 20.0
"""Seconds after which a child that says nothing fails a test."""

Values = dict[tuple[str, str, str], float | str]


@dataclass
class Clock:
    """The machine's monotonic time, and what a test lets pass beyond it."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class World:
    """A node whose driver is a stand-in, and the probe that looks at it."""

    standin: StandIn
    root: Path
    clock: Clock = field(default_factory=Clock)
    pace: Pace = QUICK
    expected: int | None = None

    def __post_init__(self) -> None:
        waits = Waits(timedelta(seconds=0.2), timedelta(minutes=5), alone)
        self.process = Process(
            self.pace, spawn=asking(self.standin.environ, self.root), monotonic=self.clock, waits=waits
        )
        self.probe = Nvml(self.process, proc=self.root / "proc", expected=self.expected)
        self.pulse = NvmlPulse(self.probe)

    def look_until(self, is_seen: Callable[[Look], object]) -> Look:
        """Look at what the child says until it says this."""
        ends = time.monotonic() + ENOUGH
        while time.monotonic() < ends:
            look = self.probe.look(NOW)
            if is_seen(look):
                return look
            self.probe.wait(0.2)
        raise AssertionError(f"never seen; last: {look.trouble or len(look.readings)}")

    def values(self) -> Values:
        """All readings of the first look."""
        return by_place(self.look_until(lambda look: look.readings))

    def wait_until_it_hangs(self) -> None:
        while not self.standin.hangs:
            self.probe.wait(0.01)
            self.probe.look(NOW)

    def responds(self) -> list[float | str]:
        return [reading.value for reading in self.pulse.look(NOW).readings]


def by_place(look: Look) -> Values:
    return {(reading.device, reading.name, reading.part): reading.value for reading in look.readings}


def of(look: Look, device: str, name: str, part: str = "") -> float | str | None:
    return by_place(look).get((device, name, part))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def standin(library: Path, tmp_path: Path) -> StandIn:
    return StandIn(library, tmp_path / "script")


@pytest.fixture
def world(standin: StandIn, tmp_path: Path) -> Iterator[World]:
    world = World(standin, tmp_path)
    yield world
    world.probe.close()


def test_eight_gpus_are_told_with_their_names_and_driver(world: World) -> None:
    values = world.values()

    assert values["node", "nvml.gpus", ""] == 8
    assert values["node", "nvml.driver", ""] == "570.124.06"
    assert values[GPU1, "nvml.uuid", ""] == "GPU-00000002-0000-4000-8000-000000000000"
    assert values[GPU1, "nvml.product", ""] == "NVIDIA H100 80GB HBM3"
    assert values[GPU1, "nvml.serial", ""] == "1650123010001"
    assert values[GPU1, "nvml.index", ""] == 1
    assert values[GPU1, "nvml.state", ""] == "ok"


def test_every_number_of_a_healthy_gpu_says_healthy(world: World) -> None:
    values = {name: value for (device, name, part), value in world.values().items() if (device, part) == (GPU0, "")}
    healthy = {
        "nvml.temperature": 41,
        "nvml.temperature.margin": 46,
        "nvml.power": 121,
        "nvml.pcie.width": 16,
        "nvml.pcie.width.most": 16,
        "nvml.pcie.generation": 5,
        "nvml.recovery_action": 0,
        "nvml.row_remap.banks.max": 640,
        "nvml.row_remap.failure": 0,
        "nvml.ecc.sram.threshold": 0,
        "nvml.fabric.state": "completed",
        "nvml.gsp": "on",
        "nvml.gsp.version": "570.124.06",
        "nvml.inforom": "valid",
        "nvml.mig": "off",
        "nvml.processes": 0,
        "nvml.throttle.idle": "yes",
        "nvml.throttle.hw-thermal": "no",
        "nvml.nvlink.active": 18,
        "nvml.xid.79": 0,
    }

    assert {name: values.get(name) for name in healthy} == healthy


def test_each_nvlink_is_told(world: World) -> None:
    world.standin.play("field 165 1 3 1 0", "field 165 1 4 1 2", "field 161 1 3 3 12")

    values = world.values()

    assert values[GPU1, "nvml.nvlink.state", "nvlink 3"] == "inactive"
    assert values[GPU1, "nvml.nvlink.up", "nvlink 3"] == 0
    assert values[GPU1, "nvml.nvlink.state", "nvlink 4"] == "sleep"
    assert values[GPU1, "nvml.nvlink.up", "nvlink 4"] == 1
    assert values[GPU1, "nvml.nvlink.replay", "nvlink 3"] == 12
    assert values[GPU1, "nvml.nvlink.active", ""] == 17
    assert values[GPU1, "nvml.nvlink.active.peers", ""] == 18


@pytest.mark.parametrize(
    ("statement", "name", "value"),
    [
        ("field 4 1 * 3 7", "nvml.ecc.uncorrected", 7),
        ("field 3 1 * 3 18446744073709551615", "nvml.ecc.corrected", 2**64 - 1),
        ("field 145 1 * 1 1", "nvml.row_remap.failure", 1),
        ("field 144 1 * 5 1", "nvml.row_remap.pending", 1),
        ("field 230 1 * 1 4", "nvml.recovery_action", 4),
        ("field 270 1 * 3 90000000000", "nvml.throttled.hw-thermal", 90),
        ("field 82 1 * 0 61.5", "nvml.temperature.memory", 61.5),
        ("field 94 1 * 4 -1", "nvml.pcie.replay", -1),
        ("value nvmlDeviceGetCurrPcieLinkWidth 1 8", "nvml.pcie.width", 8),
        ("value nvmlDeviceGetMarginTemperature 1 -2", "nvml.temperature.margin", -2),
        ("value nvmlDeviceGetSramEccErrorStatus 1 1 2 3 4 5 6 0 0 0 0 0 1", "nvml.ecc.sram.threshold", 1),
        ("value nvmlDeviceGetSramEccErrorStatus 1 1 2 3 4 5 6 0 0 0 0 0 1", "nvml.ecc.sram.uncorrected", 9),
        ("value nvmlDeviceGetSramEccErrorStatus 1 1 2 3 4 5 6 0 0 0 0 0 1", "nvml.ecc.sram.uncorrected.ever", 3),
        ("value nvmlDeviceGetRowRemapperHistogram 1 630 5 2 1 2", "nvml.row_remap.banks.none", 2),
        ("value nvmlDeviceGetRepairStatus 1 1 0", "nvml.repair.channel_pending", 1),
        ("value nvmlDeviceGetRepairStatus 1 0 1", "nvml.repair.tpc_pending", 1),
        ("value nvmlDeviceGetComputeRunningProcesses 1 3", "nvml.processes", 3),
        ("value nvmlDeviceGetGspFirmwareMode 1 0 1", "nvml.gsp", "off"),
        ("error nvmlDeviceValidateInforom 1 14", "nvml.inforom", "corrupted"),
        ("value throttle 1 72", "nvml.throttle.hw-thermal", "yes"),
        ("value throttle 1 136", "nvml.throttle.power-brake", "yes"),
        ("value throttle 1 136", "nvml.throttle.hw-thermal", "no"),
        ("value throttle 1 4", "nvml.throttle.power-cap", "yes"),
        ("value throttle 1 32", "nvml.throttle.sw-thermal", "yes"),
        ("value nvmlDeviceGetGpuFabricInfoV 1 2 0 0 0", "nvml.fabric.state", "in-progress"),
        ("value nvmlDeviceGetGpuFabricInfoV 1 3 999 0 0", "nvml.fabric.status", 999),
        ("value nvmlDeviceGetGpuFabricInfoV 1 3 0 0 2", "nvml.fabric.health", "unhealthy"),
        ("value nvmlDeviceGetGpuFabricInfoV 1 3 0 1 1", "nvml.fabric.degraded_bandwidth", "yes"),
        ("value nvmlDeviceGetGpuFabricInfoV 1 3 0 2 1", "nvml.fabric.degraded_bandwidth", "no"),
        ("value nvmlDeviceGetGpuFabricInfoV 1 3 0 16 1", "nvml.fabric.route_unhealthy", "yes"),
        ("value nvmlDeviceGetGpuFabricInfoV 1 3 0 1536 1", "nvml.fabric.configuration", "incompatible-firmware"),
    ],
)
def test_what_the_driver_says_of_one_gpu_is_told_of_that_one(
    world: World, statement: str, name: str, value: float | str
) -> None:
    world.standin.play(statement)

    values = world.values()

    assert values[GPU1, name, ""] == value
    assert values.get((GPU2, name, "")) != value or value in {"no", "off"}


def test_links_of_the_fifth_generation_tell_their_error_rates(world: World) -> None:
    world.standin.play("field 220 0 5 3 775", "field 222 0 5 3 271", "field 214 0 5 3 2")  # 3e-7, 1e-15

    values = world.values()

    assert values[GPU0, "nvml.nvlink.effective_ber", "nvlink 5"] == pytest.approx(3e-7)
    assert values[GPU0, "nvml.nvlink.symbol_ber", "nvlink 5"] == pytest.approx(1e-15)
    assert values[GPU0, "nvml.nvlink.recovery_failed", "nvlink 5"] == 2
    assert (GPU0, "nvml.nvlink.effective_ber", "nvlink 6") not in values


def test_a_gpu_in_instances_says_how_many(world: World) -> None:
    world.standin.play("value nvmlDeviceGetMigMode 1 1 1", "value instances 1 3")

    values = world.values()

    assert values[GPU1, "nvml.mig", ""] == "on"
    assert values[GPU1, "nvml.mig.instances", ""] == 3


@pytest.mark.parametrize(("code", "state"), [(15, "lost"), (16, "reset-required"), (999, "error")])
def test_a_gpu_that_does_not_answer_is_told_and_does_not_hide_the_others(world: World, code: int, state: str) -> None:
    world.values()
    world.standin.play(f"error * 1 {code}")

    look = world.look_until(lambda look: of(look, GPU1, "nvml.state") == state)

    assert of(look, GPU0, "nvml.state") == "ok"
    assert of(look, GPU1, "nvml.temperature") is None
    assert of(look, GPU1, "nvml.xid.79") == 0


def test_a_gpu_that_was_reset_is_well_again(world: World) -> None:
    world.standin.play("error * 1 16")
    world.look_until(lambda look: look.readings)
    world.standin.play()

    look = world.look_until(lambda look: of(look, GPU1, "nvml.state") == "ok")

    assert of(look, GPU1, "nvml.temperature") == 41


def test_a_gpu_that_can_not_even_be_named_is_counted(world: World) -> None:
    world.standin.play("error nvmlDeviceGetHandleByIndex 1 999")

    values = world.values()

    assert values["node", "nvml.gpus.unreadable", ""] == 1
    assert (GPU1, "nvml.state", "") not in values


def give(root: Path, *gpus: str, nodes: int = 8) -> None:
    """The kernel's driver has these GPUs, and there are so many device nodes."""
    (root / "dev").mkdir()
    for minor, gpu in enumerate(gpus):
        folder = root / "proc/driver/nvidia/gpus" / gpu
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n")
        if minor < nodes:
            (root / f"dev/nvidia{minor}").touch()


@pytest.mark.parametrize(("code", "state"), [(15, "lost"), (16, "reset-required"), (999, "error")])
def test_a_gpu_that_does_not_say_which_it_is_must_be_the_one_that_is_left(world: World, code: int, state: str) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 3", f"error nvmlDeviceGetHandleByIndex 1 {code}")

    values = world.values()

    assert values[GPU1, "nvml.state", ""] == state
    assert values[GPU1, "nvml.listed", ""] == "yes"
    assert values["node", "nvml.gpus.unreadable", ""] == 0


def test_nobody_is_blamed_where_two_could_be_meant(world: World) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 2", "error nvmlDeviceGetHandleByIndex 1 15")

    values = world.values()

    assert values["node", "nvml.gpus.unreadable", ""] == 1
    assert (GPU1, "nvml.state", "") not in values


def test_a_gpu_that_the_driver_has_and_nvml_does_not_list_is_missing(world: World) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 2")

    values = world.values()

    assert values[GPU1, "nvml.listed", ""] == "yes"
    assert values[GPU2, "nvml.listed", ""] == "no"


def test_a_gpu_that_a_container_was_not_given_is_not_missing(world: World) -> None:
    give(world.root, GPU0, GPU1, GPU2, nodes=2)
    world.standin.play("gpus 2")

    assert (GPU2, "nvml.listed", "") not in world.values()


def test_a_gpu_that_an_operator_excluded_is_not_missing(world: World) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    with (world.root / "proc/driver/nvidia/gpus" / GPU2 / "information").open("a") as information:
        information.write("GPU Excluded:\t Yes\n")
    world.standin.play("gpus 2")

    assert (GPU2, "nvml.listed", "") not in world.values()


def test_a_gpu_that_nvml_hides_from_us_is_neither_missing_nor_unreadable(world: World) -> None:
    give(world.root, GPU0, GPU1, GPU2)
    world.standin.play("gpus 3", "error nvmlDeviceGetHandleByIndex 2 4")

    values = world.values()

    assert (GPU2, "nvml.listed", "") not in values
    assert values["node", "nvml.gpus.unreadable", ""] == 0


def test_a_gpu_that_was_there_before_and_is_gone_is_missing(world: World) -> None:
    world.values()
    world.standin.play("gpus 2", "error * 1 15")
    world.look_until(lambda look: of(look, GPU1, "nvml.state") == "lost")
    world.standin.play("gpus 1")

    look = world.look_until(lambda look: of(look, GPU1, "nvml.listed") == "no")

    assert of(look, GPU0, "nvml.listed") == "yes"


def test_how_many_gpus_there_should_be_is_told_beside_how_many_there_are(standin: StandIn, tmp_path: Path) -> None:
    world = World(standin, tmp_path, expected=9)

    values = world.values()
    world.probe.close()

    assert values["node", "nvml.gpus", ""] == 8
    assert values["node", "nvml.gpus.expected", ""] == 9


def test_what_a_driver_does_not_have_is_left_out(world: World) -> None:
    world.standin.play("nofield 230 *", "error nvmlDeviceGetGpuFabricInfoV * 3", "error nvmlDeviceGetSerial * 3")

    values = world.values()

    assert (GPU0, "nvml.recovery_action", "") not in values
    assert (GPU0, "nvml.fabric.state", "") not in values
    assert (GPU0, "nvml.serial", "") not in values
    assert values[GPU0, "nvml.state", ""] == "ok"


def test_an_older_driver_fills_the_older_structure_of_the_fabric(world: World) -> None:
    world.standin.play("error fabric-v3 * 25", "value nvmlDeviceGetGpuFabricInfoV * 3 0 16 2")

    values = world.values()

    assert values[GPU0, "nvml.fabric.route_unhealthy", ""] == "yes"
    assert (GPU0, "nvml.fabric.health", "") not in values


OLD = ["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetCurrentClocksEventReasons"]


@pytest.mark.parametrize(
    ("without", "there"),
    [
        (OLD, "nvml.throttle.idle"),
        (["nvmlDeviceGetFieldValues"], "nvml.nvlink.active"),
        (["nvmlDeviceGetNvLinkState"], "nvml.nvlink.active"),
        (["nvmlEventSetCreate", "nvmlDeviceGetRowRemapperHistogram"], "nvml.row_remap.pending"),
    ],
)
def test_a_driver_that_lacks_symbols_still_tells_the_rest(tmp_path: Path, without: list[str], there: str) -> None:
    world = World(StandIn(build(tmp_path / "lib", without=without), tmp_path / "script"), tmp_path)

    values = world.values()
    world.probe.close()

    assert values[GPU0, "nvml.state", ""] == "ok"
    assert (GPU0, there, "") in values


def test_an_xid_event_is_told_when_it_comes(standin: StandIn, tmp_path: Path) -> None:
    world = World(standin, tmp_path, pace=Pace(every=timedelta(hours=1)))
    before = by_place(world.look_until(lambda look: look.readings))
    standin.play("event 1 1 79", "event 2 1 79", "event 3 2 31")

    look = world.look_until(lambda look: of(look, GPU2, "nvml.xid.31"))
    world.probe.close()

    assert before[GPU1, "nvml.xid.79", ""] == 0
    assert of(look, GPU1, "nvml.xid.79") == 2
    assert of(look, GPU1, "nvml.temperature") == 41


def test_a_storm_of_events_is_cut_short_until_the_next_look(standin: StandIn, tmp_path: Path) -> None:
    world = World(standin, tmp_path, pace=Pace(every=timedelta(hours=1)))
    world.look_until(lambda look: look.readings)
    standin.play(*(f"event {number} 0 13" for number in range(1, 151)))

    look = world.look_until(lambda look: of(look, GPU0, "nvml.xid.13") == 100)
    world.probe.wait(0.1)
    later = world.probe.look(NOW)
    world.probe.close()

    assert later is look


def test_what_is_read_now_and_then_stays_until_it_is_read_again(standin: StandIn, tmp_path: Path) -> None:
    pace = Pace(every=timedelta(milliseconds=20), whole=timedelta(hours=1))
    world = World(standin, tmp_path, pace=pace)
    world.look_until(lambda look: look.readings)
    standin.play("value nvmlDeviceGetTemperature 0 77", "value nvmlDeviceGetComputeRunningProcesses 0 5")

    look = world.look_until(lambda look: of(look, GPU0, "nvml.temperature") == 77)
    world.probe.close()

    assert of(look, GPU0, "nvml.processes") == 0
    assert of(look, GPU0, "nvml.nvlink.replay", "nvlink 17") == 0


def test_the_same_look_is_given_until_there_is_news(standin: StandIn, tmp_path: Path) -> None:
    world = World(standin, tmp_path, pace=Pace(every=timedelta(hours=1)))
    look = world.look_until(lambda look: look.readings)

    again = world.probe.look(NOW + timedelta(seconds=1))
    world.probe.close()

    assert again is look


def test_a_driver_that_hangs_is_told_after_its_deadline_and_blames_no_gpu(world: World) -> None:
    world.values()
    world.standin.play("hang nvmlDeviceGetTemperature 3")
    world.wait_until_it_hangs()

    said = []
    for world.clock.ahead in range(13):
        said += world.responds()

    assert said[:10] == ["yes"] * 10
    assert said[12] == "no"
    assert "hangs" in world.probe.look(NOW).trouble


def test_a_driver_that_comes_back_is_believed(standin: StandIn, tmp_path: Path) -> None:
    world = World(standin, tmp_path, pace=Pace(first=timedelta(seconds=1)))
    standin.play("hang nvmlInit *")
    while world.responds() != ["no"]:
        world.probe.wait(0.01)
    standin.play()

    look = world.look_until(lambda look: look.readings)
    responds = world.responds()
    world.probe.close()

    assert of(look, GPU0, "nvml.state") == "ok"
    assert responds == ["yes"]


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


def test_nothing_is_said_before_the_first_answer(world: World) -> None:
    world.standin.play("hang nvmlInit *")

    assert world.responds() == []
    assert world.probe.look(NOW) == Look(source="nvml", at=NOW)


def test_a_driver_that_says_no_is_a_reason(world: World) -> None:
    world.standin.play("error nvmlInit * 9")

    look = world.look_until(lambda look: look.trouble)

    assert look.trouble == "NVML: Driver Not Loaded"
    assert not look.readings


def test_a_driver_that_crashes_takes_only_the_child_with_it(world: World) -> None:
    world.standin.play("crash nvmlDeviceGetPowerUsage")

    look = world.look_until(lambda look: look.trouble)

    assert look.trouble == "NVML could not be asked: the process that asks it ended with status -6"


def test_what_a_library_prints_does_not_spoil_the_answers(world: World) -> None:
    world.standin.play("print {}")

    assert world.values()[GPU0, "nvml.state", ""] == "ok"


def test_an_address_that_is_none_is_a_reason(world: World) -> None:
    world.standin.play("value nvmlDeviceGetPciInfo 1 somewhere")

    look = world.look_until(lambda look: look.trouble)

    assert look.trouble == "what NVML's child says makes no sense: 'somewhere' is not a PCI address"


def without_a_library(tmp_path: Path) -> Nvml:
    return Nvml(Process(QUICK, spawn=asking({"LD_LIBRARY_PATH": str(tmp_path)})), proc=tmp_path)


def test_a_driver_without_the_field_of_link_states_is_asked_for_each_link(world: World) -> None:
    world.standin.play("nofield 165 *", "value nvmlDeviceGetNvLinkState 1 2 0")

    values = world.values()

    assert values[GPU1, "nvml.nvlink.state", "nvlink 2"] == "inactive"
    assert values[GPU1, "nvml.nvlink.active", ""] == 17
    assert values[GPU1, "nvml.nvlink.replay", "nvlink 2"] == 0


class Says:
    """A process that says these lines, and nothing more."""

    trouble = ""
    responds = True

    def __init__(self, *lines: bytes) -> None:
        self._lines = list(lines)

    def hear(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def wait(self, seconds: float) -> None: ...

    def close(self) -> None: ...


NUMBERS: st.SearchStrategy[object] = (
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([[], {}])
)
GPUS = st.lists(
    st.fixed_dictionaries(
        {"pci": st.sampled_from(["00000000:3B:00.0", "", "x"])},
        optional={
            "state": st.sampled_from(["ok", "lost", 1]),
            "values": st.dictionaries(st.text(max_size=5), NUMBERS, max_size=3),
            "links": st.dictionaries(st.sampled_from(["nvml.nvlink.state", "a"]), st.lists(NUMBERS), max_size=2),
        },
    ),
    max_size=3,
)
WORDS = st.fixed_dictionaries(
    {},
    optional={
        "gpus": GPUS,
        "node": st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2),
        "whole": st.booleans() | st.none(),
        "xids": st.dictionaries(st.sampled_from(["0:1:2", "00000000:3B:00.0"]), st.just({"79": 1}), max_size=1),
        "trouble": st.text(max_size=5),
    },
)


@given(st.lists(st.binary(max_size=30) | WORDS.map(lambda words: json.dumps(words).encode()), max_size=4))
def test_whatever_a_child_says_is_a_look(lines: list[bytes]) -> None:
    probe = Nvml(Says(*lines), proc=Path("/nowhere"))

    look = probe.look(NOW)

    assert look.source == "nvml"
    assert not (look.trouble and look.readings)


def test_a_machine_without_gpus_is_in_no_trouble(tmp_path: Path) -> None:
    probe = without_a_library(tmp_path)
    probe.look(NOW)
    probe.wait(ENOUGH)
    probe.wait(0.1)

    look = probe.look(NOW)
    probe.close()

    assert look == Look(source="nvml", at=NOW)


def test_a_machine_with_gpus_and_no_library_is(tmp_path: Path) -> None:
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    probe = without_a_library(tmp_path)
    troubles: list[str] = []
    while not any(troubles):
        troubles.append(probe.look(NOW).trouble)
        probe.wait(0.1)
    probe.close()

    assert troubles[-1] == "NVML: NVML Shared Library Not Found"


def test_the_child_ends_when_nobody_listens(standin: StandIn) -> None:
    child = asking(standin.environ)(QUICK)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()

    assert child.wait(ENOUGH) == 0


def test_the_child_stays_small() -> None:
    heavy = {"asyncio", "msgspec", "structlog", "aiohttp", "healthd.core", "logging"}
    code = f"import runpy, sys; runpy.run_path({str(PROGRAM)!r}); print(*sorted({heavy!r} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.split() == []
