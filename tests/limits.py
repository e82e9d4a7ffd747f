"""
A test that takes long has the mark `slow` or `lab`, or fails: `make quick`, which leaves both out, stays quick.

What counts is the processor time of the test and of the children that it waited for, not the time on the wall, which a
busy machine stretches without bound. A core that others use is slower by this clock, too, so a test that took too long
is judged by how slow the machine is at that moment. Coverage counts every line, so a run with it has four times the
limit.
"""

from __future__ import annotations

import resource
from collections.abc import Generator

import pytest

from tests.slowness import slowness

CPU_LIMIT = "cpu_limit"
NO_LIMIT = ("slow", "lab")
COVERAGE_COSTS = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    """The limit can be given in the configuration."""
    parser.addini(CPU_LIMIT, "seconds of processor time that a test of `make quick` may take", default="2")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that passed and took too long. What fixtures do is not counted: the first test may pay for all."""
    began = _spent()
    yield
    took, limit = _spent() - began, _limit(item.config)
    if took <= limit or any(item.get_closest_marker(mark) for mark in NO_LIMIT):
        return
    took /= slowness()
    if took > limit:
        why = f"it took {took:.1f} s of processor time, more than {limit:g} s: make it quicker, or mark it `slow`"
        pytest.fail(why, pytrace=False)


def _limit(config: pytest.Config) -> float:
    is_covered = bool(getattr(config.option, "cov_source", None))
    return float(config.getini(CPU_LIMIT)) * (COVERAGE_COSTS if is_covered else 1)


def _spent() -> float:
    """Seconds of processor time of this process, and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
