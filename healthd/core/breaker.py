"""
The breaker: faults that come in crowds are a broken switch, store or healthd itself, and restarts make it worse.

It holds back restarts: a gang that still runs is left running, one that lost a member is stopped, lest its root fails
for good, and waits. A recovery that was let through goes on to its end; nodes are cleared, and people are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from healthd.core.model import Crowd, Hold, Phase, Verdict
from healthd.core.objects import Node, NodeHealth, Recovery, RecoveryStatus
from healthd.core.policy import RecoveryPolicy
from healthd.core.quarantine import read_record
from healthd.core.spares import is_ready

OPEN = "the breaker is open"
"""Begins the reason of whatever it holds."""
AT_THE_BREAKER = frozenset({Phase.DETECTED, Phase.RESERVING})


@dataclass(frozen=True, slots=True)
class Outage:
    """How many nodes went bad lately and still are, of how many."""

    bad: int
    total: int


def refuses(
    recovery: Recovery, all_recoveries: Iterable[Recovery], outage: Outage, policy: RecoveryPolicy, now: datetime
) -> str:
    """Why *recovery* may not restart its gang now; empty when it may, or was let through before."""
    if recovery.status.let_through is not None:
        return ""
    return _too_many_nodes(outage, policy) or _too_many_restarts(recovery, all_recoveries, policy, now)


def open_over(
    all_recoveries: Iterable[Recovery], outage: Outage, policy: RecoveryPolicy, now: datetime
) -> frozenset[Crowd]:
    """What there is too much of for a recovery that would begin now, whether or not one does."""
    over = {Crowd.NODES} if _too_many_nodes(outage, policy) else set()
    begun, waiting = _begun_and_waiting(all_recoveries, policy, now)
    return frozenset(over | {Crowd.RESTARTS} if begun + waiting >= policy.breaker_restarts else over)


def hold_of(status: RecoveryStatus) -> Hold | None:
    """What a recovery in this state waits for; None when it is not held."""
    if status.phase is not Phase.HELD:
        return None
    if status.message.startswith(OPEN):
        return Hold.BREAKER
    return _WAITS_FOR.get(status.held_in or Phase.DETECTED)


_WAITS_FOR = {
    Phase.DETECTED: Hold.BUDGET,
    Phase.FENCING: Hold.FENCE,
    Phase.CHOOSING: Hold.CHECKPOINT,
    Phase.RESERVING: Hold.SPARE,
    Phase.STARTING: Hold.SPARE,
}


def outage_of(nodes: Iterable[Node], health: Mapping[str, NodeHealth], policy: RecoveryPolicy, now: datetime) -> Outage:
    """
    What went bad among the nodes with accelerators; among all, where no node has any.

    A node that has been bad for longer than `breaker_fresh` is known to people and waits for them: it does not count.
    """
    all_nodes = list(nodes)
    counted = [node for node in all_nodes if _has_devices(node)] or all_nodes
    turned = (_bad_since(node, health.get(node.metadata.name), now) for node in counted)
    fresh = [at for at in turned if at is not None and now - at < policy.breaker_fresh]
    return Outage(len(fresh), len(counted))


def _too_many_nodes(outage: Outage, policy: RecoveryPolicy) -> str:
    if outage.bad < policy.breaker_nodes or outage.bad <= policy.breaker_share * outage.total:
        return ""
    return f"{OPEN}: {outage.bad} of {outage.total} nodes went bad within {policy.breaker_fresh}"


def _too_many_restarts(
    recovery: Recovery, all_recoveries: Iterable[Recovery], policy: RecoveryPolicy, now: datetime
) -> str:
    """Those that wait in front of it count, too: of several that are let through at once only the oldest go."""
    mine, place = recovery.metadata.uid, _order(recovery)
    ahead = (
        other
        for other in all_recoveries
        if other.status.let_through is not None or (other.metadata.uid != mine and _order(other) < place)
    )
    begun, waiting = _begun_and_waiting(ahead, policy, now)
    if begun + waiting < policy.breaker_restarts:
        return ""
    waiters = f", and {waiting} more wait" if waiting else ""
    return f"{OPEN}: {begun} recoveries began within {policy.breaker_window}{waiters}"


def _begun_and_waiting(recoveries: Iterable[Recovery], policy: RecoveryPolicy, now: datetime) -> tuple[int, int]:
    begun = waiting = 0
    for each in recoveries:
        if (at := each.status.let_through) is not None:
            begun += now - at < policy.breaker_window
        else:
            waiting += _waits(each)
    return begun, waiting


def _waits(recovery: Recovery) -> bool:
    """It is at one of the two places where the breaker is asked, and not held there for something else."""
    status = recovery.status
    return status.phase in AT_THE_BREAKER or (status.phase is Phase.HELD and status.message.startswith(OPEN))


def _order(recovery: Recovery) -> tuple[str, str]:
    created = recovery.metadata.creation_timestamp
    return created.isoformat() if created else "", recovery.metadata.uid


def _has_devices(node: Node) -> bool:
    return any("/" in resource for resource in node.status.capacity)


def _bad_since(node: Node, health: NodeHealth | None, now: datetime) -> datetime | None:
    """The earliest sign that stands: what is known for days does not become new by a reboot during its repair."""
    since = []
    if record := read_record(node):
        since.append(record.since)
    if not is_ready(node):
        ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
        since.append(ready.last_transition_time if ready and ready.last_transition_time else now)
    if health is not None and health.status.verdict is Verdict.UNHEALTHY:
        standing = [f.raised_at for f in health.status.findings if f.quarantines and f.cleared_at is None]
        since.append(min(standing, default=now))
    return min(since, default=None)
