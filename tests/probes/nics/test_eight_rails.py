"""What becomes of a node with eight rails, from files of /sys to what the rules say of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from healthd.core.api.model import Verdict
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.node_shape import NO_SHAPE, expecting, grown
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.nics import ethernet, infiniband, roce
from healthd.core.diagnosis.signals.reconcile_findings import reconcile
from healthd.probes.nics.ethernet import Ethernet, EthernetCounters
from healthd.probes.nics.infiniband import Infiniband
from healthd.probes.nics.rdma_counters import InfinibandCounters, VirtualFunctions
from tests.sysfs import Sysfs, set_link, write

pytestmark = pytest.mark.slow

RAILS = range(8)
PORTS = [f"0000:{at:02x}:06.0" for at in RAILS]
PULLED = ("1: DOWN", "2: Polling")
PLUGGED = ("4: ACTIVE", "5: LinkUp")


class Node:
    """Eight GPUs with a port each, read by all probes at their own pace, and one engine with every rule."""

    def __init__(self, root: Path, link_layer: str = "InfiniBand") -> None:
        self.sysfs = Sysfs(root)
        self.ports = [self._add(at, link_layer) for at in RAILS]
        self.best = NO_SHAPE
        self.restart()
        self.ledger = Ledger()
        self.boot = "first"
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def restart(self) -> None:
        """A new agent on the same node."""
        tables = (infiniband.RULES, roce.RULES, ethernet.RULES)
        self.engine = Engine(rule for table in tables for rule in table)
        probes = (Infiniband, InfinibandCounters, VirtualFunctions, Ethernet, EthernetCounters)
        self.probes = [probe(self.sysfs.root) for probe in probes]

    def runs(self, seconds: int) -> set[tuple[str, str]]:
        """Which rules are bad at which port after so long."""
        for _ in range(seconds):
            self.now += timedelta(seconds=1)
            for probe in self.probes:
                if int(self.now.timestamp()) % int(probe.every.total_seconds()) == 0:
                    look = expecting(probe.sample(self.now), self.best)
                    self.engine.ingest(look)
                    self.best = grown(self.best, look)
        return {(bad.device, bad.rule.name) for bad in self.engine.bad()}

    def judges(self, seconds: int) -> tuple[Verdict, set[str]]:
        """The node's verdict after so long, and the rules of the findings that stand."""
        for _ in range(0, seconds, 10):
            self.runs(10)
            self.ledger = reconcile(self.ledger, self.engine, now=self.now, boot_id=self.boot)
        return self.ledger.verdict()[0], {finding.rule for finding in self.ledger.standing}

    def boots(self) -> None:
        """The machine starts anew: counters begin at zero, and the agent knows what it published."""
        self.boot = "second"
        self.count("counters", link_downed=0)
        self.restart()
        self.ledger = self.ledger.clear_by_reboot(self.boot, self.now)

    def count(self, folder: str, **counters: int) -> None:
        """Counters of every port grow to so much, and those of port 3 as well."""
        for port in self.ports:
            write(port / folder, {name: str(value) for name, value in counters.items()})

    def _add(self, at: int, link_layer: str) -> Path:
        self.sysfs.gpu(f"0000:{at:02x}:05.0", below(at))
        return self.sysfs.rdma(f"mlx5_{at}", PORTS[at], below=below(at), link_layer=link_layer)


def below(at: int) -> str:
    """The bridges that a GPU and its port share."""
    return f"pci0000:{at:02x}/0000:{at:02x}:01.0"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """InfiniBand, healthy, watched for twenty seconds."""
    node = Node(tmp_path / "sys")
    assert node.runs(20) == set()
    return node


def test_pulled_cable_is_one_ports_fault_after_half_a_minute(node: Node) -> None:
    set_link(node.ports[3], *PULLED)
    write(node.ports[3] / "counters", {"link_downed": "1"})

    assert node.runs(29) == {(PORTS[3], "ib-link-downed")}
    assert node.runs(3) == {(PORTS[3], "ib-link-downed"), (PORTS[3], "ib-port-down")}


def test_pulled_cable_of_roce_looks_switched_off_and_is_reported_all_the_same(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys", "Ethernet")
    nets = [node.sysfs.net(f"ens{at}", PORTS[at], below=below(at)) for at in RAILS]
    node.runs(20)
    set_link(node.ports[3], "1: DOWN", "3: Disabled")
    write(nets[3], {"operstate": "down"})

    assert node.runs(40) == {(PORTS[3], "ib-port-down"), (PORTS[3], "eth-link-down")}


def test_agent_that_restarts_sees_the_pulled_cable_again(node: Node) -> None:
    set_link(node.ports[3], *PULLED)
    write(node.ports[3] / "counters", {"link_downed": "1"})
    node.runs(60)
    node.restart()

    assert node.runs(40) == {(PORTS[3], "ib-port-down")}


def test_plug_that_is_put_back_ends_it(node: Node) -> None:
    set_link(node.ports[3], *PULLED)
    node.runs(60)
    set_link(node.ports[3], *PLUGGED)

    assert node.runs(1) == set()
    good = node.engine.good(PORTS[3], "ib-port-down")
    assert good is not None
    assert good.since == node.now


def test_node_is_out_of_service_until_its_link_was_up_for_a_while(node: Node) -> None:
    set_link(node.ports[3], *PULLED)
    down = node.judges(60)
    set_link(node.ports[3], *PLUGGED)

    assert down == (Verdict.UNHEALTHY, {"ib-port-down"})
    assert node.judges(540) == down
    assert node.judges(80) == (Verdict.HEALTHY, set())


def test_reboot_does_not_mend_a_cable(node: Node) -> None:
    set_link(node.ports[3], *PULLED)
    write(node.ports[3] / "counters", {"link_downed": "1"})
    node.judges(60)
    node.boots()

    assert node.judges(1200)[0] is Verdict.UNHEALTHY
    set_link(node.ports[3], *PLUGGED)
    assert "ib-port-down" not in node.judges(620)[1]


def test_node_that_boots_without_a_cable_is_only_suspect(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys")
    set_link(node.ports[3], *PULLED)

    assert node.runs(590) == set()
    assert node.runs(20) == {(PORTS[3], "ib-port-never-up")}


def test_fabric_that_boots_slowly_is_no_fault(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys")
    for port in node.ports:
        set_link(port, *PULLED)
    node.runs(120)
    for port in node.ports:
        set_link(port, "2: INIT", "5: LinkUp")
    node.runs(120)
    for port in node.ports:
        set_link(port, *PLUGGED)

    assert node.runs(20) == set()


def test_congestion_of_the_whole_fabric_is_no_finding(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys", "Ethernet")
    for minute in range(6):
        node.count("hw_counters", out_of_sequence=40_000 * minute, np_cnp_sent=900_000 * minute)

        assert node.runs(60) == set()


def test_loss_at_one_port_alone_is_suspect(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys", "Ethernet")
    node.count("hw_counters", out_of_sequence=40)
    node.runs(20)
    node.count("hw_counters", out_of_sequence=100)
    write(node.ports[5] / "hw_counters", {"out_of_sequence": "90000"})

    assert node.runs(10) == {(PORTS[5], "roce-out-of-sequence")}


def test_port_that_came_back_with_half_its_lanes_is_slow(node: Node) -> None:
    write(node.ports[6], {"rate": "200 Gb/sec (2X NDR)"})

    slow = {"ib-rate-below-peers", "ib-rate-fell", "ib-rate-below-before"}
    assert node.runs(90) == {(PORTS[6], rule) for rule in slow}


def test_driver_that_is_reloaded_resets_its_counters_and_is_no_fault(node: Node) -> None:
    node.count("counters", symbol_error=100, link_downed=2)
    node.restart()
    node.runs(20)
    for at in RAILS:
        node.sysfs.unplug(f"mlx5_{at}")
    gone = node.runs(30)
    node.ports = [node._add(at, "InfiniBand") for at in RAILS]

    assert gone == set()
    assert node.runs(30) == set()


def test_device_that_its_driver_gave_up_is_reported(node: Node) -> None:
    node.sysfs.unplug("mlx5_2")

    assert node.runs(62) == {(PORTS[2], "ib-device-gone")}


@pytest.mark.parametrize(
    "shown",
    [("12", "0", "12"), ("12", "4294967295", "12"), ("12", "255", "12"), ("12", "9999", "12"), ("12", "?", "12")],
)
def test_port_that_stays_active_is_not_taken_out_for_nonsense_in_its_counters(
    node: Node, shown: tuple[str, ...]
) -> None:
    node.count("counters", link_downed=12)
    node.restart()
    for number in shown * 5:
        write(node.ports[3] / "counters", {"link_downed": number})
        node.runs(3)
    verdict, _ = node.judges(60)

    assert verdict in {Verdict.HEALTHY, Verdict.DEGRADED}


def test_node_that_boots_with_one_of_its_eight_devices_misses_the_others(node: Node) -> None:
    for at in RAILS[1:]:
        node.sysfs.unplug(f"mlx5_{at}")
    node.boots()

    assert node.judges(120) == (Verdict.DEGRADED, {"ib-fewer-devices"})


@pytest.mark.parametrize("link_layer", ["InfiniBand", "Ethernet"])
def test_node_that_boots_with_all_ports_down_misses_them_and_is_left_in_service(
    tmp_path: Path, link_layer: str
) -> None:
    node = Node(tmp_path / "sys", link_layer)
    node.runs(20)
    for port in node.ports:
        set_link(port, "1: DOWN", "3: Disabled" if link_layer == "Ethernet" else "2: Polling")
    node.boots()

    assert node.judges(11 * 60) == (Verdict.DEGRADED, {"ib-port-not-up-since-boot"})


def test_node_that_boots_with_all_ports_at_half_their_rate_is_slow(node: Node) -> None:
    for port in node.ports:
        write(port, {"rate": "200 Gb/sec (4X HDR)"})
    node.boots()

    assert node.judges(90) == (Verdict.DEGRADED, {"ib-rate-below-before"})


def test_node_that_is_repaired_with_less_in_it_is_well(node: Node) -> None:
    for at in RAILS[1:]:
        node.sysfs.unplug(f"mlx5_{at}")
    node.boots()
    node.best = NO_SHAPE

    assert node.judges(120) == (Verdict.HEALTHY, set())


def test_node_that_is_new_is_judged_by_its_configuration(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys")
    node.probes = [Infiniband(node.sysfs.root, expected=9), InfinibandCounters(node.sysfs.root, expected_rate=800)]

    assert node.judges(6 * 60) == (Verdict.DEGRADED, {"ib-too-few-ports", "ib-rate-below-expected"})
