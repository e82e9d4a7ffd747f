"""What a tenant who means harm writes: objects of each kind that the controller reads, as JSON, made from a seed."""

from __future__ import annotations

import base64
import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from healthd.core.api import (
    RESOURCES,
    AnyObject,
    GangRef,
    Job,
    JobSet,
    Node,
    NodeHealth,
    ObjectMeta,
    Pod,
    PodGang,
    PodGangMember,
    PodGangSpec,
    Recovery,
    Slim,
    StatefulSet,
    names,
    to_wire,
)
from tests.builders import a_finding, a_job, a_node, a_nodehealth, a_pod, a_recovery
from tests.gangs.builders import a_jobset, a_part, a_statefulset

Json = dict[str, Any]

NOTES = sorted(value for name, value in vars(names).items() if name.startswith("ANNOTATION_"))
"""Every annotation that healthd reads or writes."""
LABELS = [
    "healthd.dev/gang",
    "healthd.dev/hint",
    "healthd.dev/spare",
    "healthd.dev/node",
    "batch.kubernetes.io/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/jobset-uid",
    "jobset.sigs.k8s.io/restart-attempt",
    "jobset.sigs.k8s.io/job-index",
    "apps.kubernetes.io/pod-index",
]
BOMB = base64.b64encode(zlib.compress(bytes(40_000_000))).decode()
VALUES = base64.b64encode(gzip.compress(b'{"a":{"metadata":{},"spec":{"x":[' + b"[]," * 1_500_000 + b"[]]}}}")).decode()
MOMENTS = [
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00",
    "0000-00-00T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "292277026596-12-04T15:30:07Z",
    "2026-01-01T00:00:60Z",
    "soon",
]
WORDS = [
    "",
    " ",
    "enabled",
    "owner",
    "all",
    "all: I pulled the plug",
    "0",
    "1",
    "3",
    "-1",
    "2000000000",
    "2147483648",
    "9" * 19,
    "9" * 400,
    "9" * 5000,
    "0" * 5000 + "1",
    "\u0663",
    "\u00b2",
    "\uff15",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "0x10",
    "1_000",
    "10m",
    "999999999d",
    "1d" * 3000,
    "\x00",
    "\x1b[2J\x1b]0;root\x07",
    "\u202egnp.exe",
    "\U0001f525" * 50,
    "a\nb\r\nc\td",
    "pvc://claim/path",
    "file:///data",
    "file:///../../etc",
    "s3://[bucket",
    "http://[::1",
    "%s%s%n{0}{}",
    "*1*1*1{rank}x",
    "[" * 20_000,
    '{"a":' * 20_000,
    "{",
    "null",
    "[]",
    "{}",
    '{"0":"node-0","1":"node-1"}',
    '{"0":1}',
    '{"step":' + "9" * 400 + "}",
    '{"step":1e300,"attempt":-1}',
    '{"step":7,"at":"2026-01-01T00:00:00","intervals":[1,2,3,4,5,6]}',
    '{"step":7,"at":"9999-12-31T23:59:59-14:00","intervals":[1e308,1e308]}',
    '{"good":[{"step":1,"at":"0001-01-01T00:00:00+14:00","seconds":1e308}]}',
    '{"good":[{"at":"2026-01-01T00:00:00Z"},{"at":"9999-12-31T23:59:59Z"},{"at":"0001-01-01T00:00:00Z"}]}',
    '{"finding":"x/y","message":"m","since":"2026-01-01T00:00:00"}',
    '{"finding":"x/y","message":"m","since":"0001-01-01T00:00:00+14:00"}',
    '{"recovery":"r","namespace":"good","gang":"train","gang_uid":"u","instead_of":"node-0"}',
    '{"recovery":"r","namespace":"good","gang":"train","gangUid":"u","insteadOf":"good-0"}',
    '"' + "x" * 250_000 + '"',
    BOMB,
    *MOMENTS,
]
"""What stands in annotations, and wherever else there is text."""
NUMBERS = [0, 1, -1, 2, 63, 64, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, -(2**63), 10**19, 10**400, 1.5, 1e308]
SHAPES: list[Any] = [None, True, [], {}, [None], [[]], {"": ""}, "x", 7]


class Hostile(NamedTuple):
    """One object, and what it is changed to afterwards."""

    kind: type[Slim]
    body: Json
    later: Json | None


def objects(count: int, seed: int) -> Iterator[Hostile]:
    """*count* objects. Their names repeat after a while, for gangs, pods and recoveries to find each other."""
    dice = random.Random(seed)
    makers = list(MAKERS)
    weights = [MAKERS[maker] for maker in makers]
    for number in range(count):
        maker = dice.choices(makers, weights)[0]
        obj = maker(dice, f"evil-{number % 40}", f"{number}")
        body = _mutated(dice, to_wire(obj))
        yield Hostile(type(obj), body, _mutated(dice, body) if dice.random() < 0.2 else None)


def a_word(dice: random.Random) -> str:
    """Long ones are rare, as they take their time."""
    word = dice.choice(WORDS)
    return word if len(word) < 10_000 or dice.random() < 0.05 else word[: dice.randrange(1000)]


def _notes(dice: random.Random) -> dict[str, str]:
    chosen = dice.sample(NOTES, dice.choice([0, 1, 1, 2, 5]))
    return {"healthd.dev/restart": "enabled", **{key: a_word(dice) for key in chosen}}


def _size(dice: random.Random) -> int:
    return dice.choice([0, 1, 2, 2, 2, 3, 100_000, 100_001, 2**31 - 1, -1])


def _job(dice: random.Random, gang: str, number: str) -> AnyObject:
    return a_job(f"{gang}-{number}", namespace="evil", ranks=_size(dice), annotations=_notes(dice))


def _jobset(dice: random.Random, gang: str, number: str) -> AnyObject:
    parts = [a_part(f"part-{n}", replicas=_size(dice), pods=_size(dice)) for n in range(dice.choice([0, 1, 1, 3]))]
    jobset = a_jobset(f"{gang}-{number}", parts=parts or [{}], annotations=_notes(dice))
    return _moved(jobset)


def _statefulset(dice: random.Random, gang: str, number: str) -> AnyObject:
    return _moved(a_statefulset(f"{gang}-{number}", replicas=_size(dice), annotations=_notes(dice)))


def _moved(obj: Any) -> AnyObject:
    """To the namespace of the tenant."""
    moved: AnyObject = replace(obj, metadata=replace(obj.metadata, namespace="evil"))
    return moved


def _pod(dice: random.Random, gang: str, number: str) -> AnyObject:
    labels = {key: gang if dice.random() < 0.7 else a_word(dice)[:63] for key in dice.sample(LABELS, 2)}
    node = dice.choice(["", "good-0", "node-0", "nowhere"])
    return a_pod(f"pod-{number}", namespace="evil", node=node, labels=labels, annotations=_notes(dice))


def _podgang(dice: random.Random, gang: str, number: str) -> AnyObject:
    members = [PodGangMember(name=f"pod-{n}", uid=a_word(dice)[:40]) for n in range(dice.choice([0, 1, 3]))]
    rare = dice.choice([BOMB, VALUES]) if dice.random() < 0.01 else ""
    spec = PodGangSpec(members=members, size=_size(dice), manifests=dice.choice(["", "", a_word(dice), rare]))
    return PodGang(metadata=ObjectMeta(name=f"{gang}-{number}", namespace="evil", annotations=_notes(dice)), spec=spec)


def _recovery(dice: random.Random, gang: str, number: str) -> AnyObject:
    of = GangRef(
        kind=dice.choice(["Job", "JobSet", "StatefulSet", "PodGang", "Nothing"]),
        namespace="evil",
        name=gang,
        uid=a_word(dice)[:60],
    )
    recovery = a_recovery(f"recovery-{number}", namespace="evil", annotations=_notes(dice))
    return replace(recovery, spec=replace(recovery.spec, gang=of))


def _node(dice: random.Random, gang: str, number: str) -> AnyObject:
    del gang
    return a_node(f"node-{number}", spare=dice.random() < 0.2, annotations=_notes(dice))


def _nodehealth(dice: random.Random, gang: str, number: str) -> AnyObject:
    del gang
    return a_nodehealth(f"node-{number}", findings=[a_finding() for _ in range(dice.choice([0, 1, 2]))])


MAKERS: dict[Callable[[random.Random, str, str], AnyObject], int] = {
    _job: 24,
    _jobset: 14,
    _statefulset: 16,
    _pod: 24,
    _podgang: 6,
    _recovery: 8,
    _node: 4,
    _nodehealth: 4,
}
ENDED = {"terminated": {"exitCode": 1, "startedAt": MOMENTS[3], "finishedAt": MOMENTS[4]}}
STATUS: dict[type[Slim], list[Json]] = {
    Pod: [
        {"phase": "Running"},
        {"phase": "Failed", "reason": "\x1b[31m", "message": "m" * 5000},
        {"phase": "Failed", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 10**12}}}]},
        {
            "phase": "Running",
            "containerStatuses": [{"name": "c", "restartCount": 3, "lastState": {"terminated": ENDED}}],
        },
    ],
    Job: [
        {"startTime": MOMENTS[0]},
        {"startTime": MOMENTS[4]},
        {"conditions": [{"type": "Suspended", "status": "True"}]},
    ],
    JobSet: [{"conditions": [{"type": "Suspended", "status": "False"}], "restarts": 10**12}, {"restarts": -1}],
    StatefulSet: [{"observedGeneration": 9, "replicas": 2, "readyReplicas": 2}, {"replicas": -1}],
    Node: [
        {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"x.com/gpu": "9" * 5000}},
        {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": MOMENTS[3]}]},
        {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": MOMENTS[1]}]},
    ],
    NodeHealth: [
        {"verdict": "unhealthy", "bootId": "b" * 1000},
        {"nics": [{"pci": "0000:00:00.0", "port": 1, "rail": 0, "family": "ib", "growth": {"ib.x": 10**12}}]},
        {"nics": [{"pci": "x", "port": -1, "rail": 2**40, "family": "roce", "rateGbps": 1e308, "growth": {"a": 64}}]},
        {"gonePods": [{"uid": "x", "at": MOMENTS[1]}], "seenAt": MOMENTS[4]},
    ],
    Recovery: [
        {"phase": "Stopping", "attempt": 1, "timeline": [{"phase": "Stopping", "at": MOMENTS[0]}]},
        {"phase": "Held", "heldIn": "Held", "timeline": [{"phase": "Held", "at": MOMENTS[3]}]},
        {"phase": "Confirming", "attempt": 2**31, "stepAtFault": 10**400},
        {"phase": "Recovered", "attempt": 1, "confirmedStep": 10**17, "letThrough": MOMENTS[4], "hint": {"attempt": 1}},
        {"phase": "Fencing", "packed": BOMB},
        {
            "phase": "Starting",
            "attempt": 3,
            "placement": {"0": "good-0"},
            "replacements": {"good-0": "good-1"},
            "timeline": [{"phase": "Starting", "at": MOMENTS[0]}],
        },
    ],
}
KINDS = {RESOURCES[kind].kind: kind for kind in STATUS}


def _mutated(dice: random.Random, body: Json) -> Json:
    """*body* with a status of its kind, and some of its values replaced; its names stay, as a server checks them."""
    body = {**body, "metadata": dict(body["metadata"])}
    states = STATUS[KINDS[body["kind"]]] if body["kind"] in KINDS else []
    if states and dice.random() < 0.4:
        state = dice.choice(states)
        is_costly = BOMB in state.values()
        body["status"] = {} if is_costly and dice.random() < 0.95 else state
    for _ in range(dice.choice([0, 0, 0, 1, 2])):
        place = dice.choice(["metadata", "metadata", "spec", "status"])
        if place == "metadata":
            notes = {**body["metadata"].get("annotations", {}), dice.choice(NOTES): a_word(dice)}
            body["metadata"] = {**body["metadata"], "annotations": notes}
        elif place in body:
            body[place] = _replaced(dice, body[place])
    return body


def _replaced(dice: random.Random, value: Any) -> Any:
    """*value* with one thing in it, or itself, replaced."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        return {**value, key: _replaced(dice, value[key])}
    if isinstance(value, list) and value and dice.random() < 0.9:
        at = dice.randrange(len(value))
        return [*value[:at], _replaced(dice, value[at]), *value[at + 1 :]]
    return dice.choice([a_word(dice), dice.choice(NUMBERS), dice.choice(SHAPES), dice.choice(MOMENTS)])
