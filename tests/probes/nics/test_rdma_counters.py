"""What RDMA ports count, from trees of /sys: which files are read, and those that refuse."""

from __future__ import annotations

from datetime import timedelta

from healthd.probes.nics.counter_files import REFUSALS
from healthd.probes.nics.infiniband import Infiniband
from healthd.probes.nics.rdma_counters import COUNTERS, InfinibandCounters
from tests.probes.nics.simulated_nic import NIC, SECOND, START, Disk, reported
from tests.sysfs import Sysfs, set_link, write


def test_counters_of_the_port_and_of_the_hardware_are_reported_by_family(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    sysfs.rdma("mlx5_1", "0000:5e:00.0", link_layer="Ethernet")
    look = InfinibandCounters(sysfs.root).sample(START)

    assert {"ib.symbol_error", "ib.out_of_sequence", "ib.rate"} <= reported(look).keys()
    assert {"ib.symbol_error", "roce.out_of_sequence", "roce.np_cnp_sent"} <= reported(look, "0000:5e:00.0").keys()


def test_no_reading_is_reported_by_two_probes(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    quick, slow = (probe(sysfs.root).sample(START).readings for probe in (Infiniband, InfinibandCounters))

    assert {reading[:2] for reading in quick}.isdisjoint(reading[:2] for reading in slow)


def test_device_that_programs_cannot_open(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    sysfs.rdma("mlx5_1", "0000:5e:00.0")
    unknown = InfinibandCounters(sysfs.root).sample(START)
    write(sysfs.root / "class/infiniband_verbs/uverbs0", {"ibdev": "mlx5_1"})
    write(sysfs.root / "class/infiniband_verbs", {"abi_version": "6"})
    look = InfinibandCounters(sysfs.root).sample(START)

    assert reported(unknown, part="") == {}
    assert [reported(look, pci, "") for pci in (NIC, "0000:5e:00.0")] == [{"ib.verbs": "no"}, {"ib.verbs": "yes"}]


def test_only_what_somebody_judges_is_read(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    disk = Disk()
    InfinibandCounters(sysfs.root, disk).sample(START)

    assert "symbol_error" in disk.asked
    assert {"port_xmit_data", "lifespan"}.isdisjoint(disk.asked)


def test_counters_of_efa_stand_at_the_port_and_at_the_device(sysfs: Sysfs) -> None:
    port = sysfs.rdma("rdmap16s27", NIC, link_layer="Unspecified", driver="efa", counters=False)
    write(port / "hw_counters", {"rx_drops": "5", "tx_bytes": "9"})
    write(port.parent.parent / "hw_counters", {"no_completion_cmds": "1"})
    look = InfinibandCounters(sysfs.root).sample(START)

    assert reported(look) == {"efa.rx_drops": 5}
    assert reported(look, part="") == {"efa.no_completion_cmds": 1}


def test_text_in_place_of_a_number_is_no_reading_and_not_asked_for_again(sysfs: Sysfs) -> None:
    write(sysfs.rdma("mlx5_0", NIC) / "counters", {"symbol_error": "N/A (no PMA)"})
    disk = Disk()
    probe = InfinibandCounters(sysfs.root, disk)
    looks = [probe.sample(START), probe.sample(START + SECOND)]

    assert ["ib.symbol_error" in reported(look) for look in looks] == [False, False]
    assert disk.asked.count("symbol_error") == 1


def test_file_that_refuses_is_left_alone_for_an_hour(sysfs: Sysfs) -> None:
    sysfs.rdma("mlx5_0", NIC)
    disk = Disk("symbol_error")
    probe = InfinibandCounters(sysfs.root, disk)
    for minutes in (0, 1, 59, 60, 61):
        probe.sample(START + timedelta(minutes=minutes))

    assert disk.asked.count("symbol_error") == 2
    assert disk.asked.count("port_rcv_errors") == 5, "its neighbours are asked as ever"


def test_folder_that_refuses_everything_is_asked_three_times_an_hour(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC)
    names = [path.name for path in (port / "counters").iterdir()]
    disk = Disk(*names)
    probe = InfinibandCounters(sysfs.root, disk, COUNTERS | {"ib.port_xmit_data"})
    for minutes in range(60):
        probe.sample(START + timedelta(minutes=minutes))

    assert sum(disk.asked.count(name) for name in names) == REFUSALS < len(names)
    assert disk.asked.count("out_of_sequence") == 60


def test_counter_at_the_end_of_its_range_is_named(sysfs: Sysfs) -> None:
    port = sysfs.rdma("mlx5_0", NIC)
    probe = InfinibandCounters(sysfs.root)
    before = reported(probe.sample(START))
    write(port / "counters", {"link_downed": "255", "symbol_error": "65535", "port_rcv_errors": "255"})

    assert before["ib.saturated"] == "none"
    assert reported(probe.sample(START + SECOND))["ib.saturated"] == "link_downed, symbol_error"


def test_rate_is_reported_beside_that_of_most_of_its_kind(sysfs: Sysfs) -> None:
    ports = [sysfs.rdma(f"mlx5_{at}", f"0000:{at:02x}:00.0") for at in range(4)]
    write(ports[1], {"rate": "200 Gb/sec (2X NDR)"})
    set_link(ports[2], "1: DOWN", "2: Polling")
    sysfs.rdma("mlx5_8", "0000:08:00.0", board_id="MT_0000000546")
    sysfs.rdma("mlx5_4", "0000:04:00.0")
    look = InfinibandCounters(sysfs.root).sample(START)

    def rates(pci: str) -> list[object]:
        return [reported(look, pci).get("ib.rate"), reported(look, pci).get("ib.peer_rate")]

    assert rates("0000:01:00.0") == [200, 400]
    assert rates("0000:02:00.0") == [None, None], "a port that is down runs at nothing"
    assert rates("0000:08:00.0") == [400, None], "one of its kind alone"
