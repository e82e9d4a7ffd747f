"""
Planned maintenance of nodes: a site announces it and takes that back, in some worlds, with dice of its own.

The gangs are to leave such nodes right after a save (`foreign.rows`, effect `move`). In the end all of it is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from healthd.core.api import Node
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

ANNOUNCED = "example.com/maintenance"
ROW = f"annotation {ANNOUNCED} -> move"


def is_announced(node: Node) -> bool:
    """Whether gangs are to leave *node*."""
    return ANNOUNCED in node.metadata.annotations


def change(sim: Simulation) -> None:
    """The maintenance of some node is announced, or is over."""
    nodes = at_once(sim.ground_truth.list(Node)).items
    node = sim.site.choice(sorted(nodes, key=lambda each: str(each.metadata.name)))
    if is_announced(node):
        sim.note(f"* maintenance of {node.metadata.name} is over")
        _annotate(sim, node.metadata.name, None)
    else:
        announce(sim, node.metadata.name)


def announce(sim: Simulation, name: str) -> None:
    """The maintenance of node *name* is announced."""
    sim.note(f"* maintenance of {name} is announced")
    sim.watchdog.announced.add(name)
    _annotate(sim, name, "soon")
    sim.check()  # a controller may act on it before this step is over


def end(sim: Simulation) -> None:
    """No node awaits any."""
    for node in at_once(sim.ground_truth.list(Node)).items:
        _annotate(sim, node.metadata.name, None)


def _annotate(sim: Simulation, name: str, value: str | None) -> None:
    patch: dict[str, Any] = {"metadata": {"annotations": {ANNOUNCED: value}}}
    at_once(sim.ground_truth.patch(Node, name, patch))


__all__ = ["ROW", "announce", "change", "end", "is_announced"]
