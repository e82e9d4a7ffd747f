"""
Perform what was decided about a node. Every write has a precondition: a write of a deposed or late controller fails
with Conflict and does no harm. The next pass then decides again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import assert_never

from healthd.clock import Clock
from healthd.cluster.nodes import patch_node
from healthd.cluster.port import Cluster, Conflict, NotFound
from healthd.controller.remediation.node_checks import NodeChecks
from healthd.controller.remediation.observer import Observer
from healthd.controller.remediation.requests import CannotAsk, Requests, Subject
from healthd.controller.remediation.slots import free_slots, take_slots
from healthd.core.api import Node
from healthd.core.api.names import ANNOTATION_REPAIRED, LABEL_PROBATION
from healthd.core.remediation.actions import (
    Action,
    DeleteCheck,
    EndProbation,
    FreeSlots,
    GiveBack,
    Request,
    StartCheck,
    TakeSlots,
    Withdraw,
)
from healthd.core.remediation.hands.placeholders import Lacking

FRESH = timedelta(seconds=15)
"""
How old the last look before a request may be. A process that was stopped for longer may have been deposed meanwhile,
and what it wants to ask for may have been done and taken back.
"""


class Actor:
    """Performs actions in *cluster*."""

    def __init__(
        self, cluster: Cluster, clock: Clock, requests: Requests, observer: Observer, checks: NodeChecks
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._requests = requests
        self._observer = observer
        self._checks = checks

    async def perform(self, action: Action, subject: Subject) -> str:
        """Do *action*. Returns why it could not be done yet; empty where it was. Raises CannotAsk, ClusterError."""
        match action:
            case TakeSlots(names):
                return await take_slots(self._cluster, subject.record, names, self._clock.now())
            case FreeSlots():
                await free_slots(self._cluster, subject.record)
            case Request(attempt):
                await self._ensure_unchanged(subject)
                return await self._requests.ask(subject, attempt)
            case Withdraw(attempt):
                try:
                    await self._requests.withdraw(subject, attempt)
                except Lacking as error:
                    raise CannotAsk(f"what {attempt.hand} wrote cannot be taken back: {error}") from None
            case GiveBack(checked_at):
                notes, labels = {ANNOTATION_REPAIRED: checked_at.isoformat()}, {LABEL_PROBATION: "true"}
                await self._mark(subject, {"annotations": notes, "labels": labels})
            case EndProbation():
                await self._mark(subject, {"labels": {LABEL_PROBATION: None}})
            case StartCheck():
                await self._ensure_unchanged(subject)
                return await self._checks.start(_node_of(subject), action, await self._observer.check_plan(subject))
            case DeleteCheck():
                await self._checks.delete(action)
            case _:
                assert_never(action)
        return ""

    async def _ensure_unchanged(self, subject: Subject) -> None:
        """
        Read again what a request must not be written without: the record, the Node, and that nothing runs on it. What
        is created has no precondition of its own. Raises Conflict.
        """
        began = self._clock.now()
        now = await self._observer.subject(subject.name)
        if now.node is None or subject.node is None or now.node.metadata.uid != subject.node.metadata.uid:
            raise Conflict(f"Node {subject.name}: it was replaced since it was read")
        if now.node.metadata.resource_version != subject.node.metadata.resource_version:
            raise Conflict(f"Node {subject.name}: it changed since it was read")
        if now.record.metadata.resource_version != subject.record.metadata.resource_version:
            raise Conflict(f"NodeRemediation {subject.name}: it changed since it was read")
        if occupants := await self._observer.occupants(subject.name):
            raise Conflict(f"Node {subject.name}: {occupants[0]} runs on it since it was read")
        if not timedelta(0) <= self._clock.now() - began <= FRESH:
            raise Conflict(f"Node {subject.name}: reading it took longer than {FRESH.total_seconds():.0f} s")

    async def _mark(self, subject: Subject, metadata: Mapping[str, Mapping[str, str | None]]) -> None:
        await patch_node(self._cluster, _node_of(subject), {"metadata": metadata})


def _node_of(subject: Subject) -> Node:
    if subject.node is None:
        raise NotFound(f"Node {subject.name}")
    return subject.node
