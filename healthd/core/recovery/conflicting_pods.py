"""
Finds pods that occupy a spare node: a label and a taint do not evict running pods.

A pod that ran on the node before it became a spare stays. A pod that tolerates every taint also stays. When such a pod
holds the GPUs, the gang that claimed the spare would wait for them without end.
"""

from __future__ import annotations

from collections.abc import Iterable

from healthd.core.api import Node, Pod
from healthd.core.recovery.gang import will_not_run

OF_THE_NODE = frozenset({"DaemonSet", "Node"})
"""Kinds of owners whose pods run on every node, also on a spare. A Node owns its static pods."""


def occupant(node: Node, pods: Iterable[Pod]) -> str:
    """
    A pod of *pods* that makes *node* unusable as a spare, as `namespace/name`; empty: there is none.

    Such a pod holds devices of a kind that the node has. Small cluster services that tolerate every taint hold no
    device and do not conflict. On a node without devices every pod counts, except the pods that belong to the node.
    """
    devices = {resource for resource in node.status.capacity if "/" in resource}
    there = (pod for pod in pods if not will_not_run(pod) and not _is_of_the_node(pod))
    names = (f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in there if not devices or devices & _held(pod))
    return min(names, default="")


def _is_of_the_node(pod: Pod) -> bool:
    return any(owner.controller and owner.kind in OF_THE_NODE for owner in pod.metadata.owner_references)


def _held(pod: Pod) -> set[str]:
    """The devices that *pod* holds. A limit without a request counts as a request."""
    asked = (amounts for c in pod.spec.containers for amounts in (c.resources.requests, c.resources.limits))
    return {name for amounts in asked for name, amount in amounts.items() if "/" in name and amount != "0"}
