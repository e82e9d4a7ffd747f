"""All that NVML tells of GPUs that answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probes.nvml.simulated_node import GPU0, GPU1, GPU2, SimulatedNode, of
from tests.standin.nvml import StandIn, build


def test_eight_gpus_are_reported_with_their_names_and_driver(world: SimulatedNode) -> None:
    values = world.values()

    assert values["node", "nvml.gpus", ""] == 8
    assert values["node", "nvml.driver", ""] == "570.124.06"
    assert values[GPU1, "nvml.uuid", ""] == "GPU-00000002-0000-4000-8000-000000000000"
    assert values[GPU1, "nvml.product", ""] == "NVIDIA H100 80GB HBM3"
    assert values[GPU1, "nvml.serial", ""] == "1650123010001"
    assert values[GPU1, "nvml.index", ""] == 1
    assert values[GPU1, "nvml.state", ""] == "ok"


@pytest.mark.slow
def test_every_number_of_a_healthy_gpu_says_healthy(world: SimulatedNode) -> None:
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


def test_each_nvlink_is_reported(world: SimulatedNode) -> None:
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
def test_what_the_driver_says_of_one_gpu_is_reported_that_one(
    world: SimulatedNode, statement: str, name: str, value: float | str
) -> None:
    world.standin.play(statement)

    values = world.values()

    assert values[GPU1, name, ""] == value
    assert values.get((GPU2, name, "")) != value or value in {"no", "off"}


def test_links_of_the_fifth_generation_report_their_error_rates(world: SimulatedNode) -> None:
    world.standin.play("field 220 0 5 3 775", "field 222 0 5 3 271", "field 214 0 5 3 2")  # 3e-7, 1e-15

    values = world.values()

    assert values[GPU0, "nvml.nvlink.effective_ber", "nvlink 5"] == pytest.approx(3e-7)
    assert values[GPU0, "nvml.nvlink.symbol_ber", "nvlink 5"] == pytest.approx(1e-15)
    assert values[GPU0, "nvml.nvlink.recovery_failed", "nvlink 5"] == 2
    assert (GPU0, "nvml.nvlink.effective_ber", "nvlink 6") not in values


def test_a_gpu_in_instances_says_how_many(world: SimulatedNode) -> None:
    world.standin.play("value nvmlDeviceGetMigMode 1 1 1", "value instances 1 3")

    values = world.values()

    assert values[GPU1, "nvml.mig", ""] == "on"
    assert values[GPU1, "nvml.mig.instances", ""] == 3


def test_what_a_driver_does_not_have_is_left_out(world: SimulatedNode) -> None:
    world.standin.play("nofield 230 *", "error nvmlDeviceGetGpuFabricInfoV * 3", "error nvmlDeviceGetSerial * 3")

    values = world.values()

    assert (GPU0, "nvml.recovery_action", "") not in values
    assert (GPU0, "nvml.fabric.state", "") not in values
    assert (GPU0, "nvml.serial", "") not in values
    assert values[GPU0, "nvml.state", ""] == "ok"


def test_what_a_gpu_did_not_have_is_read_once_it_has_it(world: SimulatedNode) -> None:
    world.standin.play("nofield 230 1", "nofield 91 1")
    assert (GPU1, "nvml.recovery_action", "") not in world.values()

    world.standin.play("field 230 1 * 1 2")

    sample = world.sample_until(lambda sample: of(sample, GPU1, "nvml.recovery_action") == 2)
    assert of(sample, GPU1, "nvml.nvlink.replay", "nvlink 17") == 0


def test_an_older_driver_fills_the_older_structure_of_the_fabric(world: SimulatedNode) -> None:
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
        (["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetPciInfo_v3"], "nvml.processes"),
        ([f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (2, 3)], "nvml.temperature"),
        (["nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"], "nvml.processes"),
        (["nvmlSystemGetDriverVersion", "nvmlDeviceGetMigMode"], "nvml.temperature"),
        (["nvmlEventSetCreate", "nvmlDeviceGetRowRemapperHistogram"], "nvml.row_remap.pending"),
    ],
)
def test_a_driver_that_lacks_symbols_still_reports_the_rest(tmp_path: Path, without: list[str], there: str) -> None:
    world = SimulatedNode(StandIn(build(tmp_path / "lib", without=without), tmp_path / "script"), tmp_path)

    values = world.values()
    world.probe.close()

    assert values[GPU0, "nvml.state", ""] == "ok"
    assert (GPU0, there, "") in values


def test_a_driver_without_the_field_of_link_states_is_asked_for_each_link(world: SimulatedNode) -> None:
    world.standin.play("nofield 165 *", "value nvmlDeviceGetNvLinkState 1 2 0")

    values = world.values()

    assert values[GPU1, "nvml.nvlink.state", "nvlink 2"] == "inactive"
    assert values[GPU1, "nvml.nvlink.active", ""] == 17
    assert values[GPU1, "nvml.nvlink.replay", "nvlink 2"] == 0
