"""
Who is on a node that is held free, and should not be there: a label and a taint drive nobody out.

A pod that was there before the node became a spare stays, and so does one that tolerates every taint. Where it holds
the GPUs, the gang that the spare was claimed for would wait for them in vain.
"""

from __future__ import annotations

from collections.abc import Iterable

from healthd.core.api import Node, Pod
from healthd.core.recovery.gang import will_not_run

OF_THE_NODE = frozenset({"DaemonSet", "Node"})
"""Controllers of pods that belong to every node, as they do to a spare. A node controls the static pods on it."""


def occupant(node: Node, pods: Iterable[Pod]) -> str:
    """
    A pod of *pods* that keeps *node* from being a spare, as `namespace/name`; empty: there is none.

    It holds devices such as the node has: the small services of a cluster, which tolerate everything, are in nobody's
    way. Where a node has no devices, every pod counts but those that belong to it.
    """
    devices = {resource for resource in node.status.capacity if "/" in resource}
    there = (pod for pod in pods if not will_not_run(pod) and not _is_of_the_node(pod))
    names = (f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in there if not devices or devices & _held(pod))
    return min(names, default="")


def _is_of_the_node(pod: Pod) -> bool:
    return any(owner.controller and owner.kind in OF_THE_NODE for owner in pod.metadata.owner_references)


def _held(pod: Pod) -> set[str]:
    """The devices that *pod* holds. What is asked for with a limit alone is a request, too."""
    asked = (amounts for c in pod.spec.containers for amounts in (c.resources.requests, c.resources.limits))
    return {name for amounts in asked for name, amount in amounts.items() if "/" in name and amount != "0"}
