"""The gamma distribution, against values from tables."""

from __future__ import annotations

import math

import pytest

from healthd.core.reliability.distributions import Gamma, Weighted, log_negative_binomial, quantile, regularised_gamma


@pytest.mark.parametrize("x", [0.01, 0.5, 1.0, 3.0, 20.0])
def test_shape_1_is_the_exponential_distribution(x: float) -> None:
    assert regularised_gamma(1, x) == pytest.approx(1 - math.exp(-x), abs=1e-12)


@pytest.mark.parametrize(("count", "mean"), [(0, 0.2), (2, 2.0), (5, 3.0), (30, 25.0), (200, 180.0)])
def test_it_is_the_tail_of_the_poisson_distribution(count: int, mean: float) -> None:
    tail = 1 - sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))

    assert regularised_gamma(count + 1, mean) == pytest.approx(tail, abs=1e-10)


@pytest.mark.parametrize(
    ("degrees", "share", "chi_square"),
    [(1, 0.95, 3.8415), (2, 0.05, 0.1026), (10, 0.975, 20.483), (100, 0.025, 74.222)],
)
def test_quantiles_are_those_of_the_tables_of_chi_square(degrees: int, share: float, chi_square: float) -> None:
    found = quantile([Weighted(1.0, Gamma(degrees / 2, 0.5))], share)

    assert found == pytest.approx(chi_square, rel=1e-3)


def test_a_quantile_of_a_mixture_lies_where_its_distribution_says() -> None:
    mixture = [Weighted(0.7, Gamma(2, 10)), Weighted(0.3, Gamma(4, 1))]

    at = quantile(mixture, 0.8)

    assert sum(each.weight * each.part.cdf(at) for each in mixture) == pytest.approx(0.8, abs=1e-5)


@pytest.mark.parametrize("prior", [Gamma(0.5, 1.0), Gamma(4, 20.0), Gamma(32, 2.0)])
def test_the_chances_of_all_counts_add_up(prior: Gamma) -> None:
    chances = [math.exp(log_negative_binomial(count, 30.0, prior)) for count in range(3000)]

    assert sum(chances) == pytest.approx(1.0, abs=1e-6)
    assert sum(count * chance for count, chance in enumerate(chances)) == pytest.approx(30 * prior.mean, rel=1e-3)
