"""A namespace with real controllers, and simulated nodes under it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.remote import RemoteCluster, connect
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from tests.gangs.lab.theatre import Theatre
from tests.lab.control_plane import ControlPlane
from tests.lab.simulated import SimulatedNodes

NODES = 8
CRDS = Path(__file__).parents[3] / "deploy" / "crds.yaml"


@pytest.fixture(scope="module")
def nodes(simulated_nodes: SimulatedNodes) -> list[str]:
    """A few nodes for all tests of a module."""
    return simulated_nodes.add(NODES)


@pytest.fixture
async def remote(control_plane: ControlPlane) -> AsyncIterator[RemoteCluster]:
    """The cluster as healthd speaks to it."""
    clock = SystemClock()
    access = from_kubeconfig(control_plane.kubeconfig, clock=clock)
    async with connect(access, clock=clock, luck=random.random) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def own_kinds(control_plane: ControlPlane) -> None:
    """The kinds of healthd itself are known, also to the garbage collector: it looks for new ones when it starts."""
    control_plane.apply(CRDS)
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
    collector = control_plane.programs["kube-controller-manager"]
    collector.stop()
    collector.start()


@pytest.fixture
def theatre(
    remote: RemoteCluster,
    namespace: str,
    control_plane: ControlPlane,
    simulated_nodes: SimulatedNodes,
    nodes: list[str],
    jobset_controller: None,
    own_kinds: None,
) -> Theatre:
    """Where one gang plays."""
    control_plane.await_service_account(namespace)
    return Theatre(remote, namespace, control_plane, simulated_nodes)
