"""RDMA ports from trees of /sys: states, lost links, devices that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.probes.nics.infiniband import Infiniband
from healthd.probes.nics.rdma_counters import InfinibandCounters, VirtualFunctions
from tests.probes.nics.simulated_nic import NIC, SECOND, START, Disk, reported
from tests.sysfs import Sysfs, set_link, write

BRIDGES = "pci0000:5a/0000:5a:01.0/0000:5b:00.0"


def test_active_port_is_up(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC, below=BRIDGES)

    assert reported(Infiniband(sysfs.root).sample(START)) == {
        "ib.state": "ACTIVE",
        "ib.phys_state": "LinkUp",
        "ib.link_downed": 0,
        "ib.link": "up",
    }


def test_machine_without_rdma_reports_nothing(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for probe in (Infiniband(tmp_path), InfinibandCounters(tmp_path), VirtualFunctions(tmp_path)):
        look = probe.sample(START)

        assert (look.readings, look.trouble) == ([], "")


def test_folder_that_is_no_sysfs_is_trouble_and_no_device_is_missed(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    sysfs.root.rename(sysfs.root.with_name("unmounted"))
    for one in (probe, InfinibandCounters(sysfs.root), VirtualFunctions(sysfs.root)):
        look = one.sample(START + SECOND)

        assert (look.readings, look.trouble.split(" cannot")[0]) == ((), f"{sysfs.root}/class")


@pytest.mark.parametrize("probe_of", [Infiniband, InfinibandCounters, VirtualFunctions])
def test_class_that_is_gone_with_all_its_devices_is_trouble_and_no_device_is_missed(
    sysfs: Sysfs, probe_of: type[Infiniband | InfinibandCounters | VirtualFunctions]
) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe = probe_of(sysfs.root)
    probe.sample(START)
    (sysfs.root / "class/infiniband").rename(sysfs.root / "unmounted")

    look = probe.sample(START + SECOND)

    assert (look.readings, look.trouble.split(" cannot")[0]) == ((), f"{sysfs.root}/class/infiniband")


def test_device_of_software_has_no_hardware_to_judge(sysfs: Sysfs) -> None:
    write(sysfs.root / "class/infiniband/rxe0/ports/1", {"state": "1: DOWN", "phys_state": "3: Disabled"})

    assert Infiniband(sysfs.root).sample(START).readings == []


def test_port_that_was_seen_up_and_serves_a_gpu_is_down(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    port = sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    set_link(port, "1: DOWN", "2: Polling")

    found = reported(probe.sample(START + SECOND))
    assert (found["ib.link"], found["ib.rail_link"]) == ("down", "down")


def test_port_that_lost_its_link_before_the_agent_started_is_down(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    port = sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    set_link(port, "1: DOWN", "2: Polling")
    write(port / "counters", {"link_downed": "1"})

    assert reported(Infiniband(sysfs.root).sample(START))["ib.link"] == "down"


@pytest.mark.parametrize(
    ("flags", "carriers", "link"),
    [("0x1003", "2", "down-off-rail"), ("0x1002", "2", "disabled"), ("0x1003", "0", "unused"), ("", "2", "disabled")],
)
def test_roce_drivers_call_every_port_without_a_carrier_disabled(
    sysfs: Sysfs, flags: str, carriers: str, link: str
) -> None:
    port = sysfs.rdma("bnxt_re0", NIC, link_layer="Ethernet", driver="bnxt_en", counters=False)
    sysfs.net("ens1", NIC, flags=flags, carrier_up_count=carriers)
    set_link(port, "1: DOWN", "3: Disabled")

    assert reported(Infiniband(sysfs.root).sample(START))["ib.link"] == link


def test_infiniband_port_that_is_disabled_was_switched_off(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    set_link(port, "1: DOWN", "3: Disabled")

    assert reported(probe.sample(START + SECOND))["ib.link"] == "disabled"


def test_port_that_was_never_up_is_unused(sysfs: Sysfs) -> None:
    set_link(sysfs.rdma("mlx5_0", NIC), "1: DOWN", "2: Polling")

    assert reported(Infiniband(sysfs.root).sample(START))["ib.link"] == "unused"


def test_link_that_is_neither_seen_up_nor_known_to_be_down_makes_nothing_good(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    port = sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    for state, phys_state in (("1: DOWN", "2: Polling"), ("2: INIT", "5: LinkUp")):
        set_link(port, state, phys_state)
        after_a_boot = reported(Infiniband(sysfs.root).sample(START))

        assert after_a_boot["ib.link"] in {"unused", "no-manager"}
        assert "ib.rail_link" not in after_a_boot


def test_device_that_went_away_is_reported_and_its_port_is_not(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    before = probe.sample(START)
    sysfs.unplug("mlx5_0")
    after = probe.sample(START + SECOND)

    assert reported(before, part="") == {"ib.present": "yes"}
    assert reported(after) == {}
    assert reported(after, part="") == {"ib.present": "no"}


def test_device_that_comes_back_under_its_name_is_read_anew(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    sysfs.unplug("mlx5_0")
    probe.sample(START + SECOND)
    write(sysfs.rdma("mlx5_0", NIC) / "counters", {"link_downed": "7"})
    back = probe.sample(START + 2 * SECOND)

    assert reported(back)["ib.link_downed"] == 7
    assert reported(back, part="") == {"ib.present": "yes"}


def test_port_that_cannot_be_read_is_left_out(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)

    assert reported(Infiniband(sysfs.root, Disk("phys_state")).sample(START)) == {}


@pytest.mark.parametrize(
    ("state", "phys_state"),
    [
        ("", ""),
        ("garbage", "5: LinkUp"),
        ("4: ACTIVE", "\xff\xff"),
        ("0: NOP", "5: LinkUp"),
        ("9: UNKNOWN", "9: <unknown>"),
    ],
)
def test_state_that_is_none_is_unread_and_not_down(sysfs: Sysfs, state: str, phys_state: str) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    port = sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    set_link(port, state, phys_state)

    look = probe.sample(START + SECOND)

    assert reported(look) == {}
    assert look.unread == "the state of mlx5_0 port 1 is not readable or none that there is"


def test_counter_of_lost_links_that_is_full_is_not_reported(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC)
    write(port / "counters", {"link_downed": "255"})

    assert "ib.link_downed" not in reported(Infiniband(sysfs.root).sample(START))


def test_link_that_is_lost_because_its_port_is_switched_off_is_not_counted(sysfs: Sysfs) -> None:
    port, net = sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet"), sysfs.net("ens1", NIC)
    probe = Infiniband(sysfs.root)

    def lost(times: int, state: str, phys_state: str, flags: str) -> float | str:
        set_link(port, state, phys_state)
        write(net, {"flags": flags})
        write(port / "counters", {"link_downed": str(times)})
        return reported(probe.sample(START))["ib.link_downed"]

    assert lost(2, "4: ACTIVE", "5: LinkUp", "0x1003") == 2
    for times in (3, 4, 5, 6):
        assert lost(times, "1: DOWN", "3: Disabled", "0x1002") == 2, "a person set it down"
        assert lost(times, "4: ACTIVE", "5: LinkUp", "0x1003") == 2
    assert lost(7, "1: DOWN", "3: Disabled", "0x1003") == 3, "the cable"
    assert lost(0, "4: ACTIVE", "5: LinkUp", "0x1003") == 0, "its driver was loaded anew"
    assert lost(0, "4: ACTIVE", "5: LinkUp", "0x1003") == 0
    assert lost(1, "1: DOWN", "3: Disabled", "0x1003") == 1


def test_lost_link_counts_where_the_interface_is_not_visible(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    set_link(port, "1: DOWN", "3: Disabled")
    write(port / "counters", {"link_downed": "1"})

    assert reported(probe.sample(START + SECOND))["ib.link_downed"] == 1


def test_virtual_functions_that_go_with_their_pod_leave_an_answer(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)

    assert VirtualFunctions(sysfs.root).sample(START).readings


def test_efa_says_active_always_so_it_is_not_asked(sysfs: Sysfs) -> None:
    sysfs.rdma("rdmap16s27", NIC, link_layer="Unspecified", driver="efa")

    assert Infiniband(sysfs.root, expected=1).sample(START).readings == [
        (NIC, "ib.present", "yes", ""),
        ("node", "ib.devices", 1, ""),
        ("node", "ib.ports_up", 1, ""),
        ("node", "ib.ports_up.expected", 1, ""),
    ]


def test_lost_links_are_not_counted_every_second_where_that_is_refused(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    disk = Disk("link_downed")
    probe = Infiniband(sysfs.root, disk)
    for second in range(5):
        probe.sample(START + second * SECOND)

    assert disk.asked.count("link_downed") == 1


def test_machine_without_ports_is_read_rarely_until_there_is_one(sysfs: Sysfs) -> None:
    probe = Infiniband(sysfs.root)
    probe.sample(START)
    without = probe.every
    sysfs.rdma("mlx5_0", NIC)
    probe.sample(START + SECOND)

    assert (without, probe.every) == (10 * SECOND, SECOND)


def test_ports_that_are_gone_or_only_expected_are_looked_for_every_second(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe, hopeful = Infiniband(sysfs.root), Infiniband(sysfs.root, expected=8)
    probe.sample(START)
    sysfs.unplug("mlx5_0")
    probe.sample(START + SECOND)
    hopeful.sample(START + SECOND)

    assert (probe.every, hopeful.every) == (SECOND, SECOND)
