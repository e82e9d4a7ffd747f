"""
What people do to healthd and around it: they install it anew, make nodes anew, change their mind about spares.
Only in some worlds, and with dice of their own. What somebody did stays so until it is put right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from healthd.cluster.port import NotFound
from healthd.core.api import (
    ANNOTATION_CLAIM,
    ANNOTATION_QUARANTINE,
    LABEL_SPARE,
    TAINT_QUARANTINED,
    TAINT_RESERVED,
    Job,
    Lease,
    Node,
    NodeHealth,
    NodeSpec,
    ObjectMeta,
    Pod,
    Recovery,
)
from healthd.core.api.model import ENDED
from healthd.core.recovery.nodes.spares import read_claim
from tests.simulation.ground_truth import GroundTruth
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

OURS = {TAINT_QUARANTINED, TAINT_RESERVED}


def reinstall(sim: Simulation) -> None:
    """healthd is removed with its definitions, and installed again. What it wrote on nodes and gangs stays."""
    for actor in [*sim.agents.values(), *sim.controllers]:
        actor.crash()
    remove_definitions(sim.ground_truth)
    sim.watchdog.is_installed_anew(at_once(sim.ground_truth.list(Node)).items)


def remove_definitions(ground_truth: GroundTruth) -> None:
    """With the definitions of healthd its objects go, and with its namespace its Leases."""
    kinds: tuple[type[Any], ...] = (Recovery, NodeHealth, Lease)
    for kind in kinds:
        for each in at_once(ground_truth.list(kind)).items:
            at_once(ground_truth.delete(kind, each.metadata.name, namespace=each.metadata.namespace, grace_seconds=0))


def make_node_anew(sim: Simulation) -> None:
    """A node is deleted and joins again under its name, freshly booted, whatever healthd had written on it."""
    node = some(sim, at_once(sim.ground_truth.list(Node)).items)
    name = node.metadata.name
    sim.pool_size -= ANNOTATION_CLAIM in node.metadata.annotations
    at_once(sim.ground_truth.delete(Node, name))
    sim.watchdog.cordoned_by_person.discard(name)
    sim.machines.reboot(name)
    sim.agents[name].crash()
    for pod in at_once(sim.ground_truth.list(Pod, fields={"spec.nodeName": name})).items:
        at_once(sim.ground_truth.delete(Pod, pod.metadata.name, namespace=pod.metadata.namespace, grace_seconds=0))
    foreign = [taint for taint in node.spec.taints if taint.key not in OURS]
    meta = ObjectMeta(name=name, labels=node.metadata.labels)
    at_once(sim.ground_truth.create(Node(metadata=meta, spec=NodeSpec(taints=foreign))))
    sim.note(f"  {name}")


def label_spare(sim: Simulation) -> None:
    """A node that no gang needs is to be a spare."""
    plain = [node for node in at_once(sim.ground_truth.list(Node)).items if _is_plain(node)]
    needed = {node for job in at_once(sim.ground_truth.list(Job)).items for node in _nodes_of(sim, job)}
    idle = [node for node in plain if node.metadata.name not in needed]
    if idle and len(plain) > sum(sim.worlds.values()):
        node = some(sim, idle)
        taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in node.spec.taints]
        # With the taint, in one write: before healthd has set it, the scheduler may put a member there.
        patch = {"metadata": {"labels": {LABEL_SPARE: "true"}}, "spec": {"taints": [*taints, {"key": LABEL_SPARE}]}}
        at_once(sim.ground_truth.patch(Node, node.metadata.name, patch))
        sim.pool_size += not _is_owed_to_pool(sim, node.metadata.name)


def _is_owed_to_pool(sim: Simulation, name: str) -> bool:
    """A spare stands in for it, and it becomes the spare in place of that one: it is no further spare."""
    claims = map(read_claim, at_once(sim.ground_truth.list(Node)).items)
    return any(claim is not None and claim.instead_of == name for claim in claims)


def unlabel_spare(sim: Simulation) -> None:
    """A spare is to be one no more, and an ordinary node instead."""
    if spares := at_once(sim.ground_truth.list(Node, labels={LABEL_SPARE: "true"})).items:
        node = some(sim, spares)
        taints = [taint for taint in node.spec.taints if taint.key != LABEL_SPARE]
        kept = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]
        patch = {"metadata": {"labels": {LABEL_SPARE: None}}, "spec": {"taints": kept}}
        at_once(sim.ground_truth.patch(Node, node.metadata.name, patch))
        sim.pool_size -= 1


def _nodes_of(sim: Simulation, job: Job) -> set[str]:
    """Where the members of a gang are, or are to be."""
    pods = at_once(sim.ground_truth.list(Pod)).items
    plans = [each.status for each in at_once(sim.ground_truth.list(Recovery)).items if each.status.phase not in ENDED]
    planned = {node for plan in plans for node in (*plan.placement.values(), *(pod.node for pod in plan.pods))}
    reported: Any = job.metadata.annotations.get("healthd.dev/placement", "")
    mine = {pod.spec.node_name for pod in pods if pod.metadata.labels["healthd.dev/gang"] == job.metadata.name}
    return mine | planned | {name for name in sim.machines.all if f'"{name}"' in reported}


def _is_plain(node: Node) -> bool:
    """Only its user has to do with it."""
    marks = {ANNOTATION_CLAIM, ANNOTATION_QUARANTINE}
    return LABEL_SPARE not in node.metadata.labels and not marks & node.metadata.annotations.keys()


def some_gang(sim: Simulation) -> Job:
    """One of the gangs that are there."""
    jobs = at_once(sim.ground_truth.list(Job)).items
    if not jobs:
        raise NotFound("every gang was deleted")
    job: Job = some(sim, jobs)
    return job


def some(sim: Simulation, these: Any) -> Any:
    """One of *these* objects."""
    return sim.people.choice(sorted(these, key=lambda each: str(each.metadata.name)))


__all__ = ["label_spare", "make_node_anew", "reinstall", "remove_definitions", "some", "some_gang", "unlabel_spare"]
