"""What a tenant wrote on a root and cannot be read makes that root invalid, with a reason, and raises nothing."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from healthd.core.api import JobStatus, ObjectMeta, PodGang, PodGangMember, PodGangSpec
from healthd.core.recovery.gang import Root
from healthd.gangs import ADAPTERS
from tests.builders import a_job
from tests.gangs.builders import ENABLED, a_jobset, a_part, a_statefulset

MANY = "9" * 5000
STOPPED = {"healthd.dev/stopped-by": "train-1"}


def read(obj: Any) -> Root:
    """As the controller reads it."""
    root = next(adapter.read(obj) for adapter in ADAPTERS.values() if adapter.kind is type(obj))
    assert root is not None
    return root


def a_podgang(annotations: dict[str, str] | None = None, **spec: Any) -> PodGang:
    """The root of plain pods."""
    notes = {"healthd.dev/restart": "enabled", **(annotations or {})}
    return PodGang(metadata=ObjectMeta(name="train", namespace="default", annotations=notes), spec=PodGangSpec(**spec))


def packed(raw: bytes) -> str:
    return base64.b64encode(gzip.compress(raw)).decode()


ROOTS: dict[str, Callable[..., Any]] = {
    "Job": a_job,
    "JobSet": a_jobset,
    "StatefulSet": a_statefulset,
    "PodGang": a_podgang,
}


@pytest.mark.parametrize("kind", ROOTS)
@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("max-no-advance", MANY),
        ("max-no-advance", "three"),
        ("max-no-advance", "\u0663"),
        ("min-nodes", "-1"),
        ("min-nodes", "0"),
        ("fence-timeout", "10"),
        ("hang", "restart "),
        ("slow-rank", "Swap"),
        ("slow-rank", "\x1b[2Jswap"),
        ("slow-rank", MANY),
        ("fence-timeout", MANY + "s"),
        ("attempt", "9" * 400),
        ("attempt", str(2**31 - 1)),
        ("stopped-at-generation", MANY),
        ("placement", "[" * 9000),
        ("placement", '{"0":1}'),
        ("checkpoint", "file:///data/\x1b[2J"),
        ("checkpoint-format", "x" * 200_000),
        ("stopped-by", "x" * 300),
    ],
)
def test_an_option_that_cannot_be_read_is_named_with_a_short_reason(kind: str, option: str, text: str) -> None:
    (why,) = read(ROOTS[kind](annotations={"healthd.dev/restart": "enabled", f"healthd.dev/{option}": text})).invalid

    assert why.startswith(f"healthd.dev/{option}: ")
    assert len(why) < 300
    assert why.isprintable()


@pytest.mark.parametrize("kind", ROOTS)
@pytest.mark.parametrize(
    "option", ["max-no-advance", "min-nodes", "fence-timeout", "attempt", "placement", "checkpoint"]
)
def test_an_option_that_is_empty_is_as_none(kind: str, option: str) -> None:
    assert read(ROOTS[kind](annotations={"healthd.dev/restart": "enabled", f"healthd.dev/{option}": ""})).invalid == ()


@pytest.mark.parametrize("kind", ROOTS)
@pytest.mark.parametrize("text", ["{", "[" * 9000, '{"step":' + "9" * 400 + "}", '{"at":"2026-01-01T00:00:00"}'])
def test_what_healthd_only_remembers_there_is_learned_anew(kind: str, text: str) -> None:
    notes = {"healthd.dev/progress": text, "healthd.dev/saves": "{" + text, "healthd.dev/gpu-time": text}
    root = read(ROOTS[kind](annotations=notes))

    assert (root.invalid, root.progress.step, root.saves.good, root.gpu_time) == ((), -1, [], None)


TOO_LARGE = {
    "a number of replicas that was never there": a_statefulset(
        replicas=0, annotations={**STOPPED, "healthd.dev/replicas": "2000000000"}
    ),
    "a number of replicas of 5,000 digits": a_statefulset(
        replicas=0, annotations={**STOPPED, "healthd.dev/replicas": MANY}
    ),
    "a StatefulSet as large as Kubernetes allows": a_statefulset(replicas=2**31 - 1),
    "a Job as large as Kubernetes allows": a_job(ranks=2**31 - 1, annotations=ENABLED),
    "a Job of one member more than a record can hold": a_job(ranks=20_001, annotations=ENABLED),
    "a Job of less than nothing": a_job(ranks=-1, annotations=ENABLED),
    "a JobSet of many large Jobs": a_jobset(parts=[a_part(replicas=2**31 - 1, pods=2**31 - 1)]),
    "a JobSet of many Jobs together": a_jobset(parts=[a_part(f"part-{n}", pods=60_000) for n in range(2)]),
    "a JobSet whose minus signs cancel out": a_jobset(parts=[a_part(replicas=-2, pods=-3)]),
    "plain pods in great number": a_podgang(size=2**31 - 1),
}


@pytest.mark.parametrize("which", TOO_LARGE)
def test_a_gang_that_is_too_large_has_no_members_that_could_fill_the_memory(which: str) -> None:
    root = read(TOO_LARGE[which])

    assert len(root.invalid) == 1
    assert (root.world, root.seats) == (0, ())


def test_the_members_of_the_largest_gang_cost_nothing_until_somebody_asks_for_their_names() -> None:
    root = read(a_jobset(parts=[a_part(replicas=1000, pods=20)]))

    assert root.indexes is not None
    assert (root.invalid, root.world, len(root.indexes), root.seats[-1]) == ((), 20_000, 1, "workers-999-19")


UNREADABLE = {
    "a bomb": packed(bytes(100_000_000)),
    "many small values": packed(b'{"a":{"metadata":{},"spec":{"x":[' + b"[]," * 3_000_000 + b"[]]}}}"),
    "nested deeply": packed(b'{"a":{"metadata":{},"spec":{"x":' + b"[" * 100_000),
    "no base64": "%%%%",
    "another shape": packed(b'{"a":{"metadata":[],"spec":7}}'),
    "a spec of no pod": packed(b'{"a":{"metadata":{},"spec":{"containers":7}}}'),
}


@pytest.mark.parametrize("which", UNREADABLE)
def test_manifests_that_cannot_be_unpacked_are_reported_before_the_pods_are_deleted(which: str) -> None:
    assert len(read(a_podgang(manifests=UNREADABLE[which])).invalid) == 1


def test_who_makes_the_pods_again_must_be_known() -> None:
    (why,) = read(a_podgang({"healthd.dev/recreate": "ower"})).invalid

    assert why == "healthd.dev/recreate: 'ower' is not 'owner'"


def test_a_member_has_a_name_of_a_bounded_length() -> None:
    assert read(a_podgang(members=[PodGangMember(name="x" * 1000)], size=1)).invalid


@pytest.mark.parametrize(
    "part", [{}, {"name": "w"}, {"name": "w", "template": 7}, {"name": 7, "replicas": "x", "template": {"spec": {}}}]
)
def test_a_jobset_of_another_shape_is_invalid(part: dict[str, Any]) -> None:
    jobset = a_jobset()
    spec = msgspec.structs.replace(jobset.spec, replicated_jobs=[part])

    assert len(read(msgspec.structs.replace(jobset, spec=spec)).invalid) == 1


def test_what_can_be_read_of_an_invalid_root_is_there() -> None:
    job = a_job(suspend=True, annotations={**STOPPED, "healthd.dev/min-nodes": "x"}, status=JobStatus())

    root = read(job)
    assert (root.suspended, root.stopped_by, root.world) == (True, "train-1", 2)
