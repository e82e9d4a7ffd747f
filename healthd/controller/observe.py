"""
Read the world: one snapshot of everything that decisions about gangs look at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from healthd.cluster.port import Cluster, NotFound
from healthd.core.gang import GangView, Root, is_terminal
from healthd.core.model import ENDED
from healthd.core.objects import GangRef, Node, NodeHealth, Pod, Recovery
from healthd.gangs.adapter import GangAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A snapshot. Gangs are keyed by the uid of their root; recoveries by name."""

    roots: Mapping[str, Root]
    pods: Mapping[str, tuple[Pod, ...]]
    nodes: Mapping[str, Node]
    health: Mapping[str, NodeHealth]
    recoveries: Mapping[str, Recovery]

    def view(self, uid: str) -> GangView:
        """What there is to see of one gang."""
        return GangView(root=self.roots.get(uid), pods=self.pods.get(uid, ()), nodes=self.nodes, health=self.health)

    def active(self, uid: str) -> Recovery | None:
        """The recovery of a gang that is not over."""
        return next((r for r in self.of_gang(uid) if r.status.phase not in ENDED), None)

    def of_gang(self, uid: str) -> list[Recovery]:
        """All recoveries of a gang, the latest first."""
        mine = [r for r in self.recoveries.values() if r.spec.gang.uid == uid]
        return sorted(mine, key=lambda r: r.spec.first_attempt, reverse=True)

    def busy_nodes(self) -> set[str]:
        """Nodes with a pod that has not ended."""
        return {pod.spec.node_name for pods in self.pods.values() for pod in pods if not is_terminal(pod)}


async def observe(cluster: Cluster, adapters: Mapping[str, GangAdapter[Any]]) -> World:
    """Everything, as *cluster* shows it. Pods that belong to no gang are left out."""
    roots: dict[str, Root] = {}
    uids: dict[tuple[str, str, str], str] = {}
    for kind, adapter in adapters.items():
        for obj in (await cluster.list(adapter.kind)).items:
            root = adapter.read(obj)
            roots[root.ref.uid] = root
            uids[kind, root.ref.namespace, root.ref.name] = root.ref.uid
    pods: dict[str, list[Pod]] = defaultdict(list)
    for pod in (await cluster.list(Pod)).items:
        for kind, adapter in adapters.items():
            name = adapter.root_name(pod)
            uid = uids.get((kind, pod.metadata.namespace, name)) if name else None
            if uid:
                pods[uid].append(pod)
    return World(
        roots=roots,
        pods={uid: tuple(members) for uid, members in pods.items()},
        nodes={node.metadata.name: node for node in (await cluster.list(Node)).items},
        health={health.metadata.name: health for health in (await cluster.list(NodeHealth)).items},
        recoveries={r.metadata.name: r for r in (await cluster.list(Recovery)).items},
    )


async def read_root(cluster: Cluster, adapter: GangAdapter[Any], ref: GangRef) -> Root | None:
    """The root as it is now, never from a cache; None when it is gone or another object has taken its name."""
    try:
        obj = await cluster.get(adapter.kind, ref.name, ref.namespace)
    except NotFound:
        return None
    root = adapter.read(obj)
    return root if root.ref.uid == ref.uid else None
