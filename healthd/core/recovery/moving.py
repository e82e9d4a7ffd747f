"""
A gang leaves a node before its maintenance: another detector says that the node will be drained, moved or updated.

A row of the configuration asks for it (`foreign.rows`, effect `move`). It is no fault. The gang is moved by a planned
restart (`core.recovery.planned`) whose cause is `maintenance`, once there is a spare for each node that it should
leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from healthd.core.api import Cause
from healthd.core.api.model import CauseKind
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.foreign_signs import Effect, Sign
from healthd.core.recovery.gang import GangView, is_terminal, members, with_seats
from healthd.core.recovery.spares import choose, is_doubtful


def signs_to_leave(view: GangView) -> list[Sign]:
    """
    The signs by which the gang should leave nodes that its members are on, one for each node.

    A pod that has ended, or is on its way out because the gang was made smaller, keeps the gang on no node.
    """
    seated = with_seats(members(view), view.root) if view.root is not None else []
    there = [pod for pod in seated if not is_terminal(pod) and pod.metadata.deletion_timestamp is None]
    names = sorted({pod.spec.node_name for pod in there if pod.spec.node_name})
    signs = [sign for name in names if (sign := view.sign_on(name)) is not None]
    return [sign for sign in signs if sign.effect is Effect.MOVE]


def nodes_to_move_to(view: GangView, policy: RecoveryPolicy) -> dict[str, str]:
    """
    A free spare for each node that the gang should leave: node -> spare. Empty where one is missing.

    A spare about which there is any doubt is none: the gang runs, and may lose more than it wins.
    """
    leaves = [sign.node for sign in signs_to_leave(view)]
    used = {pod.spec.node_name for pod in members(view)}
    chosen = choose(leaves, view, kept={}, recovery="", policy=policy, used=used)
    good = {node: spare for node, spare in chosen.items() if not is_doubtful(spare, view)}
    return good if len(good) == len(leaves) else {}


def cause_to_move(signs: Sequence[Sign], spares: Mapping[str, str], now: datetime) -> Cause:
    """The cause of the restart by which the gang leaves the nodes of *signs* for *spares*. It blames no node."""
    first = signs[0]
    more = f" and {len(signs) - 1} more" if len(signs) > 1 else ""
    message = f"{first.message}: moves to {spares[first.node]}{more}, after a save"
    return Cause(kind=CauseKind.MAINTENANCE, finding=first.row, message=message, at=now)
