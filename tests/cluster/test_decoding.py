"""One object that cannot be read hides none of the others, and is said to be there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.embedded.store import RowKey, SqliteStore
from healthd.cluster.informer import Informer, Watched
from healthd.cluster.port import EventType, Invalid, Unavailable, Unreadable
from healthd.cluster.remote import wire
from healthd.core.api import Job, NodeHealth, Pod, PodManifest, Recovery, to_wire
from tests.builders import a_job, a_nodehealth, a_pod, a_recovery
from tests.fakes import ManualClock, counting_uids, settle

GOOD = to_wire(a_pod("good", resource_version="7"))


def raw(obj: Any, **changed: Any) -> bytes:
    """An object as JSON, with some of its parts replaced."""
    return json.dumps({**to_wire(obj), **changed}).encode()


ELSEWHERE = {"kind": "Job", "name": "train", "namespace": "elsewhere", "uid": "uid-train"}
BAD: dict[str, tuple[type[Any], bytes]] = {
    "null for a number": (Job, raw(a_job("bad"), spec={"parallelism": None})),
    "a number of 5,000 digits": (Job, b'{"metadata":{"name":"bad"},"spec":{"parallelism":' + b"9" * 5000 + b"}}"),
    "a text for a list": (Job, raw(a_job("bad"), status={"conditions": "none"})),
    "a moment without a zone": (Job, raw(a_job("bad"), status={"startTime": "2026-01-01T00:00:00"})),
    "a moment before all calendars": (Pod, raw(a_pod("bad"), status={"startTime": "0000-01-01T00:00:00Z"})),
    "a step that no float holds": (
        Recovery,
        b'{"metadata":{"name":"bad"},"spec":{},"status":{"stepAtFault":' + b"9" * 400 + b"}}",
    ),
    "an attempt of less than nothing": (Recovery, raw(a_recovery("bad"), status={"attempt": -1})),
    "a recovery of a gang of another namespace": (
        Recovery,
        raw(a_recovery("bad"), spec={**to_wire(a_recovery("bad"))["spec"], "gang": ELSEWHERE}),
    ),
    "a pack that is none": (Recovery, raw(a_recovery("bad"), status={"packed": "%%%"})),
    "a pod whose containers are none": (PodManifest, raw(a_pod("bad"), spec={"containers": 7})),
    "a variable without a name": (PodManifest, raw(a_pod("bad"), spec={"containers": [{"env": [{}]}]})),
    "a power of two without end": (
        NodeHealth,
        raw(a_nodehealth("bad"), status={"nics": [{"pci": "x", "port": 1, "growth": {"a": 10**12}}]}),
    ),
}


@pytest.mark.parametrize("which", BAD)
def test_it_is_left_out_of_a_list_and_named(which: str) -> None:
    kind, bad = BAD[which]
    page, (unreadable,) = wire.parse_page(kind, b'{"metadata":{"resourceVersion":"9"},"items":[' + bad + b"]}")

    assert (page.items, page.metadata.resource_version, unreadable.name) == ([], "9", "bad")


@pytest.mark.parametrize("which", BAD)
def test_in_a_watch_it_is_a_bookmark_that_names_it(which: str) -> None:
    kind, bad = BAD[which]
    event = wire.parse_event(kind, b'{"type":"MODIFIED","object":' + bad + b"}", "GET /")

    assert (event.type, event.obj) == (EventType.BOOKMARK, None)
    assert event.unreadable is not None
    assert event.unreadable.name == "bad"


@pytest.mark.parametrize("which", BAD)
def test_asked_for_by_name_it_is_an_error(which: str) -> None:
    kind, bad = BAD[which]
    with pytest.raises(Invalid, match="bad: cannot be read"):
        wire.parse_object(kind, bad)


def test_the_others_of_its_list_are_there() -> None:
    bad = {**GOOD, "metadata": {"name": "bad"}, "spec": {"tolerations": 7}}
    page, unreadable = wire.parse_page(Pod, json.dumps({"metadata": {}, "items": [GOOD, bad, GOOD]}).encode())

    assert [pod.metadata.name for pod in page.items or []] == ["good", "good"]
    assert [each.name for each in unreadable] == ["bad"]


def test_what_is_nested_beyond_all_measure_is_an_error_of_the_cluster() -> None:
    deep = b'{"metadata":{},"items":[{"metadata":{"name":"bad"},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"

    with pytest.raises(Unavailable):
        wire.parse_page(Pod, deep)


class InformerOverStore:
    """An informer of the pods of an embedded cluster whose store holds what no API server would let in."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = SqliteStore(None, history=100, durable=False)
        self.cluster = EmbeddedCluster(self.store, self.clock, counting_uids(), bookmark_every=1)
        self.reported: list[Unreadable] = []
        self.informer = Informer(self.cluster, self.clock, [Watched(kind=Pod)], self.reported.append)

    def spoil(self, name: str) -> None:
        """What stands there from now on cannot be read."""
        key = RowKey("pods", "default", name)
        body = json.loads(self.store.read(key) or b"{}")
        version = self.store.head() + 1
        body["metadata"]["resourceVersion"] = str(version)
        with self.cluster._writing():
            self.store.update(key, version, json.dumps({**body, "spec": {"containers": 7}}).encode(), None)


async def test_a_mirror_keeps_what_it_last_saw_of_it_and_follows_the_others() -> None:
    informer_over_store = InformerOverStore()
    with informer_over_store.cluster:
        await informer_over_store.cluster.create(a_pod("bad"))
        async with TaskOf(informer_over_store.informer):
            informer_over_store.spoil("bad")
            await informer_over_store.cluster.create(a_pod("good"))
            await settle()
            after_the_watch = await names(informer_over_store.informer)
            informer_over_store.informer._kept[Pod].updated("1", informer_over_store.clock.now())
            await informer_over_store.informer._list(informer_over_store.informer._kept[Pod])
            after_a_list = await names(informer_over_store.informer)

        assert after_the_watch == after_a_list == ["bad", "good"]
        assert {each.name for each in informer_over_store.reported} == {"bad"}


async def test_a_mirror_drops_what_is_deleted_while_it_cannot_be_read() -> None:
    informer_over_store = InformerOverStore()
    with informer_over_store.cluster:
        await informer_over_store.cluster.create(a_pod("bad"))
        async with TaskOf(informer_over_store.informer):
            informer_over_store.spoil("bad")
            await informer_over_store.cluster.delete(Pod, "bad", namespace="default")
            await settle()
            left = await names(informer_over_store.informer)

        assert left == []


async def test_an_embedded_list_names_what_it_leaves_out() -> None:
    informer_over_store = InformerOverStore()
    with informer_over_store.cluster:
        await informer_over_store.cluster.create(a_pod("bad"))
        informer_over_store.spoil("bad")
        listed = await informer_over_store.cluster.list(Pod)

        assert (listed.items, [each.name for each in listed.unreadable]) == ([], ["bad"])
        with pytest.raises(Invalid):
            await informer_over_store.cluster.get(Pod, "bad", "default")


class TaskOf:
    """Runs an informer while the block lasts."""

    def __init__(self, informer: Informer) -> None:
        self._mirror = informer

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._mirror.run())
        await self._mirror.until_synced()
        await settle()

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def names(informer: Informer) -> list[str]:
    return [pod.metadata.name for pod in (await informer.list(Pod)).items]


def test_every_moment_in_an_object_has_its_zone() -> None:
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        msgspec.convert({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00"}}, Pod)
