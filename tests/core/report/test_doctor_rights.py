"""What the doctor has to say about rights that the controller lacks for one gang."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from healthd.core.api import Container, ObjectMeta, VolumeMount
from healthd.core.config import CheckpointsPolicy
from healthd.core.report.doctor import Chart, HintPolicy, Remark, RemarkLevel, VerifierPod, examine
from healthd.core.report.doctor.rights import needed, rebuilt_as, verifiers_of
from healthd.gangs.job import read_job
from healthd.gangs.kinds import ALL, SHIPPED
from tests.builders import a_job, a_pod

NOTES = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "pvc://runs/llama"}
IMAGE = "registry.example/healthd:1.2"
CONTROLLER = a_pod("healthd-controller-1", namespace="healthd-system", container=Container(image=IMAGE))


def chart(kind: str, *, notes: Mapping[str, str] = NOTES, **fields: Any) -> Chart:
    """A gang of *kind* in the namespace research, with nothing else to complain about."""
    meta = ObjectMeta(name="llama", namespace="research", annotations=dict(notes))
    claim = {"volumes": [{"persistentVolumeClaim": {"claimName": "runs"}}]}
    specs: dict[str, dict[str, Any]] = {
        "PodGang": {"pods": [{"metadata": {}, "spec": claim}]},
        "JobSet": {"replicatedJobs": []},
    }
    return Chart(kind=kind, meta=meta, spec=specs[kind], hint_policy=HintPolicy.INSTALLED, **fields)


def answered(asked: Chart, *, refused: Sequence[str] = (), unknown: bool = False) -> list[Remark]:
    """What is said when of the rights that are asked about those are refused, all others granted."""
    rights = {right: None if unknown else str(right) not in refused for right in needed(asked)}
    return examine(dataclasses.replace(asked, rights=rights))


def test_a_gang_that_needs_no_further_right_asks_for_none() -> None:
    assert needed(chart("JobSet")) == []


def test_plain_pods_that_the_controller_may_make_again_are_in_order() -> None:
    assert answered(chart("PodGang")) == []


def test_a_group_of_pods_in_a_queue_is_stopped_only_where_its_workload_may_be_deleted() -> None:
    root = dataclasses.replace(read_job(a_job()), queue="lq")
    missing = "delete workloads"

    said = answered(chart("PodGang", root=root), refused=[missing])

    assert said[0].what == "the controller may not stop gangs in a queue of Kueue"
    assert missing in said[0].why


@pytest.mark.parametrize("refused", ["create pods", "create podgangs", "patch podgangs", "remake podgangs"])
def test_plain_pods_that_the_controller_may_not_make_again_cannot_be_recovered(refused: str) -> None:
    (remark,) = answered(chart("PodGang"), refused=[refused])

    assert (remark.level, remark.what) == (RemarkLevel.PREVENTS, "the controller may not guard plain pods in research")
    assert f"the right to {refused}," in remark.why
    assert remark.remedy == (
        "kubectl create rolebinding healthd-plain-pods -n research --clusterrole healthd-controller-plain-pods "
        "--serviceaccount healthd-system:healthd-controller"
    )


def test_the_right_to_make_pods_is_not_needed_where_their_maker_does_it() -> None:
    asked = chart("PodGang", notes={**NOTES, "healthd.dev/recreate": "owner"})

    assert answered(asked, refused=["create pods", "remake podgangs"]) == []


VERIFIERS = (VerifierPod(IMAGE, is_certain=True),)


def test_checkpoints_that_the_controller_may_have_verified_are_in_order() -> None:
    assert answered(chart("JobSet", verifiers=VERIFIERS)) == []


def test_an_image_that_the_controller_may_not_run_prevents_a_recovery() -> None:
    (remark,) = answered(chart("JobSet", verifiers=VERIFIERS), refused=[f"run verifierimages {IMAGE}"])

    said = f"the controller may not run {IMAGE} to verify pvc://runs/llama"
    assert (remark.level, remark.what) == (RemarkLevel.PREVENTS, said)
    assert "transformers: [../deploy/verifier-image]" in remark.remedy


def test_without_the_role_of_verifiers_the_role_is_what_is_missing() -> None:
    (remark,) = answered(chart("JobSet", verifiers=VERIFIERS), refused=[f"run verifierimages {IMAGE}", "create pods"])

    assert remark.remedy.startswith("kubectl apply -k deploy/")


def test_an_image_that_may_not_be_the_one_is_only_a_risk() -> None:
    asked = chart("JobSet", verifiers=(VerifierPod(IMAGE, is_certain=False),))

    (remark,) = answered(asked, refused=[f"run verifierimages {IMAGE}"])

    assert remark.level is RemarkLevel.RISKS
    assert "--config" in remark.why


def test_an_image_that_no_one_knows_is_said_to_be_unknown() -> None:
    (remark,) = answered(chart("JobSet", verifiers=()))

    assert (remark.level, remark.what) == (RemarkLevel.NOTE, "which image would verify pvc://runs/llama is not known")


@pytest.mark.parametrize(
    ("asked", "question"),
    [
        (chart("PodGang"), "can-i create podgangs.healthd.dev -n research"),
        (chart("JobSet", verifiers=VERIFIERS), f"can-i run verifierimages.healthd.dev/{IMAGE}"),
    ],
    ids=["plain pods", "verifier"],
)
def test_rights_that_one_may_not_ask_about_are_not_known(asked: Chart, question: str) -> None:
    (remark,) = answered(asked, unknown=True)

    assert remark.level is RemarkLevel.NOTE
    assert remark.what.endswith(" is not known")
    assert remark.why.startswith("you may not ask the API server about the rights of others")
    assert f"{question} --as system:serviceaccount:healthd-system:healthd-controller" in remark.remedy


def mounting(path: str) -> tuple[Any, ...]:
    """A controller that mounts something there."""
    mounts = [VolumeMount(name="claims", mount_path=path)]
    return (a_pod("healthd-controller-1", container=Container(image=IMAGE, volume_mounts=mounts)),)


@pytest.mark.parametrize(
    ("location", "controllers", "policy"),
    [
        ("", (CONTROLLER,), None),
        ("s3://bucket/llama", (CONTROLLER,), None),
        ("pvc:///llama", (CONTROLLER,), None),
        ("pvc://runs/llama", (CONTROLLER,), CheckpointsPolicy(verifier=False)),
        ("pvc://runs/llama", mounting("/checkpoints/research/runs"), None),
        ("pvc://runs/llama", mounting("/checkpoints"), None),
    ],
    ids=["no place", "a bucket", "no claim", "turned off", "mounted", "all mounted"],
)
def test_no_pod_verifies_what_the_controller_reads_itself(
    location: str, controllers: Sequence[Any], policy: CheckpointsPolicy | None
) -> None:
    assert verifiers_of(location, "research", controllers, policy) is None


@pytest.mark.parametrize(
    ("controllers", "policy", "expected"),
    [
        ((), None, ()),
        ((CONTROLLER, CONTROLLER), None, (VerifierPod(IMAGE, is_certain=False),)),
        ((CONTROLLER,), CheckpointsPolicy(), (VerifierPod(IMAGE, is_certain=True),)),
        (mounting("/checkpoints/other/runs"), None, (VerifierPod(IMAGE, is_certain=False),)),
        ((), CheckpointsPolicy(verifier_image="mine"), (VerifierPod("mine", is_certain=True),)),
    ],
    ids=["no controller", "two alike", "configured", "another namespace's", "an image of its own"],
)
def test_the_image_that_verifies_is_that_of_the_controller_unless_one_is_named(
    controllers: Sequence[Any], policy: CheckpointsPolicy | None, expected: tuple[VerifierPod, ...]
) -> None:
    assert verifiers_of("pvc://runs/llama", "research", controllers, policy) == expected


REBUILT = {**NOTES, "healthd.dev/rebuild": "enabled"}


def about_rebuilds(remarks: list[Remark]) -> list[Remark]:
    return [remark for remark in remarks if "make gangs of research again" in remark.what]


@pytest.mark.parametrize("refused", ["rebuild rootcopies", "create jobsets", "delete jobsets"])
def test_a_gang_that_may_be_made_again_needs_the_right_to_it(refused: str) -> None:
    assert about_rebuilds(answered(chart("JobSet", notes=REBUILT))) == []
    (remark,) = about_rebuilds(answered(chart("JobSet", notes=REBUILT), refused=[refused]))

    assert (remark.level, remark.what) == (RemarkLevel.RISKS, "the controller may not make gangs of research again")
    assert remark.remedy == (
        "kubectl create rolebinding healthd-rebuild -n research --clusterrole healthd-controller-rebuild "
        "--serviceaccount healthd-system:healthd-controller"
    )


def test_whether_it_may_make_gangs_again_may_not_be_known() -> None:
    (remark,) = about_rebuilds(answered(chart("JobSet", notes=REBUILT), unknown=True))

    assert remark.what == "whether the controller may make gangs of research again is not known"


@pytest.mark.parametrize(("kind", "known"), [("TFJob", ("tfjobs", "kubeflow.org")), ("MPIJob", None)])
def test_of_kubeflow_only_the_jobs_of_the_training_operator_are_made_again(
    kind: str, known: tuple[str, str] | None
) -> None:
    description = next(each for each in SHIPPED if each.name == kind)
    asked = Chart(kind=kind, meta=ObjectMeta(name="llama"), spec={}, description=description)

    assert rebuilt_as(asked) == known
    assert bool(ALL[kind].rebuild_rules) is (known is not None)
