"""A test that starts real programs gets a second try, and the run says so."""

from __future__ import annotations

import pytest

FAILS_ONCE = """
import pathlib, pytest
tries = pathlib.Path("tries")

@pytest.mark.{mark}
def test_it():
    print("{says}")
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    assert len(tries.read_text()) > {failures}
"""


def running(pytester: pytest.Pytester, *, mark: str, failures: int, says: str = "") -> pytest.RunResult:
    """A run of one test with this *mark* that fails so often, and passes then."""
    pytester.makepyfile(FAILS_ONCE.format(mark=mark, failures=failures, says=says))
    options = ("-p", "tests.reruns", "-p", "no:asyncio", "-o", "markers=slow\nlab\nother", "-raR")
    return pytester.runpytest_inprocess(*options)


@pytest.mark.parametrize("mark", ["lab", "slow"])
def test_a_test_on_real_programs_that_passes_the_second_time_is_listed(pytester: pytest.Pytester, mark: str) -> None:
    run = running(pytester, mark=mark, failures=1)

    run.stdout.fnmatch_lines(["RERUN*test_it*", "*1 passed, 1 rerun*"])


def test_what_was_known_of_the_first_failure_is_shown(pytester: pytest.Pytester) -> None:
    run = running(pytester, mark="lab", failures=1, says="the stage fell")

    run.stdout.fnmatch_lines(["*first try of *test_it: Captured stdout call*", "the stage fell"])


def test_a_test_on_real_programs_that_fails_twice_fails(pytester: pytest.Pytester) -> None:
    run = running(pytester, mark="lab", failures=2)

    assert run.ret == pytest.ExitCode.TESTS_FAILED


def test_a_test_of_healthd_alone_gets_no_second_try(pytester: pytest.Pytester) -> None:
    run = running(pytester, mark="other", failures=1)

    assert run.ret == pytest.ExitCode.TESTS_FAILED
