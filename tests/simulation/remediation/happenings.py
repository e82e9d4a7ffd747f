"""What happens to the nodes: faults, people, pods, another remediator, boots, deletions, clocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from healthd.cluster.port import ClusterError
from healthd.core.api import Node, NodeHealth, NodeRemediation, Pod
from healthd.core.api.names import ANNOTATION_RETRY
from healthd.core.api.remediations import Rung
from tests.builders import a_pod
from tests.simulation.remediation.hosts import LINES
from tests.simulation.remediation.watching import OTHER, QUARANTINE, REPAIRED, WORD
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.remediation.simulation import RemediationSimulation

NEEDS = (Rung.NONE, Rung.RESET_GPU, Rung.REBOOT, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
CLOCKS = (-26.0, -3.5, -0.1, 0.1, 3.5)
"""Hours by which somebody sets a clock."""
HOME = "healthd-system"


def strike(sim: RemediationSimulation) -> None:
    """One thing happens."""
    blow = sim.dice.choices([blow for blow, _ in _BLOWS], weights=[weight for _, weight in _BLOWS])[0]
    name = sim.dice.choice(sorted(sim.hosts.all))
    sim.note(f"* {blow.__name__} {name}")
    try:
        blow(sim, name)
    except ClusterError as error:
        sim.note(f"  was refused: {error}")


def break_hardware(sim: RemediationSimulation, name: str) -> None:
    """Its kernel tells of a fault."""
    sim.hosts.breaks(name, sim.dice.choice(list(LINES.values())), sim.dice.choice(NEEDS), sim.clock.now())


def say_off(sim: RemediationSimulation, name: str) -> None:
    """A person keeps healthd off the node, or retires it."""
    annotate(sim, name, WORD, sim.dice.choice(("off", "off", "retire", "please")))


def take_word_back(sim: RemediationSimulation, name: str) -> None:
    """A person has nothing more against it."""
    annotate(sim, name, WORD, None)


def ask_for_retry(sim: RemediationSimulation, name: str) -> None:
    """A person asks for a further try."""
    annotate(sim, name, ANNOTATION_RETRY, sim.clock.now().isoformat())
    sim.watch.known[name].retry_at = sim.clock.now()


def repair(sim: RemediationSimulation, name: str) -> None:
    """`healthd repair`, by a person who may be wrong."""
    if sim.dice.random() < 0.8:
        sim.hosts.all[name].needs, sim.hosts.all[name].broken = None, False
    said(sim, name)


def said(sim: RemediationSimulation, name: str) -> None:
    """`healthd repair` and nothing else."""
    sim.watch.known[name].is_released = True
    annotate(sim, name, REPAIRED, sim.clock.now().isoformat())


def uncordon(sim: RemediationSimulation, name: str) -> None:
    """`kubectl uncordon`."""
    sim.watch.known[name].is_released = True
    at_once(sim.ground_truth.patch(Node, name, {"spec": {"unschedulable": None}}))


def delete_record(sim: RemediationSimulation, name: str) -> None:
    """A person deletes what healthd has on record."""
    at_once(sim.ground_truth.delete(NodeRemediation, name, namespace=HOME))
    known = sim.watch.known[name]
    known.begin_anew()
    known.orphaned |= known.requested
    known.has_lost_record = True


def delete_report(sim: RemediationSimulation, name: str) -> None:
    """A person deletes what the agent reported."""
    at_once(sim.ground_truth.delete(NodeHealth, name))


def pod_comes(sim: RemediationSimulation, name: str) -> None:
    """A pod runs on it: on a node out of service only one that tolerates that."""
    node = at_once(sim.ground_truth.get(Node, name))
    if QUARANTINE in node.metadata.annotations and sim.dice.random() < 0.6:
        return
    sim.pods += 1
    at_once(sim.ground_truth.create(a_pod(f"extra-{sim.pods}", node=name)))


def pods_end(sim: RemediationSimulation, name: str) -> None:
    """Its pods are deleted; their processes take their time."""
    for pod in at_once(sim.ground_truth.list(Pod)).items:
        if pod.spec.node_name == name and pod.metadata.name.startswith("extra"):
            at_once(sim.ground_truth.delete(Pod, pod.metadata.name, namespace="default"))


def other_comes(sim: RemediationSimulation, name: str) -> None:
    """Another remediator marks it."""
    annotate(sim, name, OTHER, "true")


def other_goes(sim: RemediationSimulation, name: str) -> None:
    """It is done."""
    annotate(sim, name, OTHER, None)


def reboot(sim: RemediationSimulation, name: str) -> None:
    """Somebody reboots it, or it does so by itself."""
    sim.hosts.boots(name, sim.clock.now())
    sim.agents[name].crash()


def lose_node(sim: RemediationSimulation, name: str) -> None:
    """Somebody deletes the Node. What ran there is collected."""
    if len(sim.lost) + 1 < len(sim.hosts.all):
        sim.lost.add(name)
        sim.remove_node(name)


def return_node(sim: RemediationSimulation, name: str) -> None:
    """The Node of the same machine, or of another one, is there again."""
    if name in sim.lost:
        sim.lost.discard(name)
        sim.add_node(name, is_another=sim.dice.random() < 0.3)


def crash(sim: RemediationSimulation, name: str) -> None:
    """A controller and an agent are killed."""
    sim.dice.choice(sim.controllers).crash()
    sim.agents[name].crash()


def set_clock_of_controller(sim: RemediationSimulation, _: str) -> None:
    """The clock of the machine of a controller. A process that lives does not go by it."""
    actor, hours = sim.dice.choice(sim.controllers), sim.dice.choice(CLOCKS)
    sim.clocks[actor.name] = timedelta(hours=hours)
    sim.watch.slack = max(sim.watch.slack, timedelta(hours=2 * abs(hours)))
    actor.crash()


def set_clock_of_node(sim: RemediationSimulation, name: str) -> None:
    """The clock of a node."""
    hours = sim.dice.choice(CLOCKS)
    sim.hosts.all[name].set_clock(timedelta(hours=hours))
    sim.watch.slack = max(sim.watch.slack, timedelta(hours=2 * abs(hours)))
    sim.agents[name].crash()


def time_passes(sim: RemediationSimulation, _: str) -> None:
    """A while without anything."""
    sim.clock.advance(timedelta(minutes=sim.dice.choice((5, 15, 25, 90))))


def annotate(sim: RemediationSimulation, name: str, key: str, value: str | None) -> None:
    """A person annotates the Node."""
    patch: dict[str, Any] = {"metadata": {"annotations": {key: value}}}
    at_once(sim.ground_truth.patch(Node, name, patch))


_BLOWS: list[tuple[Callable[[RemediationSimulation, str], None], int]] = [
    (break_hardware, 30),
    (say_off, 5),
    (take_word_back, 6),
    (ask_for_retry, 6),
    (repair, 5),
    (uncordon, 2),
    (delete_record, 1),
    (delete_report, 1),
    (pod_comes, 6),
    (pods_end, 8),
    (other_comes, 5),
    (other_goes, 5),
    (reboot, 4),
    (lose_node, 3),
    (return_node, 5),
    (crash, 6),
    (set_clock_of_controller, 1),
    (set_clock_of_node, 1),
    (time_passes, 12),
]

__all__ = ["annotate", "said", "strike"]
