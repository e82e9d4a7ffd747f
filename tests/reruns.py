"""
A test that starts real programs, and fails, runs once more. Both results are listed at the end of the run.

Such a test depends on when the machine lets etcd, an API server, a browser or a kubelet run, and a run has thousands of
them. A second failure is a failure. One that passed the second time is a defect of the test or of healthd: look at it.
What its stage and its log said the first time stands at the end of the run. Tests of healthd alone get no second try:
they do not depend on the machine. `--max-suite-reruns` in pyproject.toml bounds the second tries, so that a broken
machine does not double a run.
"""

from __future__ import annotations

import pytest

ON_REAL_PROGRAMS = ("lab", "slow")
LONGEST = 20_000
"""Characters of what is known of a first failure."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test that starts real programs a second try, by pytest-rerunfailures."""
    for item in items:
        if any(item.get_closest_marker(mark) for mark in ON_REAL_PROGRAMS):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What stages and logs said of each first failure; the failure itself is in the list of pytest-rerunfailures."""
    for report in terminalreporter.stats.get("rerun", []):
        for name, said in report.sections:
            terminalreporter.section(f"first try of {report.nodeid}: {name}", sep="-")
            terminalreporter.line(said[-LONGEST:])
