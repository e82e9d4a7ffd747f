"""What the doctor has to say about a gang before anything has broken."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from healthd.core.api import Lease, ObjectMeta, OwnerReference
from healthd.core.recovery.gang import Elastic, Root
from healthd.core.report.doctor import Chart, HintPolicy, Remark, RemarkLevel, examine
from healthd.gangs.job import read_job
from tests.builders import a_job, a_lease, a_node, a_nodehealth, a_pod
from tests.fakes import START

READS_HINT = {
    "name": "HEALTHD_RESUME_FROM",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['healthd.dev/resume-from']"}},
}
NOTES = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "file:///data/llama"}
IGNORES_DISRUPTION = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def pods(*, labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """The template of pods that read their hint and mount their checkpoints."""
    container = {"name": "main", "env": [READS_HINT], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
    usual = {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}
    return {"metadata": {"labels": dict(labels or {})}, "spec": {**usual, **spec}}


def job(**spec: Any) -> dict[str, Any]:
    """The spec of a Job that healthd can do everything with."""
    usual = {
        "parallelism": 4,
        "completions": 4,
        "completionMode": "Indexed",
        "backoffLimit": 2**31 - 1,
        "podFailurePolicy": IGNORES_DISRUPTION,
        "template": pods(),
    }
    return {**usual, **spec}


def chart(
    kind: str = "Job",
    spec: Mapping[str, Any] | None = None,
    *,
    notes: Mapping[str, str | None] | None = None,
    meta: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Chart:
    """A Job with nothing to complain about, and what *fields* change; a note that is None is not there."""
    annotations = {key: value for key, value in {**NOTES, **(notes or {})}.items() if value is not None}
    fields.setdefault("hint_policy", HintPolicy.INSTALLED)
    fields.setdefault("readable", ("/data", "/database"))
    described = ObjectMeta(name="llama", namespace="research", annotations=annotations, **(meta or {}))
    return Chart(kind=kind, meta=described, spec=job() if spec is None else spec, **fields)


def explained(remarks: list[Remark]) -> str:
    """The one thing that is said."""
    (remark,) = remarks
    return f"{remark.level}: {remark.what}"


def test_a_gang_with_nothing_wrong_is_not_complained_about() -> None:
    assert examine(chart()) == []


@pytest.mark.parametrize(
    ("value", "said"), [(None, "is not there"), ("true", "says 'true', not 'enabled'")], ids=["missing", "misspelt"]
)
def test_a_restart_must_be_asked_for_in_so_many_words(value: str | None, said: str) -> None:
    remarks = examine(chart(notes={"healthd.dev/restart": value}))

    assert explained(remarks) == f"prevents: the annotation healthd.dev/restart {said}"
    assert remarks[0].remedy == "kubectl annotate -n research job/llama healthd.dev/restart=enabled --overwrite"


OF_OPTIONS: Mapping[str, tuple[dict[str, str | None], str]] = {
    "no checkpoint": ({"healthd.dev/checkpoint": None}, "risks: the annotation healthd.dev/checkpoint is not there"),
    "a store that healthd cannot read": (
        {"healthd.dev/checkpoint": "hdfs://host/llama"},
        "prevents: healthd.dev/checkpoint is 'hdfs://host/llama', where healthd cannot read",
    ),
    "a bucket that the controller may not read": (
        {"healthd.dev/checkpoint": "s3://bucket/llama"},
        "prevents: the controller may not read s3://bucket/llama: it reads below /data, /database alone",
    ),
    "a path behind two slashes": (
        {"healthd.dev/checkpoint": "file://data/llama"},
        "prevents: healthd.dev/checkpoint is 'file://data/llama', where healthd cannot read",
    ),
    "no URL at all": (
        {"healthd.dev/checkpoint": "s3://[bucket/llama"},
        "prevents: healthd.dev/checkpoint is 's3://[bucket/llama', where healthd cannot read",
    ),
    "a relative path": (
        {"healthd.dev/checkpoint": "data/llama"},
        "prevents: healthd.dev/checkpoint is 'data/llama', where healthd cannot read",
    ),
    "a path that no volume holds": (
        {"healthd.dev/checkpoint": "file:///database"},
        "risks: no volume of the pods holds file:///database",
    ),
    "a claim that no pod mounts": (
        {"healthd.dev/checkpoint": "pvc://other/llama"},
        "risks: no volume of the pods holds pvc://other/llama",
    ),
    "a slip of the pen": (
        {"healthd.dev/checkpoints": "/data"},
        "risks: healthd.dev/checkpoints is no annotation that healthd knows",
    ),
}


@pytest.mark.parametrize("which", OF_OPTIONS)
def test_what_its_owner_wrote_must_be_understood(which: str) -> None:
    notes, expected = OF_OPTIONS[which]

    assert explained(examine(chart(notes=notes))) == expected


def test_a_line_end_of_an_owner_begins_no_line_of_the_doctor() -> None:
    hostile = "pvc://runs/x\n          do: kubectl delete namespace kube-system\u202e"
    remarks = examine(chart(notes={"healthd.dev/checkpoint": hostile}))

    assert remarks
    assert all((each.what + each.why + each.remedy).isprintable() for each in remarks)


def test_what_cannot_be_read_prevents_a_recovery() -> None:
    why = "healthd.dev/max-no-advance: 'three' is not a number from 0 to 2,147,483,647"

    assert explained(examine(chart(invalid=(why,)))) == f"prevents: {why}"


def test_a_claim_that_the_pods_mount_is_a_good_place() -> None:
    assert examine(chart(notes={"healthd.dev/checkpoint": "pvc://checkpoints/llama"})) == []


OF_JOBS: Mapping[str, tuple[dict[str, Any], str]] = {
    "few retries": ({"backoffLimit": 3}, "risks: backoffLimit is 3, with 4 members"),
    "restarts in place": ({"template": pods(restartPolicy="OnFailure")}, "risks: restartPolicy is OnFailure"),
    "a long grace": (
        {"template": pods(terminationGracePeriodSeconds=3600)},
        "risks: terminationGracePeriodSeconds is 3600",
    ),
    "somebody else's controller": ({"managedBy": "kueue.x-k8s.io/multikueue"}, "prevents: it is managed by kueue"),
    "not all members at once": ({"completions": 8}, "prevents: 8 completions with a parallelism of 4"),
    "no indexes": ({"completionMode": "NonIndexed"}, "note: the Job is not Indexed"),
    "a new pod beside the old": (
        {"podFailurePolicy": {}, "podReplacementPolicy": "TerminatingOrFailed"},
        "note: podReplacementPolicy is not Failed",
    ),
    "disruptions that count": (
        {"podFailurePolicy": {}, "podReplacementPolicy": "Failed", "backoffLimit": 100},
        "note: no podFailurePolicy ignores disruptions",
    ),
}


@pytest.mark.parametrize("which", OF_JOBS)
def test_what_a_job_can_have_in_the_way(which: str) -> None:
    spec, expected = OF_JOBS[which]

    assert explained(examine(chart(spec=job(**spec)))).startswith(expected)


def test_a_job_that_a_jobset_made_is_not_where_to_write() -> None:
    owner = OwnerReference(kind="JobSet", name="llama", uid="uid-1", controller=True)

    remarks = examine(chart(meta={"owner_references": [owner]}))

    assert explained(remarks) == "prevents: job/llama is made by jobset/llama"
    assert remarks[0].remedy == "write the annotations on jobset/llama"


def test_a_job_of_a_cron_job_is_as_good_as_any() -> None:
    owner = OwnerReference(api_version="batch/v1", kind="CronJob", name="nightly", uid="uid-1", controller=True)

    assert examine(chart(meta={"owner_references": [owner]})) == []


def test_a_trial_of_katib_wants_checkpoints_of_its_own() -> None:
    owner = OwnerReference(api_version="kubeflow.org/v1beta1", kind="Trial", name="llama", uid="uid-1", controller=True)
    own, shared = {"healthd.dev/checkpoint": "pvc://checkpoints/llama"}, {"healthd.dev/checkpoint": "pvc://checkpoints"}

    assert examine(chart(meta={"owner_references": [owner]}, notes=own)) == []
    assert explained(examine(chart(meta={"owner_references": [owner]}, notes=shared))) == (
        "risks: pvc://checkpoints does not have the name of the trial in it"
    )


def test_a_gang_grows_back_only_where_it_may_shrink_and_its_saves_are_seen() -> None:
    asked = {"healthd.dev/grow-back": "enabled"}
    shrinks = {**asked, "healthd.dev/min-nodes": "2"}

    assert examine(chart(notes=shrinks)) == []
    assert explained(examine(chart(notes=asked))).startswith("note: healthd.dev/grow-back has no effect without")
    assert explained(examine(chart(notes={**shrinks, "healthd.dev/grow-back": "yes"}))) == (
        "note: healthd.dev/grow-back is 'yes'"
    )


def test_a_gang_is_made_again_only_of_a_kind_that_is_and_by_the_word_that_asks_for_it() -> None:
    asked = {"healthd.dev/rebuild": "enabled"}

    assert examine(chart(notes=asked)) == []
    assert explained(examine(chart(notes={"healthd.dev/rebuild": "yes"}))) == "risks: healthd.dev/rebuild is 'yes'"
    said = [remark.what for remark in examine(chart("StatefulSet", {"template": pods()}, notes=asked))]
    assert "healthd.dev/rebuild has no effect on a StatefulSet" in said


def test_a_gang_leaves_a_slow_node_only_where_its_saves_are_seen_its_ranks_are_compared_and_it_is_in_no_queue() -> None:
    asked = {"healthd.dev/slow-rank": "swap"}
    unseen = examine(chart(notes={**asked, "healthd.dev/checkpoint": ""}))
    queued = [remark.what for remark in examine(chart(root=in_a_queue(), notes=asked))]

    assert examine(chart(notes=asked)) == []
    assert explained(examine(chart(notes={**asked, "healthd.dev/hang": "ignore"}))) == (
        "note: healthd.dev/slow-rank: swap has no effect beside healthd.dev/hang: ignore"
    )
    assert "healthd.dev/slow-rank: swap has no effect without healthd.dev/checkpoint" in [each.what for each in unseen]
    assert "healthd.dev/slow-rank: swap has no effect on a gang in a queue" in queued


def test_a_gang_in_a_queue_gives_its_quota_back_while_it_is_stopped() -> None:
    assert explained(examine(chart(root=in_a_queue()))) == "note: it is in Kueue's queue lq"


@pytest.mark.parametrize("policy", [HintPolicy.MISSING, HintPolicy.NOT_SERVED])
def test_a_gang_in_a_queue_needs_the_admission_policy(policy: HintPolicy) -> None:
    worst = examine(chart(root=in_a_queue(), hint_policy=policy))[0]

    assert worst.level is RemarkLevel.PREVENTS
    assert worst.what == "it is in Kueue's queue lq, and the admission policy healthd-gangs is not there"


def test_why_a_gang_in_a_queue_does_not_run_is_said() -> None:
    said = [remark.what for remark in examine(chart(root=in_a_queue(unadmitted="it waits in Kueue's queue 'lq'")))]

    assert said == ["it waits in Kueue's queue 'lq'", "it is in Kueue's queue lq"]


def test_a_group_of_pods_in_a_queue_needs_no_policy_as_healthd_makes_its_pods_again() -> None:
    remarks = examine(chart("PodGang", {"pods": []}, root=in_a_queue(), hint_policy=HintPolicy.MISSING))

    (remark,) = [each for each in remarks if "queue" in each.what]
    assert remark.what == "it is in Kueue's queue lq"
    assert "deletes that before it makes the pods again" in remark.why


def in_a_queue(unadmitted: str = "") -> Root:
    """Of a Job that Kueue starts and stops."""
    root = read_job(a_job(annotations=NOTES))
    return dataclasses.replace(root, queue="lq", unadmitted=unadmitted)


def jobset(*parts: tuple[str, dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """The spec of a JobSet."""
    return {"replicatedJobs": [{"name": name, "template": {"spec": part}} for name, part in parts], **spec}


def test_each_part_of_a_jobset_is_read() -> None:
    spec = jobset(("leader", job(parallelism=1, completions=1)), ("workers", job(backoffLimit=0)))

    assert explained(examine(chart("JobSet", spec))) == "risks: backoffLimit of workers is 0, with 4 members"


def test_a_jobset_that_restarts_itself_needs_no_retries_of_its_jobs() -> None:
    spec = jobset(("workers", job(backoffLimit=0)), failurePolicy={"maxRestarts": 3})

    assert examine(chart("JobSet", spec)) == []


def test_a_jobset_cannot_shrink() -> None:
    remarks = examine(chart("JobSet", jobset(("workers", job())), notes={"healthd.dev/min-nodes": "3"}))

    assert explained(remarks) == "note: healthd.dev/min-nodes has no effect on a JobSet"


def test_a_job_in_a_queue_cannot_shrink() -> None:
    held = dataclasses.replace(read_job(a_job(annotations=NOTES)), elastic=None)

    remarks = examine(chart(root=held, notes={"healthd.dev/min-nodes": "3"}))

    assert explained(remarks) == "note: healthd.dev/min-nodes has no effect on this Job"


def test_a_minimum_of_its_own_does_nothing_without_the_annotation() -> None:
    limited = dataclasses.replace(read_job(a_job(annotations=NOTES)), elastic=Elastic(members=3, least=2))
    without, asked = {"healthd.dev/min-nodes": None}, {"healthd.dev/min-nodes": "3"}

    assert explained(examine(chart(root=limited, notes=without))) == (
        "note: it may have fewer members by its own minimum, and healthd.dev/min-nodes is not there"
    )
    assert examine(chart(root=limited, notes=asked)) == []


LAUNCHER = {"healthd.dev/launcher": "mpirun"}


def stateful(**spec: Any) -> dict[str, Any]:
    """The spec of a StatefulSet."""
    return {"podManagementPolicy": "Parallel", "template": pods(restartPolicy="Always"), **spec}


def launcher(labels: Mapping[str, str]) -> dict[str, Any]:
    """A launcher Job."""
    return {"spec": job(parallelism=1, completions=1, template=pods(labels=labels))}


GOOD_LAUNCHER = launcher({"healthd.dev/gang": "llama"})


def test_a_statefulset_with_its_launcher_is_in_order() -> None:
    assert examine(chart("StatefulSet", stateful(), notes=LAUNCHER, launcher=GOOD_LAUNCHER)) == []


@pytest.mark.parametrize(
    ("spec", "fields", "expected"),
    [
        ({}, {"notes": {}}, "note: it has no launcher"),
        ({}, {"notes": LAUNCHER}, "prevents: there is no Job mpirun, which healthd.dev/launcher names"),
        (
            {},
            {"notes": LAUNCHER, "launcher": launcher({})},
            "prevents: the pods of job/mpirun do not carry the label healthd.dev/gang: llama",
        ),
        (
            {"podManagementPolicy": "OrderedReady"},
            {"notes": LAUNCHER, "launcher": GOOD_LAUNCHER},
            "risks: podManagementPolicy is OrderedReady",
        ),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}},
            {"notes": LAUNCHER, "launcher": GOOD_LAUNCHER},
            "prevents: its volumes are deleted when it is scaled down",
        ),
    ],
    ids=["never ends", "no launcher there", "launcher unknown by its pods", "one by one", "loses its volumes"],
)
def test_what_a_statefulset_can_have_in_the_way(spec: dict[str, Any], fields: dict[str, Any], expected: str) -> None:
    assert explained(examine(chart("StatefulSet", stateful(**spec), **fields))) == expected


BLIND = pods(containers=[{"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}])


@pytest.mark.parametrize("policy", [HintPolicy.MISSING, HintPolicy.NOT_SERVED])
def test_without_the_admission_policy_the_pods_must_ask_where_to_resume(policy: HintPolicy) -> None:
    blind = [r.what for r in examine(chart(spec=job(template=BLIND), hint_policy=policy))]
    asking = [r.what for r in examine(chart(hint_policy=policy))]

    assert "nothing sets the resume point of container main" in blind
    assert "nothing sets the resume point of container main" not in asking


def test_with_the_admission_policy_pods_get_the_hint() -> None:
    assert examine(chart(spec=job(template=BLIND))) == []


def test_a_path_of_its_own_under_the_name_of_the_hint_is_found() -> None:
    own = {"name": "main", "env": [{"name": "HEALTHD_RESUME_FROM", "value": "/data/step_1"}]}
    spec = job(template=pods(containers=[{**own, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]))

    assert explained(examine(chart(spec=spec))) == "risks: container main sets HEALTHD_RESUME_FROM itself"


def test_pods_that_healthd_makes_itself_always_get_the_hint() -> None:
    spec = {"pods": [BLIND, BLIND]}

    made = {r.what for r in examine(chart("PodGang", spec, hint_policy=HintPolicy.NOT_SERVED))}
    awaited = {
        r.what
        for r in examine(
            chart("PodGang", spec, hint_policy=HintPolicy.NOT_SERVED, notes={"healthd.dev/recreate": "owner"})
        )
    }

    assert awaited - made == {"nothing sets the resume point of container main"}


def test_what_is_true_of_many_pods_is_said_once() -> None:
    slow = pods(terminationGracePeriodSeconds=600)

    assert len(examine(chart("PodGang", {"pods": [slow] * 4}))) == 1


def test_pods_with_a_controller_are_no_members_of_a_gang_by_label() -> None:
    member = a_pod(gang="llama", owner=a_job(uid="uid-1"))

    assert explained(examine(chart("PodGang", {"pods": [pods()]}, pods=(member,)))) == (
        "risks: some pods with the label have a controller"
    )


def cluster(*nodes: Any, watched: bool = True) -> dict[str, Any]:
    """One member on `node-a`, beside whatever other *nodes* there are."""
    known = {node.metadata.name: node for node in nodes}
    health = {name: a_nodehealth(name) for name in known} if watched else {}
    return {"pods": (a_pod(node="node-a"),), "nodes": known, "health": health}


def test_a_spare_like_its_nodes_is_all_that_is_needed() -> None:
    assert examine(chart(**cluster(a_node("node-a"), a_node("spare", spare=True)))) == []


def test_a_gang_without_a_spare_would_wait_for_a_repair() -> None:
    assert explained(examine(chart(**cluster(a_node("node-a"))))) == "risks: no node is held as a spare for node-a"


def test_a_spare_of_other_hardware_is_none() -> None:
    h100, a100 = {"nvidia.com/gpu.product": "H100"}, {"nvidia.com/gpu.product": "A100"}
    nodes = cluster(a_node("node-a", labels=h100), a_node("spare", spare=True, labels=a100))

    assert explained(examine(chart(**nodes))) == "risks: no free spare has the same hardware as node-a"


def test_a_node_that_no_agent_watches_is_found() -> None:
    nodes = cluster(a_node("node-a"), a_node("spare", spare=True), watched=False)

    assert explained(examine(chart(**nodes))) == "risks: no healthd agent reports from node-a"


NO_LEADER = "prevents: no controller of healthd leads: nothing holds its Lease"


@pytest.mark.parametrize(
    ("leases", "said"),
    [
        pytest.param((), "prevents: no controller of healthd leads: nothing holds its Lease", id="it never led"),
        pytest.param(
            (a_lease(),), "prevents: no controller of healthd leads: nothing holds its Lease", id="given back"
        ),
        pytest.param(
            (a_lease(holder="pod-1", renewed=START - timedelta(hours=3)),),
            "risks: the controller that leads, pod-1, has not renewed its Lease for 3h",
            id="killed",
        ),
    ],
)
def test_a_controller_that_does_not_lead_restarts_nothing(leases: tuple[Lease, ...], said: str) -> None:
    assert explained(examine(chart(leases=leases, now=START))) == said


@pytest.mark.parametrize("late", [timedelta(seconds=20), timedelta(minutes=-30)])
def test_the_clock_of_another_machine_is_not_trusted_to_the_minute(late: timedelta) -> None:
    assert examine(chart(leases=(a_lease(holder="pod-1", renewed=START - late),), now=START)) == []


def test_the_gravest_comes_first() -> None:
    spec = job(backoffLimit=0, completionMode="NonIndexed")

    levels = [remark.level for remark in examine(chart(spec=spec, notes={"healthd.dev/restart": None}))]

    assert levels == [RemarkLevel.PREVENTS, RemarkLevel.RISKS, RemarkLevel.NOTE]


@pytest.mark.parametrize(
    ("readable", "said"),
    [
        (("/checkpoints", "/shared"), "prevents: the controller may not read file:///data/llama: it reads below"),
        (None, "risks: whether the controller may read file:///data/llama is not known"),
    ],
)
def test_a_path_that_the_controller_may_not_read_is_no_place_for_checkpoints(
    readable: tuple[str, ...] | None, said: str
) -> None:
    assert explained(examine(chart(readable=readable))).startswith(said)


def test_no_path_gets_out_of_the_folders_that_the_controller_may_read() -> None:
    (remark,) = examine(chart(notes={"healthd.dev/checkpoint": "file:///data/../etc"}))

    assert "may not read" in remark.what


def test_a_claim_needs_no_permission() -> None:
    assert examine(chart(notes={"healthd.dev/checkpoint": "pvc://checkpoints/llama"}, readable=("/none",))) == []


def test_a_bucket_that_the_controller_reads_is_no_risk() -> None:
    assert examine(chart(notes={"healthd.dev/checkpoint": "s3://team/llama"}, readable=("/data", "s3://team"))) == []
