"""
People who delete what healthd keeps, under programs that live on: slots of the budget, reports of nodes, recoveries.

The Lease of the leader is not played: of two controllers each acts here as if it led, so nothing is gained by one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from healthd.core.api import ANNOTATION_QUARANTINE, Lease, Node, NodeHealth, Recovery
from healthd.core.node.budget import slot_sets
from tests.simulation.invariants import expect
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

LOOKS = 8
"""As many as it takes an agent to see that its slot is gone and, refused twice, to ask for another."""
APART = timedelta(minutes=3)


def delete_slots(sim: Simulation) -> None:
    """Some of the Leases that are the budget, or all."""
    slots = at_once(sim.ground_truth.list(Lease)).items
    gone = slots if sim.people.random() < 0.5 else slots[:1]
    for slot in gone:
        sim.watchdog.loses_slot(slot.spec.holder_identity)
        at_once(sim.ground_truth.delete(Lease, slot.metadata.name, namespace=slot.metadata.namespace))
    sim.lost_slots = sim.lost_slots or bool(gone)


def delete_reports(sim: Simulation) -> None:
    """What the agents published, of one node or of all."""
    reports = at_once(sim.ground_truth.list(NodeHealth)).items
    for report in reports if sim.people.random() < 0.3 else reports[:1]:
        at_once(sim.ground_truth.delete(NodeHealth, report.metadata.name))


def delete_recoveries(sim: Simulation) -> None:
    """All recoveries, or one: some are over, some have just stopped a gang."""
    recoveries = at_once(sim.ground_truth.list(Recovery)).items
    gone = recoveries if sim.people.random() < 0.5 else recoveries[-1:]
    for each in gone:
        sim.watchdog.loses_recovery(each)
        at_once(sim.ground_truth.delete(Recovery, each.metadata.name, namespace=each.metadata.namespace))
        sim.note(f"  {each.metadata.name} in {each.status.phase}")


def prove_slots_are_held(sim: Simulation) -> None:
    """Agents that live on notice that their slots are gone: no quarantine stays uncounted while a slot is free."""
    sim.luck.is_out = True
    sim.note("--- slots")
    for _ in range(LOOKS):
        for actor in [*sim.agents.values(), *sim.controllers, sim.job_controller]:
            sim.go(actor)
        sim.pass_time(APART)
        sim.check()
    held = {slot.metadata.name: slot.spec.holder_identity for slot in at_once(sim.ground_truth.list(Lease)).items}
    for node in at_once(sim.ground_truth.list(Node)).items:
        name, policy = node.metadata.name, sim.config.quarantine
        if ANNOTATION_QUARANTINE not in node.metadata.annotations or name in sim.lost_nodes:
            continue
        sets = slot_sets(node, policy)
        has_all = all(any(held.get(slot) == name for slot in each.names) for each in sets)
        could = all(any(held.get(slot, name) == name for slot in each.names) for each in sets)
        expect(1, has_all or not could, f"{name} is quarantined without a slot, and one is free")


__all__ = ["delete_recoveries", "delete_reports", "delete_slots", "prove_slots_are_held"]
