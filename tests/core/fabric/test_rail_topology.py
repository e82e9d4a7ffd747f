"""Ports and GPUs by their places: machines as they are built, and virtual machines that hide it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.fabric.rail_topology import DevicePath, Rail, rails


def place(pci: str, bridges: str, kind: str = "hdr") -> DevicePath:
    """A function below *bridges*."""
    return DevicePath(pci, f"devices/{bridges}/{pci}", kind)


def switch(number: int) -> str:
    """The way to one of several PCI switches, each at a root complex of its own."""
    return f"pci0000:{number:02x}/0000:{number:02x}:01.0/0000:{number + 1:02x}:00.0"


ONE_EACH = [0x10, 0x20, 0x30, 0x40]
GPUS = [place(f"0000:{at + 2:02x}:00.0", switch(at)) for at in ONE_EACH]
PORTS = [place(f"0000:{at + 3:02x}:00.0", switch(at)) for at in ONE_EACH]


def numbers(found: dict[str, Rail]) -> dict[str, int]:
    """Rail numbers by port."""
    return {port: rail.number for port, rail in found.items()}


def test_port_behind_the_same_switch_serves_the_gpu() -> None:
    assert rails(GPUS, PORTS) == {port.pci: Rail(at, GPUS[at].pci) for at, port in enumerate(PORTS)}


def test_order_of_what_is_given_does_not_matter() -> None:
    assert rails(GPUS[::-1], PORTS[::-1]) == rails(GPUS, PORTS)


def test_storage_port_at_the_same_root_complex_has_no_rail() -> None:
    storage = place("0000:18:00.0", "pci0000:10/0000:10:05.0")

    assert rails(GPUS, [*PORTS, storage]) == rails(GPUS, PORTS)


def test_gpus_behind_one_switch_share_its_ports_in_order() -> None:
    gpus = [place(f"0000:1{at}:00.0", switch(0x10)) for at in (2, 3)]
    ports = [place(f"0000:1{at}:00.0", switch(0x10)) for at in (4, 5)]

    assert rails(gpus, ports) == {"0000:14:00.0": Rail(0, "0000:12:00.0"), "0000:15:00.0": Rail(1, "0000:13:00.0")}


def test_one_port_for_two_gpus_is_one_rail() -> None:
    gpus = [place(f"0000:{at + 2 + more:02x}:00.0", switch(at)) for at in ONE_EACH for more in (0, 8)]

    assert numbers(rails(gpus, PORTS)) == {port.pci: at for at, port in enumerate(PORTS)}


def test_two_ports_of_one_gpu_are_two_rails() -> None:
    second = [place(f"0000:{at + 3:02x}:00.1", switch(at)) for at in ONE_EACH]

    assert sorted(numbers(rails(GPUS, [*PORTS, *second])).values()) == list(range(8))


def test_domains_are_ordered_as_numbers() -> None:
    gpus = [place(f"{domain}:01:00.0", f"pci{domain}:00/{domain}:00:00.0") for domain in ("0009", "10000")]
    ports = [place(f"{domain}:01:00.1", f"pci{domain}:00/{domain}:00:00.0") for domain in ("0009", "10000")]

    assert numbers(rails(gpus, ports)) == {"0009:01:00.1": 0, "10000:01:00.1": 1}


def test_where_bridges_are_hidden_as_many_ports_as_gpus_are_paired_in_order() -> None:
    gpus = [place(f"000{at}:00:00.0", f"pci000{at}:00") for at in range(1, 5)]
    ports = [place(f"010{at}:00:00.0", f"pci010{at}:00") for at in range(1, 5)]
    management = place("0200:00:00.0", "pci0200:00", kind="ethernet")

    assert rails(gpus, [management, *ports]) == {port.pci: Rail(at, gpus[at].pci) for at, port in enumerate(ports)}


def test_nothing_is_guessed_where_numbers_differ() -> None:
    gpus = [place(f"000{at}:00:00.0", f"pci000{at}:00") for at in range(1, 5)]

    assert rails(gpus, [place("0101:00:00.0", "pci0101:00")]) == {}
    assert rails([], PORTS) == {}


ADDRESSES = st.builds(
    "{:04x}:{:02x}:{:02x}.{}".format, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 1)
)
WAYS = st.lists(ADDRESSES, max_size=3).map(lambda bridges: "/".join(["pci0000:00", *bridges]))
FUNCTIONS = st.lists(st.tuples(ADDRESSES, WAYS), max_size=10, unique_by=lambda function: function[0])


@pytest.mark.slow
@given(FUNCTIONS, FUNCTIONS, st.randoms(use_true_random=False))
def test_any_machine_has_one_rail_a_port_numbered_from_zero_whatever_the_order(
    gpus: list[tuple[str, str]], ports: list[tuple[str, str]], shuffled: Random
) -> None:
    have = [place(pci, way) for pci, way in gpus], [place(pci, way) for pci, way in ports]
    found = rails(*have)
    for places in have:
        shuffled.shuffle(places)

    assert rails(*have) == found
    assert sorted(rail.number for rail in found.values()) == list(range(len(found)))
    assert {rail.gpu for rail in found.values()} <= {pci for pci, _ in gpus}
