"""The gamma distribution, as far as rates of faults need it. In plain Python: no numerical library is needed for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_ENOUGH = 1e-12
_MOST_TERMS = 10_000


class Gamma(NamedTuple):
    """A gamma distribution of a rate. Its mean is `shape / inverse_scale`."""

    shape: float
    inverse_scale: float

    @property
    def mean(self) -> float:
        """In the unit of 1 / `inverse_scale`."""
        return self.shape / self.inverse_scale

    def cdf(self, x: float) -> float:
        """The chance that the rate is at most *x*."""
        return regularised_gamma(self.shape, self.inverse_scale * x)


class Weighted(NamedTuple):
    """One part of a mixture; the weights of all parts add up to 1."""

    weight: float
    part: Gamma


def regularised_gamma(shape: float, x: float) -> float:
    """The lower incomplete gamma function, divided by the complete one: from 0 at *x* = 0 to 1."""
    if x <= 0:
        return 0.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    return scale * _series(shape, x) if x < shape + 1 else 1.0 - scale * _continued_fraction(shape, x)


def quantile(mixture: Sequence[Weighted], share: float) -> float:
    """The rate below which the share *share* of *mixture* lies; *share* is between 0 and 1, both excluded."""

    def below(x: float) -> float:
        return sum(each.weight * each.part.cdf(x) for each in mixture)

    low, high = 0.0, max(each.part.mean for each in mixture)
    while below(high) < share:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < share else (low, middle)
    return high


def log_negative_binomial(count: int, exposure: float, prior: Gamma) -> float:
    """The log of the chance of *count* faults in *exposure*, where the rate itself is drawn from *prior*."""
    shape, inverse_scale = prior
    return (
        math.lgamma(shape + count)
        - math.lgamma(shape)
        - math.lgamma(count + 1)
        - shape * math.log1p(exposure / inverse_scale)
        + (count * math.log(exposure / (inverse_scale + exposure)) if count else 0.0)
    )


def _series(shape: float, x: float) -> float:
    term = total = 1.0 / shape
    for number in range(1, _MOST_TERMS):
        term *= x / (shape + number)
        total += term
        if term < _ENOUGH * total:
            break
    return total


def _continued_fraction(shape: float, x: float) -> float:
    """Lentz's method, for the upper part."""
    tiny = 1e-300
    b = x + 1 - shape
    c, d = 1 / tiny, 1 / b
    value = d
    for number in range(1, _MOST_TERMS):
        a = -number * (number - shape)
        b += 2
        d = 1 / (a * d + b or tiny)
        c = b + a / c or tiny
        value *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return value
