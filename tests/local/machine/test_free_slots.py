"""A run that starts anew takes spares where slots are out of service, and no more of them than it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import LABEL_SPARE, Node
from healthd.local.machine.free_slots import open_spares, shortage
from healthd.local.machine.slots import register, slots_for
from tests.fakes import START, ManualClock, counting_uids


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as embedded:
        yield embedded


async def spares(cluster: EmbeddedCluster) -> list[str]:
    nodes = (await cluster.list(Node)).items
    return [node.metadata.name for node in nodes if LABEL_SPARE in node.metadata.labels and node.spec.taints]


async def test_spares_stay_spares_while_every_rank_has_a_slot(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, [], spares=2), boot_id="boot-1", now=START)

    assert await open_spares(cluster, 2) == []
    assert await spares(cluster) == ["slot-2", "slot-3"]


async def test_one_spare_is_taken_for_one_slot_that_is_out_of_service(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, [], spares=2), boot_id="boot-1", now=START)
    await cluster.patch(Node, "slot-0", {"spec": {"unschedulable": True}})

    assert await open_spares(cluster, 2) == ["slot-2"]
    assert await spares(cluster) == ["slot-3"]
    assert shortage((await cluster.list(Node)).items, 2) == ""


async def test_a_slot_that_somebody_else_keeps_free_is_left_alone(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await cluster.patch(Node, "slot-0", {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})

    assert await open_spares(cluster, 2) == []


async def test_what_is_missing_is_reported_with_the_slots_that_are_out_of_service(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await cluster.patch(Node, "slot-1", {"spec": {"unschedulable": True}})

    reported = shortage((await cluster.list(Node)).items, 2)

    assert reported == "2 ranks need 2 slots, and 1 are in service: slot-1 is out of service (not by healthd)"
