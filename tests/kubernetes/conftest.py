"""One control plane for all scenarios, with what healthd ships for it; and when one fails, the state for the report."""

from __future__ import annotations

import io
import random
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.crds import definitions
from healthd.cluster.remote import RemoteCluster, connect
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from healthd.core.config import LogFormat, LogLevel
from healthd.telemetry.logs import configure
from tests import quick_yaml
from tests.deploy.accounts import bind_controller
from tests.kubernetes.replicas import Replicas, replicas_of
from tests.kubernetes.scenario import Scenario, a_scenario
from tests.lab.control_plane import ControlPlane
from tests.lab.fixtures import get
from tests.lab.jobset import start_jobset
from tests.lab.kubernetes import HAS_MUTATING_POLICIES
from tests.lab.modules import JOBSET, KWOK
from tests.lab.simulated import SimulatedNodes

DEPLOY = Path(__file__).parents[2] / "deploy"
SYSTEM = "healthd-system"


@pytest.fixture(scope="package")
def kubernetes(built_control_plane: None, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane with healthd's kinds and its policy for gangs, and the real JobSet controller."""
    get(KWOK, request)
    get(JOBSET, request)
    with ControlPlane() as control_plane:
        control_plane.apply(quick_yaml.dump_all(definitions()))
        control_plane.await_definitions()
        if HAS_MUTATING_POLICIES:
            control_plane.apply(DEPLOY / "admission-gangs.yaml")
        control_plane.kubectl("create", "namespace", SYSTEM)
        start_jobset(control_plane)
        collector = control_plane.programs["kube-controller-manager"]
        collector.stop()
        collector.start()  # its garbage collector looks for new kinds when it starts
        yield control_plane


@pytest.fixture(scope="package")
def simulated(kubernetes: ControlPlane) -> SimulatedNodes:
    """The means to add nodes."""
    nodes = SimulatedNodes(kubernetes)
    nodes.start()
    return nodes


@pytest.fixture
async def remote(kubernetes: ControlPlane) -> AsyncIterator[RemoteCluster]:
    """The cluster as agents speak to it, and as the test sees it."""
    clock = SystemClock()
    async with connect(
        from_kubeconfig(kubernetes.kubeconfig, clock=clock), clock=clock, jitter=random.random
    ) as cluster:
        yield cluster


@pytest.fixture
async def scenario(
    remote: RemoteCluster, kubernetes: ControlPlane, simulated: SimulatedNodes
) -> AsyncIterator[Scenario]:
    """Where one gang plays."""
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())  # the agents in this process report nothing
    async with a_scenario(remote, kubernetes, simulated) as scenario:
        yield scenario


@pytest.fixture
async def other_stage(
    scenario: Scenario, remote: RemoteCluster, kubernetes: ControlPlane, simulated: SimulatedNodes
) -> AsyncIterator[Scenario]:
    """Where another gang plays, in a namespace of its own, on the same nodes as the first."""
    async with a_scenario(remote, kubernetes, simulated, beside=scenario) as other:
        yield other


@pytest.fixture(scope="module")
def token(kubernetes: ControlPlane) -> str:
    """The controller's, bound by the policies that are shipped."""
    return bind_controller(kubernetes)


@pytest.fixture
async def replicas(kubernetes: ControlPlane, token: str, tmp_path: Path) -> AsyncIterator[Replicas]:
    """Controllers as processes, with the rights that are shipped; none runs yet."""
    async with replicas_of(kubernetes, token, tmp_path) as replicas:
        yield replicas


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a scenario that failed what the cluster and the controllers show."""
    report = yield
    used = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed:
        for name in ("stage", "other_stage", "replicas"):
            if name in used:
                report.sections.append((name, used[name].describe()))
    return report
