"""
What the embedded cluster promises beyond the contract: bookmarks, bounded history, no leaks, fields it does not know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.embedded.store import RowKey
from healthd.cluster.embedded.watch import FOREIGN_TICK
from healthd.cluster.port import Event, EventType, Gone, Invalid, Unavailable
from healthd.core.api import ChosenCheckpoint, Lease, Node, Pod, Recovery
from tests.builders import a_job, a_lease, a_node, a_pod, a_recovery
from tests.cluster.fakes import compact
from tests.fakes import ManualClock, counting_uids, settle


class Follower:
    """Takes every event of a watch as soon as it comes."""

    def __init__(self, events: AsyncIterator[Event[Any]]) -> None:
        self.seen: list[Event[Any]] = []
        self._task = asyncio.create_task(self._follow(events))

    async def _follow(self, events: AsyncIterator[Event[Any]]) -> None:
        async for event in events:
            self.seen.append(event)

    def types(self) -> list[EventType]:
        """What was seen, in order."""
        return [event.type for event in self.seen]

    def error(self) -> BaseException | None:
        """What the watch ended with."""
        return self._task.exception() if self._task.done() else None

    async def stop(self) -> None:
        """End the watch as its owner would."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


Follow = Callable[[AsyncIterator[Event[Any]]], Follower]


@pytest.fixture
async def follow() -> AsyncIterator[Follow]:
    """Starts followers, and stops them when the test is over."""
    started: list[Follower] = []

    def start(events: AsyncIterator[Event[Any]]) -> Follower:
        started.append(Follower(events))
        return started[-1]

    yield start
    for follower in started:
        await follower.stop()


async def relabel(cluster: EmbeddedCluster, times: int) -> None:
    """Change the node that many times."""
    for number in range(times):
        await cluster.patch(Node, "node-a", {"metadata": {"labels": {"n": str(number)}}})


async def test_fields_that_no_struct_names_are_kept(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_pod("pod-a"))
    await cluster.patch(Pod, "pod-a", {"spec": {"hostIPC": True}}, namespace="default")
    await cluster.patch(Pod, "pod-a", {"spec": {"nodeName": "node-a"}}, namespace="default")

    body = json.loads(cluster._store.read(RowKey("pods", "default", "pod-a")) or "null")

    assert body["spec"]["hostIPC"] is True
    assert body["spec"]["nodeName"] == "node-a"


async def test_change_of_an_unknown_field_alone_is_a_change(cluster: EmbeddedCluster) -> None:
    made = await cluster.create(a_pod("pod-a"))
    patched = await cluster.patch(Pod, "pod-a", {"spec": {"hostIPC": True}}, namespace="default")

    assert patched.metadata.resource_version != made.metadata.resource_version


async def test_empty_list_where_there_was_none_is_no_change(cluster: EmbeddedCluster) -> None:
    made = await cluster.create(a_node())

    assert await cluster.patch(Node, "node-a", {"spec": {"taints": []}}) == made


async def test_empty_object_is_kept_where_it_means_something(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_recovery("train-1"))
    patch: dict[str, Any] = {"status": {"checkpoint": {}}}

    recovery = await cluster.patch(Recovery, "train-1", patch, namespace="default", subresource="status")

    assert recovery.status.checkpoint == ChosenCheckpoint()


async def test_watch_begins_with_a_bookmark_past_other_kinds(cluster: EmbeddedCluster, follow: Follow) -> None:
    made = await cluster.create(a_lease("lease-a"))
    node = await cluster.create(a_node())
    follower = follow(cluster.watch(Lease, since=made.metadata.resource_version))
    await settle()

    assert follower.seen == [Event(EventType.BOOKMARK, None, node.metadata.resource_version)]


async def test_watch_of_a_quiet_kind_never_falls_behind_history(cluster: EmbeddedCluster, follow: Follow) -> None:
    node = await cluster.create(a_node())
    follower = follow(cluster.watch(Lease, since=node.metadata.resource_version))
    for _ in range(50):
        await relabel(cluster, 10)
        await settle()
    await cluster.create(a_lease("lease-a"))
    await settle()

    assert follower.types()[-1] is EventType.ADDED
    assert set(follower.types()[:-1]) == {EventType.BOOKMARK}


async def test_last_bookmark_can_be_watched_from(cluster: EmbeddedCluster, follow: Follow) -> None:
    node = await cluster.create(a_node())
    follower = follow(cluster.watch(Lease, since=node.metadata.resource_version))
    for _ in range(50):
        await relabel(cluster, 10)
        await settle()
    again = follow(cluster.watch(Lease, since=follower.seen[-1].resource_version))
    await settle()

    assert again.error() is None


async def test_bookmarks_are_rare(cluster: EmbeddedCluster, follow: Follow) -> None:
    node = await cluster.create(a_node())
    follower = follow(cluster.watch(Lease, since=node.metadata.resource_version))
    for _ in range(200):
        await relabel(cluster, 1)
        await settle()

    assert len(follower.seen) <= 20


async def test_slow_watcher_gets_expired(cluster: EmbeddedCluster) -> None:
    node = await cluster.create(a_node())
    events = cluster.watch(Node, since=node.metadata.resource_version)
    await relabel(cluster, 1)
    await anext(events)
    await relabel(cluster, 500)

    with pytest.raises(Gone, match="list again"):
        [event async for event in events]


async def test_history_is_bounded(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_node())
    await relabel(cluster, 1000)

    kept = cluster._store._rows("SELECT count(*) FROM history")[0][0]

    assert 200 <= kept <= 300


async def test_version_just_before_the_oldest_kept_can_be_watched_from(cluster: EmbeddedCluster) -> None:
    before = (await cluster.create(a_node())).metadata.resource_version
    await relabel(cluster, 2)
    compact(cluster, str(int(before) + 1))

    event = await anext(cluster.watch(Node, since=before))

    assert int(event.resource_version) == int(before) + 1


async def test_removed_dependents_leave_no_trace(cluster: EmbeddedCluster) -> None:
    job = await cluster.create(a_job())
    await cluster.create(a_pod("pod-a", owner=job))
    await cluster.delete(Pod, "pod-a", namespace="default")

    assert cluster._store.dependents(job.metadata.uid) == []


async def test_compaction_of_everything_keeps_the_counter(cluster: EmbeddedCluster) -> None:
    node = await cluster.create(a_node())
    compact(cluster, "1000000")
    patched = await cluster.patch(Node, "node-a", {"spec": {"unschedulable": True}})

    assert int(patched.metadata.resource_version) == int(node.metadata.resource_version) + 1


@pytest.mark.parametrize("since", ["", "0", "-1", "abc", "1.5", "²"])
async def test_version_that_was_never_given_is_refused(cluster: EmbeddedCluster, since: str) -> None:
    with pytest.raises(Invalid, match="resourceVersion"):
        await anext(cluster.watch(Node, since=since))


async def test_write_of_another_process_is_noticed_within_a_tick(
    clock: ManualClock, tmp_path: Path, follow: Follow
) -> None:
    path = tmp_path / "cluster.db"
    with (
        EmbeddedCluster.open(path, clock=clock, new_uid=counting_uids("here")) as here,
        EmbeddedCluster.open(path, clock=clock, new_uid=counting_uids("there")) as there,
    ):
        follower = follow(here.watch(Node, since="1"))
        await settle()
        await there.create(a_node())
        await clock.run_for(FOREIGN_TICK)
        await follower.stop()

        assert follower.types() == [EventType.ADDED]


async def test_list_shows_what_another_process_wrote_since_the_last_one(clock: ManualClock, tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    with (
        EmbeddedCluster.open(path, clock=clock, new_uid=counting_uids("here")) as here,
        EmbeddedCluster.open(path, clock=clock, new_uid=counting_uids("there")) as there,
    ):
        before = await here.list(Node)
        await there.create(a_node("node-a"))
        made = await here.list(Node)
        await there.patch(Node, "node-a", {"spec": {"unschedulable": True}})
        changed = await here.list(Node)

    assert before.items == []
    assert [node.spec.unschedulable for node in (*made.items, *changed.items)] == [False, True]


async def test_list_belongs_to_who_asked_for_it(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_node("node-a"))
    (await cluster.list(Node)).items.clear()

    assert [node.metadata.name for node in (await cluster.list(Node)).items] == ["node-a"]


async def test_tick_ends_with_the_last_watcher(clock: ManualClock, tmp_path: Path, follow: Follow) -> None:
    with EmbeddedCluster.open(tmp_path / "cluster.db", clock=clock, new_uid=counting_uids()) as cluster:
        one, two = follow(cluster.watch(Node, since="1")), follow(cluster.watch(Lease, since="1"))
        await settle()
        await one.stop()
        still = clock.next_deadline()
        await two.stop()
        await settle()

        assert still is not None
        assert clock.next_deadline() is None


async def test_store_in_memory_needs_no_tick(cluster: EmbeddedCluster, clock: ManualClock, follow: Follow) -> None:
    follower = follow(cluster.watch(Node, since="1"))
    await settle()

    assert clock.next_deadline() is None
    assert follower.error() is None


async def test_watch_ends_when_the_cluster_is_closed(clock: ManualClock, tmp_path: Path, follow: Follow) -> None:
    cluster = EmbeddedCluster.open(tmp_path / "cluster.db", clock=clock, new_uid=counting_uids())
    follower = follow(cluster.watch(Node, since="1"))
    await settle()
    cluster.close()
    await settle()

    assert isinstance(follower.error(), Unavailable)


async def test_failed_write_leaves_nothing_behind(cluster: EmbeddedCluster) -> None:
    node = await cluster.create(a_node())
    with pytest.raises(Invalid):
        await cluster.patch(Node, "node-a", {"spec": {"taints": "all of them"}})

    assert (await cluster.list(Node)).resource_version == node.metadata.resource_version


async def test_same_uids_make_the_same_history() -> None:
    async def played() -> list[str]:
        with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as cluster:
            made = [await cluster.create(a_lease("", generate_name="slot-")) for _ in range(5)]
            return [lease.metadata.name for lease in made]

    assert await played() == await played()
