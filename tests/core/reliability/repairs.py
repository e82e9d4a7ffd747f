"""A fleet with spares, simulated: what the theory of `healthd.core.reliability.spares_plan` is checked by."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from healthd.core.reliability.published import HOURS_IN_MONTH
from healthd.core.reliability.spares_plan import Fleet

HOURS_IN_YEAR = 8760
RepairTime = Callable[[random.Random, float], float]
"""Draws a repair time with the given mean."""


def exponential(draw: random.Random, mean: float) -> float:
    """Many short ones, some long ones."""
    return draw.expovariate(1 / mean)


def lognormal(draw: random.Random, mean: float) -> float:
    """Most are short and a few very long: the standard deviation is 1.3 times the mean."""
    sigma = 1.0
    return draw.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


class Seen(NamedTuple):
    """What happened; shares are between 0 and 1."""

    shortage: float
    refused: float
    lost_gpu_hours: float
    failures: int


def simulate(
    fleet: Fleet, spares: int, years: float, draw: random.Random, repair_time: RepairTime = exponential
) -> Seen:
    """*years* of a fleet, from failure to failure and from repair to repair."""
    end, now = years * HOURS_IN_YEAR, 0.0
    total, rate = fleet.nodes + spares, fleet.failures / HOURS_IN_MONTH
    crews = fleet.crews or total
    repairs: list[float] = []
    waiting: deque[None] = deque()
    short = lost = 0.0
    failures = refused = 0
    while now < end:
        broken = len(repairs) + len(waiting)
        left = total - broken
        next_failure = now + draw.expovariate(rate * left) if left else math.inf
        at = min(next_failure, repairs[0] if repairs else math.inf, end)
        if broken > spares:
            short += at - now
            lost += (at - now) * min(fleet.nodes, (broken - spares) * fleet.gang) * fleet.gpus
        now = at
        if now == next_failure:
            failures, refused = failures + 1, refused + (broken >= spares)
            waiting.append(None)
        elif repairs and now == repairs[0]:
            heapq.heappop(repairs)
        while waiting and len(repairs) < crews:
            waiting.pop()
            heapq.heappush(repairs, now + repair_time(draw, fleet.repair_hours))
    return Seen(short / end, refused / max(1, failures), lost / end * HOURS_IN_MONTH, failures)
