"""The inventory of GPUs, asked of a stand-in library beneath the real NVML binding."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.core.api import Device
from healthd.probes.nvml.inventory import NvmlInventory, inventory, parse_inventory, parse_pci
from tests.standin.nvml import StandIn

SHORT = timedelta(milliseconds=700)
GPUS = [
    Device(
        pci=f"0000:{bus}:00.0",
        uuid=f"GPU-0000000{index + 1}-0000-4000-8000-000000000000",
        serial=f"165012301000{index}",
        name="NVIDIA H100 80GB HBM3",
        index=index,
    )
    for index, bus in enumerate(("3b", "3c"))
]

Ask = Callable[..., NvmlInventory]


@pytest.fixture
def ask(library: Path, tmp_path: Path) -> Ask:
    """Takes the inventory of two GPUs with the library as these statements say."""
    standin = StandIn(library, tmp_path / "script")

    def ask(*statements: str, deadline: timedelta = timedelta(seconds=60)) -> NvmlInventory:
        standin.play("gpus 2", *statements)
        return inventory(deadline, environ=standin.environ)

    return ask


def test_every_gpu_is_listed_with_its_address_in_our_form(ask: Ask) -> None:
    assert ask() == NvmlInventory(devices=GPUS)


def test_a_gpu_without_a_serial_number_is_listed_all_the_same(ask: Ask) -> None:
    found = ask("error nvmlDeviceGetSerial 0 3")

    assert [gpu.serial for gpu in found.devices] == ["", "1650123010001"]
    assert [gpu.uuid for gpu in found.devices] == [gpu.uuid for gpu in GPUS]


def test_a_lost_gpu_does_not_hide_the_others(ask: Ask) -> None:
    assert ask("error nvmlDeviceGetHandleByIndex 1 15") == NvmlInventory(
        devices=GPUS[:1], unreadable=["GPU 1: GPU is lost"]
    )


def test_a_driver_that_says_no_is_a_reason(ask: Ask) -> None:
    assert ask("error nvmlInit * 9") == NvmlInventory(reason="NVML: Driver Not Loaded")


@pytest.mark.slow
def test_a_driver_that_hangs_is_left_behind(ask: Ask) -> None:
    assert ask("hang nvmlInit *", deadline=SHORT) == NvmlInventory(
        reason="NVML did not answer within 0.7 s: the driver may hang"
    )


def test_a_driver_that_crashes_takes_only_the_child_with_it(ask: Ask) -> None:
    assert ask("crash nvmlInit") == NvmlInventory(
        reason="NVML could not be asked: the child that asks it ended with status -6"
    )


def test_what_a_library_prints_does_not_spoil_the_answer(ask: Ask) -> None:
    assert ask("print {}").devices == GPUS


def test_an_address_that_is_none_is_a_reason(ask: Ask) -> None:
    assert ask("value nvmlDeviceGetPciInfo * somewhere") == NvmlInventory(
        reason="NVML's answer makes no sense: 'somewhere' is not a PCI address"
    )


def test_no_library_is_a_reason(tmp_path: Path) -> None:
    if not inventory().reason:
        pytest.skip("this machine has a real NVML")

    assert inventory() == NvmlInventory(reason="NVML: NVML Shared Library Not Found")


@pytest.mark.parametrize("answer", [b"", b"no JSON", b"[]", b'{"devices": 3}'])
def test_an_answer_that_is_no_inventory_is_a_reason(answer: bytes) -> None:
    assert "makes no sense" in parse_inventory(answer).reason


@pytest.mark.parametrize(
    ("bus_id", "pci"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00000018:01:00.0", "0018:01:00.0"),
        ("00010003:00:00.0", "10003:00:00.0"),
        ("00000000:10:1C.2", "0000:10:1c.2"),
        ("0000:3b:00", "0000:3b:00.0"),
    ],
)
def test_addresses_come_in_one_form(bus_id: str, pci: str) -> None:
    assert parse_pci(bus_id) == pci
