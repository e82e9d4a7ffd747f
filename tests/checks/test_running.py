"""One check after the other, whatever becomes of each."""

from __future__ import annotations

import time

import pytest

from healthd.checks.check import CheckContext, CheckOutcome, CheckResult, InUse, passed
from healthd.checks.running import all_checks, run_all
from tests.checks.contexts import a_context, a_gpu


class Breaks:
    """A check with a fault of its own."""

    name = "breaks"
    needs = "nothing"
    is_deep = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, context: CheckContext) -> CheckResult:
        raise self._error


class Passes:
    """A check that is always content."""

    name = "passes"
    needs = "nothing"
    is_deep = True

    def run(self, context: CheckContext) -> CheckResult:
        return passed("all is well")


def test_a_check_that_breaks_has_failed_and_the_next_one_is_run() -> None:
    done = list(run_all([Breaks(ValueError("oops")), Passes()], a_context()))

    assert [(one.name, one.status) for one in done] == [("breaks", CheckOutcome.FAIL), ("passes", CheckOutcome.PASS)]
    assert "ValueError('oops')" in done[0].why


def test_a_check_for_which_no_time_is_left_has_failed() -> None:
    done = list(run_all([Passes()], a_context(ends=time.monotonic() - 1)))

    assert (done[0].status, done[0].why) == (CheckOutcome.FAIL, "there was no time left for it")


def test_that_somebody_computes_ends_it_all() -> None:
    with pytest.raises(InUse):
        list(run_all([Breaks(InUse("a gang")), Passes()], a_context()))


def test_names_are_unique_and_what_costs_least_comes_first() -> None:
    checks = all_checks()

    assert len({check.name for check in checks}) == len(checks)
    assert [check.is_deep for check in checks] == sorted(check.is_deep for check in checks)
    assert all(check.needs for check in checks)


def test_a_machine_without_anything_skips_everything() -> None:
    done = list(run_all(all_checks(), a_context(environ={"PATH": "/nowhere"})))

    assert {one.status for one in done} == {CheckOutcome.SKIP}


def test_a_good_machine_without_tools_passes_the_passive_checks() -> None:
    passive = [check for check in all_checks() if not check.is_deep]

    done = list(run_all(passive, a_context(a_gpu())))

    assert {one.name for one in done if one.status is CheckOutcome.PASS} == {"inventory", "nvlink", "pcie-width"}
