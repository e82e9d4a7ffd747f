"""
Which of the deeds of people happens, in the worlds that are visited. All follow from dice of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from healthd.cluster.port import ClusterError
from tests.simulation import clock_changes, deletions, gang_edits, operator_actions

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_DEEDS: tuple[Callable[[Simulation], None], ...] = (
    operator_actions.reinstall,
    operator_actions.make_node_anew,
    operator_actions.make_node_anew,
    operator_actions.label_spare,
    operator_actions.unlabel_spare,
    gang_edits.switch_restarts,
    gang_edits.edit_options,
    gang_edits.edit_gang,
    gang_edits.resize,
    gang_edits.resize,
    gang_edits.resume_by_hand,
    gang_edits.resume_by_hand,
    gang_edits.make_gang_anew,
    clock_changes.set_clock_of_node,
    clock_changes.set_clock_of_controller,
    deletions.delete_slots,
    deletions.delete_slots,
    deletions.delete_reports,
    deletions.delete_recoveries,
    deletions.delete_recoveries,
)


def interfere(sim: Simulation) -> None:
    """Somebody does something."""
    deed = sim.people.choice(_DEEDS)
    sim.note(f"* {deed.__name__}")
    try:
        deed(sim)
    except ClusterError as error:
        sim.note(f"  was refused: {error}")


__all__ = ["interfere"]
