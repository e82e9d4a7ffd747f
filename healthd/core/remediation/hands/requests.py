"""What a hand writes for one attempt, what takes it back, and what is seen of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from healthd.core.api import Node
from healthd.core.api.names import ANNOTATION_REQUEST
from healthd.core.api.remediations import RungAttempt
from healthd.core.printable import printable
from healthd.core.remediation.hands.description import HandDescription, Verb, timeout_of
from healthd.core.remediation.hands.placeholders import Lacking, filled
from healthd.core.remediation.hands.signs import conditions_of, first_shown, message_of, parse_signs, value_at
from healthd.core.remediation.situation import Hand, RequestSeen
from healthd.core.untrusted import shown

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Names become parts of URLs."""
_CONDITION_MARK = "healthd attempt "


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object that is written, or the address that is called."""

    api: str
    """Group and version; empty for a call."""
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """
    One write of a hand. *body*: a whole object, a merge patch, a condition, a taint, or what is posted.

    A taint is written in one patch with the mark `healthd.dev/remediation-request` on the Node.
    """

    verb: Verb
    target: Target
    body: dict[str, Any]


def served_api(hand: HandDescription, served: Collection[tuple[str, str]], labels: Collection[str] = ()) -> str | None:
    """
    The API that *hand* is used through: the first of its own that is among *served* (API version and kind). `v1` for
    what is written on the Node, which has *labels*; None: nothing shows that its controller is there.
    """
    signs = [tuple(sign.split()) for sign in hand.found_by]
    if signs and not any(sign in served or (sign[0] == "label" and sign[1] in labels) for sign in signs):
        return None
    return target_api(hand, served)


def target_api(hand: HandDescription, served: Collection[tuple[str, str]]) -> str | None:
    """The API of what *hand* writes: also after the sign that its controller is there went. None: it is not served."""
    if hand.verb is Verb.CALL:
        return ""
    if hand.kind == "Node":
        return "v1"
    return next((api for api in hand.api if (api, hand.kind) in served), None)


def lacking_fact(hand: HandDescription, facts: dict[str, str]) -> str:
    """What the node of *facts* lacks for *hand*, or empty."""
    try:
        _target(hand, "", facts)
        filled(hand.body, facts)
        for label in hand.labels:
            filled([label.key, label.value], facts)
    except Lacking as error:
        return str(error)
    return ""


def as_hand(hand: HandDescription) -> Hand:
    """What the core needs to know of it."""
    return Hand(name=hand.name, rung=hand.rung, timeout=timeout_of(hand), claim_is_proof=bool(hand.done))


def request_of(hand: HandDescription, attempt: RungAttempt, api: str, facts: dict[str, str]) -> Written:
    """What *hand* writes for *attempt*. The mark stays where the other controller takes the rest. Raises Lacking."""
    target = _target(hand, api, facts)
    body = filled(hand.body, facts)
    mark = {ANNOTATION_REQUEST: str(attempt.number)}
    if hand.verb is Verb.CREATE:
        metadata = {"name": target.name, "annotations": mark}
        if target.namespace:
            metadata["namespace"] = target.namespace
        body = {**body, "apiVersion": api, "kind": hand.kind, "metadata": _merged(body.get("metadata", {}), metadata)}
    elif hand.verb is Verb.PATCH:
        body = _merged(body, {"metadata": {"annotations": mark}})
    elif hand.verb is Verb.CONDITION:
        body = {**body, "message": f"{_CONDITION_MARK}{attempt.number}: {printable(attempt.why)}"}
    elif hand.verb is Verb.CALL:
        body = {**body, "node": facts["node"], "rung": str(attempt.rung), "attempt": attempt.number, "why": attempt.why}
    return Written(verb=hand.verb, target=target, body=body)


def withdrawal_of(
    hand: HandDescription, api: str, facts: dict[str, str], manifest: Mapping[str, Any] | None = None
) -> Written:
    """
    What takes the request back: the same keys without a value. With *manifest*, the object as it is now, a key stays
    that has another value by now: its controller wrote that. An object that was created is deleted (*body* is empty),
    and a call cannot be taken back. It is for objects in which `request_seen` sees the attempt: another remediator may
    have one of the same name. Raises Lacking.
    """
    target = _target(hand, api, facts)
    if hand.verb in (Verb.CREATE, Verb.CALL):
        return Written(verb=hand.verb, target=target, body={})
    body = filled(hand.body, facts)
    if hand.verb is Verb.PATCH:
        body = _merged(_without_values(body, manifest), {"metadata": {"annotations": {ANNOTATION_REQUEST: None}}})
    elif hand.verb is Verb.CONDITION:
        body = {**body, "status": hand.otherwise}
    return Written(verb=hand.verb, target=target, body=body)


def request_seen(hand: HandDescription, attempt: RungAttempt, manifest: Mapping[str, Any]) -> RequestSeen | None:
    """
    What *manifest*, the object that was written, shows of *attempt*; None: no request of this attempt is in it. One
    that shows both signs has failed.
    """
    mark = _mark_of_condition(hand, manifest) if hand.verb is Verb.CONDITION else _mark_of(manifest)
    if mark != str(attempt.number):
        return None
    done, failed = (first_shown(manifest, parse_signs(signs)) for signs in (hand.done, hand.failed))
    return RequestSeen(
        attempt=attempt.number,
        claims_done=done is not None and failed is None,
        failed=printable(message_of(manifest, failed, hand.says)) if failed is not None else "",
    )


def labels_missing(hand: HandDescription, attempt: RungAttempt, facts: dict[str, str], node: Node) -> dict[str, Any]:
    """
    The merge patch of the labels that *node* must have before the object of *hand* is created; empty: it has them. The
    mark is written with them: it says that they are of *attempt*, also where no object was created. Raises Lacking.
    """
    labels, wanted = node.metadata.labels, {}
    for label in hand.labels:
        key, value = filled(label.key, facts), filled(label.value, facts)
        if labels.get(key) != value and label.instead_of in ("", labels.get(key)):
            wanted[key] = value
    if not wanted and is_marked(node, attempt):
        return {}
    return {"metadata": {"labels": wanted, "annotations": {ANNOTATION_REQUEST: str(attempt.number)}}}


def labels_left(hand: HandDescription, attempt: RungAttempt, facts: dict[str, str], node: Node) -> dict[str, Any]:
    """The merge patch that takes them back; empty: they are not of *attempt*. Raises Lacking."""
    if not is_marked(node, attempt):
        return {}
    left: dict[str, str | None] = {}
    for label in hand.labels:
        key, value = filled(label.key, facts), filled(label.value, facts)
        if node.metadata.labels.get(key) == value:
            left[key] = label.instead_of or None
    return {"metadata": {"labels": left, "annotations": {ANNOTATION_REQUEST: None}}}


def is_marked(node: Node, attempt: RungAttempt) -> bool:
    """Whether something on *node* itself was written for *attempt*."""
    return node.metadata.annotations.get(ANNOTATION_REQUEST) == str(attempt.number)


def confirmation(hand: HandDescription, manifest: Mapping[str, Any], facts: dict[str, str]) -> str:
    """
    Why *manifest* is not the object of this node, or empty. A node may write its own labels and annotations, so an
    object that they name must itself say that it belongs to the node. Raises Lacking.
    """
    for path, expected in hand.confirm.items():
        found, wanted = value_at(manifest, path), filled(expected, facts)
        if found != wanted:
            return f"its {path} is {shown(str(found))}, and not {shown(wanted)}"
    return ""


def _target(hand: HandDescription, api: str, facts: dict[str, str]) -> Target:
    if hand.verb is Verb.CALL:
        return Target(api="", kind="", namespace="", name=hand.object)
    name, namespace = filled(hand.object, facts), filled(hand.namespace, facts)
    for text in filter(None, (name, namespace)):
        if not _NAME.fullmatch(text):
            raise Lacking(f"{shown(text)} is no name of an object")
    return Target(api=api, kind=hand.kind, namespace=namespace, name=name)


def _mark_of(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return str(notes.get(ANNOTATION_REQUEST, "")) if isinstance(notes, Mapping) else ""


def _mark_of_condition(hand: HandDescription, manifest: Mapping[str, Any]) -> str:
    for each in conditions_of(manifest):
        message = str(each.get("message", ""))
        is_ours = (each.get("type"), each.get("status")) == (hand.body["type"], hand.body["status"])
        if is_ours and message.startswith(_CONDITION_MARK):
            return message.removeprefix(_CONDITION_MARK).partition(":")[0]
    return ""


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for key, value in second.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _without_values(body: Mapping[str, Any], manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for key, value in body.items():
        found = None if manifest is None else manifest.get(key)
        if isinstance(value, Mapping):
            left[key] = _without_values(value, found if manifest is None or isinstance(found, Mapping) else {})
        elif manifest is None or found == value:
            left[key] = None
    return left
