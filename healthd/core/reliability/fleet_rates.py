"""How often nodes of a fleet fail and how long repairs take, from its own history and, as long as that is short, from
published figures. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from healthd.core.api import MachineHistory, Outage
from healthd.core.reliability.history import hours_in_service, is_away
from healthd.core.reliability.published import DAYS_IN_MONTH, NODE_FAILURES_PER_DAY, REPAIR_HOURS
from healthd.core.reliability.ranking import WINDOW
from healthd.core.reliability.spares_plan import Fleet

OWN_FAILURES = 5
"""With so many failures of its own, a fleet's rate no longer depends on what was published."""
OWN_REPAIRS = 3
"""With so many repairs of its own, its repair time is taken from them alone."""
_PUBLISHED_WEIGHT = 1.0
"""Until then, what was published counts as much as one failure."""


class Rate(NamedTuple):
    """A figure for the plan, and where it comes from, in words."""

    value: float
    source: str


class FleetRates(NamedTuple):
    """The nodes of one kind."""

    model: str
    nodes: int
    """With a Node in the cluster, spares and broken ones included."""
    failures: Rate
    """Of one node, in a month of 30 days in service."""
    repair_hours: Rate

    def fleet(self, spares: int, *, crews: int = 0, gpus: int = 8, gang: int = 1) -> Fleet:
        """What a plan needs; *spares* of the nodes are spares."""
        return Fleet(max(1, self.nodes - spares), self.failures.value, self.repair_hours.value, crews, gpus, gang)


def rates(histories: Iterable[MachineHistory], now: datetime) -> list[FleetRates]:
    """Of each kind of machine that the cluster has, the most numerous first."""
    kinds: Mapping[str, list[MachineHistory]] = defaultdict(list)
    for history in histories:
        kinds[history.model].append(history)
    found = [_rates(model, of_kind, now) for model, of_kind in kinds.items()]
    return sorted((each for each in found if each.nodes), key=lambda each: (-each.nodes, each.model))


def published_failures() -> Rate:
    """Failures of a node in a month."""
    return Rate(NODE_FAILURES_PER_DAY.value * DAYS_IN_MONTH, f"published: {NODE_FAILURES_PER_DAY.source}")


def published_repair() -> Rate:
    """Hours."""
    return Rate(REPAIR_HOURS.value, REPAIR_HOURS.source)


def _rates(model: str, histories: Sequence[MachineHistory], now: datetime) -> FleetRates:
    outages = [each for history in histories for each in history.outages if now - WINDOW < each.began <= now]
    days = sum(hours_in_service(history, now - WINDOW, now) for history in histories) / 24
    present = sum(not is_away(history) for history in histories)
    return FleetRates(model, present, _failures(len(outages), days), _repair(outages, now))


def _failures(count: int, days: float) -> Rate:
    own = f"{count} failures in {days:,.0f} node-days of this fleet"
    if count >= OWN_FAILURES:
        return Rate(count / days * DAYS_IN_MONTH, own)
    value = (_PUBLISHED_WEIGHT + count) / (_PUBLISHED_WEIGHT / NODE_FAILURES_PER_DAY.value + days) * DAYS_IN_MONTH
    return Rate(value, f"{own}, and as one more failure what was published: {NODE_FAILURES_PER_DAY.source}")


def _repair(outages: Sequence[Outage], now: datetime) -> Rate:
    """
    The mean time out of service. Repairs that still go on count with the time that they took so far: without them a
    fleet in which few repairs ever end would look fast.
    """
    hours = sum(((each.ended or now) - each.began) / timedelta(hours=1) for each in outages)
    over = sum(each.ended is not None for each in outages)
    if over < OWN_REPAIRS or hours <= 0:
        return published_repair()
    open_ones = len(outages) - over
    going_on = f", {open_ones} of them going on" if open_ones else ""
    return Rate(hours / over, f"mean of {len(outages)} repairs of this fleet{going_on}")
