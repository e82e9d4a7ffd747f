"""One control plane for all trials; the definitions of the others' kinds come to it as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from tests import quick_yaml
from tests.lab.build import CannotBuild
from tests.lab.control_plane import ControlPlane
from tests.lab.definitions import definition
from tests.lab.fixtures import CANNOT
from tests.lab.kinds.fixtures import WRITE
from tests.remediation.definitions import BUILT_IN, DEFINITIONS
from tests.remediation.results import record
from tests.remediation.trials import Trial

Install = Callable[[str, str], None]
WRITTEN = "test_a_request_is_accepted_its_signs_are_read_and_it_is_taken_back"
"""The test whose outcome the page shows."""


@pytest.fixture
def install(control_plane: ControlPlane) -> Install:
    """`install(api, kind)`: the kind is served; skips the test where its definition is not to be had."""

    def ready(api: str, kind: str) -> None:
        if (api, kind) in BUILT_IN:
            return
        try:
            file = definition(DEFINITIONS[api, kind])
        except CannotBuild as why:
            pytest.skip(f"{CANNOT}: {why}")
        control_plane.apply(file)
        plural = quick_yaml.load(file.read_text())["spec"]["names"]["plural"]
        control_plane.wait_until_served(f"/apis/{api}/{plural}")

    return ready


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write what became of a trial into docs/remediation-hands.md, where that is asked for."""
    report = yield
    if item.originalname == WRITTEN and report.when == "call" and item.config.getoption(WRITE):
        trial = item.callspec.params["trial"]
        assert isinstance(trial, Trial)
        record(trial, passed=report.passed)
    return report
