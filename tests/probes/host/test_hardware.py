"""Memory errors, heat and NVIDIA's helpers, from trees laid out as sysfs and /run show them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from healthd.core.diagnosis.readings import Sample
from healthd.probes.host.edac import Edac
from healthd.probes.host.services import Services
from healthd.probes.host.thermal import Thermal
from tests.fakes import START

Values = dict[tuple[str, str], float | str]


def put(root: Path, **files: object) -> Path:
    """Write files by their path below *root*, with `__` for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def seen(sample: Sample, devices: Sequence[str] = ("node",)) -> Values:
    """What a sample says, by name and part."""
    assert {reading.device for reading in sample.readings} <= set(devices)
    return {(reading.name, reading.part): reading.value for reading in sample.readings}


def test_machine_without_any_of_it_says_nothing(tmp_path: Path) -> None:
    for probe in (Edac(tmp_path), Thermal(tmp_path), Services(tmp_path, run=tmp_path, proc=tmp_path)):
        assert seen(probe.sample(START)) == {}


def test_errors_of_memory_by_module(tmp_path: Path) -> None:
    mc = tmp_path / "devices/system/edac/mc/mc0"
    put(mc / "dimm1", dimm_ce_count=7, dimm_ue_count=1, dimm_label="CPU0_A1")
    put(mc, ce_count=9, ue_count=1, ce_noinfo_count=2, ue_noinfo_count=0)

    assert seen(Edac(tmp_path).sample(START)) == {
        ("edac.corrected", "mc0 dimm1 (CPU0_A1)"): 7,
        ("edac.uncorrected", "mc0 dimm1 (CPU0_A1)"): 1,
        ("edac.corrected", "mc0"): 2,
        ("edac.uncorrected", "mc0"): 0,
    }


def test_errors_of_memory_by_controller_where_modules_are_not_known(tmp_path: Path) -> None:
    put(tmp_path / "devices/system/edac/mc/mc1", ce_count=9, ue_count=3)

    assert seen(Edac(tmp_path).sample(START)) == {("edac.corrected", "mc1"): 9, ("edac.uncorrected", "mc1"): 3}


def a_chip(sys: Path, name: str, **files: object) -> None:
    """A sensor chip that sits on no device."""
    put(sys / "class" / "hwmon" / "hwmon0", name=name, **files)


def test_sensor_reports_how_far_it_is_from_its_limit(tmp_path: Path) -> None:
    a_chip(tmp_path, "coretemp", temp1_input=61500, temp1_crit=100000, temp1_label="Package id 0")

    assert seen(Thermal(tmp_path).sample(START)) == {("thermal.margin_c", "coretemp Package id 0"): 38.5}


@pytest.mark.parametrize(
    ("heat", "limit"),
    [(61500, 0), (61500, 255000), (61500, -273150), (-273150, 100000), ("N/A", 100000), (900000, 85000)],
)
def test_sensor_that_makes_no_sense_is_left_out(tmp_path: Path, heat: object, limit: object) -> None:
    a_chip(tmp_path, "nct6775", temp1_input=heat, temp1_crit=limit)

    assert seen(Thermal(tmp_path).sample(START)) == {}


def test_sensor_of_a_device_is_identified_by_its_address(tmp_path: Path) -> None:
    disk = "0000:05:00.0"
    real = put(tmp_path / "devices" / disk / "nvme/nvme0/hwmon1", name="nvme", temp1_input=40000, temp1_crit=85000)
    (tmp_path / "class/hwmon").mkdir(parents=True)
    (tmp_path / "class/hwmon/hwmon1").symlink_to(real)

    assert seen(Thermal(tmp_path).sample(START), [disk]) == {("thermal.margin_c", "nvme temp1"): 45}


def test_sensor_of_a_network_device_is_left_alone(tmp_path: Path) -> None:
    a_chip(tmp_path, "mlx5", temp1_input=61500, temp1_crit=100000)

    assert seen(Thermal(tmp_path).sample(START)) == {}


@pytest.mark.parametrize(("fault", "answer"), [(0, "no"), (1, "yes")])
def test_fan(tmp_path: Path, fault: int, answer: str) -> None:
    a_chip(tmp_path, "dell_smm", fan2_fault=fault)

    assert seen(Thermal(tmp_path).sample(START)) == {("thermal.fan_fault", "dell_smm fan2"): answer}


def test_processor_is_asked_once_for_each_package(tmp_path: Path) -> None:
    for cpu, package in enumerate((0, 0, 1, 1)):
        folder = tmp_path / f"devices/system/cpu/cpu{cpu}"
        put(folder, topology__physical_package_id=package, thermal_throttle__package_throttle_total_time_ms=package * 9)

    assert seen(Thermal(tmp_path).sample(START)) == {
        ("thermal.throttled_ms", "package 0"): 0,
        ("thermal.throttled_ms", "package 1"): 9,
    }


def with_modules(sys: Path, *names: str) -> Path:
    """A /sys with these kernel modules."""
    for name in names:
        (sys / "module" / name).mkdir(parents=True)
    return sys


@pytest.mark.parametrize(
    ("modules", "reported"),
    [
        (["nvidia", "ib_core", "nvidia_peermem"], "loaded"),
        (["nvidia", "ib_core", "nv_peer_mem"], "loaded"),
        (["nvidia", "ib_core"], "absent"),
        (["nvidia"], None),
        (["ib_core"], None),
    ],
)
def test_module_for_gpudirect(tmp_path: Path, modules: list[str], reported: str | None) -> None:
    sample = Services(with_modules(tmp_path, *modules)).sample(START)

    assert seen(sample).get(("services.peermem", "")) == reported


def test_daemon_that_listens_answers_and_one_that_died_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia-persistenced"
    folder.mkdir()
    probe = Services(run=tmp_path)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(folder / "socket"))
        daemon.listen()
        alive = seen(probe.sample(START))

    assert alive["services.persistenced", ""] == "answers"
    assert seen(probe.sample(START))["services.persistenced", ""] == "dead"


@pytest.mark.parametrize(("pid", "word"), [("4711", "answers"), ("4712", "dead")])
def test_daemon_without_a_socket_is_known_by_its_number(tmp_path: Path, pid: str, word: str) -> None:
    put(tmp_path / "run/nvidia-fabricmanager", **{"nv-fabricmanager.pid": pid})
    (tmp_path / "proc/4711").mkdir(parents=True)

    sample = Services(run=tmp_path / "run", proc=tmp_path / "proc").sample(START)

    assert seen(sample)["services.fabric_manager", ""] == word


def test_number_of_a_daemon_says_nothing_without_the_hosts_processes(tmp_path: Path) -> None:
    put(tmp_path / "nvidia-fabricmanager", **{"nv-fabricmanager.pid": "4711"})

    assert ("services.fabric_manager", "") not in seen(Services(run=tmp_path).sample(START))
