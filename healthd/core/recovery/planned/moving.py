"""
A gang leaves nodes without a fault: before their maintenance, or because a rank on one of them makes the gang slow.

- *Maintenance*: another detector says that a node will be drained, moved or updated, and a row of the configuration
  asks for it (`foreign.rows`, effect `move`).
- *A slow rank*: the owner of the gang allows it (`core.recovery.planned.slow_nodes`).

The gang is moved by a planned restart (`core.recovery.planned.restarts`), whose cause says which of both it is, once
there is a spare for each node that it should leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from healthd.core.api import Cause
from healthd.core.api.model import CauseKind
from healthd.core.api.recoveries import HangSuspect
from healthd.core.config import RecoveryPolicy
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.straggler_text import sentence_of
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.members import is_terminal, members, with_seats
from healthd.core.recovery.nodes.foreign_signs import Effect
from healthd.core.recovery.nodes.spares import choose, is_doubtful

MOVES = (CauseKind.MAINTENANCE, CauseKind.STRAGGLER)
"""Why a gang leaves nodes."""


class Departure(NamedTuple):
    """A node that a gang should leave, and why. It blames no node."""

    node: str
    message: str
    finding: str = ""
    """The row of the configuration that asks for it, if one does."""
    suspects: tuple[HangSuspect, ...] = ()
    """The slow ranks on it."""


def nodes_to_leave(kind: CauseKind, view: GangView) -> list[Departure]:
    """The nodes that the gang should leave for this reason, one of `MOVES`, by what was read."""
    planned = _before_maintenance(view)
    if kind is CauseKind.MAINTENANCE:
        return planned
    return _of_slow_ranks(view) if kind is CauseKind.STRAGGLER and not planned else []


def _before_maintenance(view: GangView) -> list[Departure]:
    """
    The nodes with members and the sign of another detector, which asks for it.

    A pod that has ended, or is on its way out because the gang was made smaller, keeps the gang on no node.
    """
    seated = with_seats(members(view), view.root) if view.root is not None else []
    there = [pod for pod in seated if not is_terminal(pod) and pod.metadata.deletion_timestamp is None]
    names = sorted({pod.spec.node_name for pod in there if pod.spec.node_name})
    signs = [sign for name in names if (sign := view.sign_on(name)) is not None]
    return [Departure(sign.node, sign.message, sign.row) for sign in signs if sign.effect is Effect.MOVE]


def _of_slow_ranks(view: GangView) -> list[Departure]:
    """The node of the ranks that make the gang slow. It is one at most."""
    if not view.slow:
        return []
    first = min(view.slow, key=lambda each: each.since)
    message = f"since {first.since:%Y-%m-%d %H:%M} UTC " + "; ".join(map(sentence_of, view.slow))
    return [Departure(first.node, message, suspects=tuple(map(_suspect, view.slow)))]


def _suspect(straggler: Straggler) -> HangSuspect:
    return HangSuspect(
        member=straggler.rank,
        node=straggler.node,
        pod=straggler.pod,
        confidence=min(1.0, straggler.confidence),
        words=[straggler.reason] if straggler.reason else [],
    )


def nodes_to_move_to(departures: Sequence[Departure], view: GangView, policy: RecoveryPolicy) -> dict[str, str]:
    """
    A free spare for each node that the gang should leave: node -> spare. Empty where one is missing.

    A spare about which there is any doubt is none: the gang runs, and may lose more than it wins.
    """
    leaves = [departure.node for departure in departures]
    used = {pod.spec.node_name for pod in members(view)}
    chosen = choose(leaves, view, kept={}, recovery="", policy=policy, used=used)
    good = {node: spare for node, spare in chosen.items() if not is_doubtful(spare, view)}
    if any(departure.suspects for departure in departures):  # one slow node instead of another is no gain
        good = {node: spare for node, spare in good.items() if spare not in view.left_slow}
    return good if len(good) == len(leaves) else {}


def cause_to_move(kind: CauseKind, departures: Sequence[Departure], spares: Mapping[str, str], now: datetime) -> Cause:
    """The cause of the restart by which the gang leaves for *spares*."""
    first = departures[0]
    more = f" and {len(departures) - 1} more" if len(departures) > 1 else ""
    message = f"{first.message}: moves to {spares[first.node]}{more}, after a save"
    return Cause(kind=kind, finding=first.finding, message=message, at=now, suspects=list(first.suspects))
