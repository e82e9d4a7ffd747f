"""A node that was wrong since its first boot is found by comparison with nodes that should be like it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api import LABEL_PEERS, Device, Node, NodeHealth, NodeHealthStatus, ObjectMeta, Shape
from healthd.core.api.model import Verdict
from healthd.core.fabric.peer_comparison import PeerGroups, amounts_of, compare, message_of
from healthd.core.node.reporting import SILENT_AFTER
from tests.builders import a_node
from tests.fakes import START

H100 = "NVIDIA H100 80GB HBM3"


def a_shape(
    *, gpus: int = 8, nics: int = 8, up: int | None = None, gbps: float = 400, memory_gb: float = 2048
) -> Shape:
    """What the agent saw at best; *up* of the RDMA ports were ever up."""
    rates = {f"ib 0000:{16 + nic:02x}:00.0 port 1": gbps for nic in range(nics if up is None else up)}
    return Shape(gpus=gpus, rdma_devices=nics, memory_kb=int(memory_gb * 1e6), rates={**rates, "eth 0000:01:00.0 ": 25})


WHOLE = a_shape()
WRONG = {
    "one of 8 GPUs is missing": (a_shape(gpus=7), "7 GPUs on the PCI bus (its peers: 8)"),
    "one of 8 NICs is missing": (a_shape(nics=7), "7 RDMA devices (its peers: 8)"),
    "all ports are down": (a_shape(up=0), "0 RDMA ports that were ever up (its peers: 8)"),
    "all links run at half rate": (a_shape(gbps=200), "1600 Gb/s over all RDMA ports (its peers: 3200)"),
    "a module of memory is missing": (a_shape(memory_gb=1984), "1984 GB of memory (its peers: 2048)"),
}


@dataclass
class Fleet:
    """Nodes of one kind, and what their agents publish."""

    nodes: dict[str, Node] = field(default_factory=dict)
    health: dict[str, NodeHealth] = field(default_factory=dict)

    def add(
        self,
        count: int,
        shape: Shape = WHOLE,
        *,
        gpu: str = H100,
        labels: Mapping[str, str] | None = None,
        verdict: Verdict = Verdict.HEALTHY,
        silent_for: timedelta = timedelta(0),
    ) -> Fleet:
        """More nodes, `n0` and on."""
        for number in range(len(self.nodes), len(self.nodes) + count):
            name = f"n{number}"
            inventory = [Device(pci=f"0000:{index:02x}:00.0", name=gpu) for index in range(shape.gpus) if gpu]
            status = NodeHealthStatus(best=shape, inventory=inventory, verdict=verdict, seen_at=START - silent_for)
            self.nodes[name] = a_node(name, labels=labels)
            self.health[name] = NodeHealth(metadata=ObjectMeta(name=name), status=status)
        return self

    def short(self) -> dict[str, str]:
        """By node: what it has less of."""
        found = compare(self.nodes, self.health, START)
        return {name: "; ".join(one.brief for one in each) for name, each in found.items()}


@pytest.mark.parametrize("what", WRONG)
def test_a_node_that_was_wrong_since_its_first_boot_has_less_than_its_peers(what: str) -> None:
    shape, brief = WRONG[what]

    assert Fleet().add(7).add(1, shape).short() == {"n7": brief}


def test_nodes_that_are_alike_are_not_reported() -> None:
    assert Fleet().add(100).short() == {}


def test_a_node_with_more_than_its_peers_is_not_reported() -> None:
    assert Fleet().add(7).add(1, a_shape(nics=9)).short() == {}


def test_memory_differs_a_little_from_machine_to_machine() -> None:
    fleet = Fleet()
    for number in range(9):
        fleet.add(1, a_shape(memory_gb=2048 - number))

    assert fleet.short() == {}


def test_four_peers_that_agree_are_needed() -> None:
    few, enough = Fleet().add(3).add(1, a_shape(gpus=7)), Fleet().add(4).add(1, a_shape(gpus=7))

    assert few.short() == {}
    assert list(enough.short()) == ["n4"]


@pytest.mark.parametrize("broken", [5, 9])
def test_where_half_of_a_fleet_is_broken_nothing_is_said(broken: int) -> None:
    assert Fleet().add(10).add(broken, a_shape(nics=7)).short() == {}


def test_where_most_of_a_fleet_is_broken_the_whole_nodes_are_not_reported() -> None:
    assert Fleet().add(2).add(20, a_shape(nics=7)).short() == {}


def test_nodes_with_other_gpus_are_no_peers() -> None:
    assert Fleet().add(20).add(2, a_shape(gpus=4, nics=2), gpu="NVIDIA L40S").short() == {}


def test_nodes_of_another_instance_type_are_no_peers() -> None:
    kind = "node.kubernetes.io/instance-type"
    fleet = Fleet().add(20, labels={kind: "p5.48xlarge"}).add(2, a_shape(gpus=1, nics=1), labels={kind: "p5.4xlarge"})

    assert fleet.short() == {}


def test_nodes_without_gpus_are_not_compared() -> None:
    assert Fleet().add(20, a_shape(gpus=0)).add(1, a_shape(gpus=0, nics=1)).short() == {}


def test_an_operator_says_which_nodes_are_alike() -> None:
    hall = {LABEL_PEERS: "hall-2"}
    fleet = Fleet().add(9, labels=hall).add(1, a_shape(gpus=0, nics=7), gpu="", labels=hall).add(20, a_shape(gpus=4))

    assert list(fleet.short()) == ["n9"]


def test_a_node_that_is_meant_to_be_different_is_not_reported() -> None:
    assert Fleet().add(9).add(1, a_shape(nics=2), labels={LABEL_PEERS: "none"}).short() == {}


def test_a_node_that_is_being_read_for_the_first_time_is_not_reported() -> None:
    assert Fleet().add(9).add(1, a_shape(nics=2), verdict=Verdict.UNKNOWN).short() == {}


def test_a_node_whose_agent_is_silent_is_neither_reported_nor_a_peer() -> None:
    late = SILENT_AFTER + timedelta(minutes=1)

    assert Fleet().add(9).add(1, a_shape(nics=2), silent_for=late).short() == {}
    assert Fleet().add(9, silent_for=late).add(1, a_shape(nics=2)).short() == {}


def test_an_agent_of_an_older_version_that_publishes_no_shape_is_not_compared() -> None:
    fleet = Fleet().add(10)
    for name in ("n0", "n1", "n2", "n3", "n4"):
        status = fleet.health[name].status
        fleet.health[name] = NodeHealth(metadata=ObjectMeta(name=name), status=replace(status, best=Shape()))

    assert fleet.short() == {}


def test_only_the_cause_is_named() -> None:
    short = Fleet().add(9).add(1, a_shape(gpus=7, nics=6)).short()

    assert short == {"n9": "7 GPUs on the PCI bus (its peers: 8); 6 RDMA devices (its peers: 8)"}


def test_the_message_says_how_many_agree_and_what_to_do() -> None:
    fleet = Fleet().add(19).add(1, a_shape(gpus=7))
    message = message_of(compare(fleet.nodes, fleet.health, START)["n19"])

    assert "7 GPUs on the PCI bus (its peers: 8), by 19 of 19" in message
    assert LABEL_PEERS in message


def test_a_node_that_changed_is_compared_as_it_is_now() -> None:
    groups, group = PeerGroups(), ("label", "hall-2")
    for number in range(5):
        groups.enter(f"n{number}", group, amounts_of(a_shape(gpus=7) if number == 4 else WHOLE))
    before = groups.short()
    groups.enter("n4", group, amounts_of(WHOLE))
    repaired = groups.short()
    groups.enter("n3", group, amounts_of(a_shape(gpus=6)))
    groups.leave("n4")

    assert (list(before), repaired) == (["n4"], {})
    assert groups.short() == {}, "three peers are too few"
    assert "n4" not in groups
