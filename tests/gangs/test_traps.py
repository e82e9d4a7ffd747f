"""What of a gang of a described kind would get in the way on the day, as the doctor says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from healthd.core.config.gang_kinds import KindDescription, Trap
from healthd.gangs.kinds import SHIPPED
from healthd.gangs.traps import found_traps
from tests.gangs.described import SPECS, adapter_of, an_object

KUBEFLOW = {"PyTorchJob": "pytorch", "TFJob": "tf", "XGBoostJob": "xgb", "PaddleJob": "paddle", "JAXJob": "jax"}


def found(kind: str, **spec: Any) -> dict[str, str]:
    """What shows each trap of such a gang, and why it is one."""
    obj = an_object(kind, spec=spec)
    traps = found_traps(adapter_of(kind).description, {"spec": obj.spec, "status": obj.status})
    return {each.what: each.trap.why for each in traps}


def restarting(kind: str, policy: str | None) -> dict[str, Any]:
    """The spec of a training job whose workers have this restartPolicy."""
    return {f"{KUBEFLOW[kind]}ReplicaSpecs": {"Worker": {"restartPolicy": policy}}}


FATAL = {
    ("TFJob", "Never"): "fails or is deleted",
    ("TFJob", "OnFailure"): "is deleted, as a drain does",
    ("TFJob", "ExitCode"): "is deleted, as a drain does, or exits with 1 to 127",
    ("XGBoostJob", "Never"): "fails or is deleted",
    ("XGBoostJob", "OnFailure"): "fails or is deleted",
    ("XGBoostJob", "ExitCode"): "exits with 1 to 127",
    ("PyTorchJob", "Never"): "fails or is deleted",
    ("PyTorchJob", "ExitCode"): "exits with 1 to 127, as after an error of NCCL",
    ("PaddleJob", "Never"): "fails or is deleted",
    ("PaddleJob", "ExitCode"): "exits with 1 to 127",
    ("JAXJob", "Never"): "fails or is deleted",
    ("JAXJob", "ExitCode"): "exits with 1 to 127",
}
"""What one pod of such a job does that ends the whole, as its operator was seen to act."""


@pytest.mark.parametrize(("kind", "policy"), FATAL)
def test_a_restart_policy_by_which_one_pod_ends_a_training_job_is_found(kind: str, policy: str) -> None:
    traps = found(kind, **restarting(kind, policy))

    (said,) = [why for what, why in traps.items() if f"is {policy}" in what]
    what_ends_it = FATAL[kind, policy]
    assert said.startswith(
        f"such a {kind} is failed for good when one of its pods {what_ends_it}, often before healthd"
    )


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob", "JAXJob"])
def test_on_failure_is_no_trap_where_its_operator_replaces_the_pod(kind: str) -> None:
    assert found(kind, **restarting(kind, "OnFailure")) == {}


@pytest.mark.parametrize(
    ("kind", "is_trap"),
    [("TFJob", True), ("XGBoostJob", True), ("JAXJob", True), ("PyTorchJob", False), ("PaddleJob", False)],
)
def test_a_restart_policy_that_is_left_out_is_what_the_operator_takes_for_it(kind: str, is_trap: bool) -> None:
    traps = found(kind, **restarting(kind, None))

    assert ("restartPolicy of Worker is not set" in traps) is is_trap


def test_all_parts_that_have_a_trap_are_named_at_once() -> None:
    spec = {"pytorchReplicaSpecs": {part: {"restartPolicy": "Never"} for part in ("Master", "Worker")}}

    assert list(found("PyTorchJob", **spec)) == ["restartPolicy of Master, Worker is Never"]


OTHERS: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "an autoscaler of workers": (
        "PyTorchJob",
        {"elasticPolicy": {"metrics": [{"type": "Resource"}]}},
        "spec.elasticPolicy.metrics is set",
    ),
    "another controller": (
        "TrainJob",
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        "spec.managedBy is kueue.x-k8s.io/multikueue",
    ),
    "a cluster that is left when the job ends": (
        "RayJob",
        {"shutdownAfterJobFinishes": None, "backoffLimit": 1},
        "spec.shutdownAfterJobFinishes is not set",
    ),
    "a cluster of others": (
        "RayJob",
        {"clusterSelector": {"ray.io/cluster": "shared"}, "backoffLimit": 1},
        "spec.clusterSelector is set",
    ),
    "no retry of the program": ("RayJob", {}, "spec.backoffLimit is not set"),
    "an autoscaler of Ray": (
        "RayJob",
        {"rayClusterSpec": {"enableInTreeAutoscaling": True}, "backoffLimit": 1},
        "spec.rayClusterSpec.enableInTreeAutoscaling is true",
    ),
    "a program that somebody submitted": ("RayCluster", {}, "spec.headGroupSpec is set"),
    "members that are replaced one by one": (
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"restartPolicy": "None"}},
        "spec.leaderWorkerTemplate.restartPolicy is None",
    ),
    "several groups": ("LeaderWorkerSet", {"replicas": 3}, "spec.replicas is 3"),
    "a launcher that works, too": ("MPIJob", {"runLauncherAsWorker": True}, "spec.runLauncherAsWorker is true"),
    "a policy of Volcano's that is faster": (
        "VolcanoJob",
        {"policies": [{"event": "PodEvicted", "action": "RestartJob"}, {"event": "PodFailed", "action": "RestartJob"}]},
        "spec.policies.event is PodFailed",
    ),
    "the same among several events": (
        "VolcanoJob",
        {"policies": [{"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}]},
        "spec.policies.events is PodFailed",
    ),
    "a policy that ends a job": (
        "VolcanoJob",
        {"policies": [{"event": "TaskFailed", "action": "TerminateJob"}]},
        "spec.policies.action is TerminateJob",
    ),
    "a task of no number": (
        "VolcanoJob",
        {"policies": [], "tasks": [{"name": "w", "template": {}}]},
        "spec.tasks.replicas is not set",
    ),
    "a text without end": ("AppWrapper", {"managedBy": "x" * 300}, f"spec.managedBy is '{'x' * 60}"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_a_trap_is_found_in_the_object(which: str) -> None:
    kind, spec, what = OTHERS[which]

    (said,) = found(kind, **spec)

    assert said.startswith(what)
    assert len(said) < 200


@pytest.mark.parametrize("kind", [each.name for each in SHIPPED])
def test_every_trap_of_a_kind_says_why_and_what_to_do(kind: str) -> None:
    for trap in adapter_of(kind).description.traps:
        assert trap.why
        assert trap.remedy
        assert not trap.why.endswith(".")


@pytest.mark.parametrize("junk", [5, "x", [], {"*": None}, {f"part-{i}": {} for i in range(200)}])
def test_a_spec_of_another_shape_raises_nothing(junk: Any) -> None:
    for kind in SHIPPED:
        for key in SPECS[kind.name]:
            list(found_traps(kind, {"spec": {**SPECS[kind.name], key: junk}, "status": junk}))


def test_a_condition_may_be_a_trap_of_a_kind_of_ones_own() -> None:
    own = KindDescription(kind="Run", traps=(Trap(when="Frozen", why="it is frozen", remedy="thaw it"),))
    status = {"conditions": [{"type": "Frozen", "status": "True"}]}

    assert [each.what for each in found_traps(own, {"spec": {}, "status": status})] == ["its condition Frozen is True"]
