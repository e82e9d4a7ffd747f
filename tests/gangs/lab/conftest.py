"""A namespace with real controllers, and simulated nodes under it. healthd has the rights that are shipped there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from healthd.cluster.port import Cluster
from tests.deploy.accounts import as_holder_of, bind_controller
from tests.deploy.manifests import DEPLOY
from tests.gangs.lab.scenario import Scenario
from tests.lab.control_plane import ControlPlane
from tests.lab.simulated import SimulatedNodes

NODES = 8


@pytest.fixture(scope="module")
def nodes(simulated_nodes: SimulatedNodes) -> list[str]:
    """A few nodes for all tests of a module."""
    return simulated_nodes.add(NODES)


@pytest.fixture(scope="module")
def token(control_plane: ControlPlane) -> str:
    """The controller's, bound by the policies that are shipped."""
    return bind_controller(control_plane)


@pytest.fixture
async def remote(control_plane: ControlPlane, token: str) -> AsyncIterator[Cluster]:
    """The cluster as healthd speaks to it."""
    async with as_holder_of(control_plane, token) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def own_kinds(control_plane: ControlPlane) -> None:
    """The kinds of healthd itself are known, also to the garbage collector: it looks for new ones when it starts."""
    control_plane.apply(DEPLOY / "crds.yaml")
    control_plane.await_definitions()
    collector = control_plane.programs["kube-controller-manager"]
    collector.stop()
    collector.start()


@pytest.fixture
def scenario(
    remote: Cluster,
    namespace: str,
    control_plane: ControlPlane,
    simulated_nodes: SimulatedNodes,
    nodes: list[str],
    jobset_controller: None,
    own_kinds: None,
) -> Scenario:
    """Where one gang plays."""
    control_plane.await_service_account(namespace)
    return Scenario(remote, namespace, control_plane, simulated_nodes)
