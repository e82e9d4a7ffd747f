"""
How many spares a fleet needs: the machine repairman's problem with spares. Pure.

The fleet is *nodes* that work and *spares* beside them. Each of them fails at the same rate, a spare too: it is powered
on. A broken node is in repair, a spare works in its place, and the repaired node is a spare afterwards. With *n* broken
nodes the next failure comes at the rate of those that are left. Repairs end at *n* / repair time, or at the number of
repair crews / repair time where these are limited. That is a birth and death process: M/M/c with a finite population.
Without a limit on crews the result holds for repair times of any distribution with the same mean (it is then the
binomial distribution); with a limit, for exponential ones.

A **shortage** is a time in which more nodes are broken than there are spares, so that some gang waits for a node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from healthd.core.reliability.published import HOURS_IN_MONTH

MOST_NODES = 100_000
_NEGLIGIBLE = 60.0
"""States that are less likely than the likeliest by a factor of e^60 are left out."""


class Fleet(NamedTuple):
    """What a plan depends on."""

    nodes: int
    """Those that must work, without spares. At least 1, at most `MOST_NODES`."""
    failures: float
    """Of one node, in a month of 30 days."""
    repair_hours: float
    """From the failure until the node may be used again, in the mean."""
    crews: int = 0
    """Nodes that can be in repair at once; 0: all."""
    gpus: int = 8
    """In one node."""
    gang: int = 1
    """Nodes that stand still while one is missing."""


class Option(NamedTuple):
    """What a number of spares gives."""

    spares: int
    shortage: float
    """The share of time in which more nodes are broken than there are spares."""
    refused: float
    """The share of failures that find no spare."""
    lost_gpu_hours: float
    """GPU-hours a month that stand still for want of a node."""


class Plan(NamedTuple):
    """The answer, and what is around it."""

    wanted: Option | None
    """The fewest spares that are enough. None: no number is, because repairs cannot keep up with failures."""
    next: Option | None
    """With one spare more."""
    options: Sequence[Option]
    """From a few spares less to a few more."""

    @property
    def next_is_worth(self) -> float:
        """GPU-hours a month that one more spare saves."""
        if self.wanted is None or self.next is None:
            return 0.0
        return max(0.0, self.wanted.lost_gpu_hours - self.next.lost_gpu_hours)


def plan(fleet: Fleet, shortage: float, *, around: int = 2) -> Plan:
    """The fewest spares with which *fleet* is short for at most the share *shortage* of time, between 0 and 1."""
    most = _enough(fleet, shortage)
    if most is None:
        return Plan(None, None, ())
    low = -1
    while most - low > 1:
        middle = (low + most) // 2
        low, most = (low, middle) if option(fleet, middle).shortage <= shortage else (middle, most)
    options = [option(fleet, spares) for spares in range(max(0, most - around), most + around + 1)]
    by_spares = {each.spares: each for each in options}
    return Plan(by_spares[most], by_spares.get(most + 1) or option(fleet, most + 1), options)


def option(fleet: Fleet, spares: int) -> Option:
    """What *spares* give."""
    broken = distribution(fleet, spares)
    failing = [share * (fleet.nodes + spares - number) for number, share in broken]
    refused = [rate for rate, (number, _) in zip(failing, broken, strict=True) if number >= spares]
    missing = ((number - spares, share) for number, share in broken if number > spares)
    standing = sum(min(fleet.nodes, short * fleet.gang) * share for short, share in missing)
    return Option(
        spares=spares,
        shortage=sum(share for number, share in broken if number > spares),
        refused=sum(refused) / sum(failing),
        lost_gpu_hours=standing * fleet.gpus * HOURS_IN_MONTH,
    )


def distribution(fleet: Fleet, spares: int) -> list[tuple[int, float]]:
    """How many nodes are broken at once: number -> share of time. States that hardly ever occur are left out."""
    total = fleet.nodes + spares
    load = fleet.failures / HOURS_IN_MONTH * fleet.repair_hours
    if load <= 0:
        return [(0, 1.0)]
    crews = fleet.crews or total
    logs, top = [0.0], 0.0
    for number in range(total):
        grown = logs[-1] + math.log(load * (total - number) / min(number + 1, crews))
        if grown < top - _NEGLIGIBLE and grown < logs[-1]:
            break
        logs.append(grown)
        top = max(top, grown)
    shares = [math.exp(each - top) for each in logs]
    whole = sum(shares)
    return [(number, share / whole) for number, share in enumerate(shares)]


def _enough(fleet: Fleet, shortage: float) -> int | None:
    spares = 1
    while option(fleet, spares).shortage > shortage:
        if spares > 2 * fleet.nodes + 16:
            return None
        spares *= 2
    return spares
