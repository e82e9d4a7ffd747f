"""
Following a watch in tests. The time limits only end a test that would wait forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from healthd.cluster.port import Cluster, Event, EventType, NotFound
from healthd.core.api import Slim

T = TypeVar("T", bound=Slim)

_LIMIT_S = 10


async def next_change(events: AsyncIterator[Event[T]]) -> Event[T]:
    """The next event that is no bookmark."""
    async with asyncio.timeout(_LIMIT_S):
        async for event in events:
            if event.type is not EventType.BOOKMARK:
                return event
    raise AssertionError("a watch has no end")


async def next_object(events: AsyncIterator[Event[T]], event_type: EventType) -> T:
    """The object of the next change, which must be of this type."""
    event = await next_change(events)
    assert event.type is event_type
    assert event.obj is not None
    return event.obj


async def until_gone(cluster: Cluster, kind: type[T], name: str, namespace: str) -> None:
    """Wait until the object no longer exists."""
    since = (await cluster.list(kind, namespace=namespace)).resource_version
    if not await exists(cluster, kind, name, namespace):
        return
    events = cluster.watch(kind, since=since, namespace=namespace)
    while (await next_change(events)).type is not EventType.DELETED or await exists(cluster, kind, name, namespace):
        pass


async def until_deleted(cluster: Cluster, kind: type[T], name: str, namespace: str) -> None:
    """Wait until somebody has asked for the deletion of the object, which something keeps."""
    since = (await cluster.list(kind, namespace=namespace)).resource_version
    events = cluster.watch(kind, since=since, namespace=namespace)
    while (await cluster.get(kind, name, namespace)).metadata.deletion_timestamp is None:  # type: ignore[attr-defined]
        await next_change(events)


async def exists(cluster: Cluster, kind: type[T], name: str, namespace: str) -> bool:
    """Whether the object can be read."""
    try:
        await cluster.get(kind, name, namespace)
    except NotFound:
        return False
    return True
