"""What a stolen token of the controller can change of workloads, at a real API server with the shipped manifests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.accounts import Request, answer, refuser, token_of_controller
from tests.gangs.lab.manifests import job, jobset, pods, stateful_set
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

POLICY = "healthd-controller-roots"
TENANT = "team-a"
BATCH = f"/apis/batch/v1/namespaces/{TENANT}/jobs"
APPS = f"/apis/apps/v1/namespaces/{TENANT}/statefulsets"
SETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{TENANT}/jobsets"
OF_CLUSTER = "/apis/apps/v1/namespaces/kube-system/statefulsets"
ALLOWED_OPTION = {"healthd.dev/min-nodes": "2"}
SHRUNK = {
    "healthd.dev/restart": "enabled",
    "healthd.dev/stopped-by": "r",
    "healthd.dev/original-size": "6",
    **ALLOWED_OPTION,
}
"""A gang of four that healthd has stopped, and that it had made smaller before."""
HOST = {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}
PRIVILEGED = [{"name": "main", "image": "none", "securityContext": {"privileged": True}}]


def named(manifest: Json, name: str, notes: Json | None = None, **meta: Any) -> Json:
    """The same under another name, with other annotations."""
    kept = manifest["metadata"]["annotations"] if notes is None else notes
    return {**manifest, "metadata": {"name": name, "annotations": kept, **meta}}


def template(**spec: Any) -> Json:
    """A patch of the spec of a pod template."""
    return {"spec": {"template": {"spec": spec}}}


def of_jobset(**template_spec: Any) -> Json:
    """A patch that writes back all Jobs of the JobSet, with other fields in the spec of their pod templates."""
    return {"spec": {"replicatedJobs": jobset(template=pods(**template_spec))["spec"]["replicatedJobs"]}}


def notes(**values: str | None) -> Json:
    """A patch of annotations of healthd's."""
    return {
        "metadata": {"annotations": {f"healthd.dev/{key.replace('_', '-')}": value for key, value in values.items()}}
    }


PART = jobset()["spec"]["replicatedJobs"][0]
WIDE: Json = {
    "replicatedJobs": [{**PART, "name": f"part-{number}", "replicas": 0} for number in range(200)],
    "suspend": True,
}
"""A JobSet of many parts, each of which is compared."""
WORKLOADS: dict[str, list[Json]] = {
    BATCH: [
        named(job(suspend=True), "held"),
        named(job(), "running"),
        named(job(), "small", {"healthd.dev/restart": "enabled", **ALLOWED_OPTION}),
        named(job(suspend=True), "shrunk", SHRUNK),
        named(job(), "foreign", {}),
        named(job(suspend=True), "annotated", {"healthd.dev/checkpoint": "/ckpt"}),
        named(job(template=pods(labels={"healthd.dev/gang": "workers"})), "launcher", {}),
    ],
    APPS: [
        named(stateful_set(), "workers"),
        named(stateful_set(), "foreign", {}),
        named(stateful_set(replicas=0), "idle"),
        named(
            stateful_set(replicas=0),
            "stopped",
            {"healthd.dev/restart": "enabled", "healthd.dev/stopped-by": "r", "healthd.dev/replicas": "4"},
        ),
        named(stateful_set(replicas=0), "shrunk", {**SHRUNK, "healthd.dev/replicas": "4"}),
    ],
    OF_CLUSTER: [named(stateful_set(replicas=0), "opted-in")],
    SETS: [
        named(jobset(), "set"),
        named(jobset(suspend=True), "held"),
        named(jobset(), "foreign", {}),
        named(jobset(**WIDE), "wide"),
    ],
}

OTHER_PODS: dict[str, Json] = {
    "another image": {"containers": [{"name": "main", "image": "evil"}]},
    "another command": {"containers": [{"name": "main", "image": "none", "command": ["sh"]}]},
    "privilege": {"containers": PRIVILEGED},
    "a further container": {"initContainers": [{"name": "first", "image": "evil"}]},
    "the disk of their host": HOST,
    "the network of their host": {"hostNetwork": True},
    "the processes of their host": {"hostPID": True},
    "another account": {"serviceAccountName": "admin"},
    "a node of its choice": {"nodeName": "n-1"},
    "a class of nodes": {"nodeSelector": {"pool": "x"}},
    "an affinity": {"affinity": {"podAntiAffinity": {}}},
    "a priority": {"priorityClassName": "system-node-critical"},
    "a scheduler": {"schedulerName": "mine"},
    "a toleration of everything": {"tolerations": [{"operator": "Exists"}]},
    "every spare of all gangs": {"tolerations": [{"key": "healthd.dev/reserved-for", "operator": "Exists"}]},
}
BY_POLICY: dict[str, Request] = {
    "a privileged pod, by a StatefulSet of kube-system": (
        "PATCH",
        f"{OF_CLUSTER}/opted-in",
        template(containers=PRIVILEGED),
    ),
    "a StatefulSet of kube-system stopped": ("PATCH", f"{OF_CLUSTER}/opted-in", {"spec": {"replicas": 0}}),
    "a word on a StatefulSet of kube-system": ("PATCH", f"{OF_CLUSTER}/opted-in", notes(progress="{}")),
    **{
        f"a gang's pods with {what} (StatefulSet)": ("PATCH", f"{APPS}/workers", template(**spec))
        for what, spec in OTHER_PODS.items()
    },
    "a label of a gang's pods": (
        "PATCH",
        f"{APPS}/workers",
        {"spec": {"template": {"metadata": {"labels": {"pool": "x"}}}}},
    ),
    "the gang that a gang's pods are of": (
        "PATCH",
        f"{APPS}/workers",
        {"spec": {"template": {"metadata": {"labels": {"healthd.dev/gang": "x"}}}}},
    ),
    "a foreign annotation of a gang's pods": (
        "PATCH",
        f"{APPS}/workers",
        {"spec": {"template": {"metadata": {"annotations": {"sidecar.istio.io/inject": "true"}}}}},
    ),
    "more replicas than there were": ("PATCH", f"{APPS}/workers", {"spec": {"replicas": 100}}),
    "more replicas than were stopped": ("PATCH", f"{APPS}/stopped", {"spec": {"replicas": 5}}),
    "a note of more replicas than there are": ("PATCH", f"{APPS}/workers", notes(replicas="100")),
    "the volumes of a StatefulSet with its pods": (
        "PATCH",
        f"{APPS}/workers",
        {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}},
    ),
    "another way to roll out": (
        "PATCH",
        f"{APPS}/workers",
        {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}},
    ),
    "a StatefulSet that asked for nothing stopped": ("PATCH", f"{APPS}/foreign", {"spec": {"replicas": 0}}),
    "a word on a StatefulSet that asked for nothing": ("PATCH", f"{APPS}/foreign", notes(progress="{}")),
    "consent in the owner's place (StatefulSet)": ("PATCH", f"{APPS}/foreign", notes(restart="enabled")),
    "consent in the owner's place (Job)": ("PATCH", f"{BATCH}/foreign", notes(restart="enabled")),
    "another checkpoint of the owner's": ("PATCH", f"{BATCH}/running", notes(checkpoint="/evil")),
    "another checkpoint format": ("PATCH", f"{BATCH}/running", notes(checkpoint_format="x")),
    "a shorter fence": ("PATCH", f"{BATCH}/running", notes(fence_timeout="1s")),
    "fewer members than the owner wants": ("PATCH", f"{BATCH}/running", notes(min_nodes="1")),
    "a Job that asked for nothing stopped": ("PATCH", f"{BATCH}/foreign", {"spec": {"suspend": True}}),
    "a Job that is only annotated started": ("PATCH", f"{BATCH}/annotated", {"spec": {"suspend": False}}),
    "a Job that its user holds started": ("PATCH", f"{BATCH}/held", {"spec": {"suspend": False}}),
    "the mark of healthd's stop on a Job that its user holds": ("PATCH", f"{BATCH}/held", notes(stopped_by="r")),
    "the mark of healthd's stop on a JobSet that its user holds": ("PATCH", f"{SETS}/held", notes(stopped_by="r")),
    "the mark of healthd's stop on a StatefulSet that its user holds": ("PATCH", f"{APPS}/idle", notes(stopped_by="r")),
    "a Job with more members": ("PATCH", f"{BATCH}/running", {"spec": {"parallelism": 40}}),
    "a Job with no member": ("PATCH", f"{BATCH}/running", {"spec": {"parallelism": 0}}),
    "a Job smaller than its owner allows": ("PATCH", f"{BATCH}/small", {"spec": {"parallelism": 1, "completions": 1}}),
    "a Job larger where it may be smaller": ("PATCH", f"{BATCH}/small", {"spec": {"parallelism": 9, "completions": 9}}),
    "a Job larger than it ever was": ("PATCH", f"{BATCH}/shrunk", {"spec": {"parallelism": 7, "completions": 7}}),
    "a note of a larger Job than there is": ("PATCH", f"{BATCH}/running", notes(original_size="40")),
    "more replicas than there ever were": ("PATCH", f"{APPS}/shrunk", {"spec": {"replicas": 7}}),
    "a note of a larger StatefulSet than there is": ("PATCH", f"{APPS}/stopped", notes(original_size="40")),
    "a Job that ends after a second": ("PATCH", f"{BATCH}/running", {"spec": {"activeDeadlineSeconds": 1}}),
    "a Job that may not fail": ("PATCH", f"{BATCH}/running", {"spec": {"backoffLimit": 0}}),
    "a Job that is deleted when it ends": ("PATCH", f"{BATCH}/running", {"spec": {"ttlSecondsAfterFinished": 0}}),
    "a label of a Job": ("PATCH", f"{BATCH}/running", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}}),
    "a finalizer on a Job": ("PATCH", f"{BATCH}/running", {"metadata": {"finalizers": ["example.com/keep"]}}),
    "an owner of a Job": (
        "PATCH",
        f"{BATCH}/running",
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]}},
    ),
    "the nodes of a held Job": ("PATCH", f"{BATCH}/held", template(nodeSelector={"pool": "x"})),
    "a toleration of a held Job": ("PATCH", f"{BATCH}/held", template(tolerations=[{"operator": "Exists"}])),
    "an annotation of a held Job's pods": (
        "PATCH",
        f"{BATCH}/held",
        {"spec": {"template": {"metadata": {"annotations": {"x": "y"}}}}},
    ),
    "a JobSet that asked for nothing stopped": ("PATCH", f"{SETS}/foreign", {"spec": {"suspend": True}}),
    "a JobSet that its user holds started": ("PATCH", f"{SETS}/held", {"spec": {"suspend": False}}),
    "a JobSet that is deleted when it ends": ("PATCH", f"{SETS}/set", {"spec": {"ttlSecondsAfterFinished": 0}}),
    "the nodes of a held JobSet": ("PATCH", f"{SETS}/held", of_jobset(nodeSelector={"pool": "x"})),
    "a toleration of a held JobSet": ("PATCH", f"{SETS}/held", of_jobset(tolerations=[{"operator": "Exists"}])),
    "a label of a JobSet": ("PATCH", f"{SETS}/set", {"metadata": {"labels": {"x": "y"}}}),
}
"""What RBAC alone would allow."""


@pytest.fixture(scope="module")
def token(installed: ControlPlane, jobset_controller: None) -> str:
    """The controller's, once the policies are at work and the tenants' workloads are there."""
    installed.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    for path, manifests in WORKLOADS.items():
        for manifest in manifests:
            installed.api.create(path, manifest)
    made = token_of_controller(installed)
    stop: Request = ("PATCH", f"{BATCH}/foreign?dryRun=All", {"spec": {"suspend": True}})
    wait_until("the policies at work", lambda: answer(installed, made, stop)[0] == 403, limit=30)
    return made


@pytest.mark.parametrize("what", BY_POLICY)
def test_the_policy_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, BY_POLICY[what])

    assert (status, refuser(message)) == (403, POLICY), message


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        (f"{BATCH}/running", {"spec": {"suspend": True}} | notes(stopped_by="r", stopped_at_generation="2")),
        (f"{BATCH}/launcher", {"spec": {"suspend": True}} | notes(stopped_by="r", launcher_of="workers")),
        (f"{BATCH}/small", {"spec": {"parallelism": 3, "completions": 3}}),
        (
            f"{BATCH}/small",
            {"spec": {"parallelism": 3, "completions": 3}} | notes(original_size="4"),
        ),
        (
            f"{BATCH}/shrunk",
            {"spec": {"suspend": False, "parallelism": 6, "completions": 6}}
            | notes(stopped_by=None, original_size=None, attempt="2"),
        ),
        (f"{APPS}/shrunk", {"spec": {"replicas": 6}} | notes(stopped_by=None, replicas=None, original_size=None)),
        (f"{APPS}/stopped", {"spec": {"replicas": 3}} | notes(stopped_by=None, replicas=None, original_size="4")),
        (f"{BATCH}/annotated", notes(progress="{}", saves="{}", silence="{}")),
        (f"{APPS}/workers", {"spec": {"replicas": 0}} | notes(stopped_by="r", replicas="4")),
        (f"{APPS}/stopped", {"spec": {"replicas": 3}} | notes(stopped_by=None, replicas=None, attempt="1")),
        (f"{SETS}/set", {"spec": {"suspend": True}} | notes(stopped_by="r")),
        (f"{SETS}/wide", notes(attempt="1")),
        (
            f"{APPS}/workers",
            template(tolerations=[{"key": "healthd.dev/reserved-for", "operator": "Equal", "value": "train-1234"}]),
        ),
        (f"{APPS}/workers", {"spec": {"template": {"metadata": {"labels": {"healthd.dev/restarted": "true"}}}}}),
    ],
)
def test_what_stops_and_starts_a_gang_is_allowed(installed: ControlPlane, token: str, path: str, patch: Json) -> None:
    status, message = answer(installed, token, ("PATCH", f"{path}?dryRun=All", patch))

    assert status == 200, message


def test_others_may_change_what_they_like(installed: ControlPlane, token: str) -> None:
    changed = installed.api.patch(f"{APPS}/foreign", template(hostNetwork=True))

    assert changed["spec"]["template"]["spec"]["hostNetwork"] is True
