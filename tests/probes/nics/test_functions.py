"""Virtual functions and sub-functions: what they tell beside the physical function that they are parts of."""

from __future__ import annotations

from healthd.probes.nics.infiniband import Infiniband
from healthd.probes.nics.rdma_counters import InfinibandCounters, VirtualFunctions
from tests.probes.nics.simulated_nic import NIC, SECOND, START, VIRTUAL, reported
from tests.sysfs import Sysfs, link, made, set_link, write


def test_virtual_function_is_not_asked_for_the_wire_of_its_physical_one(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    virtual = sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)
    for one in (port, virtual):
        set_link(one, "1: DOWN", "2: Polling")
    looks = [Infiniband(sysfs.root).sample(START), InfinibandCounters(sysfs.root).sample(START)]

    assert [reported(look, VIRTUAL) for look in looks] == [{}, {}]
    assert all(reported(look) for look in looks)


def test_virtual_function_counts_its_own_transport_while_its_physical_one_is_up(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)
    probe = VirtualFunctions(sysfs.root)
    up = probe.sample(START)
    set_link(port, "1: DOWN", "3: Disabled")

    assert "roce.out_of_sequence" in reported(up, VIRTUAL)
    assert "ib.symbol_error" not in reported(up, VIRTUAL)
    assert reported(up) == {}
    assert reported(probe.sample(START + SECOND), VIRTUAL) == {}


def test_virtual_function_without_its_physical_one_stands_for_itself(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)

    assert reported(Infiniband(sysfs.root).sample(START), VIRTUAL)["ib.link"] == "up"
    assert "ib.symbol_error" in reported(InfinibandCounters(sysfs.root).sample(START), VIRTUAL)


def test_sub_function_reports_nothing_beside_the_function_that_it_is_part_of(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    device = sysfs.root / "class/infiniband/mlx5_2"
    write(device / "ports/1", {"link_layer": "Ethernet", "state": "1: DOWN", "phys_state": "3: Disabled"})
    link(device / "device", made(sysfs.function(NIC) / "mlx5_core.sf.2"))

    assert reported(Infiniband(sysfs.root).sample(START))["ib.state"] == "ACTIVE"
    assert reported(VirtualFunctions(sysfs.root).sample(START)) == {}


def test_missing_virtual_function_is_no_fault(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    sysfs.unplug("mlx5_1")

    assert reported(probe.sample(START + SECOND), VIRTUAL, part="") == {}
