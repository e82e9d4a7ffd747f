"""A test that takes long says so."""

from __future__ import annotations

import pytest

BURN = "while time.process_time() < began + 0.5: pass"
IN_A_CHILD = f'subprocess.run([sys.executable, "-c", "import time; began = time.process_time()\\n{BURN}"], check=True)'


def running(pytester: pytest.Pytester, body: str, *, mark: str = "skipif(False, reason='')") -> pytest.RunResult:
    """A run of one test with this *body*. It may take a tenth of a second of processor time."""
    pytester.makepyfile(
        f"import subprocess, sys, time, pytest\n\n@pytest.mark.{mark}\ndef test_it():\n"
        f"    began = time.process_time()\n    {body}\n"
    )
    options = ("-p", "tests.limits", "-p", "no:asyncio", "-o", "cpu_limit=0.1", "-o", "markers=slow\nlab")
    return pytester.runpytest_inprocess(*options)


@pytest.mark.slow
@pytest.mark.parametrize("body", [BURN, IN_A_CHILD], ids=["itself", "in a child"])
def test_a_test_that_takes_long_fails(pytester: pytest.Pytester, body: str) -> None:
    running(pytester, body).assert_outcomes(failed=1)


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["slow", "lab"])
def test_a_test_that_make_quick_leaves_out_may_take_long(pytester: pytest.Pytester, mark: str) -> None:
    running(pytester, BURN, mark=mark).assert_outcomes(passed=1)


def test_time_in_which_a_test_does_nothing_is_not_counted(pytester: pytest.Pytester) -> None:
    running(pytester, "time.sleep(0.2)").assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_test_that_fails_says_why_it_failed_and_not_how_long_it_took(pytester: pytest.Pytester) -> None:
    run = running(pytester, f"{BURN}\n    raise ValueError")

    run.assert_outcomes(failed=1)
    run.stdout.no_fnmatch_line("*processor time*")
