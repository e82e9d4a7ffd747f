"""
The breaker: faults that come in crowds are a broken switch, store, or healthd itself, and restarts make it worse.

It stops new recoveries only: those that run go on, nodes are cleared, and people are told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from healthd.core.objects import Recovery
from healthd.core.policy import RecoveryPolicy


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no recovery may begin now, and when to ask again."""

    reason: str
    recheck: timedelta


def refuses(recoveries: Iterable[Recovery], policy: RecoveryPolicy, now: datetime) -> Refusal | None:
    """None while fewer than `breaker_restarts` recoveries began within `breaker_window`."""
    begun = sorted(at for r in recoveries if (at := r.metadata.creation_timestamp) and now - at < policy.breaker_window)
    if len(begun) < policy.breaker_restarts:
        return None
    free_at = begun[-policy.breaker_restarts] + policy.breaker_window
    reason = f"{len(begun)} recoveries began within {policy.breaker_window}: the breaker is open"
    return Refusal(reason, max(free_at - now, timedelta(seconds=1)))
