"""
The implementations under contract, and names that no two tests share.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Cluster
from healthd.cluster.remote import connect
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from healthd.core.api import Node
from tests.builders import a_node
from tests.cluster import fakes
from tests.fakes import START, ManualClock, counting_uids
from tests.lab.control_plane import ControlPlane, Options
from tests.simulation.ground_truth import GroundTruth
from tests.simulation.memory_store import in_memory

CRDS = Path(__file__).parents[2] / "deploy" / "crds.yaml"


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    """Without the controllers that write to nodes: only a test may change an object between two lines of it."""
    needed = "garbage-collector-controller,serviceaccount-controller,namespace-controller"
    return Options(controller_manager_flags=(f"--controllers={needed}",))


@pytest.fixture(scope="module")
def api_server(control_plane: ControlPlane) -> ControlPlane:
    """A real API server that knows our kinds, without a scheduler: it would write to pods that a test compares."""
    control_plane.programs["kube-scheduler"].stop()
    control_plane.apply(CRDS)
    control_plane.await_definitions()
    collector = control_plane.programs["kube-controller-manager"]
    collector.stop()  # it looks for new kinds once in 30 s, and when it starts
    collector.start()
    return control_plane


@pytest.fixture(
    params=[
        "embedded-memory",
        "embedded-file",
        "simulated",
        pytest.param("api-server", marks=pytest.mark.lab),
    ]
)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster that keeps the contract."""
    if request.param == "api-server":
        real: ControlPlane = request.getfixturevalue("api_server")
        clock = SystemClock()
        async with connect(from_kubeconfig(real.kubeconfig, clock=clock), clock=clock, jitter=random.random) as remote:
            yield remote
        return
    between_seconds = ManualClock(START + timedelta(milliseconds=300))
    if request.param == "simulated":
        with in_memory(between_seconds, history=10_000) as simulated:
            yield GroundTruth(simulated, "person", lambda _: None)
        return
    path = tmp_path / "cluster.db" if request.param == "embedded-file" else None
    with EmbeddedCluster.open(path, clock=between_seconds, new_uid=counting_uids()) as embedded:
        yield embedded


@pytest.fixture
def compact(cluster: Cluster, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Makes the cluster forget its history before a version."""
    if isinstance(cluster, GroundTruth):
        return cluster.compact
    if isinstance(cluster, EmbeddedCluster):
        return partial(fakes.compact, cluster)
    real: ControlPlane = request.getfixturevalue("api_server")

    def restart(_: str) -> None:
        real.stop_api_server()  # what it can tell of the past begins with its start
        real.start_api_server()

    return restart


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that belongs to this test alone."""
    return "t-" + hashlib.blake2s(request.node.nodeid.encode(), digest_size=6).hexdigest()


@pytest.fixture
def namespace(name: str, cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace that belongs to this test alone, as does that with `-2` after it."""
    names = [f"ns-{name}", f"ns-{name}-2"]
    if isinstance(cluster, EmbeddedCluster | GroundTruth):
        yield names[0]
        return
    real: ControlPlane = request.getfixturevalue("api_server")
    for each in names:
        real.api.create("/api/v1/namespaces", {"metadata": {"name": each}})
    for each in names:
        real.await_service_account(each)
    yield names[0]
    for each in names:
        real.api.delete(f"/api/v1/namespaces/{each}")


@pytest.fixture
async def node(cluster: Cluster, name: str) -> Node:
    """A node to bind pods to."""
    return await cluster.create(a_node(f"node-{name}"))
