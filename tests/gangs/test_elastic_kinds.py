"""Kinds whose gangs may have fewer members: which of them, within which limits, and how their number is written."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.recovery.gang import Elastic, Root
from healthd.gangs.kinds import SHIPPED
from tests.gangs.builders import ENABLED, a_hint, an_empty_cluster
from tests.gangs.described import (
    WITH_THREE_WORKERS,
    adapter_of,
    an_object,
    now,
    read,
    reports,
    says_stopped,
    stored,
)

ASKED = {**ENABLED, "healthd.dev/min-nodes": "2"}
ONE_GROUP = WITH_THREE_WORKERS["RayCluster"]
SMALLER = {
    "PyTorchJob": {"master-0": "a", "worker-0": "b", "worker-1": "c"},
    "MPIJob": {"0": "b", "1": "c", "+0": "a"},
    "RayCluster": {"0": "a", "1": "b", "2": "c"},
    "RayJob": {"0": "a", "1": "b", "2": "c"},
}
"""A placement with one worker less."""


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


def a_gang(kind: str, spec: dict[str, Any] | None = None, **notes: str) -> Root:
    """A gang with three workers beside one that is always there; *spec* is a merge patch of it."""
    merged = spec or WITH_THREE_WORKERS[kind]
    return read(kind, an_object(kind, spec=merged, annotations={**ASKED, **notes}))


def workers_of(kind: str, spec: dict[str, Any]) -> int:
    """How many workers the object asks for."""
    if "Ray" in kind:
        groups = spec.get("rayClusterSpec", spec)["workerGroupSpecs"]
        return int(groups[0]["replicas"])
    return int(next(part for key, part in spec.items() if key.endswith("ReplicaSpecs"))["Worker"]["replicas"])


@pytest.mark.parametrize("kind", WITH_THREE_WORKERS)
def test_its_workers_may_be_fewer_and_the_first_is_always_there(kind: str) -> None:
    root = a_gang(kind)

    assert root.elastic is not None
    assert (root.world, root.elastic.members) == (4, 3)
    assert root.elastic_members(SMALLER[kind]) == 2
    assert root.resized(2).world == 3


def test_every_other_kind_keeps_its_size() -> None:
    elastic = {kind.name for kind in SHIPPED if any(pods.elastic for pods in kind.pods)}

    assert elastic == set(WITH_THREE_WORKERS)


@pytest.mark.parametrize("kind", WITH_THREE_WORKERS)
async def test_it_starts_with_as_many_workers_as_have_a_node(cluster: EmbeddedCluster, kind: str) -> None:
    before = await stored(cluster, kind, spec=WITH_THREE_WORKERS[kind], annotations=ASKED)
    await adapter_of(kind).stop(cluster, read(kind, before), "train-1")
    stopped = await reports(cluster, await now(cluster, kind), says_stopped(kind))

    await adapter_of(kind).start(cluster, read(kind, stopped), a_hint(SMALLER[kind]))
    smaller = await now(cluster, kind)

    assert (workers_of(kind, before.spec), workers_of(kind, smaller.spec)) == (3, 2)
    assert read(kind, smaller).world == 3


@pytest.mark.parametrize("kind", WITH_THREE_WORKERS)
async def test_a_start_without_a_placement_keeps_the_number(cluster: EmbeddedCluster, kind: str) -> None:
    before = await stored(cluster, kind, spec=WITH_THREE_WORKERS[kind], annotations=ASKED)
    await adapter_of(kind).stop(cluster, read(kind, before), "train-1")
    stopped = await reports(cluster, await now(cluster, kind), says_stopped(kind))

    await adapter_of(kind).start(cluster, read(kind, stopped), a_hint())

    assert workers_of(kind, (await now(cluster, kind)).spec) == 3


def test_the_limits_of_a_pytorchjob_are_those_of_its_elastic_policy() -> None:
    root = a_gang("PyTorchJob", {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}})

    assert root.elastic == Elastic(members=3, name="worker", least=2, most=4)


def test_the_limits_of_a_raycluster_are_those_of_its_group() -> None:
    assert a_gang("RayCluster").elastic == Elastic(members=3, least=2, most=3)


@pytest.mark.parametrize(
    ("own", "asked", "fewest"),
    [
        pytest.param(1, "4", 3, id="healthd's option counts the master"),
        pytest.param(2, "1", 2, id="its own minimum counts workers"),
        pytest.param(0, "1", 1, id="one at least"),
    ],
)
def test_the_higher_of_two_minimums_counts(own: int, asked: str, fewest: int) -> None:
    policy = {"elasticPolicy": {"minReplicas": own, "maxReplicas": 4}}

    assert a_gang("PyTorchJob", policy, **{"healthd.dev/min-nodes": asked}).fewest == fewest


def test_without_the_annotation_it_keeps_its_size() -> None:
    policy = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}

    assert read("PyTorchJob", an_object("PyTorchJob", spec=policy)).fewest is None


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        pytest.param("PyTorchJob", {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 3}}, id="one number alone"),
        pytest.param("PyTorchJob", {"elasticPolicy": {"metrics": [{"type": "Resource"}]}}, id="an autoscaler"),
        pytest.param("RayCluster", {**ONE_GROUP, "enableInTreeAutoscaling": True}, id="the autoscaler of Ray"),
        pytest.param("RayCluster", {"workerGroupSpecs": ONE_GROUP["workerGroupSpecs"] * 2}, id="two groups of workers"),
        pytest.param("TFJob", {"runPolicy": {"suspend": False}}, id="a kind that is not elastic"),
    ],
)
def test_what_may_not_have_another_number_keeps_it(kind: str, spec: dict[str, Any]) -> None:
    assert a_gang(kind, spec).fewest is None


def test_workers_of_several_hosts_keep_their_number() -> None:
    group = {**ONE_GROUP["workerGroupSpecs"][0], "numOfHosts": 2}

    assert a_gang("RayCluster", {"workerGroupSpecs": [group]}).elastic is None
