"""The inventory of RDMA ports, and the parts of reading /sys that nothing else shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.api import Nic
from healthd.probes.nics.rdma import parse_rate, parse_state, read_gpus, read_nics, read_ports
from tests.sysfs import Sysfs, link, made, set_link, write

NIC = "0000:5c:00.0"
BRIDGES = "pci0000:5a/0000:5a:01.0/0000:5b:00.0"


def test_port_with_its_rail_its_gpu_and_its_interface(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    sysfs.rdma("mlx5_0", NIC, below=BRIDGES, link_layer="Ethernet")
    sysfs.net("ens1np0", NIC, below=BRIDGES)

    assert read_nics(sysfs.root) == [
        Nic(
            pci=NIC,
            port=1,
            device="mlx5_0",
            family="roce",
            netdev="ens1np0",
            rate_gbps=400,
            firmware="28.39.1002",
            rail=0,
            gpu="0000:5d:00.0",
        )
    ]


def test_ports_in_the_order_of_devices_and_of_their_numbers(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_1", "0000:5e:00.0")
    first = sysfs.rdma("mlx5_0", NIC)
    set_link(made(first.parent / "2"), "1: DOWN", "2: Polling")

    assert [(nic.device, nic.port) for nic in read_nics(sysfs.root)] == [("mlx5_0", 1), ("mlx5_0", 2), ("mlx5_1", 1)]


def test_families(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    sysfs.rdma("mlx5_1", "0000:5e:00.0", link_layer="Ethernet")
    sysfs.rdma("rdmap16s27", "0000:10:1b.0", link_layer="Unspecified", driver="efa")

    assert [nic.family for nic in read_nics(sysfs.root)] == ["ib", "roce", "efa"]


def test_virtual_function_names_its_physical_one_and_has_no_rail(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    sysfs.rdma("mlx5_1", "0000:5c:00.2", below=BRIDGES, parent=NIC)

    assert [(nic.parent, nic.rail) for nic in read_nics(sysfs.root)] == [("", 0), (NIC, None)]


def test_sub_function_counts_as_the_function_that_it_lies_below(sysfs: Sysfs) -> None:
    function = sysfs.function(NIC)
    device = sysfs.root / "class/infiniband/mlx5_2"
    write(device / "ports/1", {"link_layer": "Ethernet", "state": "4: ACTIVE"})
    link(device / "device", made(function / "mlx5_core.sf.2"))

    assert [port.pci for port in read_ports(sysfs.root)] == [NIC]


def test_interface_of_another_owners_function_is_not_the_ports_own(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    sysfs.net("a_representor", NIC, phys_port_name="pf0vf3")
    sysfs.net("other_port", NIC, dev_port="1")

    assert [port.netdev for port in read_ports(sysfs.root)] == [""]


def test_gpus_are_found_without_their_driver(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    sysfs.function("0000:5e:00.0", vendor="0x10de", **{"class": "0x068000"})
    sysfs.function(NIC)

    assert [(gpu.pci, gpu.path) for gpu in read_gpus(sysfs.root)] == [
        ("0000:5d:00.0", f"devices/{BRIDGES}/0000:5d:00.0")
    ]


@pytest.mark.parametrize(
    ("text", "rate"), [("400 Gb/sec (4X NDR)", 400), ("2.5 Gb/sec (1X SDR)", 2.5), ("", None), ("nan", None)]
)
def test_rate(text: str, rate: float | None) -> None:
    assert parse_rate(text) == rate


def test_state_with_and_without_a_word() -> None:
    assert [parse_state(text) for text in ("4: ACTIVE", "7: Phy Test", "", "9")] == ["ACTIVE", "Phy Test", "", ""]


@given(st.text())
def test_no_text_of_a_file_makes_a_reader_fail(text: str) -> None:
    rate = parse_rate(text)

    assert rate is None or 0 <= rate < 100_000
    assert parse_state(text) in text
