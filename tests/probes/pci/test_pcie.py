"""The PCI bus of a machine, read from a tree laid out as sysfs shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.core.diagnosis.readings import Sample
from healthd.probes.pci.pcie import FunctionKind, PcieAdvice, PcieErrors, PcieLinks
from tests.fakes import START
from tests.probes.pci.tree import (
    ABOVE_GPU,
    ABOVE_NIC,
    DISK,
    GPU,
    MELLANOX,
    NIC,
    NIC_CLASS,
    ROOT_PORT,
    UPSTREAM,
    VIRTUAL_NIC,
    PciTree,
    a_bus,
)

Values = dict[tuple[str, str, str], float | str]


@pytest.fixture
def bus(tmp_path: Path) -> PciTree:
    """A bus on which all is well."""
    return a_bus(tmp_path / "sys")


def reported(sample: Sample) -> Values:
    """What a sample says, by device, name and part."""
    assert not sample.trouble
    return {(reading.device, reading.name, reading.part): reading.value for reading in sample.readings}


def links(bus: PciTree) -> Values:
    """One sample of a new probe."""
    return reported(PcieLinks(bus.sys).sample(START))


def test_machine_without_a_bus_has_no_readings(tmp_path: Path) -> None:
    for probe in (PcieLinks(tmp_path), PcieErrors(tmp_path), PcieAdvice(tmp_path)):
        assert reported(probe.sample(START)) == {}


def test_link_is_reported_with_what_both_ends_can_do(bus: PciTree) -> None:
    bus.put(NIC, "current_link_width", "8")
    bus.put(ABOVE_NIC, "max_link_speed", "16.0 GT/s PCIe")

    seen = links(bus)

    assert seen[NIC, "pcie.rdma_width", ""] == 8
    assert seen[NIC, "pcie.rdma_full_width", ""] == 16
    assert seen[NIC, "pcie.rdma_speed", ""] == 32.0
    assert seen[NIC, "pcie.rdma_full_speed", ""] == 16.0


def test_link_of_a_switch_is_reported_once_at_its_lower_end(bus: PciTree) -> None:
    bus.put(UPSTREAM, "current_link_width", "4")

    uplinks = {key: value for key, value in links(bus).items() if key[1].startswith("pcie.uplink")}

    part = f"the switch above {GPU}"
    assert uplinks == {
        (UPSTREAM, "pcie.uplink_width", part): 4,
        (UPSTREAM, "pcie.uplink_full_width", part): 16,
        (UPSTREAM, "pcie.uplink_speed", part): 32.0,
        (UPSTREAM, "pcie.uplink_full_speed", part): 32.0,
    }


def test_speed_of_a_gpu_is_not_reported_because_it_saves_power(bus: PciTree) -> None:
    assert not any(name.startswith("pcie.gpu") and "speed" in name for _, name, _ in links(bus))


def test_virtual_function_has_no_link_of_its_own(bus: PciTree) -> None:
    assert not any(device == VIRTUAL_NIC for device, _, _ in links(bus))


def test_network_card_without_rdma_is_not_watched(bus: PciTree) -> None:
    card = "0000:06:00.0"
    bus.add(card, "0x020000", "0x1d0f", below=ROOT_PORT)

    assert not any(device == card for device, _, _ in links(bus))


def test_rdma_device_is_watched_once_its_driver_is_loaded(bus: PciTree) -> None:
    late = "0000:07:00.0"
    bus.add(late, NIC_CLASS, MELLANOX, below=ROOT_PORT)
    probe = PcieLinks(bus.sys)
    probe.sample(START)
    bus.put(late, "infiniband/mlx5_2", "")

    assert reported(probe.sample(START))[late, "pcie.rdma_state", ""] == "present"


def test_device_that_goes_away_is_reported_as_gone(bus: PciTree) -> None:
    probe = PcieLinks(bus.sys)
    probe.sample(START)
    bus.remove(GPU)

    seen = reported(probe.sample(START))

    assert seen[GPU, "pcie.gpu_state", ""] == "gone"
    assert (GPU, "pcie.gpu_width", "") not in seen


def test_device_that_comes_back_is_present(bus: PciTree) -> None:
    probe = PcieLinks(bus.sys)
    probe.sample(START)
    bus.remove(DISK)
    probe.sample(START)
    bus.add(DISK, "0x010802", "0x144d", below=ROOT_PORT, width=4)

    assert reported(probe.sample(START))[DISK, "pcie.nvme_state", ""] == "present"


def test_device_that_an_earlier_agent_saw_is_missed(bus: PciTree) -> None:
    probe = PcieLinks(bus.sys, expected=[("0000:08:00.0", FunctionKind.GPU)])

    assert reported(probe.sample(START))["0000:08:00.0", "pcie.gpu_state", ""] == "gone"


def test_bus_that_lists_nothing_any_more_is_not_seen_rather_than_empty(bus: PciTree) -> None:
    probe = PcieLinks(bus.sys)
    probe.sample(START)
    (bus.sys / "bus").rename(bus.sys / "elsewhere")

    sample = probe.sample(START)

    assert not sample.readings
    assert "lists no device at all" in sample.trouble


def test_bus_that_an_earlier_agent_saw_is_missed(tmp_path: Path) -> None:
    assert PcieLinks(tmp_path, [(GPU, FunctionKind.GPU)]).sample(START).trouble


def test_device_whose_config_space_is_all_ones_is_silent(bus: PciTree) -> None:
    bus.put_config(GPU, b"\xff" * 64)

    seen = links(bus)

    assert seen[GPU, "pcie.gpu_state", ""] == "silent"
    assert (GPU, "pcie.gpu_width", "") not in seen


def test_device_that_sleeps_is_not_asked(bus: PciTree) -> None:
    bus.put_config(DISK, b"\xff" * 64)
    bus.put(DISK, "power/runtime_status", "suspended")

    assert links(bus)[DISK, "pcie.nvme_state", ""] == "present"


@pytest.mark.parametrize("width", ["63", "0", "", "wide"])
def test_width_that_could_not_be_read_is_left_out(bus: PciTree, width: str) -> None:
    bus.put(GPU, "current_link_width", width)

    assert (GPU, "pcie.gpu_width", "") not in links(bus)


@pytest.mark.parametrize(("text", "speed"), [("8 GT/s", 8.0), ("2.5 GT/s PCIe", 2.5), ("Unknown speed", None)])
def test_speed_in_the_words_of_several_kernels(bus: PciTree, text: str, speed: float | None) -> None:
    bus.put(NIC, "current_link_speed", text)

    assert links(bus).get((NIC, "pcie.rdma_speed", "")) == speed


def test_gpu_without_a_driver(bus: PciTree) -> None:
    (bus.sys / "bus" / "pci" / "devices" / GPU / "driver").unlink()

    assert links(bus)[GPU, "pcie.gpu_driver", ""] == "none"


def test_error_counters_are_read_at_both_ends_of_a_link(bus: PciTree) -> None:
    bus.put(GPU, "aer_dev_correctable", "RxErr 0\nBadTLP 7\nNonFatalErr 9\nTOTAL_ERR_COR 16")
    bus.put(ABOVE_GPU, "aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1")

    seen = reported(PcieErrors(bus.sys).sample(START))

    assert seen[GPU, "pcie.aer_correctable", "BadTLP"] == 7
    assert seen[ABOVE_GPU, "pcie.aer_fatal", ""] == 1
    assert seen[UPSTREAM, "pcie.aer_fatal", ""] == 0
    assert (GPU, "pcie.aer_correctable", "NonFatalErr") not in seen


def test_unsupported_requests_are_no_errors(bus: PciTree) -> None:
    bus.put(GPU, "aer_dev_nonfatal", "TLP 2\nUnsupReq 5\nTOTAL_ERR_NONFATAL 7")

    assert reported(PcieErrors(bus.sys).sample(START))[GPU, "pcie.aer_nonfatal", ""] == 2


def test_error_counters_that_make_no_sense_are_left_out(bus: PciTree) -> None:
    for name in ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"):
        bus.put(GPU, name, "BadTLP many\nRxErr\n\n1 2 3")

    assert not any(device == GPU for device, _, _ in reported(PcieErrors(bus.sys).sample(START)))


def test_iommu_domain_of_a_device(bus: PciTree) -> None:
    bus.translate(GPU, "DMA-FQ")

    assert reported(PcieAdvice(bus.sys).sample(START)) == {(GPU, "pcie.iommu", ""): "DMA-FQ"}


def test_iommu_domain_where_the_kernels_folder_is_mounted_elsewhere(bus: PciTree, tmp_path: Path) -> None:
    bus.translate(GPU, "identity")
    elsewhere = (bus.sys / "kernel").rename(tmp_path / "kernel")

    assert reported(PcieAdvice(bus.sys).sample(START)) == {}
    assert reported(PcieAdvice(bus.sys, elsewhere).sample(START)) == {(GPU, "pcie.iommu", ""): "identity"}


@pytest.mark.parametrize(("control", "word"), [(0x0000, "off"), (0x0001, "off"), (0x001D, "on"), (0x0008, "on")])
def test_port_that_sends_peers_up_to_the_processor(bus: PciTree, control: int, word: str) -> None:
    bus.put_config(ABOVE_GPU, config_space((0x0001, 0), (0x000D, control)))

    assert reported(PcieAdvice(bus.sys).sample(START)) == {(ABOVE_GPU, "pcie.acs_redirect", ""): word}


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(bytes(64), id="all that may be read without privileges"),
        pytest.param(bytes(4096), id="no extended capabilities"),
        pytest.param(b"\xff" * 4096, id="a device that is gone"),
    ],
)
def test_config_space_that_reports_nothing(bus: PciTree, space: bytes) -> None:
    bus.put_config(ABOVE_GPU, space)

    assert reported(PcieAdvice(bus.sys).sample(START)) == {}


def test_list_of_capabilities_that_bites_its_own_tail_ends(bus: PciTree) -> None:
    loop = bytearray(4096)
    loop[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    bus.put_config(ABOVE_GPU, bytes(loop))

    assert reported(PcieAdvice(bus.sys).sample(START)) == {}


def config_space(*capabilities: tuple[int, int]) -> bytes:
    """With these extended capabilities, each with a word at offset 6."""
    space = bytearray(4096)
    for number, (capability, control) in enumerate(capabilities):
        at = 0x100 + 0x20 * number
        following = at + 0x20 if number + 1 < len(capabilities) else 0
        space[at : at + 4] = (capability | 1 << 16 | following << 20).to_bytes(4, "little")
        space[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(space)
