"""
Remembers the spares whose claim the API server refused, as by a policy for the taints of a node pool.

Each recovery takes the best spare. Without this memory it would ask for the same one without end, while others are
free. It is in memory alone: another controller asks once, and knows it, too.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.cluster.port import Refused
from healthd.core.backoff import Backoff, no_jitter

AGAIN, AGAIN_MOST = timedelta(seconds=10), timedelta(minutes=10)
"""After this a refused spare is free again to the plans. It is doubled each time, up to the longest: the policy may be
changed, or its webhook may answer again, and nothing on the node shows that."""
LONGEST = 200
"""Characters of the reason: it becomes a part of the message of a recovery."""


class RefusedClaims:
    """The spares that cannot be claimed now, and why."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[datetime, str]] = {}
        self._backoffs: dict[str, Backoff] = {}

    def note(self, spare: str, error: Refused, now: datetime) -> None:
        """The API server refused the claim of *spare*."""
        wait = self._backoffs.setdefault(spare, Backoff(AGAIN, AGAIN_MOST, no_jitter)).next()
        self._until[spare] = now + wait, str(error)[:LONGEST]

    def forget(self, spare: str) -> None:
        """It was claimed."""
        self._until.pop(spare, None)
        self._backoffs.pop(spare, None)

    def now(self, now: datetime) -> dict[str, str]:
        """Spare -> why its claim was refused lately."""
        return {spare: why for spare, (until, why) in self._until.items() if now < until <= now + AGAIN_MOST}
