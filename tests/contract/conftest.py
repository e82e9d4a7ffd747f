"""
The implementations under contract, and names that no two tests share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Cluster
from healthd.core.objects import Node
from tests.builders import a_node
from tests.fakes import ManualClock, counting_uids


@pytest.fixture(params=["embedded-memory", "embedded-file"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that keeps the contract."""
    path = tmp_path / "cluster.db" if request.param == "embedded-file" else None
    with EmbeddedCluster.open(path, clock=ManualClock(), new_uid=counting_uids()) as embedded:
        yield embedded


@pytest.fixture
def compact(cluster: Cluster) -> Callable[[str], None]:
    """Makes the cluster forget its history before a version."""
    if isinstance(cluster, EmbeddedCluster):
        return cluster.compact
    pytest.skip("this implementation forgets its history only in its own time")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that belongs to this test alone."""
    return "t-" + hashlib.blake2s(request.node.nodeid.encode(), digest_size=6).hexdigest()


@pytest.fixture
def namespace(name: str) -> str:
    """A namespace that belongs to this test alone."""
    return f"ns-{name}"


@pytest.fixture
async def node(cluster: Cluster, name: str) -> Node:
    """A node to bind pods to."""
    return await cluster.create(a_node(f"node-{name}"))
