"""
Requests of hands in the cluster: what is seen of them, what writes one, and what takes it back. Hands are data.

A write to an object that there is has its uid and its version as preconditions. An object that is created has the
number of its attempt in its name or in its mark, so a second creation is refused or is no other request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from healthd.clock import Clock
from healthd.cluster.nodes import patch_node
from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, NotFound
from healthd.controller.remediation.discovery import Discovery, type_of
from healthd.controller.remediation.records import mark_called
from healthd.core.api import Condition, Node, NodeRemediation, ObjectMeta, Slim, Taint
from healthd.core.api.names import ANNOTATION_REQUEST
from healthd.core.api.remediations import Rung, RungAttempt
from healthd.core.remediation.hands.description import HandDescription, Verb
from healthd.core.remediation.hands.placeholders import Lacking, facts_of
from healthd.core.remediation.hands.requests import (
    Target,
    Written,
    as_hand,
    confirmation,
    is_marked,
    labels_left,
    labels_missing,
    lacking_fact,
    request_of,
    request_seen,
    served_api,
    target_api,
    withdrawal_of,
)
from healthd.core.remediation.situation import WEEK, Hand, RequestSeen


class CannotAsk(ClusterError):
    """The request cannot be written. The message says why, for a person."""


class Post(Protocol):
    """Calls a signed webhook."""

    async def __call__(self, hand: HandDescription, body: dict[str, Any]) -> None:
        """Return when its server has taken *body*. Raises CannotAsk."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """A node as it was read, with its record. *node* is None where the cluster has no such Node."""

    name: str
    node: Node | None
    provider: str
    """The provider id of the Node."""
    record: NodeRemediation


class Requests:
    """
    The requests in *cluster*. *hands*: those that the site has chosen, in this order; *known*: all, for requests that
    were written before the choice changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        hands: Sequence[HandDescription],
        known: Iterable[HandDescription],
        own_image: Callable[[], Awaitable[str]],
        post: Post,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._hands = hands
        self._known = {hand.name: hand for hand in (*known, *hands)}
        self._own_image = own_image
        self._post = post
        self._image = ""
        self._discovery = Discovery(cluster, clock)

    async def own_image(self) -> str:
        """The image that this program runs from; empty where it does not run in a pod. Raises ClusterError."""
        self._image = self._image or await self._own_image()
        return self._image

    @property
    def chosen(self) -> list[tuple[str, Rung]]:
        """The hands that the site has chosen, each with its rung."""
        return [(hand.name, hand.rung) for hand in self._hands]

    # Seen ------------------------------------------------------------------------------------------------------------

    async def hands_for(self, subject: Subject) -> tuple[Hand, ...]:
        """The chosen hands of which the cluster and the node have what they need. Raises ClusterError."""
        if subject.node is None:
            return ()
        found = []
        for hand in self._hands:
            served = await self._discovery.served(hand)
            facts = await self._facts(subject, rung=hand.rung)
            there = served_api(hand, served, subject.node.metadata.labels) is not None
            if there and not lacking_fact(hand, facts):
                found.append(as_hand(hand))
        return tuple(found)

    async def seen(self, subject: Subject) -> tuple[RequestSeen, ...]:
        """What is seen of the attempts that go on or ended lately, the oldest first. Raises ClusterError."""
        since = self._clock.now() - WEEK
        attempts = [each for each in subject.record.status.attempts if each.ended_at is None or each.ended_at > since]
        found = [await self._seen(subject, attempt) for attempt in attempts]
        return tuple(one for one in found if one is not None)

    async def _seen(self, subject: Subject, attempt: RungAttempt) -> RequestSeen | None:
        hand = self._known.get(attempt.hand)
        if hand is None:
            return None
        seen = None
        with suppress(Lacking):
            manifest = await self._manifest(hand, subject, attempt)
            seen = request_seen(hand, attempt, manifest) if manifest is not None else None
        holds_node = bool(hand.labels) and subject.node is not None and is_marked(subject.node, attempt)
        if seen is None:
            return RequestSeen(attempt=attempt.number, is_prepared=True, holds_node=True) if holds_node else None
        return replace(seen, holds_node=holds_node)

    async def _manifest(self, hand: HandDescription, subject: Subject, attempt: RungAttempt) -> dict[str, Any] | None:
        """The object in which the request of *attempt* would be; None where there is none. Raises Lacking."""
        if hand.verb is Verb.CALL:
            return _wire(subject.record)
        if hand.kind == "Node":
            return _wire(subject.node) if subject.node is not None else None
        target = await self._target(hand, subject, attempt)
        found = await self._read(target) if target is not None else None
        return _wire(found) if found is not None else None

    # Written ---------------------------------------------------------------------------------------------------------

    async def ask(self, subject: Subject, attempt: RungAttempt) -> str:
        """
        Write the request of *attempt*. Returns what it still waits for; empty where it was written. Raises CannotAsk,
        ClusterError.
        """
        hand = self._known.get(attempt.hand)
        api = target_api(hand, await self._discovery.served(hand)) if hand is not None else None
        if hand is None or api is None:
            raise CannotAsk(f"{attempt.hand} is not there any more")
        try:
            facts = await self._facts(subject, attempt)
            wanted = request_of(hand, attempt, api, facts)
            if hand.labels and (patch := labels_missing(hand, attempt, facts, _node_of(subject))):
                await self._merge(Node, _node_of(subject).metadata, patch)
                return f"{hand.name} is asked once the Node shows its labels"
            await self._write(hand, wanted, subject, attempt, facts)
            return ""
        except (Lacking, msgspec.ValidationError) as error:
            raise CannotAsk(f"{hand.name} cannot be asked: {error}") from None

    async def _write(
        self, hand: HandDescription, wanted: Written, subject: Subject, attempt: RungAttempt, facts: dict[str, str]
    ) -> None:
        match wanted.verb:
            case Verb.CREATE:
                await self._create(hand, wanted, attempt)
            case Verb.PATCH:
                await self._patch(hand, wanted, subject, facts)
            case Verb.CONDITION:
                await self._condition(_node_of(subject), wanted.body, wanted.body["status"])
            case Verb.TAINT:
                await self._taint(_node_of(subject), wanted.body, str(attempt.number))
            case Verb.CALL:
                await self._post(hand, wanted.body)
                await mark_called(self._cluster, subject.record, attempt.number)

    async def _create(self, hand: HandDescription, wanted: Written, attempt: RungAttempt) -> None:
        kind, target = _kind_of(wanted.target), wanted.target
        try:
            await self._cluster.create(msgspec.convert(wanted.body, kind))
        except AlreadyExists:
            found = await self._read(target)
            if found is not None and request_seen(hand, attempt, _wire(found)) is None:
                raise CannotAsk(f"there is a {target.kind} {target.name} already, which is not of healthd") from None
        except NotFound as missing:
            raise CannotAsk(f"{hand.name} cannot be asked: {missing}") from None

    async def _patch(
        self, hand: HandDescription, wanted: Written, subject: Subject, facts: dict[str, str] | None
    ) -> None:
        """Merge into the object. With *facts*: only if it says that it belongs to the node."""
        if hand.kind == "Node":
            node = _node_of(subject)
            await self._merge(Node, node.metadata, wanted.body)
            return
        found = await self._read(wanted.target)
        if found is None:
            raise CannotAsk(f"there is no {wanted.target.kind} {wanted.target.name}")
        if facts is not None and (why := confirmation(hand, _wire(found), facts)):
            raise CannotAsk(f"{wanted.target.kind} {wanted.target.name} is not of this node: {why}")
        await self._merge(type(found), found.metadata, wanted.body)

    async def _merge(self, kind: type[Slim], meta: ObjectMeta, body: dict[str, Any]) -> None:
        await self._cluster.patch(
            kind, meta.name, body, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )

    async def _condition(self, node: Node, body: dict[str, Any], status: str) -> None:
        """Set the condition of *body* to *status*; take it away where that is empty."""
        now = self._clock.now().replace(microsecond=0)
        others = [each for each in node.status.conditions if each.type != body["type"]]
        wanted = msgspec.structs.replace(
            msgspec.convert({**body, "status": status}, Condition), last_transition_time=now, last_heartbeat_time=now
        )
        conditions = [*others, wanted] if status else others
        # A merge patch replaces the whole list, so it must fail if another writer changed a condition since the read.
        await self._cluster.patch(
            Node,
            node.metadata.name,
            {"status": {"conditions": msgspec.to_builtins(conditions)}},
            subresource="status",
            uid=node.metadata.uid,
            resource_version=node.metadata.resource_version,
        )

    async def _taint(self, node: Node, body: dict[str, Any], mark: str | None) -> None:
        """Set the taint of *body* with *mark*; without a mark: take both away."""
        taint = msgspec.convert(body, Taint)
        taints = [each for each in node.spec.taints if (each.key, each.effect) != (taint.key, taint.effect)]
        if mark is not None:
            taints.append(taint)
        spec = {"taints": msgspec.to_builtins(taints) or None}
        await patch_node(self._cluster, node, {"metadata": {"annotations": {ANNOTATION_REQUEST: mark}}, "spec": spec})

    # Taken back ------------------------------------------------------------------------------------------------------

    async def withdraw(self, subject: Subject, attempt: RungAttempt) -> None:
        """Take the request of *attempt* back, where it still is. Raises ClusterError."""
        hand = self._known[attempt.hand]
        target = await self._target(hand, subject, attempt)
        facts = await self._facts(subject, attempt)
        found = await self._read(target) if target is not None and hand.verb is Verb.PATCH else None
        manifest = _wire(found) if found is not None else None
        taken = withdrawal_of(hand, target.api if target is not None else "", facts, manifest)
        match hand.verb:
            case Verb.CREATE:
                await self._delete(hand, taken.target, attempt)
                if subject.node is not None and (left := labels_left(hand, attempt, facts, subject.node)):
                    await self._merge(Node, subject.node.metadata, left)
            case Verb.PATCH:
                await self._patch(hand, taken, subject, None)
            case Verb.CONDITION:
                await self._condition(_node_of(subject), taken.body, taken.body["status"])
            case Verb.TAINT:
                await self._taint(_node_of(subject), taken.body, None)
            case Verb.CALL:
                await mark_called(self._cluster, subject.record, None)

    async def _delete(self, hand: HandDescription, target: Target, attempt: RungAttempt) -> None:
        found = await self._read(target)
        if found is None or request_seen(hand, attempt, _wire(found)) is None:
            return
        meta = found.metadata
        with suppress(NotFound):  # at once: a pod whose kubelet is dead would stay, and no further rung could begin
            await self._cluster.delete(type(found), meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)

    # Below -----------------------------------------------------------------------------------------------------------

    async def _target(self, hand: HandDescription, subject: Subject, attempt: RungAttempt) -> Target | None:
        """The object that *attempt* is about; None where its API is not served. Raises Lacking."""
        api = target_api(hand, await self._discovery.served(hand))
        if api is None:
            return None
        return withdrawal_of(hand, api, await self._facts(subject, attempt)).target

    async def _facts(self, subject: Subject, attempt: RungAttempt | None = None, *, rung: str = "") -> dict[str, str]:
        image = await self.own_image()
        node = subject.node or Node(metadata=ObjectMeta(name=subject.name))
        if attempt is None:
            return facts_of(node, subject.provider, attempt=0, rung=rung, image=image)
        boot_id = next(iter(attempt.boot_ids), "")  # as on record: a boot since is what was asked for
        number, rung = attempt.number, attempt.rung
        facts = facts_of(node, subject.provider, attempt=number, rung=rung, image=image, boot_id=boot_id)
        # The Node that it was for may be gone, or there is another one of its name.
        return {**facts, "node_uid": attempt.node_uid or node.metadata.uid}

    async def _read(self, target: Target) -> Any:
        try:
            return await self._cluster.get(_kind_of(target), target.name, target.namespace)
        except NotFound:
            return None


def _kind_of(target: Target) -> type[Slim]:
    return type_of(target.api, target.kind, namespaced=bool(target.namespace))


def _node_of(subject: Subject) -> Node:
    if subject.node is None:
        raise NotFound(f"Node {subject.name}")
    return subject.node


def _wire(obj: Slim) -> dict[str, Any]:
    wire: dict[str, Any] = msgspec.to_builtins(obj)
    return wire
