"""When to look for a new step of a gang that was restarted, where each look costs a pod."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.core.checkpoint.precheck import usual_interval
from healthd.core.recovery.gang import Root

SOONEST = timedelta(seconds=10)
"""Between two looks: a pod takes some seconds to start."""


def next_look(root: Root, running_since: datetime, now: datetime, longest: timedelta) -> timedelta:
    """
    How long to wait from *now*, and never longer than *longest*.

    A gang whose rhythm is known is looked at when it should have saved. From then on, and where the rhythm is not known
    from the start, the waits grow with the time: what is seen late is at most twice as old as it need be.
    """
    usual = usual_interval(root)
    if usual is None:
        waited = now - running_since
    else:
        writing = timedelta(seconds=root.saves.good[-1].seconds if root.saves.good else 0.0)
        due = running_since + usual + writing
        waited = now - due if now >= due else due - now
    return min(longest, max(SOONEST, waited))
