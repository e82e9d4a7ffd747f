"""
Which slot each waiting pod gets. Pure.

One pod holds one slot. A placement that a recovery wrote is followed exactly for the members in it. A pod never goes
to a slot that is out of service, not even by a placement: it waits, and its status says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from healthd.core.api import (
    ANNOTATION_PLACEMENT,
    TAINT_RESERVED,
    Condition,
    Node,
    Pod,
    PodStatus,
    Taint,
    Toleration,
)
from healthd.core.recovery.members import index_of, is_terminal
from healthd.core.recovery.nodes.spares import is_ready, reservation
from healthd.core.untrusted import InvalidText, number_or, read_json
from healthd.gangs.job import LABEL_JOB_NAME
from healthd.local.processes.pods import with_condition

KEEPS_OFF = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Bind:
    """*pod* gets the slot *node*."""

    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """*pod* waits. *why* is the reason."""

    pod: Pod
    why: str


def decide_bindings(pods: Sequence[Pod], nodes: Sequence[Node]) -> list[Bind | Unschedulable]:
    """For each pod without a slot, in index order: its slot, or the reason why it gets none."""
    by_name = {node.metadata.name: node for node in sorted(nodes, key=_slot_order)}
    busy = {pod.spec.node_name for pod in pods if pod.spec.node_name and not is_terminal(pod)}
    decided: list[Bind | Unschedulable] = []
    for pod in sorted(filter(_is_waiting, pods), key=_pod_order):
        decision = _decide_one(pod, by_name, busy)
        if isinstance(decision, Bind):
            busy.add(decision.node)
        decided.append(decision)
    return decided


def refused(pod: Pod, why: str, now: datetime) -> PodStatus:
    """The status of a pod that waits for a slot."""
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=why)
    return msgspec.structs.replace(pod.status, conditions=with_condition(pod.status.conditions, condition, now))


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether one of *tolerations* matches *taint*, by the rules of the Kubernetes scheduler."""
    return any(_matches(toleration, taint) for toleration in tolerations)


def _decide_one(pod: Pod, nodes: Mapping[str, Node], busy: Collection[str]) -> Bind | Unschedulable:
    raw = pod.metadata.annotations.get(ANNOTATION_PLACEMENT)
    if raw is None:
        return _choose(pod, nodes, busy)
    try:
        placement = read_json(raw, dict[str, str])
    except InvalidText as error:
        return Unschedulable(pod, f"annotation {ANNOTATION_PLACEMENT} is not a JSON object of index -> node: {error}")
    name = placement.get(index_of(pod))
    if name is None:  # the user made the gang larger since then
        return _choose(pod, nodes, busy)
    if name not in nodes:
        return Unschedulable(pod, f"placed on {name}, which does not exist")
    obstacle = _obstacle(pod, nodes[name], busy, placed=True)
    return Unschedulable(pod, f"placed on {name}, which is {obstacle}") if obstacle else Bind(pod, name)


def _choose(pod: Pod, nodes: Mapping[str, Node], busy: Collection[str]) -> Bind | Unschedulable:
    obstacles = Counter[str]()
    for name, node in nodes.items():
        obstacle = _obstacle(pod, node, busy, placed=False)
        if not obstacle:
            return Bind(pod, name)
        obstacles[obstacle] += 1
    why = ", ".join(f"{count} {obstacle}" for obstacle, count in sorted(obstacles.items()))
    return Unschedulable(pod, f"0/{len(nodes)} slots are free: {why or 'there are none'}")


def _obstacle(pod: Pod, node: Node, busy: Collection[str], *, placed: bool) -> str:
    """Why *pod* may not go to *node*; empty when it may."""
    if node.spec.unschedulable:
        return "out of service (unschedulable)"
    if not is_ready(node):
        return "not ready"
    tolerations = [*pod.spec.tolerations, *(_placement_tolerations(pod) if placed else [])]
    for taint in node.spec.taints:
        if taint.effect in KEEPS_OFF and not tolerates(tolerations, taint):
            return f"kept free by taint {taint.key}"
    return "busy" if node.metadata.name in busy else ""


def _placement_tolerations(pod: Pod) -> list[Toleration]:
    """A recovery that places a pod has claimed the spare for it. So the pod tolerates the taint of the claim."""
    owners = pod.metadata.owner_references
    return [Toleration(key=TAINT_RESERVED, value=reservation(owner.name, owner.uid)) for owner in owners]


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def _is_waiting(pod: Pod) -> bool:
    return not pod.spec.node_name and not is_terminal(pod) and pod.metadata.deletion_timestamp is None


def _pod_order(pod: Pod) -> tuple[str, str, int, str]:
    number = number_or(index_of(pod), -1)
    return pod.metadata.namespace, pod.metadata.labels.get(LABEL_JOB_NAME, ""), number, pod.metadata.name


def _slot_order(node: Node) -> tuple[int, str]:
    """slot-2 before slot-10."""
    return len(node.metadata.name), node.metadata.name
