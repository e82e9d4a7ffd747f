"""The slots of nodes under a rung: two controllers, one of them late, never free what the other relies on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from healthd.cluster.port import Conflict
from healthd.controller.remediation.slots import free_slots, take_slots
from healthd.core.api import NodeRemediation, ObjectMeta
from tests.controller.remediation.site import HOME, Site

CLUSTER, RACK = ("healthd-remediation-cluster-0",), ("healthd-remediation-rack-0",)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    site.cluster.close()


async def a_record(site: Site, name: str = "gpu-17") -> NodeRemediation:
    return await site.cluster.create(NodeRemediation(metadata=ObjectMeta(name=name, namespace=HOME)))


async def moves_on(site: Site, name: str = "gpu-17") -> None:
    """The next controller records something."""
    status = {"status": {"message": "the next controller was here"}}
    await site.cluster.patch(NodeRemediation, name, status, namespace=HOME, subresource="status")


async def test_a_late_controller_frees_no_slot_of_a_node_that_began_anew(site: Site) -> None:
    record = await a_record(site)
    await moves_on(site)
    await take_slots(site.cluster, record, (CLUSTER,), site.clock.now())

    with pytest.raises(Conflict):
        await free_slots(site.cluster, record)
    assert await site.slots() == {CLUSTER[0]: "gpu-17"}


async def test_a_late_controller_that_is_refused_frees_nothing_either(site: Site) -> None:
    record = await a_record(site)
    await take_slots(site.cluster, await a_record(site, "gpu-18"), (RACK,), site.clock.now())
    await take_slots(site.cluster, record, (CLUSTER,), site.clock.now())
    await moves_on(site)

    with pytest.raises(Conflict):
        await take_slots(site.cluster, record, (CLUSTER, RACK), site.clock.now())
    assert await site.slots() == {CLUSTER[0]: "gpu-17", RACK[0]: "gpu-18"}


async def test_one_that_is_refused_holds_nothing(site: Site) -> None:
    record = await a_record(site)
    await take_slots(site.cluster, await a_record(site, "gpu-18"), (RACK,), site.clock.now())

    assert "are taken" in await take_slots(site.cluster, record, (CLUSTER, RACK), site.clock.now())
    assert await site.slots() == {RACK[0]: "gpu-18"}


async def test_a_slot_that_another_controller_took_for_the_node_counts(site: Site) -> None:
    record = await a_record(site)
    taken: list[str] = []

    async def other_is_faster() -> None:
        if not taken:
            taken.append(CLUSTER[0])
            await take_slots(site.cluster, record, (CLUSTER,), site.clock.now())

    site.link.before_write = other_is_faster

    assert await take_slots(site.link, record, (CLUSTER,), site.clock.now()) == ""
    assert await site.slots() == {CLUSTER[0]: "gpu-17"}
