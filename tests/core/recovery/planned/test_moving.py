"""Which nodes a gang should leave before their maintenance, and when it may be moved."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.api import Cause, Pod, PodStatus
from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.nodes.foreign_signs import Effect, Sign
from healthd.core.recovery.planned.moving import nodes_to_leave
from healthd.core.recovery.planned.restarts import is_still_wanted
from tests.builders import a_pod
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START


def a_sign(node: str) -> Sign | None:
    """The maintenance of one node is announced."""
    row = "condition MaintenancePlanned -> move"
    sign = Sign(
        effect=Effect.MOVE, node=node, row=row, message=f"{node} goes", cause=CauseKind.MAINTENANCE, since=START
    )
    return sign if node == "node-1" else None


def left(*pods: Pod, world: int = 2) -> list[str]:
    """The nodes that a gang with these members should leave."""
    view = GangView(root=a_root(world=world), pods=pods, sign_on=a_sign)
    return [departure.node for departure in nodes_to_leave(CauseKind.MAINTENANCE, view)]


def a_rank(number: int, phase: str = "Running", **meta: Any) -> Pod:
    """A member on the node of its number."""
    return a_pod(f"train-{number}", node=f"node-{number}", index=number, status=PodStatus(phase=phase), **meta)


def test_a_gang_should_leave_the_node_of_a_member() -> None:
    assert left(a_rank(0), a_rank(1)) == ["node-1"]


def test_it_leaves_none_when_another_recovery_that_the_cache_had_not_seen_ended_a_moment_ago() -> None:
    """As in seed 6200021624."""
    policy, over = RecoveryPolicy(), a_recovery_in(Phase.RECOVERED, ended_at=START)
    cause = Cause(kind=CauseKind.MAINTENANCE, message="node-1 goes", at=START)
    view = GangView(root=a_root(), pods=(a_rank(0), a_rank(1)), sign_on=a_sign)

    assert not is_still_wanted(cause, [over], view, policy, START + policy.grow_every / 2)
    assert is_still_wanted(cause, [over], view, policy, START + policy.grow_every)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_rank(1, "Succeeded"), id="has finished"),
        pytest.param(a_rank(1, "Failed", deletion_timestamp=START), id="has ended, and keeps a finalizer"),
        pytest.param(a_rank(1, deletion_timestamp=START), id="is on its way out"),
        pytest.param(a_rank(1), id="has no place any more"),
    ],
)
def test_a_pod_of_a_gang_that_was_made_smaller_keeps_it_on_no_node(pod: Pod) -> None:
    assert left(a_rank(0), pod, world=1) == []
