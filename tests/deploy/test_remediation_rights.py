"""The component `remediation`: what the controller may do with it, at a real API server, and what it still may not."""

from __future__ import annotations

import pytest

from healthd.core.api import to_wire
from tests.builders import a_node
from tests.deploy.accounts import SYSTEM, Request, answer, token_of_controller
from tests.deploy.manifests import DEPLOY
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NODE = "/api/v1/nodes/gpu-17"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
RECORDS = f"/apis/healthd.dev/v1alpha1/namespaces/{SYSTEM}/noderemediations"
HEALTH = "sagemaker.amazonaws.com/node-health-status"


def a_condition(kind: str, status: str = "True") -> Json:
    return {"type": kind, "status": status, "reason": "Test", "message": "test", "lastTransitionTime": None}


def conditions(*kinds: str) -> Json:
    """A patch of all conditions of the node, beside the one that is there."""
    return {"status": {"conditions": [a_condition("Theirs"), *(a_condition(kind) for kind in kinds)]}}


def a_slot(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"holderIdentity": "gpu-17"}}


CORDON: Request = ("PATCH", f"{NODE}?dryRun=All", {"spec": {"unschedulable": True}})
ALLOWED: dict[str, Request] = {
    "a record": (
        "POST",
        RECORDS,
        {"apiVersion": "healthd.dev/v1alpha1", "kind": "NodeRemediation", "metadata": {"name": "gpu-17"}},
    ),
    "its status": ("PATCH", f"{RECORDS}/gpu-17/status", {"status": {"phase": "Quarantined"}}),
    "a slot": ("POST", LEASES, a_slot("healthd-remediation-cluster-0")),
    "the slot given back": ("DELETE", f"{LEASES}/healthd-remediation-cluster-0", None),
    "a label and the mark": (
        "PATCH",
        NODE,
        {"metadata": {"labels": {HEALTH: "x"}, "annotations": {"healthd.dev/remediation-request": "1"}}},
    ),
    "both taken back": (
        "PATCH",
        NODE,
        {"metadata": {"labels": {HEALTH: None}, "annotations": {"healthd.dev/remediation-request": None}}},
    ),
    "a condition": ("PATCH", f"{NODE}/status", conditions("RebootWanted")),
    "the condition taken back": ("PATCH", f"{NODE}/status", conditions()),
}
REFUSED: dict[str, tuple[Request, str]] = {
    "a slot of the quarantine": (("POST", LEASES, a_slot("healthd-quarantine-cluster-0")), "healthd-controller alone"),
    "a slot of the quarantine given back": (
        ("DELETE", f"{LEASES}/healthd-quarantine-cluster-1", None),
        "healthd-controller alone",
    ),
    "a foreign label": (("PATCH", NODE, {"metadata": {"labels": {"pool": "x"}}}), "healthd.dev/spare alone"),
    "the word that a node is off": (
        ("PATCH", NODE, {"metadata": {"annotations": {"healthd.dev/powered-off": "2026-01-01T00:00:00Z"}}}),
        "healthd.dev/publish-work-until alone",
    ),
    "a condition of others": (("PATCH", f"{NODE}/status", conditions("Ready")), "nodeconditions"),
    "the conditions of others taken away": (
        ("PATCH", f"{NODE}/status", {"status": {"conditions": []}}),
        "nodeconditions",
    ),
    "another boot": (("PATCH", f"{NODE}/status", {"status": {"nodeInfo": {"bootID": "x"}}}), "conditions alone"),
    "the word that a node was repaired": (
        ("PATCH", NODE, {"metadata": {"annotations": {"healthd.dev/repaired": "2026-01-01T00:00:00Z"}}}),
        "healthd.dev/publish-work-until alone",
    ),
    "a cordon": (CORDON, "neither cordons"),
}


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policies are at work."""
    installed.apply(DEPLOY / "components" / "remediation" / "rbac.yaml")
    installed.apply(DEPLOY / "components" / "remediation" / "policy.yaml")
    made = token_of_controller(installed)
    installed.api.create("/api/v1/nodes", to_wire(a_node("gpu-17")))
    installed.api.patch(f"{NODE}/status", conditions())
    installed.api.create(LEASES, a_slot("healthd-quarantine-cluster-1"))
    wait_until("the policies at work", lambda: answer(installed, made, CORDON)[0] == 403, limit=30)
    boots: Request = ("PATCH", f"{NODE}/status?dryRun=All", {"status": {"nodeInfo": {"bootID": "x"}}})
    wait_until("the component at work", lambda: "conditions alone" in answer(installed, made, boots)[1], limit=30)
    return made


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused(installed: ControlPlane, token: str, what: str) -> None:
    request, words = REFUSED[what]

    status, message = answer(installed, token, request)

    assert status == 403, message
    assert words in message


def test_all_that_a_remediation_writes_is_allowed(installed: ControlPlane, token: str) -> None:
    answers = {what: answer(installed, token, request) for what, request in ALLOWED.items()}

    assert {what: message for what, (status, message) in answers.items() if status not in (200, 201)} == {}
