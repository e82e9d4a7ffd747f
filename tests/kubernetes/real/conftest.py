"""Real nodes with healthd on them, a gang for each scenario, and when one fails, the state for the report."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.kernel_log import Unwritable, kernel_log
from tests.kubernetes.real.installation import Installation
from tests.kubernetes.real.scenario import RealStage
from tests.lab.control_plane import ControlPlane
from tests.lab.fixtures import CANNOT
from tests.lab.real.nodes import RealNodes


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """One for each rank, and one more."""
    return 3


@pytest.fixture(scope="module")
def writable_kernel_log() -> None:
    """Skips where it is not writable."""
    try:
        with kernel_log():
            pass
    except Unwritable as why:
        pytest.skip(f"{CANNOT}: {why}")


@pytest.fixture(scope="module")
def installation(writable_kernel_log: None, control_plane: ControlPlane, real_nodes: RealNodes) -> Installation:
    """healthd, up on every node."""
    installation = Installation(control_plane, real_nodes)
    installation.roll_out()
    return installation


@pytest.fixture
def real_stage(installation: Installation, namespace: str) -> RealStage:
    """Where one gang of real pods plays."""
    return RealStage(installation, namespace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a scenario that failed what the cluster shows."""
    report = yield
    used = getattr(item, "funcargs", {})
    if report.failed and "real_stage" in used:
        report.sections.append(("real stage", used["real_stage"].describe()))
    return report
