"""How many devices a node should have, although it shows none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.api import GpuStay, MachineHistory, Node, NodeHealthStatus, Shape
from healthd.core.node.expected_devices import ExpectedDevices, expected_devices
from tests.builders import a_node
from tests.fakes import START


def labelled(allocatable: str = "", **labels: str) -> Node:
    """A node with the labels `nvidia.com/gpu.<name>`."""
    node = a_node(labels={f"nvidia.com/gpu.{name}": value for name, value in labels.items()})
    return replace(node, status=replace(node.status, allocatable={"nvidia.com/gpu": allocatable}))


def gpus(expected: ExpectedDevices) -> int:
    return expected.gpus.count if expected.gpus else 0


def a_stay(number: int, **fields: Any) -> GpuStay:
    return GpuStay(id=f"serial-{number}", slot=f"0000:{number:02x}:00.0", since=START, **fields)


HISTORY = MachineHistory(machine="m", node="node-a", since=START, gpus=[a_stay(1), a_stay(2), a_stay(3, until=START)])


def test_a_node_of_which_nothing_is_known_should_have_nothing() -> None:
    assert expected_devices(a_node()) == ExpectedDevices()


def test_what_its_agent_has_seen_counts_also_after_labels_and_resources_have_shrunk() -> None:
    seen = NodeHealthStatus(best=Shape(gpus=8, rdma_devices=9))

    expected = expected_devices(labelled("7", count="7"), seen)

    assert expected.gpus is not None
    assert (expected.gpus.count, expected.gpus.why) == (8, "its agent has seen 8 since the last repair")
    assert expected.rdma_devices is not None
    assert expected.rdma_devices.count == 9


@pytest.mark.parametrize("node", [labelled(count="8"), labelled("8"), labelled("32", replicas="4")])
def test_labels_and_resources_count_where_no_agent_has_reported(node: Node) -> None:
    assert gpus(expected_devices(node)) == 8


@pytest.mark.parametrize(
    "node",
    [
        labelled("56", count="56", product="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
        labelled("many", count="-8"),
        labelled("9" * 30, count="9" * 30),
        labelled("0", count="0"),
    ],
)
def test_slices_and_what_is_no_number_of_gpus_say_nothing(node: Node) -> None:
    assert gpus(expected_devices(node)) == 0


def test_the_history_of_the_machine_counts_on_a_node_that_was_created_anew() -> None:
    assert gpus(expected_devices(a_node(), history=HISTORY)) == 2


def test_the_history_does_not_outlive_a_repair_that_left_fewer_gpus() -> None:
    assert gpus(expected_devices(a_node(), NodeHealthStatus(best=Shape(gpus=1)), HISTORY)) == 1
