"""What a stolen token of the controller can change of the Workloads of Kueue, at a real API server."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from healthd.core.config.gang_kinds import KindDescription
from tests.deploy.accounts import SYSTEM, Request, answer, refuser, token_of_controller
from tests.deploy.kinds import definition, grant
from tests.deploy.manifests import DEPLOY
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

POLICY = "healthd-controller-workloads"
TENANT = "team-queued"
WORKLOAD = KindDescription(api_version="kueue.x-k8s.io/v1beta1", kind="Workload", plural="workloads")
NAMED = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload"}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
PODS = [{"apiVersion": "v1", "kind": "Pod", "name": f"rank-{rank}", "uid": f"u{rank}"} for rank in range(2)]
GROUP = {"kueue.x-k8s.io/is-group-workload": "true"}
MARK = {"healthd.dev/stopped-by": "r"}
MORE_RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: more-of-kueue}
rules:
  - apiGroups: [kueue.x-k8s.io]
    resources: ["*"]
    verbs: [create, update, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: more-of-kueue}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: more-of-kueue}
subjects: [{kind: ServiceAccount, name: healthd-controller, namespace: healthd-system}]
"""
"""The policy holds also where somebody grants too much."""


def where(namespace: str = TENANT) -> str:
    """The path of the Workloads of a namespace."""
    return f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{namespace}/workloads"


def switched(active: bool, **notes: str | None) -> Json:
    """A patch that starts or stops."""
    return {"metadata": {"annotations": {f"healthd.dev/{k.replace('_', '-')}": v for k, v in notes.items()}}} | {
        "spec": {"active": active}
    }


ATTACKS: dict[str, Request] = {
    "a gang that its user holds started": ("PATCH", f"{where()}/held", switched(True)),
    "the mark of a stop on one that its user holds": (
        "PATCH",
        f"{where()}/held",
        {"metadata": {"annotations": MARK}},
    ),
    "the mark of a stop on one that runs": ("PATCH", f"{where()}/running", {"metadata": {"annotations": MARK}}),
    "one stopped without a mark": ("PATCH", f"{where()}/running", switched(False)),
    "one started that keeps its mark": ("PATCH", f"{where()}/stopped", switched(True)),
    "another priority": ("PATCH", f"{where()}/running", {"spec": {"priority": 1000}}),
    "another queue": ("PATCH", f"{where()}/running", {"spec": {"queueName": "other"}}),
    "other pods": ("PATCH", f"{where()}/running", {"spec": {"podSets": []}}),
    "a foreign annotation": ("PATCH", f"{where()}/running", {"metadata": {"annotations": {"example.com/a": "b"}}}),
    "a label": ("PATCH", f"{where()}/running", {"metadata": {"labels": {"a": "b"}}}),
    "a finalizer taken off": ("PATCH", f"{where()}/running", {"metadata": {"finalizers": None}}),
    "no owner any more": ("PATCH", f"{where()}/running", {"metadata": {"ownerReferences": None}}),
    "one that was made for nothing else stopped": ("PATCH", f"{where()}/alone", switched(False, stopped_by="r")),
    "one made": ("POST", where(), {**NAMED, "metadata": {"name": "new"}, "spec": {"active": True}}),
    "one deleted": ("DELETE", f"{where()}/running", None),
    "one deleted that healthd has stopped": ("DELETE", f"{where()}/stopped", None),
    "a group of pods deleted that runs": ("DELETE", f"{where()}/pods", None),
    "a group of pods deleted that its user holds": ("DELETE", f"{where()}/pods-held", None),
    "what is called a group of pods, and is a Job's, deleted": ("DELETE", f"{where()}/no-pods", None),
    "a group of pods started that its user holds": ("PATCH", f"{where()}/pods-held", switched(True)),
    "one of healthd's own namespace stopped": (
        "PATCH",
        f"{where(SYSTEM)}/running",
        switched(False, stopped_by="r"),
    ),
}


def workload(
    name: str, *owners: Json, active: bool = True, marked: bool = False, notes: Mapping[str, str] | None = None
) -> Json:
    """As Kueue makes one for *owners*."""
    metadata = {
        "name": name,
        "annotations": {**(notes or {}), **(MARK if marked else {})},
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        "ownerReferences": list(owners),
    }
    spec = {"active": active, "priority": 0, "queueName": "lq", "podSets": [{}]}
    return {**NAMED, "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policy is at work and the Workloads are there."""
    installed.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(definition(WORKLOAD)))
    installed.wait_until_served("/apis/kueue.x-k8s.io/v1beta1/workloads")
    grant(installed, "kueue")
    installed.apply(DEPLOY / "components/kueue/policy.yaml")
    installed.kubectl("apply", "-f", "-", input=MORE_RIGHTS)
    installed.ensure_namespace(TENANT)
    for made in (
        workload("running", OWNER),
        workload("held", OWNER, active=False),
        workload("stopped", OWNER, active=False, marked=True),
        workload("alone"),
        workload("pods", *PODS, notes=GROUP),
        workload("pods-held", *PODS, notes=GROUP, active=False),
        workload("pods-ended", *PODS, notes=GROUP),
        workload("no-pods", OWNER, notes=GROUP, active=False, marked=True),
    ):
        installed.api.create(where(), made)
    installed.api.create(where(SYSTEM), workload("running", OWNER))
    made_for = token_of_controller(installed)
    dry: Request = ("DELETE", f"{where()}/running?dryRun=All", None)
    wait_until("the policy at work", lambda: POLICY in answer(installed, made_for, dry)[1], limit=30)
    return made_for


@pytest.mark.parametrize("what", ATTACKS)
def test_the_policy_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, ATTACKS[what])

    assert (status, refuser(message)) == (403, POLICY), message


def test_a_stop_and_a_start_pass(installed: ControlPlane, token: str) -> None:
    path = f"{where()}/running"

    stopped = answer(installed, token, ("PATCH", path, switched(False, stopped_by="train-1")))
    started = answer(installed, token, ("PATCH", path, switched(True, stopped_by=None)))

    assert (stopped[0], started[0]) == (200, 200), (stopped, started)


def test_the_workload_of_pods_that_healthd_has_stopped_may_be_deleted(installed: ControlPlane, token: str) -> None:
    path = f"{where()}/pods-ended"

    asked = answer(installed, token, ("DELETE", f"{path}?dryRun=All", None))
    stopped = answer(installed, token, ("PATCH", path, switched(False, stopped_by="train-1")))
    deleted = answer(installed, token, ("DELETE", path, None))

    assert (asked[0], stopped[0], deleted[0]) == (200, 200, 200), (asked, stopped, deleted)
