"""One control plane for all kinds: what healthd ships is there, and the controllers of one kind at a time."""

from __future__ import annotations

import io
import random
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.remote import connect
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from healthd.core.config import LogFormat, LogLevel
from healthd.telemetry.logs import configure
from tests.deploy.accounts import bind_controller
from tests.deploy.manifests import DEPLOY
from tests.gangs.recoveries.results import record
from tests.gangs.recoveries.stage import Stage
from tests.kubernetes.replicas import replicas_of
from tests.kubernetes.scenario import a_scenario
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds.fixtures import WRITE, Controllers
from tests.lab.simulated import SimulatedNodes


@pytest.fixture(scope="module")
def shipped(control_plane: ControlPlane) -> None:
    """healthd's own kinds, and its policy for gangs."""
    control_plane.apply(DEPLOY / "crds.yaml")
    control_plane.await_definitions()
    control_plane.apply(DEPLOY / "admission-gangs.yaml")
    control_plane.apply(DEPLOY / "components" / "volcano" / "binding.yaml")


@pytest.fixture(scope="module")
def token(control_plane: ControlPlane, shipped: None) -> str:
    """The controller's, with the rights of all components, bound by the policies that are shipped."""
    return bind_controller(control_plane)


@pytest.fixture(scope="module")
def collected(control_plane: ControlPlane, shipped: None, kind: str) -> str:
    """The kind whose controllers run; the garbage collector knows of it: it looks for new kinds when it starts."""
    collector = control_plane.programs["kube-controller-manager"]
    collector.stop()
    collector.start()
    return kind


@pytest.fixture
async def stage(
    control_plane: ControlPlane,
    simulated_nodes: SimulatedNodes,
    controllers: Controllers,
    collected: str,
    token: str,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    """Where one gang of the kind plays."""
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())  # of the agents in this process
    clock = SystemClock()
    connection = from_kubeconfig(control_plane.kubeconfig, clock=clock)
    async with (
        connect(connection, clock=clock, jitter=random.random) as cluster,
        a_scenario(cluster, control_plane, simulated_nodes) as scenario,
        replicas_of(control_plane, token, tmp_path) as replicas,
    ):
        yield Stage(collected, scenario, replicas, tmp_path / "saved", controllers.programs.values())


@pytest.hookimpl(wrapper=True, tryfirst=True)  # an outcome that was expected is known by then
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a scenario that failed what there is, and write into docs/gangs.md what became of it."""
    report = yield
    cell = getattr(item, "callspec", None)
    found = getattr(item, "funcargs", {}).get("stage")
    if report.when == "call" and report.failed and isinstance(found, Stage):
        report.sections.append(("stage", found.describe()))
    if cell and "story" in cell.params and item.config.getoption(WRITE):
        record((cell.params["kind"], cell.params["story"]), report)
    return report
