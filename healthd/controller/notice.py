"""Fill the cluster state from lists: the way of a small cluster, where reading everything is cheaper than watching
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthd.cluster.port import Labels, NotFound, Reader
from healthd.controller.cluster_state import ClusterState
from healthd.core.api import Node, NodeHealth, Pod, Recovery, Slim
from healthd.gangs.adapter import GangAdapter


def watched_kinds(adapters: Mapping[str, GangAdapter[Any]]) -> dict[type[Slim], Labels | None]:
    """
    Every kind that the cluster state is made of, and the labels of the objects that count. None: all of them.

    Nodes come before recoveries, so that a claim that is seen on a node belongs to a recovery that is seen, too.
    """
    kinds: dict[type[Slim], Labels | None] = {Node: None, NodeHealth: None, Recovery: None}
    for adapter in adapters.values():
        same = adapter.kind not in kinds or kinds[adapter.kind] == adapter.labels
        kinds[adapter.kind] = adapter.labels if same else None
    return {**kinds, Pod: None}


async def read_everything(
    reader: Reader, cluster_state: ClusterState, adapters: Mapping[str, GangAdapter[Any]]
) -> None:
    """Everything, as *reader* shows it; a cluster that does not know a kind has none of it. Raises ClusterError."""
    for kind, labels in watched_kinds(adapters).items():
        try:
            listed = await reader.list(kind, labels=labels)
        except NotFound:
            continue
        cluster_state.replace(kind, listed.items, listed.resource_version)
