"""The comparison of nodes with their peers: what is written on a node, and what is reported once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.controller.fleet.peers import EVERY, HOLDS, MOST_WRITES, Peers
from healthd.core.api import (
    ANNOTATION_BELOW_PEERS,
    LABEL_PEERS,
    Device,
    Node,
    NodeHealth,
    ObjectReference,
)
from healthd.core.api.model import Verdict
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_node, a_nodehealth
from tests.fakes import ManualClock, counting_uids

GPUS = [Device(pci=f"0000:0{index}:00.0", name="NVIDIA H100 80GB HBM3") for index in range(8)]


class Hall:
    """Twenty nodes of eight GPUs, and a controller that compares them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.reported: list[tuple[str, str]] = []
        self.trouble = ""
        self.leaves = ""
        """The node that leaves the cluster at the first report."""

    async def open(self, count: int = 20) -> None:
        """All nodes are whole."""
        for number in range(count):
            await self.cluster.create(a_node(f"n{number}"))
            await self.cluster.create(a_nodehealth(f"n{number}"))
            await self.publish(f"n{number}", 8)
        self.lead()

    def lead(self) -> None:
        """A controller takes over."""
        self.cluster_state, self.metrics = ClusterState(ADAPTERS), Metrics()
        peers = Peers(self.cluster, self.clock, self.cluster_state, self.metrics, self._hear, lambda: self.trouble)
        self._task = asyncio.create_task(peers.run())

    def _hear(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        del kind, message
        self.reported.append((about.name, reason))
        if self.leaves:
            self.cluster_state.remove(self.cluster_state.nodes[self.leaves])

    async def publish(self, name: str, gpus: int) -> None:
        """The agent says what it saw at best."""
        body = {
            "best": {"gpus": gpus},
            "inventory": [{"pci": gpu.pci, "name": gpu.name} for gpu in GPUS[:gpus]],
            "verdict": Verdict.HEALTHY,
            "seenAt": self.clock.now().isoformat(),
        }
        await self.cluster.patch(NodeHealth, name, {"status": body}, subresource="status")

    async def pass_time(self, delta: timedelta = HOLDS + 2 * EVERY) -> None:
        """Let so much time pass; the cache keeps up."""
        for _ in range(delta // EVERY):
            await read_everything(self.cluster, self.cluster_state, ADAPTERS)
            await self.clock.run_for(EVERY)

    async def said(self, name: str) -> str:
        """What stands on the node."""
        return (await self.cluster.get(Node, name)).metadata.annotations.get(ANNOTATION_BELOW_PEERS, "")

    def short(self) -> float | None:
        """The metric."""
        return self.metrics.registry.get_sample_value("healthd_nodes_below_peers", {"part": "gpus"})

    async def end(self) -> None:
        """The controller stops."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    hall = Hall()
    await hall.open()
    yield hall
    await hall.end()


async def test_a_node_with_less_than_its_peers_is_reported_once_and_stays_in_service(hall: Hall) -> None:
    await hall.publish("n7", 7)
    await hall.pass_time(6 * HOLDS)
    node = await hall.cluster.get(Node, "n7")

    assert hall.reported == [("n7", "BelowPeers")]
    assert await hall.said("n7") == "7 GPUs on the PCI bus (its peers: 8)"
    assert hall.short() == 1
    assert not node.spec.unschedulable
    assert node.spec.taints == []


async def test_nothing_is_reported_before_it_held_for_some_time(hall: Hall) -> None:
    await hall.publish("n7", 7)
    await hall.pass_time(HOLDS)
    await hall.publish("n7", 8)
    await hall.pass_time()

    assert hall.reported == []


async def test_another_leader_reports_nothing_twice(hall: Hall) -> None:
    await hall.publish("n7", 7)
    await hall.pass_time()
    await hall.end()
    hall.lead()
    await hall.pass_time()

    assert hall.reported == [("n7", "BelowPeers")]


async def test_a_node_that_has_what_its_peers_have_is_no_longer_reported(hall: Hall) -> None:
    await hall.publish("n7", 7)
    await hall.pass_time()
    await hall.publish("n7", 8)
    await hall.pass_time()

    assert hall.reported == [("n7", "BelowPeers"), ("n7", "BelowPeersOver")]
    assert await hall.said("n7") == ""
    assert hall.short() is None


async def test_an_operator_confirms_that_a_node_is_meant_to_be_different(hall: Hall) -> None:
    await hall.publish("n7", 7)
    await hall.pass_time()
    await hall.cluster.patch(Node, "n7", {"metadata": {"labels": {LABEL_PEERS: "none"}}})
    await hall.pass_time()

    assert hall.reported[1:] == [("n7", "BelowPeersOver")]
    assert await hall.said("n7") == ""


async def test_a_silent_agent_takes_nothing_back(hall: Hall) -> None:
    await hall.publish("n7", 7)
    await hall.pass_time()
    await hall.cluster.patch(NodeHealth, "n7", {"status": {"verdict": Verdict.UNKNOWN}}, subresource="status")
    await hall.pass_time()

    assert hall.reported == [("n7", "BelowPeers")]
    assert await hall.said("n7") != ""


async def test_on_an_old_view_of_the_cluster_nothing_is_reported(hall: Hall) -> None:
    hall.trouble = "the watch is gone"
    await hall.publish("n7", 7)
    await hall.pass_time()

    assert hall.reported == []


async def test_a_node_that_was_deleted_is_forgotten(hall: Hall) -> None:
    await hall.publish("n7", 7)
    await hall.pass_time(HOLDS / 2)
    await hall.cluster.delete(Node, "n7")
    await hall.cluster.delete(NodeHealth, "n7")
    await hall.pass_time()

    assert hall.reported == []
    assert hall.short() is None


async def test_a_node_that_leaves_while_others_are_reported_holds_up_no_one(hall: Hall) -> None:
    hall.leaves = "n6"
    for name in ("n5", "n6", "n7"):
        await hall.publish(name, 7)
    await hall.pass_time(HOLDS + EVERY)

    assert hall.reported == [("n5", "BelowPeers"), ("n7", "BelowPeers")]


@pytest.mark.slow
async def test_many_nodes_are_written_over_several_minutes() -> None:
    hall = Hall()
    await hall.open(400)
    for number in range(MOST_WRITES + 10):
        await hall.publish(f"n{number}", 7)
    await hall.pass_time(HOLDS + EVERY)
    first = len(hall.reported)
    await hall.pass_time(EVERY)
    await hall.end()

    assert (first, len(hall.reported)) == (MOST_WRITES, MOST_WRITES + 10)
