"""
How many devices a node should have, from what the cluster knows of it. Pure.

A node whose driver is dead shows no GPU, and so does a node that has none. What it should have is known from elsewhere:
the most that its agent ever saw since the last repair, the labels of GPU feature discovery, what the device plugin
offers, and the history of its machine. The largest of these counts: each of them shrinks when a device is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from healthd.core.api import MachineHistory, Node, NodeHealthStatus
from healthd.core.api.kubernetes.gpu_names import GPU_RESOURCE, LABEL_GPU_COUNT, LABEL_GPU_PRODUCT, LABEL_GPU_REPLICAS
from healthd.core.untrusted import number_or

MOST_GPUS = 1024
"""A larger number on a node is an error of its author."""
_NOTHING_SEEN = NodeHealthStatus()


@dataclass(frozen=True, slots=True)
class ExpectedCount:
    """So many devices, and where that is known from."""

    count: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDevices:
    """What a node should have. None: nothing says that it has any."""

    gpus: ExpectedCount | None = None
    rdma_devices: ExpectedCount | None = None


NOTHING_EXPECTED = ExpectedDevices()


def expected_devices(
    node: Node, status: NodeHealthStatus = _NOTHING_SEEN, history: MachineHistory | None = None
) -> ExpectedDevices:
    """
    What *node* should have. *status* is the report of its agent, *history* that of its machine.

    The history counts only where the agent has seen no GPU, such as on a Node that was created anew: it is not
    shortened by a repair that leaves the machine with fewer GPUs.
    """
    best = status.best
    seen = [_count(best.gpus, f"its agent has seen {best.gpus} since the last repair"), *_offered(node)]
    if history is not None and not best.gpus:
        here = len({stay.id for stay in history.gpus if stay.until is None})
        seen.append(_count(here, f"the history of its machine has {here}"))
    known = [count for count in seen if count is not None]
    return ExpectedDevices(
        gpus=max(known, key=lambda one: one.count, default=None),
        rdma_devices=_count(best.rdma_devices, f"its agent has seen {best.rdma_devices} since the last repair"),
    )


def _offered(node: Node) -> list[ExpectedCount | None]:
    """From labels and resources. They count slices and not GPUs where MIG is on, so there they say nothing."""
    labels = node.metadata.labels
    if "-MIG-" in labels.get(LABEL_GPU_PRODUCT, ""):
        return []
    labelled = number_or(labels.get(LABEL_GPU_COUNT, ""), 0, most=MOST_GPUS)
    shares = max(1, number_or(labels.get(LABEL_GPU_REPLICAS, ""), 1, most=MOST_GPUS))
    offers = number_or(node.status.allocatable.get(GPU_RESOURCE, ""), 0, most=MOST_GPUS * MOST_GPUS) // shares
    return [
        _count(labelled, f"its label {LABEL_GPU_COUNT} is {labelled}"),
        _count(offers, f"it offers {offers} {GPU_RESOURCE}"),
    ]


def _count(count: int, why: str) -> ExpectedCount | None:
    return ExpectedCount(count, why) if 0 < count <= MOST_GPUS else None
