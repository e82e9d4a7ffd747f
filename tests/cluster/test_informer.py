"""The informer: what a watch showed, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.informer import Change, Informer, Watched
from healthd.cluster.port import Gone, NotFound, Unavailable
from healthd.cluster.store import Key
from healthd.core.api import LABEL_GANG, Pod
from tests.builders import a_pod
from tests.cluster.link import Link
from tests.fakes import ManualClock, settle

MINUTE = timedelta(minutes=1)


def gang_of(pod: Pod) -> list[str]:
    gang = pod.metadata.labels.get(LABEL_GANG)
    return [gang] if gang else []


PODS = Watched(kind=Pod, indexes={"gang": gang_of})


@pytest.fixture
def link(cluster: EmbeddedCluster) -> Link:
    """What the informer sees the cluster through."""
    return Link(cluster)


@asynccontextmanager
async def mirroring(cluster: Link, clock: ManualClock, *watched: Watched[Pod]) -> AsyncIterator[Informer]:
    informer = Informer(cluster, clock, watched or [PODS])
    running = asyncio.create_task(informer.run())
    await settle()
    try:
        yield informer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


SELECTIONS: list[dict[str, Any]] = [
    {"namespace": "ns"},
    {"labels": {LABEL_GANG: None}, "fields": {"spec.nodeName": "node-1"}},
    {"namespace": "ns-2", "labels": {LABEL_GANG: "none"}},
]


def names(pods: list[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def changes_of(informer: Informer) -> list[Change]:
    """All that it tells from now on."""
    notified: list[Change] = []
    informer.listen(notified.append)
    return notified


async def end(cluster: EmbeddedCluster, name: str, phase: str = "Failed") -> None:
    """A pod ends and is removed."""
    await cluster.patch(Pod, name, {"status": {"phase": phase}}, namespace="default", subresource="status")
    await cluster.delete(Pod, name, namespace="default")
    await settle()


async def test_it_knows_what_was_there_and_what_came(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    await cluster.create(a_pod("b"))
    async with mirroring(link, clock) as informer:
        await cluster.create(a_pod("a"))
        await settle()

        assert await informer.list(Pod) == await cluster.list(Pod)
        assert await informer.get(Pod, "a", "default") == await cluster.get(Pod, "a", "default")


async def test_it_selects_as_the_cluster_does(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    for namespace in ("ns", "ns-2", "other"):
        for name, node in (("a", "node-1"), ("b", "node-2")):
            await cluster.create(a_pod(name, namespace=namespace, node=node, gang="train"))
    async with mirroring(link, clock) as informer:
        for selection in SELECTIONS:
            seen = (await informer.list(Pod, **selection)).items

            assert seen == (await cluster.list(Pod, **selection)).items


async def test_an_index_that_is_called_as_a_label_answers_for_it(
    cluster: EmbeddedCluster, link: Link, clock: ManualClock
) -> None:
    for namespace, gang in (("ns", "train"), ("ns-2", "train"), ("ns", "other")):
        await cluster.create(a_pod(f"of-{gang}", namespace=namespace, gang=gang))
    by_label = Watched(kind=Pod, indexes={LABEL_GANG: lambda pod: gang_of(pod) if pod.metadata.name else []})
    by_another = Watched(kind=Pod, indexes={LABEL_GANG: lambda _: []})
    async with mirroring(link, clock, by_label) as informer, mirroring(link, clock, by_another) as blind:
        for selection in SELECTIONS:
            seen = (await informer.list(Pod, **selection)).items
            assert seen == (await cluster.list(Pod, **selection)).items

        train: dict[str, Any] = {"namespace": "ns", "labels": {LABEL_GANG: "train"}}
        assert names(list((await informer.list(Pod, **train)).items)) == ["of-train"]
        assert (await blind.list(Pod, **train)).items == []


async def test_it_finds_nothing_before_its_first_list(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    informer = Informer(link, clock, [PODS])

    assert not informer.is_synced
    with pytest.raises(Unavailable):
        await informer.list(Pod)
    with pytest.raises(Unavailable):
        await informer.get(Pod, "a", "default")


async def test_absent_object_is_not_found(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    async with mirroring(link, clock) as informer:
        with pytest.raises(NotFound, match="default/a"):
            await informer.get(Pod, "a", "default")


async def test_index_follows_every_change(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    await cluster.create(a_pod("a", gang="one"))
    async with mirroring(link, clock) as informer:
        await cluster.create(a_pod("b", gang="one"))
        await cluster.create(a_pod("c", gang="one"))
        await cluster.patch(Pod, "b", {"metadata": {"labels": {LABEL_GANG: "two"}}}, namespace="default")
        await cluster.delete(Pod, "c", namespace="default")
        await settle()

        assert names(informer._store(Pod).indexed("gang", "one")) == ["a"]
        assert names(informer._store(Pod).indexed("gang", "two")) == ["b"]
        assert informer._store(Pod).indexed("gang", "three") == []


async def test_it_reports_what_changed(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    last = await cluster.create(a_pod("a"))
    async with mirroring(link, clock) as informer:
        notified = changes_of(informer)
        new = await cluster.create(a_pod("b"))
        await cluster.delete(Pod, "a", namespace="default")
        await settle()

    assert [(each.kind, each.key) for each in notified] == [(Pod, Key("default", "b")), (Pod, Key("default", "a"))]
    assert (notified[0].obj, notified[0].last) == (new, None)
    assert notified[1].obj is None
    assert notified[1].last.metadata.uid == last.metadata.uid


async def test_change_of_a_deleted_pod_carries_its_last_state(
    cluster: EmbeddedCluster, link: Link, clock: ManualClock
) -> None:
    await cluster.create(a_pod("a", node="node-1", gang="train"))
    async with mirroring(link, clock) as informer:
        notified = changes_of(informer)
        await end(cluster, "a")

        assert notified[-1].obj is None
        assert notified[-1].last.status.phase == "Failed"


async def test_pod_deleted_without_a_watch_goes_in_its_last_known_state_as_of_the_new_list(
    cluster: EmbeddedCluster, link: Link, clock: ManualClock
) -> None:
    pod = await cluster.create(a_pod("a", node="node-1"))
    async with mirroring(link, clock) as informer:
        notified = changes_of(informer)
        link.cut(Gone("too old"))
        await settle()
        await end(cluster, "a")
        link.mend()
        await clock.run_for(MINUTE)

        listed = await cluster.list(Pod)
        assert notified == [Change(Pod, Key("default", "a"), None, pod, listed.resource_version)]
        assert (await informer.list(Pod)).items == []


async def test_pod_made_anew_without_a_watch_is_another_pod(
    cluster: EmbeddedCluster, link: Link, clock: ManualClock
) -> None:
    former = await cluster.create(a_pod("a"))
    async with mirroring(link, clock) as informer:
        notified = changes_of(informer)
        link.cut(Gone("too old"))
        await settle()
        await cluster.delete(Pod, "a", namespace="default")
        latter = await cluster.create(a_pod("a"))
        link.mend()
        await clock.run_for(MINUTE)

        assert await informer.get(Pod, "a", "default") == latter
        assert [(each.obj, each.last) for each in notified] == [(latter, former)]


async def test_pod_that_left_the_selection_is_gone(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    await cluster.create(a_pod("a", gang="train"))
    async with mirroring(link, clock, Watched(kind=Pod, labels={LABEL_GANG: None})) as informer:
        notified = changes_of(informer)
        await cluster.patch(Pod, "a", {"metadata": {"labels": {LABEL_GANG: None}}}, namespace="default")
        await settle()

        assert [each.obj for each in notified] == [None]
        assert (await informer.list(Pod)).items == []


async def test_it_says_how_old_its_last_update_is(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    async with mirroring(link, clock) as informer:
        link.cut(Unavailable("no route"))
        await clock.run_for(5 * MINUTE)
        cut_off = informer.stale_for(clock.now())
        link.mend()
        await clock.run_for(MINUTE)

        assert cut_off == 5 * MINUTE
        assert informer.stale_for(clock.now()) < MINUTE


async def test_a_kind_that_was_never_listed_grows_stale_too(
    cluster: EmbeddedCluster, link: Link, clock: ManualClock
) -> None:
    link.cut(Unavailable("no route"))
    async with mirroring(link, clock) as informer:
        first = informer.stale_for(clock.now())
        await clock.run_for(MINUTE)

        assert not informer.is_synced
        assert first == timedelta(0)
        assert informer.stale_for(clock.now()) == MINUTE


def without_containers(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, containers=[]))


async def test_trimmed_objects_are_kept_trimmed(cluster: EmbeddedCluster, link: Link, clock: ManualClock) -> None:
    async with mirroring(link, clock, Watched(kind=Pod, trim=without_containers)) as informer:
        await cluster.create(a_pod("a", node="node-1"))
        await settle()

        kept = await informer.get(Pod, "a", "default")

        assert kept.spec.containers == []
        assert kept.spec.node_name == "node-1"
