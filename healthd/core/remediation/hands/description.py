"""
What a hand is, so that healthd can use it: data, and no code.

A hand is found by the API that its controller serves. healthd writes one thing, waits for a sign or for what the core
takes as proof (`core.remediation.proof`), and goes on to the next rung after the time-out. The hands that healthd ships
(`hands.yaml`) are described by the same struct as those that an operator adds.

A text may hold `${node}`, `${node_uid}`, `${attempt}`, `${rung}`, `${image}`, `${label:KEY}` and `${annotation:KEY}` of
the node, `${provider:N}`: the N-th part of its provider id, from 0, after the `://`, and `${boot_id}`: the boot that
was on record before anything was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from healthd.core.api.remediations import Rung
from healthd.core.remediation.hands.placeholders import KNOWN, placeholders_in, unknown
from healthd.core.remediation.hands.signs import parse_signs

SHORTEST, LONGEST = timedelta(minutes=1), timedelta(hours=24)
NAMESPACE = "namespace"
"""In `found_by`, before the name of one that must be there."""
_NO_HAND = frozenset({Rung.NONE, Rung.PERSON})
_CLAIMED = frozenset({Rung.RESTART_DAEMON, Rung.RESET_GPU})
"""Rungs that nothing but the sign of a hand shows to be done."""


class Verb(StrEnum):
    """What is written."""

    CREATE = "create"
    """An object with *body* beside its metadata."""
    PATCH = "patch"
    """*body* is merged into an object that there is: an annotation, a label."""
    CONDITION = "condition"
    """*body* is a condition of the Node: type, status, reason."""
    TAINT = "taint"
    """*body* is a taint of the Node: key, value, effect."""
    CALL = "call"
    """A signed webhook at *object*, for what has no API in the cluster."""


class NodeLabel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A label that the Node has while the request stands."""

    key: str
    value: str
    instead_of: str = ""
    """
    The value that it must have before, and has again afterwards: where it has another one, or none, it is left alone.
    Empty: whatever it is before, it is removed afterwards.
    """


class HandDescription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One hand."""

    name: str
    """Lower-case words with hyphens between."""
    about: str = ""
    """What it is, and what it needs, for a person."""
    rung: Rung
    verb: Verb
    api: list[str] = []
    """Groups with versions, such as `janitor.dgxc.nvidia.com/v1alpha1`. The first served one with *kind* is used."""
    found_by: list[str] = []
    """
    Signs that somebody acts on what is written, of which one must be there: `karpenter.sh/v1 NodePool` (served),
    `label KEY` (on the node), or `namespace NAME`. Empty: that the site names the hand is the sign.
    """
    kind: str = "Node"
    namespace: str = ""
    object: str = "${node}"
    """The name of the object; for `call` the address."""
    confirm: dict[str, str] = {}
    """By path in the object that is patched: what must be there. It ties the object to the node."""
    body: dict[str, Any] = {}
    labels: list[NodeLabel] = []
    """For `create`: labels that the Node gets before the object is created, and loses after its deletion."""
    otherwise: str = ""
    """For a condition: the status that takes the request back. Empty: the condition is removed."""
    done: str = ""
    """The sign in the object that it was done: `Complete=True` of its conditions, or `status.phase=Succeeded`."""
    failed: str = ""
    """The signs that it failed, commas between: one of them is enough, and it counts more than *done*."""
    says: list[str] = []
    """Paths in the object of texts that say why it failed, such as `status.message`. The first that is there counts."""
    timeout: str = "30m"
    secret: str = ""
    """For `call`: the file with the key of the signature."""


def errors_in(hand: HandDescription) -> list[str]:
    """What is wrong with *hand*, in words for its author."""
    return [f"hand {hand.name!r}: {error}" for error in _errors(hand)]


def timeout_of(hand: HandDescription) -> timedelta:
    """For how long the hand may take. Raises ValueError."""
    number, unit = hand.timeout[:-1], hand.timeout[-1:]
    units = {"s": 1, "m": 60, "h": 3600}
    if not (number.isascii() and number.isdecimal() and len(number) <= 6 and unit in units):
        raise ValueError(f"timeout {hand.timeout!r} is not a duration such as 30m or 2h")
    return timedelta(seconds=int(number) * units[unit])


def _errors(hand: HandDescription) -> Iterator[str]:
    words = hand.name.split("-")
    if not all(word.isascii() and word.isalnum() and word == word.lower() for word in words) or len(hand.name) > 63:
        yield "the name must be lower-case words with hyphens between, at most 63 characters"
    if hand.rung in _NO_HAND:
        yield f"{hand.rung} needs no hand; a hand does one of {', '.join(r for r in Rung if r not in _NO_HAND)}"
    for sign in hand.found_by:
        if len(sign.split()) != 2:
            known = "an API with its kind (`example.com/v1 Widget`), `label KEY` or `namespace NAME`"
            yield f"`found_by` {sign!r} is neither {known}"
    yield from _errors_of_time(hand)
    yield from _errors_of_target(hand)
    yield from _errors_of_body(hand)
    if hand.labels and hand.verb is not Verb.CREATE:
        yield "`labels` are for `verb: create`; a patch of the Node has them in its body"
    for signs in (hand.done, hand.failed):
        try:
            parse_signs(signs)
        except ValueError as error:
            yield str(error)
    if hand.rung in _CLAIMED and not hand.done:
        yield f"{hand.rung} leaves no trace that healthd sees, so `done` must say by which sign it shows"


def _errors_of_time(hand: HandDescription) -> Iterator[str]:
    try:
        if not SHORTEST <= timeout_of(hand) <= LONGEST:
            yield f"timeout {hand.timeout} is not between 1m and 24h"
    except ValueError as error:
        yield str(error)


def _errors_of_target(hand: HandDescription) -> Iterator[str]:
    if hand.verb is Verb.CALL:
        if not hand.object.startswith("https://"):
            yield "`object` of a call must be an https address"
        if "${" in hand.object:
            yield "leave ${...} out of the address: what is posted names the node"
        if not hand.secret:
            yield "`secret` is missing: the file with the key of the signature"
        if hand.done or hand.failed:
            yield "a call leaves no object, so it can have no `done` or `failed`"
        return
    if hand.verb in (Verb.CONDITION, Verb.TAINT):
        if hand.kind != "Node" or hand.object != "${node}":
            yield f"a {hand.verb} is of the Node: leave out `kind` and `object`"
        return
    if hand.kind != "Node" and not hand.api:
        yield "`api` is missing: the group and version of its kind, such as example.com/v1"
    if any(one.count("/") > 1 or not one.strip("/") for one in hand.api):
        yield "`api` must hold groups with versions, such as example.com/v1"
    if hand.verb is Verb.PATCH and "${node}" not in hand.object and not hand.confirm:
        yield "`confirm` is missing: what in the object says that it belongs to the node, as a node may write any label"
    if hand.verb is Verb.CREATE and not {"node", "node_uid"}.intersection(placeholders_in(hand.object)):
        yield "`object` must hold ${node} or ${node_uid}, so that the requests of two nodes have two names"


def _errors_of_body(hand: HandDescription) -> Iterator[str]:
    needed = {Verb.CONDITION: ("type", "status"), Verb.TAINT: ("key", "effect")}.get(hand.verb, ())
    if missing := [key for key in needed if not isinstance(hand.body.get(key), str)]:
        yield f"`body` needs {' and '.join(missing)}"
    if hand.verb is Verb.PATCH and not hand.body:
        yield "`body` is empty, so a patch changes nothing"
    if hand.verb is Verb.CREATE and (own := {"apiVersion", "kind"} & hand.body.keys()):
        yield f"leave {', '.join(sorted(own))} out of `body`: `api` and `kind` say them"
    elif hand.verb is Verb.CREATE and (further := hand.body.keys() - {"metadata", "spec"}):
        yield f"`body` of what is created holds `metadata` and `spec`, and not {', '.join(sorted(further))}"
    labels = [text for label in hand.labels for text in (label.key, label.value, label.instead_of)]
    texts = [hand.object, hand.namespace, *_texts(hand.body), *hand.confirm.values(), *labels]
    for name in sorted({name for text in texts for name in placeholders_in(text)}):
        if unknown(name):
            yield f"${{{name}}} is not known; these are: {KNOWN}"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from (*_texts(key), *_texts(child))
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)
