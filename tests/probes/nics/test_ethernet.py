"""Ethernet ports from trees of /sys, drivers' statistics from a driver that is played, and the kernel's own answers."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from healthd.core.diagnosis.readings import Sample
from healthd.probes.nics.ethernet import Ethernet, EthernetCounters, EthernetStatistics
from healthd.probes.nics.ethtool import Ethtool
from tests.sysfs import Sysfs, link, write

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NIC = "0000:5c:00.0"


def reported(sample: Sample, device: str = NIC, part: str = "port 1") -> dict[str, float | str]:
    """What a sample says of one port, by name."""
    return {r.name: r.value for r in sample.readings if (r.device, r.part) == (device, part)}


class Driver:
    """Answers for one interface, as a driver does through the kernel."""

    def __init__(self, interface: str, bus: str, **statistics: int) -> None:
        self.interface = interface
        self.address = bus
        self.statistics = statistics
        self.named = 0

    def bus(self, interface: str) -> str:
        """Raises OSError for other interfaces."""
        if interface != self.interface:
            raise OSError(errno.ENODEV, "No such device")
        return self.address

    def count(self, interface: str) -> int:
        """How many it has now."""
        return len(self.statistics)

    def names(self, interface: str, count: int) -> list[str]:
        """Their names."""
        self.named += 1
        return list(self.statistics)

    def values(self, interface: str, count: int) -> Sequence[int]:
        """Their values."""
        return list(self.statistics.values())


def test_port_with_a_carrier_is_up(sysfs: Sysfs) -> None:
    sysfs.net("ens1", NIC)

    assert reported(Ethernet(sysfs.root).sample(START)) == {"eth.link": "up", "eth.carrier_changes": 1}


@pytest.mark.parametrize(
    ("flags", "carriers", "word"), [("0x1003", "1", "down"), ("0x1002", "1", "off"), ("0x1003", "0", "unused")]
)
def test_port_without_a_carrier(sysfs: Sysfs, flags: str, carriers: str, word: str) -> None:
    sysfs.net("ens1", NIC, operstate="down", flags=flags, carrier_up_count=carriers)

    assert reported(Ethernet(sysfs.root).sample(START))["eth.link"] == word


@pytest.mark.parametrize("state", ["", "garbage", "\xff"])
def test_state_that_is_none_is_unread_and_not_down(sysfs: Sysfs, state: str) -> None:
    folder = sysfs.net("eth0", NIC)
    probe = Ethernet(sysfs.root)
    probe.sample(START)
    write(folder, {"operstate": state})

    sample = probe.sample(START + SECOND)

    assert not sample.readings
    assert sample.unread == "the state of eth0 is not readable or none that there is"


def test_port_that_was_seen_up_is_down(sysfs: Sysfs) -> None:
    folder = sysfs.net("ens1", NIC, carrier_up_count="0")
    probe = Ethernet(sysfs.root)
    probe.sample(START)
    write(folder, {"operstate": "down"})

    assert reported(probe.sample(START + SECOND))["eth.link"] == "down"


def test_second_port_of_a_function_is_distinguished(sysfs: Sysfs) -> None:
    sysfs.net("ens1", NIC)
    sysfs.net("ens1d1", NIC, dev_port="1", operstate="down")

    assert reported(Ethernet(sysfs.root).sample(START), part="port 2")["eth.link"] == "down"


def test_interfaces_that_are_no_hardware_of_their_own_are_left_out(sysfs: Sysfs) -> None:
    sysfs.net("pf0vf0", NIC, phys_port_name="pf0vf0")
    sysfs.net("ib0", "0000:5d:00.0", type="32")
    write(sysfs.root / "class/net/veth0", {"type": "1", "operstate": "up"})
    virtual = sysfs.net("ens1v0", "0000:5c:00.2")
    link(virtual.parent.parent / "physfn", sysfs.function("0000:5c:00.1"))

    assert Ethernet(sysfs.root).sample(START).readings == []


@pytest.mark.parametrize("probe", [Ethernet, EthernetCounters, EthernetStatistics])
def test_folder_that_is_no_sysfs_is_trouble(
    tmp_path: Path, probe: type[Ethernet | EthernetCounters | EthernetStatistics]
) -> None:
    assert "mount the host's /sys" in probe(tmp_path / "sys").sample(START).trouble


def test_counters_of_sysfs(sysfs: Sysfs) -> None:
    folder = sysfs.net("ens1", NIC, carrier_down_count="2")
    write(folder / "statistics", {"rx_crc_errors": "17"})
    found = reported(EthernetCounters(sysfs.root).sample(START))

    assert (found["eth.rx_crc_errors"], found["eth.carrier_down_count"], found["eth.speed"]) == (17, 2, 400)


def test_speed_is_reported_beside_that_of_most_of_its_kind_and_only_of_ports_that_are_up(sysfs: Sysfs) -> None:
    for at, speed in enumerate(("400000", "100000", "400000", "400000")):
        sysfs.net(f"ens{at}", f"0000:0{at}:00.0", speed=speed)
    sysfs.net("ens9", "0000:09:00.0", speed="-1", operstate="down")
    sample = EthernetCounters(sysfs.root).sample(START)

    slow = reported(sample, "0000:01:00.0")
    assert (slow["eth.speed"], slow["eth.peer_speed"]) == (100, 400)
    assert "eth.speed" not in reported(sample, "0000:09:00.0")


def test_pause_of_all_priorities_is_added_up(sysfs: Sysfs) -> None:
    sysfs.net("ens1", NIC)
    driver = Driver("ens1", NIC, rx_prio3_pause=5, rx_prio5_pause=2, rx_prio3_pause_duration=900, rx0_packets=7)

    assert reported(EthernetStatistics(sysfs.root, driver).sample(START)) == {"eth.rx_pause": 7, "eth.rx_pause_us": 900}


def test_drivers_of_other_makers_report_the_same_readings(sysfs: Sysfs) -> None:
    sysfs.net("ens1", NIC)
    for driver in (
        Driver("ens1", NIC, tx_pfc_ena_frames_pri3=4),
        Driver("ens1", NIC, **{"tx_priority_3_xoff.nic": 4}),
    ):
        assert reported(EthernetStatistics(sysfs.root, driver).sample(START)) == {"eth.tx_pause": 4}


def test_interface_of_the_same_name_in_another_namespace_is_not_believed(sysfs: Sysfs) -> None:
    sysfs.net("eth0", NIC)

    assert EthernetStatistics(sysfs.root, Driver("eth0", "", module_unplug=1)).sample(START).readings == []
    assert EthernetStatistics(sysfs.root, Driver("eth1", NIC, module_unplug=1)).sample(START).readings == []


def test_names_are_asked_again_only_when_their_number_changed(sysfs: Sysfs) -> None:
    sysfs.net("ens1", NIC)
    driver = Driver("ens1", NIC, module_unplug=1)
    probe = EthernetStatistics(sysfs.root, driver)
    probe.sample(START)
    probe.sample(START + SECOND)
    driver.statistics = {"rx_prio3_pause": 8, "module_unplug": 2}
    found = reported(probe.sample(START + 2 * SECOND))

    assert (found, driver.named) == ({"eth.rx_pause": 8, "eth.module_unplug": 2}, 2)


def test_kernel_answers_about_an_interface_without_privilege() -> None:
    kernel = Ethtool()
    answers = []
    for _, name in socket.if_nameindex():
        try:
            count = kernel.count(name)
            answers.append((count, len(kernel.names(name, count)), len(kernel.values(name, count))))
        except OSError:
            continue  # this interface has no driver that keeps statistics
    if not any(count for count, *_ in answers):
        pytest.skip("no interface of this machine keeps statistics for ethtool")

    assert [(names, values) for _, names, values in answers] == [(count, count) for count, *_ in answers]


def test_kernel_says_that_an_interface_is_not_here() -> None:
    with pytest.raises(OSError, match="No such device"):
        Ethtool().bus("not-here0")


def test_machine_without_interfaces_is_read_rarely_until_there_is_one(sysfs: Sysfs) -> None:
    probe = Ethernet(sysfs.root)
    probe.sample(START)
    without = probe.every
    sysfs.net("ens1", NIC)
    probe.sample(START + SECOND)

    assert (without, probe.every) == (10 * SECOND, SECOND)
