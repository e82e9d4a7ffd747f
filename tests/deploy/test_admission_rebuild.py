"""What a stolen token of the controller can make and delete of the objects that make gangs, at a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deploy.accounts import SYSTEM, Request, answer, refuser, token_of_controller
from tests.deploy.kinds import KINDS, define, manifest, path_of
from tests.gangs.lab.manifests import job, stateful_set
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

POLICY = "healthd-controller-rebuild"
TENANT, OTHERS = "team-rebuilt", "team-with-no-binding"
TFJOB, MPIJOB, RAYJOB = KINDS["TFJob"], KINDS["MPIJob"], KINDS["RayJob"]
JOBS = f"/apis/batch/v1/namespaces/{TENANT}/jobs"
SETS = f"/apis/apps/v1/namespaces/{TENANT}/statefulsets"
ALLOWED = {"healthd.dev/restart": "enabled", "healthd.dev/rebuild": "enabled"}
MARKS = {"healthd.dev/rebuilt-from": "u", "healthd.dev/rebuilt-by": "r", "healthd.dev/stopped-by": "r"}
MADE = {**ALLOWED, **MARKS}
ABOVE = [{"apiVersion": "example.com/v1", "kind": "Pipeline", "name": "p", "uid": "u"}]
MORE_RIGHTS = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: more-roots}}
rules:
  - apiGroups: [batch, apps, kubeflow.org, ray.io]
    resources: ["*"]
    verbs: [create, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: more-roots}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: more-roots}}
subjects: [{{kind: ServiceAccount, name: healthd-controller, namespace: healthd-system}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: healthd-rebuild, namespace: {TENANT}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: healthd-controller-rebuild}}
subjects: [{{kind: ServiceAccount, name: healthd-controller, namespace: healthd-system}}]
"""
"""The policy holds also where somebody grants too much."""


def a_job(name: str, notes: Json, *, suspend: bool = True, **meta: Any) -> Json:
    """A Job of a gang."""
    made = job(name, suspend=suspend)
    return {**made, "metadata": {"name": name, "annotations": notes, **meta}}


def tfjobs(namespace: str = TENANT) -> str:
    """Where the TFJobs of a namespace are."""
    return path_of(TFJOB, namespace)


def a_tfjob(name: str, notes: Json, *, is_off: bool = True, **meta: Any) -> Json:
    """A TFJob of a gang."""
    return manifest(TFJOB, name, is_off=is_off, notes=notes, **meta)


def without(notes: Json, *keys: str) -> Json:
    """*notes* but for these."""
    return {key: value for key, value in notes.items() if key.removeprefix("healthd.dev/") not in keys}


ATTACKS: dict[str, Request] = {
    "a gang made in a namespace without the binding": ("POST", tfjobs(OTHERS), a_tfjob("new", MADE)),
    "a failed gang deleted in a namespace without the binding": ("DELETE", f"{tfjobs(OTHERS)}/failed", None),
    "a gang made in kube-system": ("POST", tfjobs("kube-system"), a_tfjob("new", MADE)),
    "a gang made beside the opener": ("POST", tfjobs(SYSTEM), a_tfjob("new", MADE)),
    "a StatefulSet made": (
        "POST",
        SETS,
        {**stateful_set(replicas=0), "metadata": {"name": "new", "annotations": MADE}},
    ),
    "a StatefulSet deleted": ("DELETE", f"{SETS}/train", None),
    "an MPIJob made": ("POST", path_of(MPIJOB, TENANT), manifest(MPIJOB, "new", is_off=True, notes=MADE)),
    "an MPIJob deleted": ("DELETE", f"{path_of(MPIJOB, TENANT)}/failed", None),
    "a RayJob deleted": ("DELETE", f"{path_of(RAYJOB, TENANT)}/failed", None),
    "a Job that runs deleted": ("DELETE", f"{JOBS}/running", None),
    "a Job that asked for nothing deleted": ("DELETE", f"{JOBS}/foreign", None),
    "a TFJob that runs deleted": ("DELETE", f"{tfjobs()}/running", None),
    "all TFJobs of a namespace deleted": ("DELETE", tfjobs(), None),
    "a failed TFJob whose owner did not allow it deleted": ("DELETE", f"{tfjobs()}/kept", None),
    "a failed TFJob that is not restarted deleted": ("DELETE", f"{tfjobs()}/off", None),
    "a failed TFJob that another object made deleted": ("DELETE", f"{tfjobs()}/made", None),
    "a Job made that runs at once": ("POST", JOBS, a_job("new", MADE, suspend=False)),
    "a TFJob made that runs at once": ("POST", tfjobs(), a_tfjob("new", MADE, is_off=False)),
    "a Job made that no recovery has stopped": ("POST", JOBS, a_job("new", without(MADE, "stopped-by"))),
    "a Job made that another recovery has stopped": (
        "POST",
        JOBS,
        a_job("new", {**MADE, "healthd.dev/stopped-by": "s"}),
    ),
    "a Job made in no place": ("POST", JOBS, a_job("new", without(MADE, "rebuilt-from"))),
    "a Job made by no recovery": ("POST", JOBS, a_job("new", without(MADE, "rebuilt-by"))),
    "a Job made that no owner allowed": ("POST", JOBS, a_job("new", without(MADE, "rebuild"))),
    "a Job made that is not restarted": ("POST", JOBS, a_job("new", without(MADE, "restart"))),
    "a Job made with an owner": ("POST", JOBS, a_job("new", MADE, ownerReferences=ABOVE)),
    "a Job made with a finalizer": ("POST", JOBS, a_job("new", MADE, finalizers=["example.com/mine"])),
    "a Job made under any name": ("POST", JOBS, a_job("", MADE, generateName="mine-")),
}


def refused_by(what: str) -> str:
    """Who refuses it."""
    return "RBAC" if what.startswith("all ") else POLICY


def fails(installed: ControlPlane, path: str) -> None:
    """As its controller says it."""
    at = "2026-11-27T12:00:00Z"
    failed = {"type": "Failed", "status": "True", "reason": "TFJobFailed", "lastTransitionTime": at}
    installed.api.patch(f"{path}/status", {"status": {"conditions": [failed]}})


def job_fails(installed: ControlPlane, name: str) -> None:
    """As the Job controller says it."""
    at, why = "2026-11-27T12:00:00Z", {"status": "True", "reason": "BackoffLimitExceeded"}
    conditions = [{"type": each, "lastTransitionTime": at, **why} for each in ("FailureTarget", "Failed")]
    installed.api.patch(f"{JOBS}/{name}/status", {"status": {"startTime": at, "conditions": conditions}})


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policy is at work and the gangs are there."""
    define(installed, [TFJOB, MPIJOB, RAYJOB])
    for namespace in (TENANT, OTHERS):
        installed.ensure_namespace(namespace)
    installed.kubectl("apply", "-f", "-", input=MORE_RIGHTS)
    installed.programs["kube-controller-manager"].stop()  # it would say how the Jobs are
    for made in (a_job("running", ALLOWED), a_job("foreign", {}), a_job("failed", ALLOWED)):
        installed.api.create(JOBS, made)
    job_fails(installed, "failed")
    installed.api.create(SETS, stateful_set(notes=ALLOWED, replicas=0))
    for name, notes, owners in (
        ("running", ALLOWED, []),
        ("failed", ALLOWED, []),
        ("kept", without(ALLOWED, "rebuild"), []),
        ("off", without(ALLOWED, "restart"), []),
        ("made", ALLOWED, ABOVE),
    ):
        installed.api.create(tfjobs(), a_tfjob(name, notes, is_off=False, ownerReferences=owners))
        if name != "running":
            fails(installed, f"{tfjobs()}/{name}")
    for where, kind in ((tfjobs(OTHERS), TFJOB), (path_of(MPIJOB, TENANT), MPIJOB), (path_of(RAYJOB, TENANT), RAYJOB)):
        installed.api.create(where, manifest(kind, "failed", notes=ALLOWED))
        fails(installed, f"{where}/failed")
    made_for = token_of_controller(installed)
    dry: Request = ("DELETE", f"{tfjobs()}/running?dryRun=All", None)
    wait_until("the policy at work", lambda: POLICY in answer(installed, made_for, dry)[1], limit=30)
    return made_for


@pytest.mark.parametrize("what", ATTACKS)
def test_the_policy_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, ATTACKS[what])

    assert (status, refuser(message)) == (403, refused_by(what)), message


@pytest.mark.parametrize(
    ("path", "made"), [(JOBS, a_job("failed", MADE)), (tfjobs(), a_tfjob("failed", MADE))], ids=["Job", "TFJob"]
)
def test_a_failed_gang_is_deleted_and_made_again(installed: ControlPlane, token: str, path: str, made: Json) -> None:
    taken = answer(installed, token, ("POST", f"{path}?dryRun=All", made))
    asked = answer(installed, token, ("DELETE", f"{path}/failed?dryRun=All", None))
    deleted = answer(installed, token, ("DELETE", f"{path}/failed?propagationPolicy=Background", None))
    again = answer(installed, token, ("POST", path, made))

    assert (taken[0], asked[0], deleted[0], again[0]) == (409, 200, 200, 201), (taken, asked, deleted, again)


def test_without_the_component_nothing_is_made(installed: ControlPlane, token: str) -> None:
    installed.kubectl("delete", "clusterrolebinding", "more-roots")
    made: Request = ("POST", f"/apis/batch/v1/namespaces/{OTHERS}/jobs?dryRun=All", a_job("new", MADE))
    wait_until("RBAC at work", lambda: refuser(answer(installed, token, made)[1]) == "RBAC", limit=30)

    assert json.loads(answer(installed, token, made)[1])["reason"] == "Forbidden"
