"""Checks that only sample: GPUs there and well, links up, memory clean, network ports up."""

from __future__ import annotations

import pytest

from healthd.checks.check import CheckOutcome, Expected
from healthd.checks.devices import PortInfo
from healthd.checks.inventory import InventoryCheck
from healthd.checks.links import NvLinks, PcieWidth
from healthd.checks.memory import SIGNS, Ecc
from healthd.checks.ports import Nics
from healthd.core.diagnosis.readings import NODE, Reading
from healthd.core.node.expected_devices import ExpectedCount, ExpectedDevices
from tests.checks.contexts import GPU0, GPU1, a_context, a_gpu, a_port


def test_gpus_that_answer_pass() -> None:
    assert InventoryCheck().run(a_context(a_gpu(), a_gpu(GPU1))).status is CheckOutcome.PASS


def test_without_a_gpu_there_is_no_inventory() -> None:
    assert InventoryCheck().run(a_context()).status is CheckOutcome.SKIP


def test_a_gpu_that_somebody_expects_is_missed_also_where_there_is_none() -> None:
    result = InventoryCheck().run(a_context(expected=Expected(gpus=8)))

    assert (result.status, result.why) == (CheckOutcome.FAIL, "0 GPUs answer, and 8 are expected")


KNOWN = ExpectedDevices(gpus=ExpectedCount(2, "seen"), rdma_devices=ExpectedCount(2, "seen"))


def test_a_gpu_that_the_cluster_knows_is_missed() -> None:
    result = InventoryCheck().run(a_context(a_gpu(), expected=Expected(known=KNOWN)))

    assert (result.status, result.why) == (CheckOutcome.FAIL, "1 GPUs answer, and 2 are expected: seen")


def test_a_machine_without_a_gpu_fails_where_the_cluster_knows_of_one() -> None:
    assert InventoryCheck().run(a_context(expected=Expected(known=KNOWN))).status is CheckOutcome.FAIL


def test_the_number_of_an_operator_wins_over_what_the_cluster_knows() -> None:
    assert InventoryCheck().run(a_context(a_gpu(), expected=Expected(gpus=1, known=KNOWN))).status is CheckOutcome.PASS


def test_a_gpu_that_is_passed_through_is_not_missed() -> None:
    context = a_context(a_gpu(), a_gpu(GPU1, state="driver vfio-pci"), expected=Expected(known=KNOWN))

    assert InventoryCheck().run(context).status is CheckOutcome.PASS


@pytest.mark.parametrize("ports", [(), (a_port(),)])
def test_an_rdma_device_that_the_cluster_knows_is_missed(ports: tuple[PortInfo, ...]) -> None:
    result = Nics().run(a_context(ports=ports, expected=Expected(known=KNOWN)))

    expected = f"there are {len(ports)} RDMA devices, and 2 are expected: seen"
    assert (result.status, result.why) == (CheckOutcome.FAIL, expected)


@pytest.mark.parametrize("state", ["lost", "reset-required", "error", "gone", "silent", "missing", "no driver"])
def test_a_gpu_in_any_other_state_fails(state: str) -> None:
    result = InventoryCheck().run(a_context(a_gpu(), a_gpu(GPU1, state=state)))

    assert (result.status, result.why) == (CheckOutcome.FAIL, f"{GPU1} is {state}")


@pytest.mark.parametrize("state", ["driver vfio-pci", "not given"])
def test_a_gpu_that_is_passed_through_or_not_given_to_a_container_is_another_owners(state: str) -> None:
    assert InventoryCheck().run(a_context(a_gpu(), a_gpu(GPU1, state=state))).status is CheckOutcome.PASS


def test_a_driver_that_does_not_answer_fails_once_for_all_gpus() -> None:
    hung = [a_gpu(pci, state="not read") for pci in (GPU0, GPU1)]

    result = InventoryCheck().run(a_context(*hung, unread={"nvml": "it did not answer within 60 s"}))

    assert (result.status, result.why) == (CheckOutcome.FAIL, "NVML cannot be asked: it did not answer within 60 s")


def test_a_gpu_that_nvml_cannot_name_fails() -> None:
    result = InventoryCheck().run(a_context(a_gpu(), readings=(Reading(NODE, "nvml.gpus.unreadable", 1),)))

    assert result.status is CheckOutcome.FAIL


def test_a_link_that_is_down_behind_switches_fails_also_where_all_gpus_miss_one() -> None:
    result = NvLinks().run(a_context(a_gpu(nvlinks_up=17), a_gpu(GPU1, nvlinks_up=17)))

    assert (result.status, result.why.count("17 of 18")) == (CheckOutcome.FAIL, 2)


def test_all_links_up_pass() -> None:
    assert NvLinks().run(a_context(a_gpu(), a_gpu(GPU1))).status is CheckOutcome.PASS


def test_where_bridges_join_gpus_the_best_one_says_how_many_there_are() -> None:
    boards = [a_gpu(pci, name="NVIDIA A100 80GB PCIe", nvlinks=12, nvlinks_up=8) for pci in (GPU0, GPU1)]
    broken = a_gpu("0000:3d:00.0", name="NVIDIA A100 80GB PCIe", nvlinks=12, nvlinks_up=4)

    assert NvLinks().run(a_context(*boards)).status is CheckOutcome.PASS
    assert NvLinks().run(a_context(*boards, broken)).why == "0000:3d:00.0 has 4 of 8 NVLinks up"


def test_boards_without_bridges_have_no_links_to_check() -> None:
    alone = a_gpu(name="NVIDIA A100 80GB PCIe", nvlinks=12, nvlinks_up=0)

    assert NvLinks().run(a_context(alone)).status is CheckOutcome.SKIP


def test_behind_switches_no_link_at_all_is_a_fault() -> None:
    assert NvLinks().run(a_context(a_gpu(nvlinks_up=0))).status is CheckOutcome.FAIL


def test_mig_switches_links_off() -> None:
    sliced = a_context(a_gpu(nvlinks_up=0), readings=(Reading(GPU0, "nvml.mig", "on"),))

    assert NvLinks().run(sliced).status is CheckOutcome.SKIP


def test_lost_lanes_of_a_gpu_or_a_port_fail() -> None:
    nic = "0000:5b:00.0"
    readings = (Reading(nic, "pcie.rdma_width", 8), Reading(nic, "pcie.rdma_full_width", 16))

    assert PcieWidth().run(a_context(a_gpu())).status is CheckOutcome.PASS
    assert PcieWidth().run(a_context(a_gpu(pcie_width=8))).why == f"{GPU0} has 8 of 16 lanes"
    assert PcieWidth().run(a_context(readings=readings)).why == f"{nic} has 8 of 16 lanes"


def test_without_a_width_there_is_nothing_to_check() -> None:
    assert PcieWidth().run(a_context(a_gpu(pcie_width=None))).status is CheckOutcome.SKIP


@pytest.mark.parametrize("sign", SIGNS)
def test_every_sign_of_broken_memory_fails_and_clean_memory_passes(sign: tuple[str, str]) -> None:
    reading, says = sign
    bad = Ecc().run(a_context(a_gpu(), readings=(Reading(GPU0, reading, 1),)))
    good = Ecc().run(a_context(a_gpu(), readings=(Reading(GPU0, reading, 0),)))

    assert (bad.status, bad.why) == (CheckOutcome.FAIL, f"{GPU0}: {says}")
    assert good.status is CheckOutcome.PASS


def test_that_ecc_is_off_is_reported() -> None:
    readings = (Reading(GPU0, "nvml.ecc.on", 0), Reading(GPU0, "nvml.ecc.uncorrected", 0))

    assert "ECC is switched off on 0000:3b:00.0" in Ecc().run(a_context(a_gpu(), readings=readings)).why


def test_memory_of_which_nothing_is_reported_is_skipped() -> None:
    assert Ecc().run(a_context(a_gpu())).status is CheckOutcome.SKIP


@pytest.mark.parametrize("state", ["down", "down-off-rail", "no-manager", "never-up"])
def test_a_port_that_should_be_up_fails(state: str) -> None:
    result = Nics().run(a_context(ports=(a_port(), a_port("mlx5_1", state=state))))

    assert (result.status, result.why) == (CheckOutcome.FAIL, f"mlx5_1/1 is {state}")


@pytest.mark.parametrize("state", ["disabled", "unused"])
def test_a_port_that_no_one_uses_is_no_fault(state: str) -> None:
    assert Nics().run(a_context(ports=(a_port(), a_port("mlx5_1", state=state)))).status is CheckOutcome.PASS


def test_a_port_below_the_rate_that_is_expected_or_usual_fails() -> None:
    slow = a_port(rate_gbps=200)
    usual = (Reading(slow.pci, "ib.peer_rate", 400, "port 1"),)

    assert Nics().run(a_context(ports=(slow,))).status is CheckOutcome.PASS
    assert Nics().run(a_context(ports=(slow,), readings=usual)).status is CheckOutcome.FAIL
    assert Nics().run(a_context(ports=(slow,), expected=Expected(rate_gbps=400))).why == (
        "mlx5_0/1 runs at 200 Gb/s instead of 400"
    )


def test_ports_that_somebody_expects_are_missed() -> None:
    assert Nics().run(a_context(expected=Expected(ports=8))).status is CheckOutcome.FAIL
    assert Nics().run(a_context(ports=(a_port(),), expected=Expected(ports=1))).status is CheckOutcome.PASS


def test_a_device_that_went_away_fails() -> None:
    gone = (Reading("0000:5c:00.0", "ib.present", "no"),)

    assert Nics().run(a_context(ports=(a_port(),), readings=gone)).why == "0000:5c:00.0 is gone"


def test_efa_says_nothing_of_its_link() -> None:
    assert Nics().run(a_context(ports=(a_port("efa_0", family="efa", state="not reported"),))).why == "1 ports are up"


def test_without_rdma_devices_there_is_nothing_to_check() -> None:
    assert Nics().run(a_context(a_gpu())).status is CheckOutcome.SKIP
