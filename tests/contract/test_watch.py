"""
Watching: every change after a version, once and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from healthd.cluster.port import Cluster, EventType, Gone
from healthd.core.api import Lease, Node, Pod
from tests.builders import a_lease, a_node, a_pod
from tests.contract.following import next_change, next_object

ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


async def hold(cluster: Cluster, name: str, namespace: str, holder: str) -> Lease:
    """A change of a lease."""
    return await cluster.patch(Lease, name, {"spec": {"holderIdentity": holder}}, namespace=namespace)


async def test_changes_since_a_list_are_replayed_in_order(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    made = await cluster.create(a_lease(name, namespace=namespace))
    held = await hold(cluster, name, namespace, "a")
    await cluster.delete(Lease, name, namespace=namespace)

    events = cluster.watch(Lease, since=since, namespace=namespace)

    assert await next_object(events, ADDED) == made
    assert await next_object(events, MODIFIED) == held
    assert (await next_object(events, DELETED)).spec == held.spec


async def test_change_that_comes_later_is_delivered(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    events = cluster.watch(Lease, since=since, namespace=namespace)
    waiting = asyncio.create_task(next_change(events))
    await asyncio.sleep(0)
    made = await cluster.create(a_lease(name, namespace=namespace))

    assert (await waiting).obj == made


async def test_what_the_version_includes_is_not_repeated(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace))
    held = await hold(cluster, name, namespace, "a")

    events = cluster.watch(Lease, since=made.metadata.resource_version, namespace=namespace)

    assert await next_object(events, MODIFIED) == held


async def test_event_carries_the_version_to_go_on_from(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    await cluster.create(a_lease(name, namespace=namespace))
    await hold(cluster, name, namespace, "a")
    await cluster.delete(Lease, name, namespace=namespace)
    seen = []

    for _ in range(3):  # a new watch for each: as after a broken connection
        event = await next_change(cluster.watch(Lease, since=since, namespace=namespace))
        since = event.resource_version
        seen.append(event.type)

    assert seen == [ADDED, MODIFIED, DELETED]


async def test_object_in_an_event_has_the_events_version(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    await cluster.create(a_lease(name, namespace=namespace))
    await cluster.delete(Lease, name, namespace=namespace)
    events = cluster.watch(Lease, since=since, namespace=namespace)

    for event in (await next_change(events), await next_change(events)):
        assert event.obj is not None
        assert event.obj.metadata.resource_version == event.resource_version


async def test_other_kinds_and_namespaces_are_left_out(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    await cluster.create(a_node(f"node-{name}"))
    await cluster.create(a_lease(name, namespace=f"{namespace}-2"))
    made = await cluster.create(a_lease(name, namespace=namespace))

    events = cluster.watch(Lease, since=since, namespace=namespace)

    assert await next_object(events, ADDED) == made


async def test_watch_of_all_namespaces_sees_each(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease)).resource_version
    await cluster.create(a_lease(name, namespace=namespace))
    await cluster.create(a_lease(name, namespace=f"{namespace}-2"))

    events = cluster.watch(Lease, since=since, labels={})
    seen: list[str] = []
    while len(seen) < 2:
        event = await next_change(events)
        seen += [event.obj.metadata.namespace] if event.obj and event.obj.metadata.name == name else []

    assert seen == [namespace, f"{namespace}-2"]


async def test_patch_without_effect_makes_no_event(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace, holder="a"))
    await hold(cluster, name, namespace, "a")
    held = await hold(cluster, name, namespace, "b")

    events = cluster.watch(Lease, since=made.metadata.resource_version, namespace=namespace)

    assert await next_object(events, MODIFIED) == held


async def test_object_that_begins_to_match_is_added(cluster: Cluster, name: str) -> None:
    made = await cluster.create(a_node(name))
    await cluster.patch(Node, name, {"metadata": {"labels": {"gang": name}}})

    events = cluster.watch(Node, since=made.metadata.resource_version, labels={"gang": name})

    assert (await next_object(events, ADDED)).metadata.name == name


async def test_object_that_stops_to_match_is_deleted_in_its_last_matching_state(cluster: Cluster, name: str) -> None:
    made = await cluster.create(a_node(name, labels={"gang": name}))
    await cluster.patch(Node, name, {"metadata": {"labels": {"gang": None}}})

    events = cluster.watch(Node, since=made.metadata.resource_version, labels={"gang": name})

    event = await next_change(events)

    assert event.type is DELETED
    assert event.obj is not None
    assert event.obj.metadata.labels == {"gang": name}
    assert event.obj.metadata.resource_version == event.resource_version


async def test_watch_of_one_name_leaves_out_the_others(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    await cluster.create(a_lease(f"{name}-other", namespace=namespace))
    made = await cluster.create(a_lease(name, namespace=namespace))

    events = cluster.watch(Lease, since=since, namespace=namespace, fields={"metadata.name": name})

    assert await next_object(events, ADDED) == made


async def test_pod_whose_phase_leaves_the_selection_is_deleted_in_its_last_matching_state(
    cluster: Cluster, name: str, namespace: str, node: Node
) -> None:
    made = await cluster.create(a_pod(name, namespace=namespace, node=node.metadata.name))
    failed = {"status": {"phase": "Failed"}}
    await cluster.patch(Pod, name, failed, namespace=namespace, subresource="status")

    fields = {"status.phase": "Pending"}
    events = cluster.watch(Pod, since=made.metadata.resource_version, namespace=namespace, fields=fields)

    assert (await next_object(events, DELETED)).status.phase == "Pending"


async def test_watch_of_a_label_sees_who_gets_it(cluster: Cluster, name: str) -> None:
    made = await cluster.create(a_node(name))
    await cluster.patch(Node, name, {"metadata": {"labels": {f"{name}/gang": "a"}}})

    events = cluster.watch(Node, since=made.metadata.resource_version, labels={f"{name}/gang": None})

    assert (await next_object(events, ADDED)).metadata.name == name


async def test_object_that_goes_on_matching_is_modified(cluster: Cluster, name: str) -> None:
    made = await cluster.create(a_node(name, labels={"gang": name}))
    await cluster.patch(Node, name, {"metadata": {"labels": {"more": "1"}}})

    events = cluster.watch(Node, since=made.metadata.resource_version, labels={"gang": name})

    assert (await next_object(events, MODIFIED)).metadata.labels == {"gang": name, "more": "1"}


async def test_object_that_never_matches_is_never_reported(cluster: Cluster, name: str) -> None:
    since = (await cluster.list(Node)).resource_version
    await cluster.create(a_node(f"{name}-no"))
    await cluster.patch(Node, f"{name}-no", {"metadata": {"labels": {"gang": "other"}}})
    await cluster.delete(Node, f"{name}-no")
    await cluster.create(a_node(f"{name}-yes", labels={"gang": name}))

    events = cluster.watch(Node, since=since, labels={"gang": name})

    assert (await next_object(events, ADDED)).metadata.name == f"{name}-yes"


async def test_every_watcher_sees_every_change(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    watches = [cluster.watch(Lease, since=since, namespace=namespace) for _ in range(3)]
    waiting = [asyncio.create_task(next_change(events)) for events in watches]
    await asyncio.sleep(0)
    made = await cluster.create(a_lease(name, namespace=namespace))

    assert [event.obj for event in await asyncio.gather(*waiting)] == [made] * 3


async def test_many_changes_are_all_delivered(cluster: Cluster, name: str, namespace: str) -> None:
    since = (await cluster.create(a_lease(name, namespace=namespace))).metadata.resource_version
    wanted = [(await hold(cluster, name, namespace, f"holder-{n}")).spec.holder_identity for n in range(600)]

    events = cluster.watch(Lease, since=since, namespace=namespace)
    seen = [(await next_object(events, MODIFIED)).spec.holder_identity for _ in wanted]

    assert seen == wanted


async def test_watch_can_be_cancelled_while_it_waits(cluster: Cluster, namespace: str) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    waiting = asyncio.create_task(next_change(cluster.watch(Lease, since=since, namespace=namespace)))
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_forgotten_version_is_gone(
    cluster: Cluster, compact: Callable[[str], None], name: str, namespace: str
) -> None:
    since = (await cluster.list(Lease, namespace=namespace)).resource_version
    await cluster.create(a_lease(name, namespace=namespace))
    held = await hold(cluster, name, namespace, "a")
    compact(held.metadata.resource_version)

    with pytest.raises(Gone):
        await next_change(cluster.watch(Lease, since=since, namespace=namespace))


async def test_list_after_gone_can_be_watched_from(
    cluster: Cluster, compact: Callable[[str], None], name: str, namespace: str
) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace))
    compact(made.metadata.resource_version)
    listed = await cluster.list(Lease, namespace=namespace)
    held = await hold(cluster, name, namespace, "a")

    events = cluster.watch(Lease, since=listed.resource_version, namespace=namespace)

    assert await next_object(events, MODIFIED) == held
