"""What a list or a page says of a gang: what its own object says, and what its pods and its Workload say, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthd.cluster.port import ClusterError, Reader
from healthd.core.recovery.gang import Root
from healthd.gangs.adapter import GangAdapter


async def completed(adapters: Mapping[str, GangAdapter[Any]], reader: Reader, root: Root) -> Root:
    """*root* with what other objects in *reader* say about it; as it says itself where they may not be read."""
    try:
        return await adapters[root.ref.kind].complete(reader, root)
    except ClusterError:
        return root
