"""The pod that verifies, what a sight of it means, and its last words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import (
    ChosenCheckpoint,
    ContainerState,
    ContainerStatus,
    OwnerReference,
    Pod,
    PodManifest,
    PodStatus,
    RejectedCheckpoint,
    Terminated,
    Toleration,
)
from healthd.core.checkpoint.verification import (
    Busy,
    Order,
    VerificationReport,
    VerifierFailed,
    fitted,
    judge_verifier,
    verifier_pod,
)
from healthd.core.recovery.gang import RunsAs
from tests.builders import a_pod
from tests.fakes import START

OWNER = OwnerReference(kind="Recovery", name="train-1", uid="uid-1")
DEADLINE = timedelta(minutes=30)
WHOLE = ChosenCheckpoint(path="/volume/step_7", step=7, format="safetensors")


def an_order(**fields: Any) -> Order:
    known: dict[str, Any] = {"claim": "data", "folder": "/volume/llama", "runs_as": RunsAs(), **fields}
    return Order(name="v", namespace="default", owner=OWNER, image="healthd", **known)


def made(**fields: Any) -> PodManifest:
    return verifier_pod(an_order(**fields))


def test_a_gang_that_runs_as_root_is_read_as_no_one() -> None:
    assert made(runs_as=RunsAs(user=0, group=0), user=4711).spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 4711,
        "runAsGroup": 4711,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_groups_of_the_gang_are_those_of_the_pod() -> None:
    security = made(runs_as=RunsAs(user=7, group=8, fs_group=9, groups=(10,))).spec["securityContext"]

    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (7, 8, 9)
    assert security["supplementalGroups"] == [10]


def test_no_group_of_the_pod_is_that_of_root() -> None:
    security = made(runs_as=RunsAs(user=7, group=0, fs_group=0, groups=(0, 10))).spec["securityContext"]

    assert (security["runAsGroup"], security["supplementalGroups"]) == (65532, [10])
    assert "fsGroup" not in security


def test_a_gang_without_a_group_of_files_gives_the_pod_none() -> None:
    assert "fsGroup" not in made().spec["securityContext"]


def test_the_pod_has_no_token_and_may_write_nowhere() -> None:
    spec = made().spec
    container = spec["containers"][0]

    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["volumeMounts"][0]["readOnly"] is True


def test_it_would_best_be_where_the_gang_was_and_never_where_something_broke() -> None:
    node = made(near=["n-1", "n-2"], not_on=["n-2"]).spec["affinity"]["nodeAffinity"]

    (near,) = node["preferredDuringSchedulingIgnoredDuringExecution"]
    (term,) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert near["preference"]["matchFields"][0]["values"] == ["n-1"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["n-2"]}]


def test_it_bears_the_taints_that_the_gang_bears() -> None:
    gpu = Toleration(key="nvidia.com/gpu", operator="Exists")

    assert made(runs_as=RunsAs(tolerations=(gpu,))).spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"}
    ]


def seen(phase: str = "Running", *, node: str = "n-1", **fields: Any) -> Pod:
    ended = fields.pop("ended", None)
    statuses = [ContainerStatus(name="verifier", state=ContainerState(terminated=ended))] if ended else []
    status = PodStatus(phase=phase, container_statuses=statuses, message=fields.pop("message", ""))
    return a_pod("v", node=node, status=status, creation_timestamp=START, **fields)


def test_a_report_is_the_answer_also_while_a_container_beside_it_runs() -> None:
    words = fitted(VerificationReport(found=WHOLE)).decode()

    assert judge_verifier(
        seen("Running", ended=Terminated(exit_code=0, message=words)), DEADLINE, START
    ) == VerificationReport(found=WHOLE)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "{",
        '{"found": 7}',
        "[]",
        '{"found": {"path": "/volume/\\u001b[2J", "step": 1}}',
        '{"found": {"path": "/volume/a", "step": 99999999999999999999}}',
        '{"found": {"path": "/volume/a", "savedNs": -1}}',
        '{"size": -1}',
    ],
)
def test_an_end_without_a_report_is_reported_with_its_code(words: str) -> None:
    verdict = judge_verifier(seen("Failed", ended=Terminated(exit_code=137, message=words)), DEADLINE, START)

    assert isinstance(verdict, VerifierFailed)
    assert "137" in verdict.why


def test_a_pod_that_its_kubelet_ended_is_reported_with_the_kubelets_message() -> None:
    verdict = judge_verifier(seen("Failed", message="Pod was active on the node longer than …"), DEADLINE, START)

    assert isinstance(verdict, VerifierFailed)
    assert "longer than" in verdict.why


def test_what_a_pod_says_is_one_printable_line() -> None:
    verdict = judge_verifier(seen("Failed", ended=Terminated(exit_code=1, message="a\n\x1b[2Jb")), DEADLINE, START)

    assert isinstance(verdict, VerifierFailed)
    assert verdict.why.isprintable()


def test_a_reason_is_one_printable_line() -> None:
    words = msgspec.json.encode(a_report(1, "cut\n\x1b[2Joff")).decode()

    verdict = judge_verifier(seen("Running", ended=Terminated(exit_code=0, message=words)), DEADLINE, START)

    assert isinstance(verdict, VerificationReport)
    assert verdict.rejected[0].reason.isprintable()


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [(1, Busy), (34, Busy), (36, VerifierFailed)],
)
def test_a_pod_on_a_silent_node_is_given_up_in_the_end(minutes: int, expected: type) -> None:
    now = START + timedelta(minutes=minutes)

    assert isinstance(judge_verifier(seen(), DEADLINE, now), expected)


def test_a_pod_that_never_begins_is_given_up_sooner() -> None:
    now = START + timedelta(minutes=6)

    verdict = judge_verifier(seen("Pending"), DEADLINE, now)

    assert isinstance(verdict, VerifierFailed)
    assert "kubectl describe pod" in verdict.why


def test_a_pod_that_is_being_deleted_is_waited_for() -> None:
    assert isinstance(judge_verifier(seen(deletion_timestamp=START), DEADLINE, START), Busy)


def a_report(count: int, reason: str) -> VerificationReport:
    return VerificationReport(
        found=WHOLE,
        rejected=[RejectedCheckpoint(path=f"/volume/step_{step}", step=step, reason=reason) for step in range(count)],
    )


def test_a_report_that_fits_is_whole() -> None:
    report = a_report(3, "torn")

    assert msgspec.json.decode(fitted(report), type=VerificationReport) == report


def test_the_reasons_of_a_large_report_grow_shorter_first() -> None:
    reported = msgspec.json.decode(fitted(a_report(8, "x" * 500)), type=VerificationReport)

    assert (len(reported.rejected), reported.left_out) == (8, 0)


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["x" * 500, "ß" * 500, "\x00" * 500])
def test_no_report_is_larger_than_a_kubelet_takes(reason: str) -> None:
    words = fitted(a_report(1000, reason))
    reported = msgspec.json.decode(words, type=VerificationReport)

    assert len(words) <= 4096
    assert reported.found == WHOLE
    assert reported.rejected[0].step == 0
    assert len(reported.rejected) + reported.left_out == 1000
