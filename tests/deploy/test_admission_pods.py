"""What a stolen token of the controller can do to pods and to healthd's own records, at a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deploy.accounts import Request, answer, refuser, token_of_controller
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TENANT = "team-b"
PODS = f"/api/v1/namespaces/{TENANT}/pods"
OF_CLUSTER = "/api/v1/namespaces/kube-system/pods"
OURS = f"/apis/healthd.dev/v1alpha1/namespaces/{TENANT}"
GATE = [{"name": "healthd.dev/gang"}]
JOB = "batch.kubernetes.io/job-tracking"
FENCE = "healthd.dev/fence"
OWNED = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{owner}", "controller": True}]
"""By something that leaves its pods alone; its uid is put in when it is there."""
IMAGE: list[Json] = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
TOLERATION: list[Json] = [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]
FAILED = {"status": {"phase": "Failed", "reason": "Fenced", "message": "m"}}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "plain-pods"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "healthd-controller-plain-pods",
    },
    "subjects": [{"kind": "ServiceAccount", "name": "healthd-controller", "namespace": "healthd-system"}],
}
"""What docs/kubernetes/prepare-a-job.md has an administrator bind where there are gangs of plain pods."""


def a_pod(name: str, *, spec: Json | None = None, **meta: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **meta},
        "spec": {"containers": [{"name": "main", "image": "none"}], **(spec or {})},
    }


KUEUE = "kueue.x-k8s.io/managed"
"""Its webhook writes this finalizer to each pod of a group."""


def a_plain_pod(name: str = "made-again", *, spec: Json | None = None, **meta: Any) -> Json:
    """As healthd makes one again."""
    ours = {"labels": {"healthd.dev/gang": "g"}, "annotations": {"healthd.dev/made-by": "r"}}
    return a_pod(name, spec={"schedulingGates": GATE, **(spec or {})}, **{**ours, **meta})


def a_recovery(name: str, *, of: str = TENANT, phase: str = "", **meta: Any) -> Json:
    """A recovery of a gang in the namespace *of*."""
    return {
        "apiVersion": "healthd.dev/v1alpha1",
        "kind": "Recovery",
        "metadata": {"name": name, **meta},
        "spec": {
            "gang": {"kind": "Job", "name": "llama", "namespace": of, "uid": "u"},
            "firstAttempt": 1,
            "cause": {"kind": "hardware", "message": "m", "at": "2026-01-01T00:00:00Z"},
        },
        **({"status": {"phase": phase}} if phase else {}),
    }


def a_pod_gang(name: str, **meta: Any) -> Json:
    return {
        "apiVersion": "healthd.dev/v1alpha1",
        "kind": "PodGang",
        "metadata": {"name": name, **meta},
        "spec": {"members": [], "size": 0, "manifests": ""},
    }


THERE = [
    a_pod("stranger"),
    a_pod("rank", finalizers=[JOB, FENCE, "example.com/keep"], ownerReferences=OWNED),
    a_pod("ending", finalizers=[JOB, FENCE, "example.com/keep"], ownerReferences=OWNED),
    a_pod("behind-its-gate", spec={"schedulingGates": [*GATE, {"name": "example.com/quota"}]}),
    a_pod("plain", labels={"healthd.dev/gang": "g"}),
]

PODS_POLICY = "healthd-controller-pods"
RECORDS_POLICY = "healthd-controller-records"

OF_PODS: dict[str, Request] = {
    "a pod of kube-system deleted": ("DELETE", f"{OF_CLUSTER}/dns", None),
    "the image of a pod of kube-system": (
        "PATCH",
        f"{OF_CLUSTER}/dns",
        IMAGE,
    ),
    "the image of any pod": (
        "PATCH",
        f"{PODS}/stranger",
        IMAGE,
    ),
    "the image of a rank": ("PATCH", f"{PODS}/rank", IMAGE),
    "the image of a plain pod": (
        "PATCH",
        f"{PODS}/plain",
        IMAGE,
    ),
    "a pod that ends after a second": ("PATCH", f"{PODS}/stranger", {"spec": {"activeDeadlineSeconds": 1}}),
    "a toleration of everything": ("PATCH", f"{PODS}/stranger", TOLERATION),
    "a label of a pod, and so a place behind a Service": (
        "PATCH",
        f"{PODS}/stranger",
        {"metadata": {"labels": {"app": "bank"}}},
    ),
    "a label by way of the status": ("PATCH", f"{PODS}/stranger/status", {"metadata": {"labels": {"app": "bank"}}}),
    "an annotation of a pod": ("PATCH", f"{PODS}/stranger", {"metadata": {"annotations": {"a": "b"}}}),
    "another attempt of a pod that is no plain one": (
        "PATCH",
        f"{PODS}/rank",
        {"metadata": {"annotations": {"healthd.dev/attempt": "9"}}},
    ),
    "the gang of a pod": ("PATCH", f"{PODS}/stranger", {"metadata": {"labels": {"healthd.dev/gang": "g"}}}),
    "an owner of a pod": (
        "PATCH",
        f"{PODS}/stranger",
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]}},
    ),
    "a finalizer put on": ("PATCH", f"{PODS}/stranger", {"metadata": {"finalizers": [FENCE]}}),
    "a foreign finalizer taken off": ("PATCH", f"{PODS}/rank", {"metadata": {"finalizers": [JOB, FENCE]}}),
    "the Job's finalizer taken off a pod that runs": (
        "PATCH",
        f"{PODS}/rank",
        {"metadata": {"finalizers": [FENCE, "example.com/keep"]}},
    ),
    "a foreign gate opened": ("PATCH", f"{PODS}/behind-its-gate", {"spec": {"schedulingGates": GATE}}),
    "a pod that runs called Failed": ("PATCH", f"{PODS}/rank/status", FAILED),
    "a pod that is being deleted called Succeeded": (
        "PATCH",
        f"{PODS}/ending/status",
        {"status": {"phase": "Succeeded", "reason": "Fenced"}},
    ),
    "the address of a pod, and so the traffic of a Service": (
        "PATCH",
        f"{PODS}/stranger/status",
        {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
    ),
    "a pod that is ready": (
        "PATCH",
        f"{PODS}/stranger/status",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    ),
    "any pod deleted": ("DELETE", f"{PODS}/stranger", None),
    "a rank that runs deleted": ("DELETE", f"{PODS}/rank", None),
    "a plain pod where it may make none": ("POST", "/api/v1/namespaces/default/pods", a_plain_pod()),
    "a plain pod in kube-system": ("POST", OF_CLUSTER, a_plain_pod()),
    "a plain pod that healthd's gate does not hold": ("POST", PODS, a_plain_pod(spec={"schedulingGates": None})),
    "a plain pod without the name of its maker": ("POST", PODS, a_plain_pod(annotations={})),
    "a plain pod on a node of its choice": (
        "POST",
        PODS,
        a_plain_pod(spec={"nodeName": "n-1", "schedulingGates": None}),
    ),
    "a plain pod that another object owns": ("POST", PODS, a_plain_pod(ownerReferences=OWNED)),
    "a plain pod that nothing can delete": ("POST", PODS, a_plain_pod(finalizers=["example.com/keep"])),
    "a plain pod with Kueue's finalizer, in no group": ("POST", PODS, a_plain_pod(finalizers=[KUEUE])),
}
OF_RECORDS: dict[str, Request] = {
    "a Recovery of another namespace's gang": ("POST", f"{OURS}/recoveries", a_recovery("r", of="team-c")),
    "a Recovery in kube-system": (
        "POST",
        "/apis/healthd.dev/v1alpha1/namespaces/kube-system/recoveries",
        a_recovery("r", of="kube-system"),
    ),
    "a Recovery that nothing can delete": (
        "POST",
        f"{OURS}/recoveries",
        a_recovery("r", finalizers=["example.com/keep"]),
    ),
    "a person's word for the fence": (
        "PATCH",
        f"{OURS}/recoveries/going-on",
        {"metadata": {"annotations": {"healthd.dev/fence-override": "all"}}},
    ),
    "a Recovery deleted that goes on": ("DELETE", f"{OURS}/recoveries/going-on", None),
    "a PodGang in kube-system": (
        "POST",
        "/apis/healthd.dev/v1alpha1/namespaces/kube-system/podgangs",
        a_pod_gang("g"),
    ),
    "a PodGang that nothing can delete": ("POST", f"{OURS}/podgangs", a_pod_gang("g", finalizers=["example.com/keep"])),
}
"""What RBAC alone would allow, with the right to remake plain pods in one namespace."""
ALLOWED: dict[str, Request] = {
    "healthd's own finalizer taken off": (
        "PATCH",
        f"{PODS}/rank",
        {"metadata": {"finalizers": [JOB, "example.com/keep"]}},
    ),
    "the Job's finalizer taken off a pod that is being deleted": (
        "PATCH",
        f"{PODS}/ending",
        {"metadata": {"finalizers": [FENCE, "example.com/keep"]}},
    ),
    "a pod that is being deleted called Failed": ("PATCH", f"{PODS}/ending/status", FAILED),
    "a pod that is being deleted ended at once": ("DELETE", f"{PODS}/ending?gracePeriodSeconds=0", None),
    "healthd's own gate opened": (
        "PATCH",
        f"{PODS}/behind-its-gate",
        {"spec": {"schedulingGates": [{"name": "example.com/quota"}]}},
    ),
    "the attempt of a plain pod": (
        "PATCH",
        f"{PODS}/plain",
        {"metadata": {"annotations": {"healthd.dev/attempt": "1"}}},
    ),
    "a plain pod deleted": ("DELETE", f"{PODS}/plain", None),
    "a plain pod made again": ("POST", PODS, a_plain_pod()),
    "a Recovery": ("POST", f"{OURS}/recoveries", a_recovery("another", labels={"healthd.dev/gang": "llama"})),
    "the hint of a Recovery": (
        "PATCH",
        f"{OURS}/recoveries/going-on",
        {"metadata": {"labels": {"healthd.dev/hint": "current"}}},
    ),
    "a Recovery deleted that is over": ("DELETE", f"{OURS}/recoveries/over", None),
    "a PodGang": ("POST", f"{OURS}/podgangs", a_pod_gang("g")),
}


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policies are at work, with plain pods in one namespace."""
    api = installed.api
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    installed.await_service_account(TENANT)
    installed.await_service_account("kube-system")
    for namespace in (TENANT, "kube-system"):
        api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", BINDING)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    uid = api.create(f"/api/v1/namespaces/{TENANT}/configmaps", owner)["metadata"]["uid"]
    api.create(OF_CLUSTER, a_pod("dns"))
    for pod in THERE:
        api.create(PODS, json.loads(json.dumps(pod).replace("{owner}", uid)))
    api.delete(f"{PODS}/ending")
    for recovery in (a_recovery("going-on"), a_recovery("over")):
        api.create(f"{OURS}/recoveries", recovery)
    api.patch(f"{OURS}/recoveries/over/status", {"status": {"phase": "Superseded"}})
    made = token_of_controller(installed)
    image: Request = ("PATCH", f"{PODS}/stranger?dryRun=All", {"metadata": {"annotations": {"a": "b"}}})
    wait_until("the policies at work", lambda: answer(installed, made, image)[0] == 403, limit=30)
    own: Request = ("POST", f"{PODS}?dryRun=All", a_plain_pod())
    wait_until("the right to remake plain pods", lambda: answer(installed, made, own)[0] == 201, limit=30)
    return made


@pytest.mark.parametrize("what", [*OF_PODS, *OF_RECORDS])
def test_the_policy_refuses(installed: ControlPlane, token: str, what: str) -> None:
    request, policy = (OF_PODS[what], PODS_POLICY) if what in OF_PODS else (OF_RECORDS[what], RECORDS_POLICY)

    status, message = answer(installed, token, request)

    assert (status, refuser(message)) == (403, policy), message


@pytest.mark.parametrize("what", ALLOWED)
def test_what_a_recovery_needs_is_allowed(installed: ControlPlane, token: str, what: str) -> None:
    method, path, body = ALLOWED[what]
    dry = f"{path}{'&' if '?' in path else '?'}dryRun=All"

    status, message = answer(installed, token, (method, dry, body))

    assert status in (200, 201), message


def test_others_may_do_what_they_like(installed: ControlPlane, token: str) -> None:
    changed = installed.api.patch(f"{PODS}/stranger", {"metadata": {"labels": {"app": "shop"}}})

    assert changed["metadata"]["labels"]["app"] == "shop"
