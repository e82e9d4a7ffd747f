"""
The breaker: many faults at once mean a broken switch, store or healthd itself, and restarts make it worse.

An open breaker holds restarts. A gang that still runs keeps running. A gang that lost a member is stopped and waits:
without the stop its root would fail for good. A recovery that the breaker let through continues to its end. Nodes are
still cleared, and people are still notified.

Namespaces are tenants. Many faults in one namespace hold the gangs of that namespace. They hold the gangs of other
namespaces only together with many faults in further namespaces. A gang that lost hardware is never held because
software crashes in other namespaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from healthd.core.api import Node, NodeHealth, Recovery
from healthd.core.api.model import BreakerTrigger, Phase, Verdict
from healthd.core.config import BreakerPolicy
from healthd.core.node.quarantine import read_record
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.fence import CLOCKS_DIFFER
from healthd.core.recovery.holds import OPEN, is_held_as
from healthd.core.recovery.nodes.spares import is_ready
from healthd.core.recovery.planned.restarts import is_planned
from healthd.core.recovery.terms import KUBERNETES, Terms

MIN_UNHEALTHY_NODES = 3
"""Fewer bad nodes never hold a restart: in a cluster of 16 nodes, two at once are more than one in ten, and usual."""
UNHEALTHY_WITHIN = timedelta(hours=1)
"""A common cause breaks nodes within minutes. A node that has been bad for longer waits for people, who know of it."""
AT_THE_BREAKER = frozenset({Phase.DETECTED, Phase.RESERVING})


@dataclass(frozen=True, slots=True)
class Outage:
    """How many nodes went bad recently and are still bad, of how many nodes in total."""

    bad: int
    total: int


def refuses(
    recovery: Recovery,
    all_recoveries: Iterable[Recovery],
    outage: Outage,
    policy: BreakerPolicy,
    now: datetime,
    terms: Terms = KUBERNETES,
) -> str:
    """Why *recovery* may not restart its gang now; empty when it may, or when it was let through before."""
    if recovery.status.let_through is not None:
        return ""
    return _too_many_nodes(outage, policy, terms) or _too_many_restarts(recovery, all_recoveries, policy, now)


def open_over(
    all_recoveries: Iterable[Recovery], outage: Outage, policy: BreakerPolicy, now: datetime
) -> frozenset[BreakerTrigger]:
    """The triggers that would hold a new recovery now, in at least one namespace; a recovery need not exist."""
    over = {BreakerTrigger.NODES} if _too_many_nodes(outage, policy) else set()
    counts = _by_namespace(all_recoveries, policy, now)
    is_full = any(counts[name].total + _of_others(counts, name, policy) >= policy.restarts for name in counts)
    return frozenset(over | {BreakerTrigger.RESTARTS} if is_full else over)


def outage_of(nodes: Iterable[Node], health: Mapping[str, NodeHealth], now: datetime) -> Outage:
    """
    The bad nodes among those of `counted_nodes`.

    A node that has been bad for longer than `UNHEALTHY_WITHIN` does not count: people know it, and it waits for them.
    """
    counted = counted_nodes(nodes)
    turned = (_bad_since(node, health.get(node.metadata.name), now) for node in counted)
    fresh = [at for at in turned if at is not None and now - at < UNHEALTHY_WITHIN]
    return Outage(len(fresh), len(counted))


def counted_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The nodes with accelerators; all nodes when no node has accelerators."""
    all_nodes = list(nodes)
    return [node for node in all_nodes if _has_devices(node)] or all_nodes


def _too_many_nodes(outage: Outage, policy: BreakerPolicy, terms: Terms = KUBERNETES) -> str:
    if outage.bad < MIN_UNHEALTHY_NODES or outage.bad <= policy.unhealthy_share * outage.total:
        return ""
    return f"{OPEN}: {outage.bad} of {outage.total} {terms.node}s went bad within {UNHEALTHY_WITHIN}"


@dataclass(frozen=True, slots=True)
class _Count:
    """How many recoveries of one namespace began lately, and how many wait."""

    begun: int = 0
    waiting: int = 0

    @property
    def total(self) -> int:
        return self.begun + self.waiting


def _too_many_restarts(
    recovery: Recovery, all_recoveries: Iterable[Recovery], policy: BreakerPolicy, now: datetime
) -> str:
    """Older recoveries that wait also count: when several could go through at once, only the oldest do."""
    mine, place, namespace = recovery.metadata.uid, _order(recovery), recovery.metadata.namespace
    ahead = (
        other
        for other in all_recoveries
        if other.status.let_through is not None or (other.metadata.uid != mine and _order(other) < place)
    )
    counted = (each for each in ahead if each.metadata.namespace == namespace or _counts_elsewhere(each, recovery))
    counts = _by_namespace(counted, policy, now)
    own, others = counts.get(namespace, _Count()), _of_others(counts, namespace, policy)
    if own.total + others < policy.restarts:
        return ""
    waiters = f", and {own.waiting} more wait" if own.waiting else ""
    elsewhere = f"; those of other namespaces count as {others}" if others else ""
    return f"{OPEN}: {own.begun} recoveries began within {policy.window}{waiters}{elsewhere}"


def _counts_elsewhere(other: Recovery, recovery: Recovery) -> bool:
    """Whether *other*, which is in another namespace, counts when *recovery* is checked."""
    return _lost_hardware(other) or not _lost_hardware(recovery)


def _lost_hardware(recovery: Recovery) -> bool:
    return any(map(blames_node, recovery.status.causes or [recovery.spec.cause]))


def _of_others(counts: Mapping[str, _Count], namespace: str, policy: BreakerPolicy) -> int:
    """What the other namespaces add: of each at most `per_other_namespace`."""
    return sum(min(count.total, policy.per_other_namespace) for name, count in counts.items() if name != namespace)


def _by_namespace(recoveries: Iterable[Recovery], policy: BreakerPolicy, now: datetime) -> dict[str, _Count]:
    begun, waiting = Counter[str](), Counter[str]()
    for each in recoveries:
        if is_planned(each):  # no fault: it shows nothing that is broken
            continue
        namespace = each.metadata.namespace
        if (at := each.status.let_through) is not None:
            # A time in the future was written by a clock that was ahead. It would hold every recovery for hours.
            begun[namespace] += -CLOCKS_DIFFER <= now - at < policy.window
        else:
            waiting[namespace] += _waits(each)
    return {name: _Count(begun[name], waiting[name]) for name in {*begun, *waiting}}


def _waits(recovery: Recovery) -> bool:
    """It is in one of the two phases that ask the breaker, and it is not held there for another reason."""
    status = recovery.status
    return status.phase in AT_THE_BREAKER or is_held_as(status, OPEN)


def _order(recovery: Recovery) -> tuple[str, str]:
    created = recovery.metadata.creation_timestamp
    return created.isoformat() if created else "", recovery.metadata.uid


def _has_devices(node: Node) -> bool:
    return any("/" in resource for resource in node.status.capacity)


def _bad_since(node: Node, health: NodeHealth | None, now: datetime) -> datetime | None:
    """The earliest sign that still stands: a reboot during the repair does not make an old fault new again."""
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
