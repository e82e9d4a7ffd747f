"""`healthd doctor node/NAME`: which rung would be taken on a node, why, and what would come after."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from healthd.cli.configuration.site_hands import read_own, with_shipped
from healthd.cli.errors import UserError
from healthd.cli.target import cluster as target_cluster
from healthd.clock import Clock, SystemClock
from healthd.cluster.port import Cluster, Forbidden, NotFound
from healthd.cluster.remote import connect
from healthd.controller.remediation.discovery import Discovery
from healthd.core.api import (
    HardwareHistory,
    MachineHistory,
    Node,
    NodeHealth,
    NodeManifest,
    NodeRemediation,
    Pod,
)
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.api.remediations import NodeRemediationStatus
from healthd.core.reliability.history import machine_of, object_name
from healthd.core.remediation.hands.description import HandDescription
from healthd.core.remediation.hands.placeholders import facts_of
from healthd.core.remediation.hands.requests import as_hand, lacking_fact, served_api
from healthd.core.remediation.occupants import occupants_of
from healthd.core.remediation.owners import other_remediator
from healthd.core.remediation.person import persons_word
from healthd.core.remediation.situation import NodeSituation
from healthd.core.report.node_plan import NodePlan, plan_of

"""Where healthd itself runs, and its histories are."""


async def visit(args: argparse.Namespace, name: str) -> NodePlan:
    """The plan for node *name* of the cluster that *args* mean. Raises UserError, ClusterError."""
    clock = SystemClock()
    hands = hands_of(args.hands)
    async with connect(target_cluster.connection(args, clock), clock=clock, jitter=random.random) as cluster:
        return await read_plan(cluster, name, hands, clock)


def hands_of(file: Path | None) -> tuple[HandDescription, ...]:
    """The hands of the site's *file* before those that healthd ships. Raises UserError."""
    return with_shipped(read_own(file) if file is not None else ())


async def read_plan(cluster: Cluster, name: str, hands: Sequence[HandDescription], clock: Clock) -> NodePlan:
    """What *cluster* shows of node *name* and of the controllers of *hands*. Raises UserError, ClusterError."""
    try:
        node = await cluster.get(Node, name)
        manifest = await cluster.get(NodeManifest, name)
    except NotFound:
        raise UserError(f"there is no node {name!r}") from None
    provider = str(manifest.spec.get("providerID", ""))
    facts = facts_of(node, provider, attempt=1, rung="rung", image="image")
    discovery = Discovery(cluster, clock)
    why_not = {hand.name: _why_not(hand, await discovery.served(hand), node, facts) for hand in hands}
    record = await _read(cluster, NodeRemediation, name, SYSTEM_NAMESPACE)
    status = record.status if record is not None else NodeRemediationStatus()
    asked = [each.hand for each in status.attempts if each.outcome is None]
    situation = NodeSituation(
        name=name,
        status=status,
        node=node,
        health=await _read(cluster, NodeHealth, name),
        history=await _history(cluster, node),
        occupants=occupants_of((await cluster.list(Pod, fields={"spec.nodeName": name})).items),
        hands=tuple(as_hand(hand) for hand in hands if not why_not[hand.name]),
        other_remediator=other_remediator(node, asked),
        word=persons_word(node),
        now=clock.now(),
    )
    return plan_of(situation, [f"{hand}: {why}" for hand, why in why_not.items() if why])


def _why_not(hand: HandDescription, served: set[tuple[str, str]], node: Node, facts: dict[str, str]) -> str:
    if served_api(hand, served, node.metadata.labels) is None:
        return f"there is no {' and no '.join(hand.found_by or [f'{api} {hand.kind}' for api in hand.api])}"
    return lacking_fact(hand, facts)


async def _read(cluster: Cluster, kind: type[Any], name: str, namespace: str = "") -> Any:
    try:
        return await cluster.get(kind, name, namespace)
    except (NotFound, Forbidden):
        return None


async def _history(cluster: Cluster, node: Node) -> MachineHistory | None:
    found = await _read(cluster, HardwareHistory, object_name(machine_of(node)), SYSTEM_NAMESPACE)
    return found.spec if found is not None else None
