"""The histories in the cluster: what they survive, who finds a GPU that moved, and what the metrics show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.controller.fleet.hardware_histories import EVERY, KEEP_AWAY, RANK_EVERY, READ_EVERY, HardwareHistories
from healthd.core.api import ANNOTATION_QUARANTINE, HardwareHistory, MachineHistory, Node, NodeHealth, ObjectMeta
from healthd.core.reliability.history import object_name
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import SHOWN_LEMONS, Metrics
from tests.builders import a_node, a_nodehealth
from tests.core.reliability.histories import DAY, HOUR, SLOTS, a_history, a_quarantine, an_outage, inventory, uuid_of
from tests.fakes import START, ManualClock, counting_uids

HOME = "healthd-system"
T = TypeVar("T")


async def at_once(work: Callable[[], T], name: str) -> T:
    """Without a thread: the clock of a test does not wait for one."""
    return work()


class Hall:
    """Machines, their agents, and a controller that keeps histories."""

    def __init__(self) -> None:
        self.clock = ManualClock(START + 80 * DAY)
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.tasks: list[asyncio.Task[None]] = []

    def lead(self) -> None:
        """A controller takes over from the one before."""
        for task in self.tasks:
            task.cancel()
        self.state, self.metrics = ClusterState(ADAPTERS), Metrics()
        kept = HardwareHistories(self.cluster, self.clock, self.state, self.metrics, namespace=HOME, compute=at_once)
        self.tasks.append(asyncio.create_task(kept.run()))

    async def add(self, number: int, name: str = "", *, uuid: str | None = None, **by_slot: str) -> None:
        """A machine joins; its agent reports."""
        name = name or f"gpu-{number:02}"
        await self.cluster.create(a_node(name))
        await self.cluster.create(a_nodehealth(name))
        info = {"nodeInfo": {"systemUUID": uuid_of(number) if uuid is None else uuid, "bootID": "boot-1"}}
        await self.cluster.patch(Node, name, {"status": info}, subresource="status")
        await self.report(number, name, **by_slot)

    async def report(self, number: int, name: str = "", **by_slot: str) -> None:
        """The agent reports its GPUs."""
        gpus = msgspec.to_builtins(inventory(number, **by_slot))
        body = {"inventory": gpus, "bootId": "boot-1", "verdict": "healthy"}
        await self.cluster.patch(NodeHealth, name or f"gpu-{number:02}", {"status": body}, subresource="status")

    async def remove(self, name: str) -> None:
        """Its Node is deleted, and with it its NodeHealth."""
        await self.cluster.delete(Node, name)
        with suppress(Exception):
            await self.cluster.delete(NodeHealth, name)

    async def quarantine(self, name: str, *, ends: bool = False) -> None:
        """Its agent takes it out of service, or gives it back."""
        record = msgspec.json.encode(a_quarantine(since=self.clock.now())).decode()
        note = {ANNOTATION_QUARANTINE: None if ends else record}
        await self.cluster.patch(Node, name, {"metadata": {"annotations": note}})

    async def store(self, *histories: MachineHistory) -> None:
        """What earlier leaders wrote."""
        for history in histories:
            meta = ObjectMeta(name=object_name(history.machine), namespace=HOME)
            await self.cluster.create(HardwareHistory(metadata=meta, spec=history))

    async def pass_time(self, delta: timedelta = 2 * EVERY) -> None:
        """Let so much time pass; the cache keeps up."""
        await read_everything(self.cluster, self.state, ADAPTERS)
        await self.clock.run_for(delta)

    async def stored(self) -> dict[str, MachineHistory]:
        """By machine."""
        listed = await self.cluster.list(HardwareHistory, namespace=HOME)
        return {each.spec.machine: each.spec for each in listed.items}

    def metric(self, name: str, **labels: str) -> float | None:
        """What a scrape would show."""
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    hall = Hall()
    yield hall
    for task in hall.tasks:
        task.cancel()
    await asyncio.gather(*hall.tasks, return_exceptions=True)
    hall.cluster.close()


async def test_each_machine_has_one_history_of_its_own(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)
    await hall.add(2)

    await hall.pass_time()

    stored = await hall.stored()
    assert stored.keys() == {uuid_of(1), uuid_of(2)}
    assert len(stored[uuid_of(1)].gpus) == 8


async def test_nothing_is_written_while_nothing_happens(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)
    await hall.pass_time()
    before = (await hall.cluster.list(HardwareHistory)).items[0].metadata.resource_version

    await hall.pass_time(2 * READ_EVERY)

    assert (await hall.cluster.list(HardwareHistory)).items[0].metadata.resource_version == before


async def test_an_outage_is_kept_over_a_new_leader_and_a_renamed_node(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)
    await hall.pass_time()
    await hall.quarantine("gpu-01")
    await hall.pass_time()
    await hall.remove("gpu-01")
    hall.lead()
    await hall.pass_time()
    await hall.add(1, "new-name")
    await hall.pass_time()

    history = (await hall.stored())[uuid_of(1)]
    assert (history.node, len(history.outages), history.outages[0].gpu) == ("new-name", 1, "00013")
    assert history.outages[0].ended is not None
    assert len(history.absences) == 1


async def test_the_end_of_an_outage_is_noticed_within_minutes(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)
    await hall.pass_time()
    await hall.quarantine("gpu-01")
    await hall.pass_time()
    await hall.quarantine("gpu-01", ends=True)

    await hall.pass_time()

    (outage,) = (await hall.stored())[uuid_of(1)].outages
    assert outage.ended is not None


async def test_a_gpu_that_was_moved_is_noticed_within_hours(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)
    await hall.add(2)
    await hall.pass_time()
    await hall.report(1, at3="")
    await hall.report(2, at3="00013")

    await hall.pass_time(READ_EVERY + EVERY)

    assert "00013" in {stay.id for stay in (await hall.stored())[uuid_of(2)].gpus if stay.until is None}


async def test_machines_that_report_the_same_uuid_are_kept_apart_by_their_nodes(hall: Hall) -> None:
    hall.lead()
    await hall.add(1, "a")
    await hall.pass_time()
    await hall.add(2, "b", uuid=uuid_of(1))

    await hall.pass_time(3 * EVERY)

    stored = await hall.stored()
    assert {"node/a", "node/b"} <= stored.keys()
    assert stored[uuid_of(1)].absences


async def test_a_history_that_a_person_deleted_begins_anew(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)
    await hall.pass_time()
    await hall.quarantine("gpu-01")
    await hall.pass_time()
    await hall.cluster.delete(HardwareHistory, object_name(uuid_of(1)), namespace=HOME)
    await hall.quarantine("gpu-01", ends=True)

    await hall.pass_time(4 * EVERY)

    assert (await hall.stored())[uuid_of(1)].outages == []


async def test_the_history_of_a_machine_that_is_away_for_a_year_is_deleted(hall: Hall) -> None:
    await hall.store(a_history(1))
    hall.lead()
    await hall.pass_time()
    assert (await hall.stored())[uuid_of(1)].absences

    hall.clock.advance(KEEP_AWAY)
    await hall.pass_time()

    assert await hall.stored() == {}


async def test_a_history_that_another_leader_wrote_meanwhile_counts(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)
    await hall.pass_time()
    theirs = msgspec.to_builtins([an_outage(1)])
    name = object_name(uuid_of(1))
    await hall.cluster.patch(HardwareHistory, name, {"spec": {"outages": theirs}}, namespace=HOME)
    await hall.quarantine("gpu-01")

    await hall.pass_time(4 * EVERY)

    assert len((await hall.stored())[uuid_of(1)].outages) == 2


async def test_lemons_and_wanted_spares_are_shown(hall: Hall) -> None:
    days = (10, 24, 38, 52, 66)
    outages = [an_outage(day, slot=SLOTS[3], gpu="00013") for day in days]
    await hall.store(a_history(1, outages=outages), *(a_history(n) for n in range(2, 40)))
    hall.lead()
    for number in range(1, 40):
        await hall.add(number)

    await hall.pass_time(RANK_EVERY + EVERY)

    assert hall.metric("healthd_lemons") == 1
    assert hall.metric("healthd_node_lemon_probability", node="gpu-01") == pytest.approx(1, abs=0.05)
    assert hall.metric("healthd_spares_wanted") == 1


def test_lemons_have_a_bounded_number_of_series() -> None:
    metrics = Metrics()

    metrics.show_lemons({f"n{number}": 0.9 for number in range(SHOWN_LEMONS + 50)})

    shown = [one for family in metrics.registry.collect() for one in family.samples if "lemon_probability" in one.name]
    assert (len(shown), metrics.lemons._value.get()) == (SHOWN_LEMONS, SHOWN_LEMONS + 50)


async def test_a_cluster_without_the_definition_has_no_histories_and_no_error(hall: Hall) -> None:
    hall.lead()
    await hall.add(1)

    await hall.pass_time(HOUR)

    assert not hall.tasks[-1].done()
