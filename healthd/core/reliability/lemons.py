"""
Lemons: machines and GPUs that fail much more often than others of their kind. Pure.

Counts are small: five outages in ten weeks are many, two may be chance. So a plain quotient misleads, and so does a
limit on the count, because it depends on how long a machine has been in service. Instead:

**Model.** The outages of a machine in time *T* are Poisson with its own rate. That rate is drawn from its peers: mostly
from a gamma distribution around the usual rate (machines are not equal, so one common rate would call the upper tail of
good machines bad), and for a small share of machines from a second one around `LEMON_RATIO` times the usual rate. The
usual rate, how far good machines differ, and the share of lemons are fitted to the peers themselves (EM for a mixture
of two gamma-Poisson distributions); published figures count as little as one outage. The fit weighs each machine by how
good it looks, so lemons do not raise the rate that they are compared with. Gamma-Poisson, because each machine's rate
then has a closed form, with an interval that is right for zero, one and two outages too. Exact Poisson intervals were
the other choice: they use one machine alone, so each new machine with one outage would look terrible.

**Peers** are machines with the same GPUs and of about the same time in service, since young hardware fails more. Where
these are too few, all with the same GPUs; where these are too few, all.

**Many machines.** Of ten thousand good machines some have three outages by chance. The fitted share of lemons sinks
with the size of a fleet in which none stand out. Beyond that, machines are called lemons from the most probable one
down, only while the expected share of wrong ones among them stays below `FALSE_SHARE` (the Bayesian false discovery
rate), and never with fewer than `FEWEST_OUTAGES`.

**What does not count.** Outages older than `WINDOW`; outages in which many machines went out together, as with a switch
or a power feed; for a machine, outages of a GPU that is no longer in it. A GPU keeps its outages wherever it goes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from healthd.core.reliability.distributions import Gamma, Weighted, log_negative_binomial, quantile
from healthd.core.reliability.published import DAYS_IN_MONTH, LEMON_RATIO, NODE_FAILURES_PER_DAY

FEWEST_OUTAGES = 3
"""Two may be one fault that came back."""
FALSE_SHARE = 0.1
"""Of the machines that are called lemons, so many are expected not to be one."""
LIKELY = 0.5
"""A machine that is less likely a lemon than not is never called one."""
INTERVAL = 0.95

_LEMON_SHAPE = 2.0
"""Lemons differ: 90 % of them have between 2.7 and 36 times the usual rate."""
_SHAPES = (1.0, 2.0, 4.0, 8.0, 32.0)
"""How good machines may differ: with 1 some have several times the usual rate, with 32 they are nearly equal."""
_USUAL_SHARE = 0.03
"""
Of machines that are lemons, before anything is known: between the 1.5 % that Meta removed (arXiv 2410.21680) and the 3
of 63 of the study of 504 GPUs (arXiv 2605.09370).
"""
_SHARE_WEIGHT = 60.0
"""So many machines are worth as much as that share."""
_PUBLISHED_WEIGHT = 1.0
"""So many outages are worth as much as the published rate."""
_ROUNDS = 60
_STEP = 0.02
"""Times in service that differ by less than this share are one: 10,000 machines become a few hundred cells."""


class Cell(NamedTuple):
    """What the model knows of a machine: its outages, and its days in service."""

    outages: int
    days: float


class Peers(NamedTuple):
    """The fitted model of one kind of machine."""

    rate: float
    """The usual rate, in outages a day."""
    shape: float
    """How alike the good ones are; the more, the larger."""
    share: float
    """Of lemons."""
    size: int
    """How many there are."""

    @property
    def parts(self) -> tuple[Weighted, Weighted]:
        """The distribution of rates: good ones, lemons."""
        good = Gamma(self.shape, self.shape / self.rate)
        lemon = Gamma(_LEMON_SHAPE, _LEMON_SHAPE / (self.rate * LEMON_RATIO.value))
        return Weighted(1 - self.share, good), Weighted(self.share, lemon)


class Estimate(NamedTuple):
    """What is believed of one machine. Rates are in outages a month of service."""

    rate: float
    low: float
    high: float
    """The rate is between *low* and *high* with a chance of 95 %."""
    probability: float
    """That it is a lemon."""


def cell_of(outages: int, days: float) -> Cell:
    """The cell of a machine; its days are rounded by at most one percent."""
    return Cell(outages, math.exp(round(math.log(max(days, 0.01)) / _STEP) * _STEP))


def fit(cells: Mapping[Cell, int], published: float = NODE_FAILURES_PER_DAY.value) -> Peers:
    """The model of the peers in *cells* (cell -> how many). *published*: their rate before anything is known, a day."""
    if not cells:
        return Peers(published, 4.0, _USUAL_SHARE, 0)
    fits = [_fit(cells, shape, published) for shape in _SHAPES]
    return max(fits, key=lambda each: _likelihood(cells, each))


def estimate(cell: Cell, peers: Peers) -> Estimate:
    """What follows for a machine of *cell* among *peers*."""
    posterior = _posterior(cell, peers)
    tail = (1 - INTERVAL) / 2
    low, high = quantile(posterior, tail), quantile(posterior, 1 - tail)
    mean = sum(each.weight * each.part.mean for each in posterior)
    return Estimate(mean * DAYS_IN_MONTH, low * DAYS_IN_MONTH, high * DAYS_IN_MONTH, posterior[1].weight)


def called(estimates: Iterable[tuple[Cell, Estimate]]) -> float:
    """
    The least probability with which one of *estimates* is called a lemon; more than 1: none is.

    Expects the estimates of everything that is judged together.
    """
    candidates = sorted(
        (each.probability for cell, each in estimates if cell.outages >= FEWEST_OUTAGES and each.probability >= LIKELY),
        reverse=True,
    )
    wrong, least = 0.0, math.inf
    for number, probability in enumerate(candidates, start=1):
        wrong += 1 - probability
        if wrong > FALSE_SHARE * number:
            break
        least = probability
    return least


def grouped(units: Iterable[tuple[Sequence[str], Cell]], fewest: int) -> dict[tuple[str, ...], Counter[Cell]]:
    """
    Cells by group of peers. The kind of a unit is given from coarse to fine, such as model, age; each of its
    beginnings is a group. Groups of fewer than *fewest* are left out, but for the one of all.
    """
    groups: dict[tuple[str, ...], Counter[Cell]] = defaultdict(Counter)
    for kind, cell in units:
        for length in range(len(kind) + 1):
            groups[tuple(kind[:length])][cell] += 1
    return {kind: cells for kind, cells in groups.items() if not kind or cells.total() >= fewest}


def _fit(cells: Mapping[Cell, int], shape: float, published: float) -> Peers:
    count = sum(cells.values())
    outages = sum(cell.outages * number for cell, number in cells.items())
    rate = (_PUBLISHED_WEIGHT + outages) / (
        _PUBLISHED_WEIGHT / published + sum(cell.days * number for cell, number in cells.items())
    )
    peers = Peers(rate, shape, _USUAL_SHARE, count)
    for _ in range(_ROUNDS):
        before, peers = peers, _improved(cells, peers, outages, published)
        if abs(peers.rate / before.rate - 1) < 1e-4 and abs(peers.share - before.share) < 1e-4:
            break
    return peers


def _improved(cells: Mapping[Cell, int], peers: Peers, outages: int, published: float) -> Peers:
    """One round of EM: how likely each is a lemon, and then the rate and the share that fit that best."""
    exposure, lemons = _PUBLISHED_WEIGHT / published, _USUAL_SHARE * _SHARE_WEIGHT
    for cell, number in cells.items():
        posterior = _posterior(cell, peers)
        # Days, weighed by how many times the usual rate this machine has.
        exposure += number * cell.days * sum(each.weight * each.part.mean for each in posterior) / peers.rate
        lemons += number * posterior[1].weight
    rate = (_PUBLISHED_WEIGHT + outages) / exposure
    return peers._replace(rate=rate, share=lemons / (_SHARE_WEIGHT + peers.size))


def _posterior(cell: Cell, peers: Peers) -> tuple[Weighted, Weighted]:
    parts = peers.parts
    good, lemon = (math.log(each.weight) + log_negative_binomial(*cell, each.part) for each in parts)
    weight = 1 / (1 + math.exp(min(700.0, good - lemon)))
    after = [Gamma(each.part.shape + cell.outages, each.part.inverse_scale + cell.days) for each in parts]
    return Weighted(1 - weight, after[0]), Weighted(weight, after[1])


def _likelihood(cells: Mapping[Cell, int], peers: Peers) -> float:
    total = 0.0
    for cell, number in cells.items():
        chances = [math.log(each.weight) + log_negative_binomial(*cell, each.part) for each in peers.parts]
        top = max(chances)
        total += number * (top + math.log(sum(math.exp(each - top) for each in chances)))
    return total
