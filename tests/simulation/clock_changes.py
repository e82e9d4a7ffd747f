"""
Somebody sets the clock of a machine, by minutes or hours: processes that begin then go by it.

One that lives on does not (`healthd.clock`), so each setting comes with a new life of what runs there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from healthd.core.api import NodeHealth
from healthd.core.diagnosis.findings.ledger import CLOCK_DRIFTS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_HOURS = (-26.0, -3.5, -0.1, 0.1, 3.5, 26.0)
FURTHEST = timedelta(hours=2 * max(_HOURS))
"""How much two clocks differ at most."""


def set_clock_of_node(sim: Simulation) -> None:
    """The clock of one machine."""
    name = sim.people.choice(sorted(sim.machines.all))
    _set_node(sim, name, timedelta(hours=sim.people.choice(_HOURS)))


def set_clock_of_controller(sim: Simulation) -> None:
    """The clock of the machine of one controller."""
    actor = sim.people.choice(sim.controllers)
    _set_controller(sim, actor.name, timedelta(hours=sim.people.choice(_HOURS)))
    sim.watchdog.clocks_differ = FURTHEST


def set_clocks_right(sim: Simulation) -> None:
    """All of them."""
    for name, machine in sorted(sim.machines.all.items()):
        if abs(machine.clock_offset) > timedelta(minutes=1):
            _set_node(sim, name, timedelta(0))
            # A repair that is said sooner may seem to be older than the fault, and would have to be said again.
            sim.clock.advance(CLOCK_DRIFTS)
    while _is_in_doubt(sim):
        sim.clock.advance(CLOCK_DRIFTS)
    for name in sorted(sim.clocks):
        _set_controller(sim, name, timedelta(0))


def _is_in_doubt(sim: Simulation) -> bool:
    """A finding was stamped a little ahead: it may be newer than a repair that is said now."""
    now = sim.clock.now()
    stamps = [finding.last_at for report in sim.world()[NodeHealth] for finding in report.status.findings]
    return any(now < stamp <= now + CLOCK_DRIFTS for stamp in stamps)


def _set_node(sim: Simulation, name: str, offset: timedelta) -> None:
    machine = sim.machines.all[name]
    sim.note(f"  {name} by {offset}")
    if name in sim.watchdog.faulted_at:
        sim.watchdog.faulted_at[name] += offset - machine.clock_offset
    machine.set_clock(offset)
    sim.watchdog.clock_was_set(name, sim.clock.now() + offset)
    if name in sim.watchdog.conducts:
        sim.watchdog.conducts[name].clock_was_set()
    sim.agents[name].crash()


def _set_controller(sim: Simulation, name: str, offset: timedelta) -> None:
    sim.note(f"  {name} by {offset}")
    sim.clocks[name] = offset
    next(actor for actor in sim.controllers if actor.name == name).crash()


__all__ = ["set_clock_of_controller", "set_clock_of_node", "set_clocks_right"]
