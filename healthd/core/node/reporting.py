"""
Decide when what an agent knows is worth a write to its `NodeHealth`. Pure.

Ten thousand agents share one API server. What others act on is written at once, what they only read later, and what
nobody needs but the agent's own next life hardly ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import KernelLogCursor, NodeHealth, NodeHealthStatus

PODS_AFTER = timedelta(seconds=2)
"""Between two writes because pods began or ended."""
DETAILS_AFTER = timedelta(seconds=30)
"""Between two writes because a finding was repeated or records were lost."""
GROWTH_AFTER = timedelta(minutes=15)
"""Between two writes because counters of ports grow by another power: work that begins changes them on many nodes."""
CURSOR_AFTER = timedelta(minutes=1)
CURSOR_STRIDE = 256
"""
Records that the cursor may run ahead of the stored one before it is worth a write, at most once in CURSOR_AFTER.

A next life reads on from the stored one. What it judges again is known by its number; but records that the ring has
dropped by then would seem lost. The smallest ring holds some 1,300.
"""
REFRESH_AFTER = timedelta(hours=1)
"""The cursor alone, the conditions of a node, and that the agent lives, in quiet times; up to half as much again."""
SILENT_AFTER = 3 * REFRESH_AFTER
"""What was said of a node longer ago is not known any more: its agent missed a refresh, by half an hour at least."""

_NO_CURSOR = KernelLogCursor()


def is_silent(status: NodeHealthStatus | None, now: datetime) -> bool:
    """
    Nobody watches over the node: that it is healthy was said too long ago, or never.

    What was said against it stands: silence mends nothing.
    """
    return status is None or status.seen_at is None or now - status.seen_at > SILENT_AFTER


def silence(health: Mapping[str, NodeHealth], now: datetime) -> Callable[[str], bool]:
    """Tells of a node whether it is silent."""
    return lambda name: is_silent(health[name].status if name in health else None, now)


def write_at(
    stored: NodeHealthStatus, known: NodeHealthStatus, *, written: datetime, refresh_after: timedelta = REFRESH_AFTER
) -> datetime:
    """When *known* should be written over *stored*, which was written at *written*."""
    known = msgspec.structs.replace(known, seen_at=stored.seen_at)
    if _what_others_act_on(stored) != _what_others_act_on(known):
        return written
    if (stored.live_pods, stored.gone_pods) != (known.live_pods, known.gone_pods):
        return written + PODS_AFTER
    if _details(stored) != _details(known):
        return written + DETAILS_AFTER
    if _is_far(stored.cursor, known.cursor):
        return written + CURSOR_AFTER
    refresh = (stored.seen_at or written - refresh_after) + refresh_after
    return refresh if stored.nics == known.nics else min(refresh, written + GROWTH_AFTER)


def _what_others_act_on(status: NodeHealthStatus) -> tuple[object, ...]:
    findings = [(finding.id, finding.quarantines, finding.cleared_at) for finding in status.findings]
    ports = [(nic.pci, nic.port, nic.rail) for nic in status.nics]
    return status.verdict, status.message, findings, status.inventory, ports, status.boot_id, status.repair_seen


def _details(status: NodeHealthStatus) -> NodeHealthStatus:
    """All but the cursor and what counters grow by."""
    ports = [msgspec.structs.replace(nic, growth={}) for nic in status.nics]
    return msgspec.structs.replace(status, cursor=_NO_CURSOR, nics=ports)


def _is_far(stored: KernelLogCursor, known: KernelLogCursor) -> bool:
    same_log = (stored.boot_id, stored.source) == (known.boot_id, known.source)
    return not same_log or known.sequence - stored.sequence >= CURSOR_STRIDE
