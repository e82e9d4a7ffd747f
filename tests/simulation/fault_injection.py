"""
What happens to a cluster: hardware breaks, kubelets die, people interfere. Each is one change of the true world.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from healthd.cluster.port import ClusterError, NotFound
from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    ANNOTATION_STOPPED_BY,
    Job,
    Node,
    NodeHealth,
    Pod,
)
from tests.simulation import clock_changes, kubernetes
from tests.simulation.machines import PCI
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

OFF_THE_BUS = f"NVRM: Xid (PCI:{PCI[:-2]}): 79, pid=1234, name=python, GPU has fallen off the bus."
APPLICATION = f"NVRM: Xid (PCI:{PCI[:-2]}): 13, pid=1234, name=python, Graphics Exception: ESR 0x404600=0x80000002"


def strike(sim: Simulation) -> None:
    """One thing goes wrong, or somebody does something."""
    blow = sim.dice.choices([blow for blow, _ in _BLOWS], weights=[weight for _, weight in _BLOWS])[0]
    sim.note(f"* {blow.__name__}")
    try:
        blow(sim)
    except ClusterError as error:
        sim.note(f"  was refused: {error}")


def break_hardware(sim: Simulation) -> None:
    """A GPU dies: its ranks stand still or fail, and the kernel says so."""
    node = _some_node(sim)
    break_node(sim, node)
    if sim.dice.random() < 0.5:
        for process in sim.machines.all[node].running():
            process.ends_at, process.exit_code = sim.clock.now(), 134


def break_node(sim: Simulation, node: str) -> None:
    """The GPU of this node falls off the bus."""
    machine = sim.machines.all[node]
    machine.broken = True
    sim.watchdog.faulted(node, machine.write_to_log(OFF_THE_BUS, sim.clock.now()).at)
    sim.note(f"  on {node}")


def fault_of_application(sim: Simulation) -> None:
    """The kernel reports what a program did wrong; the hardware is fine."""
    sim.machines.all[_some_node(sim)].write_to_log(APPLICATION, sim.clock.now())


def forged_record(sim: Simulation) -> None:
    """A process writes a line to the log that looks like the kernel's."""
    sim.machines.all[_some_node(sim)].write_to_log(OFF_THE_BUS, sim.clock.now(), facility=1)


def crash_rank(sim: Simulation) -> None:
    """A rank fails by itself; often its peers follow."""
    gang = sim.dice.choice(sorted(sim.worlds))
    ranks = sim.machines.processes(gang)
    if ranks:
        victims = ranks if sim.dice.random() < 0.5 else [sim.dice.choice(ranks)]
        for process in victims:
            process.ends_at, process.exit_code = sim.clock.now(), 1


def break_program(sim: Simulation) -> None:
    """A bug: from now on the program fails a few steps after each start."""
    sim.trainers.crash_at[sim.dice.choice(sorted(sim.worlds))] = sim.dice.choice([0, 0, 2])


def stall_program(sim: Simulation) -> None:
    """The program stands still, for no reason that anybody can see."""
    gang = sim.dice.choice(sorted(sim.worlds))
    sim.trainers.stalled.symmetric_difference_update({gang})


def repair(sim: Simulation) -> None:
    """A technician repairs a broken node and says so."""
    broken = sorted(name for name, machine in sim.machines.all.items() if machine.broken)
    if broken:
        _repair(sim, sim.dice.choice(broken))


def reboot(sim: Simulation) -> None:
    """A machine goes down and comes up."""
    node = _some_node(sim)
    sim.machines.reboot(node)
    sim.agents[node].crash()
    sim.note(f"  {node}")


def kill_kubelet(sim: Simulation) -> None:
    """A kubelet stops; what it had started runs on."""
    machine = sim.machines.all[_some_node(sim)]
    machine.kubelet_dead_since = machine.kubelet_dead_since or sim.clock.now()
    sim.note(f"  on {machine.name}")


def revive_kubelets(sim: Simulation) -> None:
    """All kubelets are back."""
    for machine in sim.machines.all.values():
        machine.kubelet_dead_since = None


def suspend_gang(sim: Simulation) -> None:
    """The user stops a gang, also one that healthd has stopped already: then by taking away its mark."""
    gang = sim.dice.choice(sorted(sim.worlds))
    job = at_once(sim.ground_truth.get(Job, gang, "default"))
    sim.watchdog.stopped_by_user.add(gang)
    patch = {"metadata": {"annotations": {ANNOTATION_STOPPED_BY: None}}, "spec": {"suspend": True}}
    at_once(sim.ground_truth.patch(Job, gang, patch, namespace="default", uid=job.metadata.uid))


def resume_gang(sim: Simulation) -> None:
    """The user lets a gang go on that he had stopped."""
    if sim.watchdog.stopped_by_user:
        gang = min(sim.watchdog.stopped_by_user)
        sim.watchdog.stopped_by_user.discard(gang)
        at_once(sim.ground_truth.patch(Job, gang, {"spec": {"suspend": False}}, namespace="default"))


def delete_gang(sim: Simulation) -> None:
    """The user deletes a gang."""
    gang = sim.dice.choice(sorted(sim.worlds))
    job = at_once(sim.ground_truth.get(Job, gang, "default"))
    at_once(sim.ground_truth.delete(Job, gang, namespace="default"))
    sim.watchdog.deletes(job)


def cordon(sim: Simulation) -> None:
    """A person cordons a node. On one that is cordoned or quarantined already nothing would show that later."""
    name = _some_node(sim)
    node = at_once(sim.ground_truth.get(Node, name))
    if not node.spec.unschedulable and ANNOTATION_QUARANTINE not in node.metadata.annotations:
        sim.watchdog.cordoned_by_person.add(name)
        at_once(sim.ground_truth.patch(Node, name, {"spec": {"unschedulable": True}}))


def uncordon(sim: Simulation) -> None:
    """A person uncordons a node, also one that healthd had cordoned."""
    name = _some_node(sim)
    at_once(sim.ground_truth.patch(Node, name, {"spec": {"unschedulable": None}}))
    sim.watchdog.cordoned_by_person.discard(name)


def taint(sim: Simulation) -> None:
    """Somebody else's tool taints a node."""
    name = _some_node(sim)
    node = at_once(sim.ground_truth.get(Node, name))
    keys = sorted(t.key for t in node.spec.taints)
    if "example.com/maintenance" not in keys:
        taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.spec.taints]
        taints.append({"key": "example.com/maintenance", "value": "", "effect": "PreferNoSchedule"})
        at_once(sim.ground_truth.patch(Node, name, {"spec": {"taints": taints}}))


def force_delete(sim: Simulation) -> None:
    """A person deletes a pod without waiting for its kubelet."""
    if pod := _some_pod(sim):
        at_once(sim.ground_truth.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0))


def collect_pod(sim: Simulation) -> None:
    """The pod collector calls a pod Failed whose node is out of reach; its process runs on."""
    if pod := _some_pod(sim):
        name, machine = pod.metadata.name, sim.machines.all[pod.spec.node_name]
        machine.kubelet_dead_since = machine.kubelet_dead_since or sim.clock.now()
        at_once(
            sim.ground_truth.patch(
                Pod, name, {"status": {"phase": "Failed"}}, namespace="default", subresource="status"
            )
        )
        at_once(sim.ground_truth.delete(Pod, name, namespace="default", grace_seconds=0))


def evict_pod(sim: Simulation) -> None:
    """Somebody drains a node."""
    if pod := _some_pod(sim):
        at_once(sim.ground_truth.delete(Pod, pod.metadata.name, namespace="default"))


def break_store(sim: Simulation) -> None:
    """The checkpoint store answers with errors, or as if there were nothing, or is back."""
    store = sim.trainers.stores[sim.dice.choice(sorted(sim.trainers.stores))]
    store.outage = sim.dice.choice(["", "error", "error", "empty"])


def tear_checkpoint(sim: Simulation) -> None:
    """A checkpoint of a step to come is begun and never finished."""
    name = sim.dice.choice(sorted(sim.trainers.stores))
    newest = sim.trainers.stores[name].newest_whole()
    sim.trainers.stores[name].save(name, (newest.step if newest else -1) + 1, whole=False)


def spoil_checkpoint(sim: Simulation) -> None:
    """The newest checkpoint of a gang holds by all that can be seen, and no rank can load it. It stays so."""
    name = sim.doubts.choice(sorted(sim.trainers.stores))
    newest = sim.trainers.stores[name].newest_whole()
    if newest is not None:
        newest.loads = False
        sim.note(f"* {newest.path} does not load any more")
        for process in sim.machines.processes(name)[:1]:
            process.ends_at, process.exit_code = sim.clock.now(), 1


def blind(sim: Simulation) -> None:
    """A kernel log cannot be read for a while."""
    sim.unreadable.symmetric_difference_update({_some_node(sim)})


def crash_agent(sim: Simulation) -> None:
    """An agent dies between two rounds."""
    sim.agents[_some_node(sim)].crash()


def crash_controller(sim: Simulation) -> None:
    """A controller dies between two rounds."""
    sim.dice.choice(sim.controllers).crash()


def wait_a_while(sim: Simulation) -> None:
    """Nothing happens for minutes."""
    sim.clock.advance(timedelta(minutes=1 + sim.dice.random() * 9))


_BLOWS: list[tuple[Callable[[Simulation], None], int]] = [
    (break_hardware, 22),
    (fault_of_application, 3),
    (forged_record, 2),
    (crash_rank, 10),
    (break_program, 2),
    (stall_program, 2),
    (repair, 8),
    (reboot, 4),
    (kill_kubelet, 6),
    (revive_kubelets, 5),
    (suspend_gang, 3),
    (resume_gang, 4),
    (delete_gang, 1),
    (cordon, 4),
    (uncordon, 3),
    (taint, 2),
    (force_delete, 3),
    (collect_pod, 4),
    (evict_pod, 2),
    (break_store, 4),
    (tear_checkpoint, 3),
    (blind, 2),
    (crash_agent, 3),
    (crash_controller, 3),
    (wait_a_while, 2),
]


def repair_everything(sim: Simulation) -> None:
    """All faults end: hardware, kubelets, stores, programs."""
    sim.luck.is_out = True
    sim.unreadable.clear()
    sim.trainers.stalled.clear()
    sim.trainers.crash_at.clear()
    for store in sim.trainers.stores.values():
        store.outage = ""
    revive_kubelets(sim)
    kubernetes.return_nodes(sim)
    kubernetes.take_signs_back(sim)
    clock_changes.set_clocks_right(sim)
    for instruments in sim.instruments.values():
        instruments.heal()
    for name in sim.machines.all:
        if sim.machines.all[name].broken or name in sim.watchdog.faulted_at:
            _repair(sim, name)


def repair_what_does_not_end(sim: Simulation) -> None:
    """
    People look after nodes that are out for something that does not end by itself.

    Also once more after nodes whose clock was ahead: what broke seems to have done so after the repair.
    """
    for health in at_once(sim.ground_truth.list(NodeHealth)).items:
        invariants_of_findings = sim.watchdog.conducts.get(health.metadata.name)
        standing = [finding for finding in health.status.findings if finding.cleared_at is None]
        acting = [finding for finding in standing if finding.quarantines]
        repaired = sim.watchdog.repaired_at.get(health.metadata.name)
        seems_later = repaired is not None and any(finding.last_at > repaired for finding in acting)
        lasts = invariants_of_findings is not None and not all(
            invariants_of_findings.ends_by_itself(finding) for finding in acting
        )
        if lasts or (invariants_of_findings is None and seems_later):
            _repair(sim, health.metadata.name)


def take_back_cordons(sim: Simulation) -> None:
    """People uncordon what they had cordoned, once healthd has nothing more against the node."""
    for name in sim.machines.all:
        node = at_once(sim.ground_truth.get(Node, name))
        if node.spec.unschedulable and ANNOTATION_QUARANTINE not in node.metadata.annotations:
            sim.watchdog.cordoned_by_person.discard(name)
            at_once(sim.ground_truth.patch(Node, name, {"spec": {"unschedulable": None}}))


def _repair(sim: Simulation, name: str) -> None:
    """The stamp is later than the last record, whatever the machine's clock says: a technician takes his time."""
    sim.clock.advance(timedelta(seconds=1))
    sim.machines.all[name].broken = False
    if name in sim.instruments:
        sim.instruments[name].heal()
    invariants_of_findings = sim.watchdog.conducts.get(name)
    seen = [sim.watchdog.faulted_at.get(name), invariants_of_findings.last_bad if invariants_of_findings else None]
    last = max((at for at in seen if at is not None), default=sim.clock.now())
    stamp = max(sim.clock.now(), last + timedelta(seconds=1))
    at_once(sim.ground_truth.patch(Node, name, {"metadata": {"annotations": {ANNOTATION_REPAIRED: stamp.isoformat()}}}))
    sim.watchdog.repaired(name, stamp)
    sim.note(f"  {name} is repaired")


def _some_node(sim: Simulation) -> str:
    return sim.dice.choice(sorted(sim.machines.all))


def _some_pod(sim: Simulation) -> Pod | None:
    pods = [pod for pod in at_once(sim.ground_truth.list(Pod)).items if pod.spec.node_name]
    return sim.dice.choice(pods) if pods else None


__all__ = ["NotFound", "repair_everything", "strike"]
