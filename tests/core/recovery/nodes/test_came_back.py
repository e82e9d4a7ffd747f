"""A gang that its scheduler puts on a bad node again: held while another restart would end there too."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from healthd.core.api import Cause, ChosenCheckpoint, Node
from healthd.core.api.model import CauseKind, Hold, Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.decide import Decision, decide
from healthd.core.recovery.gang import CheckpointRead, GangView
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.nodes.came_back import CORDONS_IN_VAIN
from tests.builders import a_cause, a_node
from tests.core.gangs import SOFTWARE, a_recovery_in, a_root
from tests.fakes import START

NOW = START + timedelta(minutes=5)
BAD, OTHER = a_cause(node="bad"), a_cause(node="other")
PLAN = {"0": "good", "1": "spare"}
BEYOND = CheckpointRead(asked=NOW, ended=NOW, found=ChosenCheckpoint(path="p", step=9))


def decided(
    *faults: Cause,
    phase: Phase = Phase.STARTING,
    causes: list[Cause] | None = None,
    bad: Node | None = None,
    view: dict[str, Any] | None = None,
    plan: dict[str, str] = PLAN,
    **status: Any,
) -> Decision:
    """The next move for a gang that was moved away from the node `bad`."""
    recovery = a_recovery_in(phase, causes=causes or [BAD], placement=plan, **status)
    nodes = {node.metadata.name: node for node in (a_node("good"), a_node("spare"), bad or a_node("bad"))}
    return decide(recovery, GangView(root=a_root(attempt=1), nodes=nodes, **view or {}), faults, RecoveryPolicy(), NOW)


def held(phase: Phase) -> dict[str, Any]:
    """The status of a recovery that waits for that reason since *phase*."""
    record = decided(BAD, phase=phase).record
    assert record is not None
    return {"phase": Phase.HELD, "held_in": phase, "message": record.message}


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.CONFIRMING])
def test_a_gang_that_comes_back_to_a_bad_node_is_not_restarted_again(phase: Phase) -> None:
    record = decided(BAD, SOFTWARE, phase=phase).record

    assert record is not None
    assert (record.phase, record.held_in, record.attempt) == (Phase.HELD, phase, 1)
    assert record.message == "it came back to a bad node: bad; nothing keeps its pods off"
    assert hold_of(record) is Hold.NODE
    assert decided(BAD, SOFTWARE, **held(phase)).waits


def test_progress_on_a_bad_node_does_not_end_the_hold() -> None:
    assert decided(BAD, view={"newer": BEYOND}, **held(Phase.CONFIRMING)).waits


@pytest.mark.parametrize(
    ("faults", "plan"),
    [
        pytest.param([OTHER], PLAN, id="another node went bad"),
        pytest.param([BAD, OTHER], PLAN, id="another node went bad, too"),
        pytest.param([BAD], {"0": "good", "1": "bad"}, id="it was repaired, chosen, and broke again"),
        pytest.param([SOFTWARE], PLAN, id="a rank failed by itself"),
        pytest.param([a_cause(CauseKind.INTERRUPTED)], PLAN, id="a pod was deleted"),
    ],
)
def test_it_is_restarted_for_what_a_restart_may_mend(faults: list[Cause], plan: dict[str, str]) -> None:
    record = decided(*faults, plan=plan).record

    assert record is not None
    assert (record.phase, record.attempt) == (Phase.STOPPING, 2)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.CONFIRMING])
def test_a_cordon_moves_it_once_more(phase: Phase) -> None:
    record = decided(BAD, bad=a_node("bad", unschedulable=True), **held(phase)).record

    assert record is not None
    assert (record.phase, record.attempt) == (Phase.STOPPING, 2)


def test_pods_that_no_cordon_keeps_off_are_left_where_they_are() -> None:
    record = decided(BAD, causes=[BAD] * (CORDONS_IN_VAIN + 1), bad=a_node("bad", unschedulable=True)).record

    assert record is not None
    assert record.message == "it came back to a bad node: bad; its cordon does not keep its pods off"


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.CONFIRMING])
def test_it_goes_on_where_it_was_when_the_node_is_good_again(phase: Phase) -> None:
    record = decided(**held(phase)).record

    assert record is not None
    assert (record.phase, record.message) == (phase, "the gang runs on no bad node any more")
