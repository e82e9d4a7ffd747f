"""
Read the world: one snapshot of everything that decisions about gangs look at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from healthd.cluster.port import Cluster
from healthd.core.gang import GangView, Root, is_terminal
from healthd.core.model import ENDED
from healthd.core.objects import Node, NodeHealth, Pod, Recovery
from healthd.gangs.adapter import GangAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A snapshot. Gangs are keyed by the uid of their root; recoveries by name."""

    roots: Mapping[str, Root]
    pods: Mapping[str, tuple[Pod, ...]]
    strays: tuple[Pod, ...] = ()
    """Members whose root is gone."""
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
        return sorted(mine, key=lambda r: (r.spec.first_attempt, r.metadata.creation_timestamp), reverse=True)

    def busy_nodes(self) -> set[str]:
        """Nodes with a pod that has not ended."""
        members = [pod for pods in self.pods.values() for pod in pods]
        return {pod.spec.node_name for pod in (*members, *self.strays) if not is_terminal(pod)}


async def observe(cluster: Cluster, adapters: Mapping[str, GangAdapter[Any]]) -> World:
    """
    Everything, as *cluster* shows it. Pods that never belonged to a gang are left out.

    The order matters where somebody else writes meanwhile. A claim that is seen on a node belongs to a recovery that
    is seen too, so the nodes come before the recoveries. What is recorded about a gang needs the version of its
    recovery, so that comes before its members: whoever was overtaken gets a Conflict.
    """
    nodes = (await cluster.list(Node)).items
    health = (await cluster.list(NodeHealth)).items
    recoveries = (await cluster.list(Recovery)).items
    roots: dict[str, Root] = {}
    for adapter in adapters.values():
        roots.update({root.ref.uid: root for root in await adapter.roots(cluster)})
    pods, strays = _by_gang((await cluster.list(Pod)).items, roots, adapters)
    return World(
        roots=roots,
        pods=pods,
        strays=strays,
        nodes={node.metadata.name: node for node in nodes},
        health={report.metadata.name: report for report in health},
        recoveries={recovery.metadata.name: recovery for recovery in recoveries},
    )


def _by_gang(
    pods: Sequence[Pod], roots: Mapping[str, Root], adapters: Mapping[str, GangAdapter[Any]]
) -> tuple[dict[str, tuple[Pod, ...]], tuple[Pod, ...]]:
    """The members of each gang, by the uid of its root, and those whose root is gone."""
    uids = {(root.ref.kind, root.ref.namespace, root.ref.name): uid for uid, root in roots.items()}
    members: dict[str, list[Pod]] = defaultdict(list)
    strays: list[Pod] = []
    for pod in pods:
        claims = [(kind, name) for kind, adapter in adapters.items() if (name := adapter.root_name(pod))]
        known = ((kind, uids.get((kind, pod.metadata.namespace, name))) for kind, name in claims)
        uid = next((uid for kind, uid in known if uid and adapters[kind].root_uid(pod) in ("", uid)), None)
        if uid is not None:
            members[uid].append(pod)
        elif claims:
            strays.append(pod)
    return {uid: tuple(group) for uid, group in members.items()}, tuple(strays)
