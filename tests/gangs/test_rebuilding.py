"""How a root that failed for good is copied, and made again."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.api import Condition, CustomObject, GangRef, Job, JobStatus, ObjectMeta, OwnerReference
from healthd.core.recovery.gang import Failure, Root
from healthd.core.untrusted import InvalidText
from healthd.gangs.kinds import ALL
from healthd.gangs.rebuilding import JOB, JOBSET, TRAINING_JOB, RebuildRules, copied, made_again
from tests.builders import a_job
from tests.fakes import START
from tests.gangs.described import SPECS, an_object, conditions

GANG = GangRef(kind="Job", name="train", namespace="team", uid="uid-old")
NOTES = {"healthd.dev/restart": "enabled", "healthd.dev/rebuild": "enabled"}
A_JOB: dict[str, Any] = {
    "parallelism": 2,
    "backoffLimit": 0,
    "suspend": False,
    "futureField": {"kept": [1, 2.5, None]},
    "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "uid-old"}},
    "template": {
        "metadata": {
            "labels": {
                "app": "llama",
                "controller-uid": "uid-old",
                "job-name": "train",
                "batch.kubernetes.io/controller-uid": "uid-old",
                "batch.kubernetes.io/job-name": "train",
            }
        },
        "spec": {"serviceAccountName": "trainer", "containers": [{"name": "main"}]},
    },
}


def again(spec: dict[str, Any], rules: RebuildRules = JOB, meta: ObjectMeta | None = None) -> dict[str, Any]:
    """What is made from a copy."""
    text = copied(meta or ObjectMeta(name="train", annotations=NOTES), spec, rules)
    return made_again(text, GANG, "train-1", rules)


def test_a_job_is_made_as_its_owner_wrote_it_and_stopped() -> None:
    made = again(A_JOB)["spec"]

    assert made.pop("suspend") is True
    assert made.pop("template") == {**A_JOB["template"], "metadata": {"labels": {"app": "llama"}}}
    assert made == {"parallelism": 2, "backoffLimit": 0, "futureField": {"kept": [1, 2.5, None]}}


def test_it_has_a_note_and_the_mark_of_the_recovery_that_has_stopped_it() -> None:
    own = {**NOTES, "healthd.dev/attempt": "3", "healthd.dev/stopped-by": "an-earlier-one", "team.example/cost": "7"}
    meta = ObjectMeta(name="train", labels={"queue": "none"}, annotations=own)

    assert again(A_JOB, meta=meta)["metadata"] == {
        "name": "train",
        "namespace": "team",
        "labels": {"queue": "none"},
        "annotations": {
            **own,
            "healthd.dev/stopped-by": "train-1",
            "healthd.dev/stopped-at-generation": "1",
            "healthd.dev/rebuilt-from": "uid-old",
            "healthd.dev/rebuilt-by": "train-1",
        },
    }


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob"])
def test_a_training_job_is_made_stopped_and_otherwise_the_same(kind: str) -> None:
    spec = SPECS[kind]
    assert again(spec, TRAINING_JOB)["spec"] == {**spec, "runPolicy": {**spec["runPolicy"], "suspend": True}}


@pytest.mark.parametrize(
    ("spec", "rules", "why"),
    [
        (A_JOB | {"manualSelector": True}, JOB, r"its owner chose its selector"),
        ({"runPolicy": {"activeDeadlineSeconds": 60}}, TRAINING_JOB, r"it has a deadline \(spec.runPolicy"),
        ({"replicatedJobs": [{"template": {"spec": {"activeDeadlineSeconds": 60}}}]}, JOBSET, r"it has a deadline"),
    ],
)
def test_what_may_have_ended_for_another_reason_or_cannot_be_made_alike_is_not_copied(
    spec: dict[str, Any], rules: RebuildRules, why: str
) -> None:
    with pytest.raises(InvalidText, match=why):
        copied(ObjectMeta(name="train"), spec, rules)


def test_a_copy_that_would_not_fit_into_an_object_is_not_kept() -> None:
    noise = {str(number): hash((number, "x")) for number in range(100_000)}
    with pytest.raises(InvalidText, match=r"its copy has [\d,]+ characters; healthd keeps up to 524,288"):
        copied(ObjectMeta(name="train"), {"template": noise}, JOB)


@pytest.mark.parametrize("text", ["", "!", "e30="])
def test_a_text_that_is_no_copy_is_refused(text: str) -> None:
    with pytest.raises(InvalidText):
        made_again(text, GANG, "train-1", JOB)


def failed(reason: str = "BackoffLimitExceeded", type: str = "Failed", **meta: Any) -> Failure:  # noqa: A002
    """How healthd reads the end of a Job."""
    condition = Condition(type=type, status="True", reason=reason, last_transition_time=START)
    job = a_job(annotations=NOTES, status=JobStatus(conditions=[condition]), **meta)
    return _failure(ALL["Job"].read_any(job))


def _failure(root: Root) -> Failure:
    assert root.failure is not None
    return root.failure


def test_a_job_that_used_up_its_retries_may_be_made_again() -> None:
    assert failed() == Failure(at=START, reason="BackoffLimitExceeded")


@pytest.mark.parametrize("reason", ["DeadlineExceeded", "PodFailurePolicy", "SomethingNew", ""])
def test_one_that_a_rule_of_its_owner_ended_may_not(reason: str) -> None:
    assert failed(reason).kept == f"it ended by a rule of its owner ({reason!r})"


def test_nor_one_that_is_in_a_queue() -> None:
    assert failed(labels={"kueue.x-k8s.io/queue-name": "team"}).kept == "it is in a queue of Kueue"


def test_nor_one_that_another_object_made() -> None:
    owner = OwnerReference(api_version="batch/v1", kind="CronJob", name="nightly", uid="uid-cron", controller=True)
    assert failed(owner_references=[owner]).kept == "'CronJob' 'nightly' made it, and has to make it again"


def test_nor_one_that_a_finalizer_keeps() -> None:
    assert failed(finalizers=["example.com/audit"]).kept == "a finalizer keeps it ('example.com/audit')"


@pytest.mark.parametrize("kind", sorted(name for name, each in ALL.items() if not each.rebuild_rules))
def test_other_kinds_say_that_they_are_not_made_again(kind: str) -> None:
    assert kind in {
        "AppWrapper", "LeaderWorkerSet", "MPIJob", "PodGang", "RayCluster", "RayJob", "StatefulSet", "TrainJob",
        "VolcanoJob",
    }  # fmt: skip


def test_a_trainjob_says_when_it_failed_and_that_it_is_not_made_again() -> None:
    root = ALL["TrainJob"].read_any(an_object("TrainJob", status=conditions("Failed")))
    failure = _failure(root)

    assert failure.at is not None
    assert failure.kept == "healthd makes no TrainJob again"


def test_conditions_that_cannot_be_read_say_nothing() -> None:
    status = {"conditions": ["Failed", 7, {"type": "Failed", "status": "True", "lastTransitionTime": "yesterday"}]}
    hostile: CustomObject = an_object("TFJob", status=status)
    failure = _failure(ALL["TFJob"].read_any(hostile))

    assert failure.at is None


def test_a_job_that_ran_on_has_no_failure() -> None:
    running: Job = a_job(annotations=NOTES)
    assert ALL["Job"].read_any(running).failure is None
