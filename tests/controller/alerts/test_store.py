"""Incidents as objects: one writer, and what another one has written counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.alerts.store import AT_ONCE, MOST_KEPT, IncidentStore, name_of
from healthd.core.alerts.grouping import Tracked
from healthd.core.alerts.problem import Shared
from healthd.core.api import Delivery, IncidentRecord
from tests.core.alerts.problems import an_incident, at
from tests.fakes import START, ManualClock, counting_uids

SPACE = "healthd-system"
KEY = "recovery/team-a/llama-1"
PAGE = Tracked(incident=an_incident(KEY), shared=Shared.NODES, began=START)
CHAT = Delivery(revision=1, answer="accepted", at=START)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as cluster:
        yield cluster


async def a_store(cluster: EmbeddedCluster) -> IncidentStore:
    """The store of a leader that begins now."""
    store = IncidentStore(cluster, ManualClock(), SPACE)
    await store.load()
    return store


async def stored(cluster: EmbeddedCluster) -> IncidentRecord:
    return await cluster.get(IncidentRecord, name_of(KEY), SPACE)


async def test_the_next_leader_reads_all_that_the_last_one_knew(cluster: EmbeddedCluster) -> None:
    store = await a_store(cluster)
    entry = store.take(PAGE)
    entry.deliveries = {"chat": CHAT}
    await store.save(entry)

    read = (await a_store(cluster)).entries[KEY]
    assert (read.tracked, read.deliveries) == (PAGE, {"chat": CHAT})


async def test_nothing_is_written_twice(cluster: EmbeddedCluster) -> None:
    store = await a_store(cluster)
    entry = store.take(PAGE)
    await store.save(entry)
    version = (await stored(cluster)).metadata.resource_version
    await store.save(store.take(PAGE))

    assert (await stored(cluster)).metadata.resource_version == version


async def test_what_another_leader_recorded_is_kept(cluster: EmbeddedCluster) -> None:
    ours, theirs = await a_store(cluster), await a_store(cluster)
    their_entry = theirs.take(PAGE)
    their_entry.deliveries = {"chat": CHAT}
    await theirs.save(their_entry)

    our_entry = ours.take(PAGE)
    our_entry.deliveries = {"oncall": CHAT}
    await ours.save(our_entry)

    assert set((await stored(cluster)).status.deliveries) == {"chat", "oncall"}


async def test_a_deposed_leader_does_not_set_back_a_revision(cluster: EmbeddedCluster) -> None:
    ours = await a_store(cluster)
    await ours.save(ours.take(PAGE))
    theirs = await a_store(cluster)
    newer = replace(PAGE.incident, revision=3, title="worse")
    await theirs.save(theirs.take(Tracked(incident=newer)))
    await ours.save(ours.take(Tracked(incident=replace(PAGE.incident, revision=2, title="old"))))

    assert (await stored(cluster)).spec.title == "worse"
    assert ours.entries[KEY].tracked.incident.revision == 3


async def test_of_too_many_the_oldest_are_deleted_some_at_a_time(cluster: EmbeddedCluster) -> None:
    store = await a_store(cluster)
    for number in range(MOST_KEPT + 2 * AT_ONCE):
        over = an_incident(f"node/n{number}/1", resolved=at(number))
        await store.save(store.take(Tracked(incident=over)))
    for _ in range(4):
        await store.delete_old(list(store.entries.values()), timedelta(days=7), at(3600))

    kept = {each.spec.key for each in (await cluster.list(IncidentRecord)).items}
    assert len(kept) == MOST_KEPT
    assert "node/n0/1" not in kept


def test_different_keys_have_different_names() -> None:
    keys = ["node/a-b/1", "node/a/b-1", "node/A-b/1", "x" * 255, "x" * 254 + "y"]

    assert len({name_of(key) for key in keys}) == len(keys)
    assert max(len(name_of(key)) for key in keys) <= 253


async def test_what_another_leader_opened_under_another_name_keeps_that_name(cluster: EmbeddedCluster) -> None:
    theirs = await a_store(cluster)
    ours = await a_store(cluster)
    await theirs.save(theirs.take(PAGE))
    entry = ours.take(Tracked(incident=an_incident(KEY, revision=2, cluster="prod-eu", updated=at(9))))
    await ours.save(entry)

    assert (entry.tracked.incident.dedup_key, entry.tracked.incident.revision) == (KEY, 2)
    assert (await stored(cluster)).spec.dedup_key == KEY
