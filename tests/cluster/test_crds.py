"""The limits in the definitions: what they are, and that healthd keeps to them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.cluster.crds import definitions
from healthd.controller.checkpoints.mounted import KEPT_REJECTIONS
from healthd.core.api import (
    Attempt,
    Cause,
    ChosenCheckpoint,
    Nic,
    NodeHealthStatus,
    PodGangMember,
    PodGangSpec,
    RecoveryStatus,
    RejectedCheckpoint,
    TimelineEntry,
    stored,
)
from healthd.core.api.health import MOST_POWER
from healthd.core.api.model import CauseKind, Phase
from healthd.core.fabric.counter_rates import power_of
from healthd.core.recovery.recovery_status import dressed
from healthd.core.untrusted import LARGEST_GANG, LARGEST_NUMBER, LARGEST_STEP
from tests.core.api.test_pod_packs import pods_of
from tests.core.gangs import a_recovery_in
from tests.fakes import START

SCHEMAS: dict[str, dict[str, Any]] = {
    each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for each in definitions()
}
NAME = "n" * 253
MANY = 3000
"""Of what a recovery keeps, more than it is ever to store."""


def too_much(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Where *value* does not fit the limits of *schema*."""
    most = [schema[key] for key in ("maxLength", "maxItems", "maxProperties") if key in schema]
    if any(len(value) > limit for limit in most):
        yield f"{path}: {len(value)}"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value}"
    for key, one in value.items() if isinstance(value, dict) else ():
        yield from too_much(
            schema.get("properties", {}).get(key) or schema["additionalProperties"], one, f"{path}.{key}"
        )
    for one in value if isinstance(value, list) else ():
        yield from too_much(schema["items"], one, path)


def the_largest_status(pods: int) -> RecoveryStatus:
    """Of a recovery that went on for ever, in a gang whose nodes have the longest names, as it is to be written."""
    nodes = [f"{NAME[:240]}-{number}" for number in range(MANY)]
    checkpoint = ChosenCheckpoint(path="/" + "x" * 4095, step=LARGEST_STEP)
    recovery = a_recovery_in(
        Phase.STARTING,
        attempt=LARGEST_NUMBER,
        timeline=[TimelineEntry(phase=Phase.STARTING, at=START + timedelta(seconds=n)) for n in range(MANY)],
        causes=[Cause(kind=CauseKind.HARDWARE, message="\u20ac" * 9000, at=START, node=node) for node in nodes],
        attempts=[Attempt(number=LARGEST_NUMBER, checkpoint=checkpoint) for _ in range(MANY)],
        checkpoint=checkpoint,
        rejected=[RejectedCheckpoint(path="/x", step=LARGEST_STEP, reason="torn")] * KEPT_REJECTIONS,
        placement={str(number): node for number, node in enumerate(nodes)},
        replacements=dict(zip(nodes, nodes, strict=True)),
        pods=pods_of(pods),
        confirmed_step=LARGEST_STEP,
    )
    return dressed(recovery, recovery.status, START)


@pytest.mark.slow
@pytest.mark.parametrize("pods", [500, 20_000])
def test_the_largest_recovery_that_healthd_writes_fits(pods: int) -> None:
    assert list(too_much(SCHEMAS["Recovery"]["status"], stored(the_largest_status(pods)))) == []


def test_the_largest_gang_of_plain_pods_fits() -> None:
    spec = PodGangSpec(members=[PodGangMember(name=NAME, uid="u" * 36)] * 20_000, size=LARGEST_GANG)

    assert list(too_much(SCHEMAS["PodGang"]["spec"], msgspec.to_builtins(spec))) == []


@pytest.mark.parametrize("grown", [0.0, 2.0**64, 2.0**80])
def test_a_counter_that_grew_by_nonsense_fits(grown: float) -> None:
    power = power_of(grown)
    status = NodeHealthStatus(nics=[Nic(pci="0000:3b:00.0", port=1, growth={"ib.errors": power})])

    assert power <= MOST_POWER
    assert list(too_much(SCHEMAS["NodeHealth"]["status"], msgspec.to_builtins(status))) == []


@pytest.mark.parametrize(
    ("kind", "path", "limits"),
    [
        ("Recovery", "spec.firstAttempt", {"minimum": 1, "maximum": LARGEST_NUMBER}),
        ("Recovery", "spec.cause.message", {"maxLength": 1024}),
        ("Recovery", "status.attempt", {"minimum": 0, "maximum": LARGEST_NUMBER}),
        ("Recovery", "status.stepAtFault", {"minimum": -1, "maximum": LARGEST_STEP + 1}),
        ("Recovery", "status.hint.avoid", {"maxItems": 1000}),
        ("Recovery", "status.attempts", {"maxItems": 100}),
        ("PodGang", "spec.size", {"minimum": 0, "maximum": LARGEST_GANG}),
    ],
)
def test_what_healthd_would_not_read_is_not_stored(kind: str, path: str, limits: dict[str, int]) -> None:
    schema: dict[str, Any] = {"properties": SCHEMAS[kind]}
    for name in path.split("."):
        schema = schema["properties"][name]

    assert {key: schema.get(key) for key in limits} == limits


@pytest.mark.parametrize("path", ["bootId", "agentBootId", "machine", "proof", "index"])
def test_what_a_kubelet_says_of_itself_cannot_stop_a_recovery(path: str) -> None:
    pod = SCHEMAS["Recovery"]["status"]["properties"]["pods"]["items"]["properties"]

    assert "maxLength" not in pod[path], "a kubelet chooses it, and healthd writes it down"


def test_a_value_that_is_too_large_is_seen_by_these_tests() -> None:
    status = {"attempt": 2**31, "hint": {"attempt": 1, "avoid": ["x" * 254]}, "rejected": [{}] * 101}

    assert list(too_much(SCHEMAS["Recovery"]["status"], status)) == [
        ".attempt: 2147483648",
        ".hint.avoid: 254",
        ".rejected: 101",
    ]
