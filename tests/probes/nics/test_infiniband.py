"""RDMA ports from trees of /sys: states, counters, devices that come and go, files that refuse."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from healthd.core.readings import Look
from healthd.probes.nics.counter_files import REFUSALS
from healthd.probes.nics.infiniband import Infiniband
from healthd.probes.nics.rdma_counters import COUNTERS, InfinibandCounters, VirtualFunctions
from healthd.probes.sysfs import read_text
from tests.sysfs import Sysfs, link, made, set_link, write

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NIC = "0000:5c:00.0"
VIRTUAL = "0000:5c:00.2"
BRIDGES = "pci0000:5a/0000:5a:01.0/0000:5b:00.0"


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    """A machine without devices."""
    return Sysfs(tmp_path / "sys")


def told(look: Look, device: str = NIC, part: str = "port 1") -> dict[str, float | str]:
    """What a look says of one port, by name."""
    return {r.name: r.value for r in look.readings if (r.device, r.part) == (device, part)}


class Disk:
    """Reads the tree, except files whose names are in *refused*; keeps what was asked."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.asked: list[str] = []

    def __call__(self, path: str) -> str:
        name = Path(path).name
        self.asked.append(name)
        if name in self.refused:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return read_text(path)


def test_active_port_is_up(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC, below=BRIDGES)

    assert told(Infiniband(sysfs.root).look(START)) == {
        "ib.state": "ACTIVE",
        "ib.phys_state": "LinkUp",
        "ib.link_downed": 0,
        "ib.link": "up",
    }


def test_machine_without_rdma_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for probe in (Infiniband(tmp_path), InfinibandCounters(tmp_path), VirtualFunctions(tmp_path)):
        look = probe.look(START)

        assert (look.readings, look.trouble) == ([], "")


def test_folder_that_is_no_sysfs_is_trouble_and_no_device_is_missed(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    probe.look(START)
    sysfs.root.rename(sysfs.root.with_name("unmounted"))
    for one in (probe, InfinibandCounters(sysfs.root), VirtualFunctions(sysfs.root)):
        look = one.look(START + SECOND)

        assert (look.readings, look.trouble.split(" cannot")[0]) == ((), f"{sysfs.root}/class")


def test_device_of_software_has_no_hardware_to_judge(sysfs: Sysfs) -> None:
    write(sysfs.root / "class/infiniband/rxe0/ports/1", {"state": "1: DOWN", "phys_state": "3: Disabled"})

    assert Infiniband(sysfs.root).look(START).readings == []


def test_port_that_was_seen_up_and_serves_a_gpu_is_down(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    port = sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    probe = Infiniband(sysfs.root)
    probe.look(START)
    set_link(port, "1: DOWN", "2: Polling")

    found = told(probe.look(START + SECOND))
    assert (found["ib.link"], found["ib.rail_link"]) == ("down", "down")


def test_port_that_lost_its_link_before_the_agent_started_is_down(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    port = sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    set_link(port, "1: DOWN", "2: Polling")
    write(port / "counters", {"link_downed": "1"})

    assert told(Infiniband(sysfs.root).look(START))["ib.link"] == "down"


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

    assert told(Infiniband(sysfs.root).look(START))["ib.link"] == link


def test_infiniband_port_that_is_disabled_was_switched_off(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    probe.look(START)
    set_link(port, "1: DOWN", "3: Disabled")

    assert told(probe.look(START + SECOND))["ib.link"] == "disabled"


def test_port_that_was_never_up_is_unused(sysfs: Sysfs) -> None:
    set_link(sysfs.rdma("mlx5_0", NIC), "1: DOWN", "2: Polling")

    assert told(Infiniband(sysfs.root).look(START))["ib.link"] == "unused"


def test_link_that_is_neither_seen_up_nor_known_to_be_down_makes_nothing_good(sysfs: Sysfs) -> None:
    sysfs.gpu("0000:5d:00.0", BRIDGES)
    port = sysfs.rdma("mlx5_0", NIC, below=BRIDGES)
    for state, phys_state in (("1: DOWN", "2: Polling"), ("2: INIT", "5: LinkUp")):
        set_link(port, state, phys_state)
        after_a_boot = told(Infiniband(sysfs.root).look(START))

        assert after_a_boot["ib.link"] in {"unused", "no-manager"}
        assert "ib.rail_link" not in after_a_boot


def test_device_that_went_away_is_told_and_its_port_is_not(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    before = probe.look(START)
    sysfs.unplug("mlx5_0")
    after = probe.look(START + SECOND)

    assert told(before, part="") == {"ib.present": "yes"}
    assert told(after) == {}
    assert told(after, part="") == {"ib.present": "no"}


def test_device_that_comes_back_under_its_name_is_read_anew(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    probe = Infiniband(sysfs.root)
    probe.look(START)
    sysfs.unplug("mlx5_0")
    probe.look(START + SECOND)
    write(sysfs.rdma("mlx5_0", NIC) / "counters", {"link_downed": "7"})
    back = probe.look(START + 2 * SECOND)

    assert told(back)["ib.link_downed"] == 7
    assert told(back, part="") == {"ib.present": "yes"}


def test_port_that_cannot_be_read_is_left_out(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)

    assert told(Infiniband(sysfs.root, Disk("phys_state")).look(START)) == {}


def test_efa_says_active_always_so_it_is_not_asked(sysfs: Sysfs) -> None:
    sysfs.rdma("rdmap16s27", NIC, link_layer="Unspecified", driver="efa")

    assert Infiniband(sysfs.root).look(START).readings == [(NIC, "ib.present", "yes", "")]


def test_counters_of_the_port_and_of_the_hardware_are_told_by_family(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    sysfs.rdma("mlx5_1", "0000:5e:00.0", link_layer="Ethernet")
    look = InfinibandCounters(sysfs.root).look(START)

    assert {"ib.symbol_error", "ib.out_of_sequence", "ib.rate"} <= told(look).keys()
    assert {"ib.symbol_error", "roce.out_of_sequence", "roce.np_cnp_sent"} <= told(look, "0000:5e:00.0").keys()


def test_no_reading_is_told_by_two_probes(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    quick, slow = (probe(sysfs.root).look(START).readings for probe in (Infiniband, InfinibandCounters))

    assert {reading[:2] for reading in quick}.isdisjoint(reading[:2] for reading in slow)


def test_device_that_programs_cannot_open(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    sysfs.rdma("mlx5_1", "0000:5e:00.0")
    unknown = InfinibandCounters(sysfs.root).look(START)
    write(sysfs.root / "class/infiniband_verbs/uverbs0", {"ibdev": "mlx5_1"})
    write(sysfs.root / "class/infiniband_verbs", {"abi_version": "6"})
    look = InfinibandCounters(sysfs.root).look(START)

    assert told(unknown, part="") == {}
    assert [told(look, pci, "") for pci in (NIC, "0000:5e:00.0")] == [{"ib.verbs": "no"}, {"ib.verbs": "yes"}]


def test_only_what_somebody_judges_is_read(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    disk = Disk()
    InfinibandCounters(sysfs.root, disk).look(START)

    assert "symbol_error" in disk.asked
    assert {"port_xmit_data", "lifespan"}.isdisjoint(disk.asked)


def test_counters_of_efa_stand_at_the_port_and_at_the_device(sysfs: Sysfs) -> None:
    port = sysfs.rdma("rdmap16s27", NIC, link_layer="Unspecified", driver="efa", counters=False)
    write(port / "hw_counters", {"rx_drops": "5", "tx_bytes": "9"})
    write(port.parent.parent / "hw_counters", {"no_completion_cmds": "1"})
    look = InfinibandCounters(sysfs.root).look(START)

    assert told(look) == {"efa.rx_drops": 5}
    assert told(look, part="") == {"efa.no_completion_cmds": 1}


def test_text_in_place_of_a_number_is_no_reading_and_not_asked_for_again(sysfs: Sysfs) -> None:
    write(sysfs.rdma("mlx5_0", NIC) / "counters", {"symbol_error": "N/A (no PMA)"})
    disk = Disk()
    probe = InfinibandCounters(sysfs.root, disk)
    looks = [probe.look(START), probe.look(START + SECOND)]

    assert ["ib.symbol_error" in told(look) for look in looks] == [False, False]
    assert disk.asked.count("symbol_error") == 1


def test_lost_links_are_not_counted_every_second_where_that_is_refused(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    disk = Disk("link_downed")
    probe = Infiniband(sysfs.root, disk)
    for second in range(5):
        probe.look(START + second * SECOND)

    assert disk.asked.count("link_downed") == 1


def test_file_that_refuses_is_left_alone_for_an_hour(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    disk = Disk("symbol_error")
    probe = InfinibandCounters(sysfs.root, disk)
    for minutes in (0, 1, 59, 60, 61):
        probe.look(START + timedelta(minutes=minutes))

    assert disk.asked.count("symbol_error") == 2
    assert disk.asked.count("port_rcv_errors") == 5, "its neighbours are asked as ever"


def test_folder_that_refuses_everything_is_asked_three_times_an_hour(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC)
    names = [path.name for path in (port / "counters").iterdir()]
    disk = Disk(*names)
    probe = InfinibandCounters(sysfs.root, disk, COUNTERS | {"ib.port_xmit_data"})
    for minutes in range(60):
        probe.look(START + timedelta(minutes=minutes))

    assert sum(disk.asked.count(name) for name in names) == REFUSALS < len(names)
    assert disk.asked.count("out_of_sequence") == 60


def test_counter_at_the_end_of_its_range_is_named(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC)
    probe = InfinibandCounters(sysfs.root)
    before = told(probe.look(START))
    write(port / "counters", {"link_downed": "255", "symbol_error": "65535", "port_rcv_errors": "255"})

    assert before["ib.saturated"] == "none"
    assert told(probe.look(START + SECOND))["ib.saturated"] == "link_downed, symbol_error"


def test_rate_is_told_beside_that_of_most_of_its_kind(sysfs: Sysfs) -> None:
    ports = [sysfs.rdma(f"mlx5_{at}", f"0000:{at:02x}:00.0") for at in range(4)]
    write(ports[1], {"rate": "200 Gb/sec (2X NDR)"})
    set_link(ports[2], "1: DOWN", "2: Polling")
    sysfs.rdma("mlx5_8", "0000:08:00.0", board_id="MT_0000000546")
    sysfs.rdma("mlx5_4", "0000:04:00.0")
    look = InfinibandCounters(sysfs.root).look(START)

    def rates(pci: str) -> list[object]:
        return [told(look, pci).get("ib.rate"), told(look, pci).get("ib.peer_rate")]

    assert rates("0000:01:00.0") == [200, 400]
    assert rates("0000:02:00.0") == [None, None], "a port that is down runs at nothing"
    assert rates("0000:08:00.0") == [400, None], "one of its kind alone"


def test_virtual_function_is_not_asked_for_the_wire_of_its_physical_one(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    virtual = sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)
    for one in (port, virtual):
        set_link(one, "1: DOWN", "2: Polling")
    looks = [Infiniband(sysfs.root).look(START), InfinibandCounters(sysfs.root).look(START)]

    assert [told(look, VIRTUAL) for look in looks] == [{}, {}]
    assert all(told(look) for look in looks)


def test_virtual_function_counts_its_own_transport_while_its_physical_one_is_up(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)
    probe = VirtualFunctions(sysfs.root)
    up = probe.look(START)
    set_link(port, "1: DOWN", "3: Disabled")

    assert "roce.out_of_sequence" in told(up, VIRTUAL)
    assert "ib.symbol_error" not in told(up, VIRTUAL)
    assert told(up) == {}
    assert probe.look(START + SECOND).readings == []


def test_virtual_function_without_its_physical_one_stands_for_itself(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)

    assert told(Infiniband(sysfs.root).look(START), VIRTUAL)["ib.link"] == "up"
    assert "ib.symbol_error" in told(InfinibandCounters(sysfs.root).look(START), VIRTUAL)


def test_sub_function_tells_nothing_beside_the_function_that_it_is_part_of(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    device = sysfs.root / "class/infiniband/mlx5_2"
    write(device / "ports/1", {"link_layer": "Ethernet", "state": "1: DOWN", "phys_state": "3: Disabled"})
    link(device / "device", made(sysfs.function(NIC) / "mlx5_core.sf.2"))

    assert told(Infiniband(sysfs.root).look(START))["ib.state"] == "ACTIVE"
    assert VirtualFunctions(sysfs.root).look(START).readings == []


def test_missing_virtual_function_is_no_fault(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC, link_layer="Ethernet")
    sysfs.rdma("mlx5_1", VIRTUAL, link_layer="Ethernet", parent=NIC)
    probe = Infiniband(sysfs.root)
    probe.look(START)
    sysfs.unplug("mlx5_1")

    assert told(probe.look(START + SECOND), VIRTUAL, part="") == {}
