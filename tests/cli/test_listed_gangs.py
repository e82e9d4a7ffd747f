"""A list of gangs says of each what all its objects say, as the controller does."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.cli.commands.cluster.gangs import rows_of
from healthd.cli.commands.cluster.top import facts, reader_of
from healthd.cli.listing import read_gangs
from healthd.cli.target.target import Target
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Forbidden
from healthd.core.api import Pod
from healthd.core.report.listing.gangs import GangRow, GangState
from healthd.gangs.podgang import PodGangAdapter
from tests.builders import a_pod
from tests.fakes import START
from tests.gangs.builders import an_empty_cluster

ENABLED = {"healthd.dev/restart": "enabled"}


class WithoutPods:
    """*cluster* for a user who may not list its pods."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def list(self, kind: Any, **how: Any) -> Any:
        if kind is Pod:
            raise Forbidden("pods is forbidden")
        return await self._cluster.list(kind, **how)


@pytest.fixture
async def cluster() -> EmbeddedCluster:
    """Plain pods that ran as one gang."""
    cluster = an_empty_cluster()
    for name in ("rank-0", "rank-1"):
        await cluster.create(a_pod(name, gang="train", node="node-a", annotations=ENABLED))
    pods = (await cluster.list(Pod)).items
    await PodGangAdapter().discover(cluster, "default", "train", pods)
    return cluster


async def end(cluster: EmbeddedCluster, *names: str) -> None:
    for name in names:
        status = {"status": {"phase": "Succeeded"}}
        await cluster.patch(Pod, name, status, namespace="default", subresource="status")


async def the_row(cluster: Any) -> GangRow:
    state = await read_gangs(Target(cluster, None, "lab", None))
    (row,) = rows_of(state.roots.values(), state, START)
    return row


async def test_plain_pods_that_have_all_succeeded_are_complete(cluster: EmbeddedCluster) -> None:
    await end(cluster, "rank-0", "rank-1")

    assert (await the_row(cluster)).state is GangState.COMPLETE


async def test_the_live_view_says_of_a_gang_what_the_list_says(cluster: EmbeddedCluster) -> None:
    await end(cluster, "rank-0", "rank-1")
    target = Target(cluster, None, "lab", None)

    async with reader_of(target) as read:
        (row,) = facts(await read(), target, START).gangs

    assert row.state is GangState.COMPLETE


async def test_plain_pods_of_which_one_has_lost_its_label_are_invalid(cluster: EmbeddedCluster) -> None:
    unlabelled = {"metadata": {"labels": {"healthd.dev/gang": None}}}
    await cluster.patch(Pod, "rank-1", unlabelled, namespace="default")

    row = await the_row(cluster)
    assert row.state is GangState.INVALID
    assert "label it so, or delete it" in row.message


async def test_without_the_right_to_pods_a_gang_is_listed_as_its_object_says(cluster: EmbeddedCluster) -> None:
    await end(cluster, "rank-0", "rank-1")

    assert (await the_row(WithoutPods(cluster))).state is GangState.STARTING
