"""
Planned restarts: healthd restarts a gang that has no fault, to grow back, to leave a node before its maintenance, or to
leave one on which a rank makes the gang slow.

Such a restart comes right after a save, so that next to nothing is redone, and not soon after another recovery. It is a
recovery like any other, with a cause that is no fault: the breaker and the limits of restarts do not count it. A fault
that joins makes it a recovery from that fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from healthd.core.api import Cause, Recovery
from healthd.core.api.model import CauseKind
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.planned.growth import may_grow, recorded
from healthd.core.recovery.planned.moving import MOVES, Departure, nodes_to_leave
from healthd.core.recovery.planned.slow_nodes import may_swap
from healthd.core.recovery.progress import has_rhythm

RIGHT_AFTER = timedelta(minutes=1)
"""A save that is so young costs little: to stop a gang and to start it takes as long."""
RIGHT_AFTER_MOST = timedelta(minutes=10)
"""An older save is not recent, however seldom the gang saves."""
SHARE = 4
"""A save is recent for this part of the usual interval between two saves."""
ENOUGH = 3
"""Intervals between checked saves that make a rhythm."""


PLANNED = frozenset({CauseKind.CAPACITY, *MOVES})
"""The causes that are no faults."""


def is_planned(recovery: Recovery) -> bool:
    """Whether healthd restarts the gang by its own choice: no fault has joined."""
    return all(cause.kind in PLANNED for cause in recovery.status.causes or [recovery.spec.cause])


def is_still_wanted(
    cause: Cause, earlier: Sequence[Recovery], view: GangView, policy: RecoveryPolicy, now: datetime
) -> bool:
    """
    Whether what *cause* says still holds, by what was read anew. *earlier*: all recoveries of the gang, of which one
    may have ended a moment ago.
    """
    if not is_due(earlier, policy, now):
        return False
    if cause.kind in MOVES:
        departures = nodes_to_leave(cause.kind, view)
        is_same = slow_ranks(departures) == {each.member for each in cause.suspects}
        return is_same and may_leave(departures, earlier, policy, now)
    return view.root is not None and may_grow(view.root) and recorded(earlier, view.root) is not None


def may_leave(
    departures: Sequence[Departure], earlier: Iterable[Recovery], policy: RecoveryPolicy, now: datetime
) -> bool:
    """Whether the gang may leave these nodes, if any, after all its *earlier* recoveries."""
    slow = slow_ranks(departures)
    return bool(departures) and (not slow or may_swap(slow, earlier, policy, now))


def slow_ranks(departures: Iterable[Departure]) -> set[str]:
    """The ranks because of which it is to leave."""
    return {suspect.member for departure in departures for suspect in departure.suspects}


def recently_saved(root: Root, now: datetime) -> bool:
    """
    Whether the gang has saved a moment ago, in its present attempt: a restart now redoes next to nothing.

    Where its steps cannot be read by name, its checked saves count. A gang of which neither is known never did.
    """
    at = _saved_at(root)
    usual = _usual_interval(root)
    if at is None or usual is None or (root.started_at is not None and at < root.started_at):
        return False
    return timedelta(0) <= now - at <= min(max(RIGHT_AFTER, usual / SHARE), RIGHT_AFTER_MOST)


def _saved_at(root: Root) -> datetime | None:
    progress = root.progress
    if progress.step >= 0:
        return progress.at if progress.attempt == root.attempt else None
    return root.saves.good[-1].at if root.saves.good and not root.saves.refused else None


def _usual_interval(root: Root) -> timedelta | None:
    seen = root.progress.intervals if has_rhythm(root.progress) else []
    if not seen:
        seen = [(after.at - before.at).total_seconds() for before, after in pairwise(root.saves.good)]
    return timedelta(seconds=median(seen)) if len(seen) >= ENOUGH else None


def is_due(recoveries: Iterable[Recovery], policy: RecoveryPolicy, now: datetime) -> bool:
    """Whether no recovery of the gang began or ended so recently that a further restart has to wait."""
    times = (each.status.ended_at or each.metadata.creation_timestamp for each in recoveries)
    return all(at is None or now - at >= policy.grow_every for at in times)
