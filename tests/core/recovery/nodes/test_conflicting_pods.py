"""Whose pods keep a node from being a spare."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.api import Container, ContainerResources, Node, NodeStatus, OwnerReference, Pod, PodStatus
from healthd.core.recovery.nodes.replacement_nodes import occupant
from tests.builders import a_node, a_pod
from tests.fakes import START

GPU = "nvidia.com/gpu"
WITH_GPUS = replace(a_node("spare"), status=NodeStatus(capacity={"cpu": "128", GPU: "8"}))
WITHOUT = a_node("spare")


def holding(amount: str = "8", **fields: Any) -> Pod:
    """A pod on the spare that holds GPUs."""
    resources = ContainerResources(limits={GPU: amount, "cpu": "4"})
    return a_pod("notebook", node="spare", container=Container(name="main", resources=resources), **fields)


def owned_by(kind: str) -> list[OwnerReference]:
    return [OwnerReference(api_version="v1", kind=kind, name="owner", uid="uid-owner", controller=True)]


def test_a_pod_that_holds_its_gpus_keeps_the_spare() -> None:
    assert occupant(WITH_GPUS, [holding()]) == "default/notebook"


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("dns", node="spare"),
        holding("0"),
        holding(status=PodStatus(phase="Succeeded")),
        holding(owner_references=owned_by("DaemonSet")),
        holding(owner_references=owned_by("Node")),
    ],
    ids=["holds no device", "asks for none", "has ended", "of a DaemonSet", "of the node itself"],
)
def test_a_pod_that_blocks_no_member_does_not(pod: Pod) -> None:
    assert occupant(WITH_GPUS, [pod]) == ""


def test_a_pod_that_ends_slowly_keeps_it_still() -> None:
    going = holding(status=PodStatus(phase="Running"), deletion_timestamp=START)

    assert occupant(WITH_GPUS, [going]) == "default/notebook"


@pytest.mark.parametrize(("node", "keeps"), [(WITHOUT, "default/dns"), (WITH_GPUS, "")], ids=["no GPUs", "GPUs"])
def test_where_a_node_has_no_devices_every_pod_counts(node: Node, keeps: str) -> None:
    assert occupant(node, [a_pod("dns", node="spare")]) == keeps
