"""The roots of a kind of gang, as they stand in a cluster."""

from __future__ import annotations

from typing import Any

from healthd.cluster.port import NotFound, Reader
from healthd.core.recovery.gang import Root
from healthd.gangs.adapter import GangAdapter


async def roots_of(adapter: GangAdapter[Any], cluster: Reader) -> list[Root]:
    """Every root of the kind; none when the kind is not installed."""
    try:
        objects = (await cluster.list(adapter.kind, labels=adapter.labels)).items
    except NotFound:
        return []
    return [await adapter.complete(cluster, root) for obj in objects if (root := adapter.read(obj))]
