"""Synthetic fleets: nodes that fail at random, and some of them far more often than the others."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from healthd.core.api import MachineHistory, Outage
from healthd.core.reliability.ranking import Subject, rank
from tests.core.reliability.histories import DAY, NOW, uuid_of

STUDY_DAYS = 73
"""arXiv 2605.09370: 63 nodes were observed for 73 days, and 3 of them had over half of all exclusions."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How fleets are made."""

    outages: float
    """Of the whole fleet in 73 days, in the mean."""
    days: float = STUDY_DAYS
    """How long the fleet is observed."""
    nodes: int = 63
    lemons: int = 3
    share: float = 0.5
    """Of all outages, those of the lemons."""
    shape: float = 0
    """How alike good nodes are: their rates are gamma distributed with this shape; 0: all have the same."""

    def rates(self, draw: random.Random) -> list[float]:
        """Outages a day of each node, lemons first."""
        a_day = self.outages / STUDY_DAYS
        of_lemons = self.share if self.lemons else 0.0
        bad = [a_day * of_lemons / max(1, self.lemons)] * self.lemons
        good = a_day * (1 - of_lemons) / (self.nodes - self.lemons)
        spread = (draw.gammavariate(self.shape, 1 / self.shape) if self.shape else 1.0 for _ in range(self.nodes))
        return [*bad, *(good * one for _, one in zip(range(self.nodes - self.lemons), spread, strict=False))]


def a_fleet(recipe: Recipe, draw: random.Random) -> list[MachineHistory]:
    """The histories of one fleet; the first `recipe.lemons` are the lemons."""
    return [_machine(number, rate, recipe.days, draw) for number, rate in enumerate(recipe.rates(draw))]


def _machine(number: int, rate: float, days: float, draw: random.Random) -> MachineHistory:
    since = NOW - days * DAY
    moments = sorted(since + draw.random() * days * DAY for _ in range(poisson(rate * days, draw)))
    outages = [Outage(began=at, ended=at + timedelta(minutes=1), node=f"n{number}", rule="xid-79") for at in moments]
    return MachineHistory(machine=uuid_of(number), node=f"n{number:05}", model="8 x H100", since=since, outages=outages)


def poisson(mean: float, draw: random.Random) -> int:
    """A Poisson number, by counting exponential gaps."""
    count, total = 0, -math.log(1 - draw.random())
    while total < mean:
        count, total = count + 1, total - math.log(1 - draw.random())
    return count


def found(recipe: Recipe, draw: random.Random) -> Counter[str]:
    """What is found in one fleet: `right`, `wrong` and `missed` lemons."""
    fleet = a_fleet(recipe, draw)
    called = {each.machine for each in rank(fleet, NOW) if each.is_lemon and each.subject is Subject.NODE}
    lemons = {history.machine for history in fleet[: recipe.lemons]}
    return Counter(right=len(called & lemons), wrong=len(called - lemons), missed=len(lemons - called))


def precision_and_recall(counts: Counter[str]) -> tuple[float, float]:
    """Of all fleets together. Where nothing was called, precision is 1."""
    right, wrong, missed = counts["right"], counts["wrong"], counts["missed"]
    return (right / (right + wrong) if right + wrong else 1.0), (right / (right + missed) if right + missed else 1.0)
