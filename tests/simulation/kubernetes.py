"""
What is different on a real cluster, for those worlds that are one.

No finalizer of ours keeps a pod: it vanishes when its kubelet reports its end, and what was last known of it is all
there is. Watches feed the controllers, late, each kind by itself, and now and then with a gap in which things vanish
unseen. The scheduler puts pods where it likes. Agents see which pods have processes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from healthd.cluster.port import ClusterError
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import watched_kinds
from healthd.core.api import (
    ANNOTATION_CLAIM,
    ANNOTATION_FENCE_OVERRIDE,
    ANNOTATION_PLACEMENT,
    ANNOTATION_POWERED_OFF,
    ANNOTATION_QUARANTINE,
    LABEL_SPARE,
    Condition,
    Node,
    NodeSpec,
    ObjectMeta,
    Pod,
    Recovery,
    Slim,
    Taint,
)
from healthd.core.api.model import Phase
from healthd.core.node.pod_liveness import PodTasks
from healthd.core.recovery.nodes.spares import is_ready
from healthd.gangs import ADAPTERS
from tests.simulation.ground_truth import GroundTruth, Write
from tests.simulation.machines import Machine, Machines
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

T = TypeVar("T", bound=Slim)
OUT_OF_SERVICE = Taint(key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute")
GAP = 0.04
"""How often a watch broke, and what vanished meanwhile was not seen."""


class LastWords:
    """Every write in its order, by kind, and the last state of every object that was ever written, by uid."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}
        self._writes: dict[type[Slim], list[Write]] = defaultdict(list)

    def __call__(self, seen: Write) -> None:
        last = seen.after if seen.after is not None else seen.before
        self._states[last.metadata.uid] = last
        self._writes[seen.kind].append(seen)

    def of(self, obj: Any) -> Any:
        """The last state of *obj*, which is gone."""
        return self._states.get(obj.metadata.uid, obj)

    def since(self, kind: type[Slim], count: int) -> list[Write]:
        """The writes of *kind* after the first *count*."""
        return self._writes[kind][count:]


class Feed:
    """Feeds the cluster state of one life of a controller. A watch tells every change, in the order of the writes."""

    def __init__(self, view: GroundTruth, last_words: LastWords) -> None:
        self.cluster_state = ClusterState(ADAPTERS)
        self._view = view
        self._last_words = last_words
        self._reported: dict[type[Slim], dict[str, Any]] = {}
        self._told: dict[type[Slim], int] = defaultdict(int)
        for kind in watched_kinds(ADAPTERS):
            self._relist(kind)

    def catch_up(self, dice: random.Random, chance: float) -> None:
        """Let each kind catch up, by chance."""
        for kind in watched_kinds(ADAPTERS):
            if dice.random() < chance:
                self._relist(kind) if dice.random() < GAP else self._watch(kind)

    def _watch(self, kind: type[Slim]) -> None:
        there, _ = self._list(kind)
        for write in self._last_words.since(kind, self._told[kind]):
            self._told[kind] += 1
            if write.after is not None:
                self.cluster_state.upsert(write.after)
            else:
                self.cluster_state.remove(write.before)
        before = self._reported.get(kind, {})
        for uid, obj in before.items():
            if uid not in there:
                self.cluster_state.remove(self._last_words.of(obj))
        for uid, obj in there.items():
            if obj is not before.get(uid):
                self.cluster_state.upsert(obj)
        self._reported[kind] = there

    def _relist(self, kind: type[Slim]) -> None:
        there, version = self._list(kind)
        self.cluster_state.replace(kind, list(there.values()), version)
        self._reported[kind] = there
        self._told[kind] += len(self._last_words.since(kind, self._told[kind]))

    def _list(self, kind: type[Slim]) -> tuple[dict[str, Any], str]:
        listed: Any = at_once(self._view.list(kind))
        return {item.metadata.uid: item for item in listed.items}, listed.resource_version


class Unplaced(GroundTruth):
    """A cluster whose scheduler knows nothing of placements."""

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        if isinstance(obj, Pod):
            notes = {key: note for key, note in obj.metadata.annotations.items() if key != ANNOTATION_PLACEMENT}
            obj = msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=notes))
        return await super().create(obj, dry_run=dry_run)


def processes_on(machine: Machine) -> list[PodTasks]:
    """What the control groups of a machine show."""
    return [PodTasks(process.uid, tasks=1) for process in machine.running()]


def answer_for_old_pods(ground_truth: GroundTruth, machines: Machines) -> None:
    """A person looks after a gang that is held for want of proof, and answers for what he found to be dead."""
    living = {process.uid for machine in machines.all.values() for process in machine.running()}
    for recovery in at_once(ground_truth.list(Recovery)).items:
        status = recovery.status
        open_ends = {pod.uid for pod in status.pods if not pod.proof}
        if status.phase is Phase.HELD and status.held_in is Phase.FENCING and not open_ends & living:
            said = f"all: seen to be dead before attempt {status.attempt}"
            note = {"metadata": {"annotations": {ANNOTATION_FENCE_OVERRIDE: said}}}
            at_once(ground_truth.patch(Recovery, recovery.metadata.name, note, namespace=recovery.metadata.namespace))


def strike(sim: Simulation) -> None:
    """One more thing that happens on clusters only."""
    blow = sim.others.choice([cut_power, lose_node, declare_out_of_service, report_missing_gpu, take_signs_back])
    sim.note(f"* {blow.__name__}")
    try:
        blow(sim)
    except ClusterError as error:
        sim.note(f"  was refused: {error}")


def cut_power(sim: Simulation) -> None:
    """Somebody cuts the power of a machine, and says so on its node. Its kubelet comes back with all others."""
    name = sim.others.choice(sorted(sim.machines.all))
    stamp = {"metadata": {"annotations": {ANNOTATION_POWERED_OFF: sim.clock.now().isoformat()}}}
    at_once(sim.ground_truth.patch(Node, name, stamp))
    _go_down(sim, name)


def lose_node(sim: Simulation) -> None:
    """An autoscaler deletes a machine and its node; the pod collector removes the pods that were there."""
    nodes = at_once(sim.ground_truth.list(Node)).items
    marks = {ANNOTATION_CLAIM, ANNOTATION_QUARANTINE}
    plain = [n for n in nodes if LABEL_SPARE not in n.metadata.labels and not marks & n.metadata.annotations.keys()]
    if len(plain) < 2:
        return
    node = sim.others.choice(plain)
    name = node.metadata.name
    sim.lost_nodes[name] = node
    sim.watchdog.cordoned_by_person.discard(name)
    at_once(sim.ground_truth.delete(Node, name))
    _go_down(sim, name)
    _collect_pods(sim, name)


def return_nodes(sim: Simulation) -> None:
    """What was deleted is there again, freshly booted."""
    for name, node in sorted(sim.lost_nodes.items()):
        sim.machines.reboot(name)
        sim.agents[name].crash()
        meta = ObjectMeta(name=name, labels=node.metadata.labels)
        foreign = [taint for taint in node.spec.taints if not taint.key.startswith("healthd.dev/")]
        at_once(sim.ground_truth.create(Node(metadata=meta, spec=NodeSpec(taints=foreign))))
    sim.lost_nodes.clear()


def declare_out_of_service(sim: Simulation) -> None:
    """
    A person says that a node is shut down, whether or not it is. Of a silent one the pods are collected then.

    While no controller runs it has to be true: of a pod that is collected then no word is left to doubt his.
    """
    nodes = at_once(sim.ground_truth.list(Node)).items
    silent = [node for node in nodes if not is_ready(node)]
    node = sim.others.choice(silent or nodes)
    if silent:
        if not any(controller.lives for controller in sim.controllers):
            _go_down(sim, node.metadata.name)
        _collect_pods(sim, node.metadata.name)
    if all(taint.key != OUT_OF_SERVICE.key for taint in node.spec.taints):
        _set_taints(sim, node, [*node.spec.taints, OUT_OF_SERVICE])


def report_missing_gpu(sim: Simulation) -> None:
    """Another detector misses a GPU."""
    name = sim.others.choice(sorted(sim.machines.all))
    node = at_once(sim.ground_truth.get(Node, name))
    others = [condition for condition in node.status.conditions if condition.type != "GPUMissing"]
    missing = Condition(type="GPUMissing", status="True", last_transition_time=sim.clock.now())
    _set_conditions(sim, node, [*others, missing])


def take_signs_back(sim: Simulation) -> None:
    """The others have nothing more against any node."""
    for node in at_once(sim.ground_truth.list(Node)).items:
        taints = [taint for taint in node.spec.taints if taint.key != OUT_OF_SERVICE.key]
        conditions = [condition for condition in node.status.conditions if condition.type != "GPUMissing"]
        if taints != node.spec.taints:
            _set_taints(sim, node, taints)
        if conditions != node.status.conditions:
            _set_conditions(sim, node, conditions)


def is_bad_for_others(node: Node) -> bool:
    """Another detector wants gangs away from it, or it does not answer."""
    missing = any(condition.type == "GPUMissing" for condition in node.status.conditions)
    return missing or not is_ready(node) or any(taint.key == OUT_OF_SERVICE.key for taint in node.spec.taints)


def _collect_pods(sim: Simulation, node: str) -> None:
    """Call the pods of a node Failed, and remove them; what runs there runs on."""
    for pod in at_once(sim.ground_truth.list(Pod)).items:
        if pod.spec.node_name == node:
            meta, failed = pod.metadata, {"status": {"phase": "Failed"}}
            at_once(sim.ground_truth.patch(Pod, meta.name, failed, namespace=meta.namespace, subresource="status"))
            at_once(sim.ground_truth.delete(Pod, meta.name, namespace=meta.namespace, grace_seconds=0))


def _go_down(sim: Simulation, name: str) -> None:
    sim.machines.reboot(name)
    sim.machines.all[name].kubelet_dead_since = sim.clock.now()
    sim.agents[name].crash()
    sim.note(f"  {name}")


def _set_taints(sim: Simulation, node: Node, taints: list[Taint]) -> None:
    patch = {"spec": {"taints": msgspec.to_builtins(taints) or None}}
    at_once(sim.ground_truth.patch(Node, node.metadata.name, patch))


def _set_conditions(sim: Simulation, node: Node, conditions: list[Condition]) -> None:
    patch = {"status": {"conditions": msgspec.to_builtins(conditions)}}
    at_once(sim.ground_truth.patch(Node, node.metadata.name, patch, subresource="status"))
