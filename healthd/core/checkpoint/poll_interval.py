"""When to poll for a new step of a restarted gang, where each poll needs a pod."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.core.checkpoint.precheck import usual_interval
from healthd.core.recovery.gang import Root

SOONEST = timedelta(seconds=10)
"""Shortest time between two polls: a pod takes some seconds to start."""

LONGEST = timedelta(minutes=5)
"""
Longest time between two polls. One small pod in five minutes is cheap for any cluster, and the confirmation of a
recovery may be so late: nothing waits for it.
"""


def next_poll(root: Root, running_since: datetime, now: datetime, longest: timedelta = LONGEST) -> timedelta:
    """
    How long to wait from *now* until the next poll; never longer than *longest*.

    If the gang's rhythm is known, the first poll is when the gang should have saved. After that, or from the start if
    the rhythm is unknown, the waits grow with the elapsed time: a late step is at most twice as old as it need be.
    """
    usual = usual_interval(root)
    if usual is None:
        waited = now - running_since
    else:
        writing = timedelta(seconds=root.saves.good[-1].seconds if root.saves.good else 0.0)
        due = running_since + usual + writing
        waited = now - due if now >= due else due - now
    return min(longest, max(SOONEST, waited))
