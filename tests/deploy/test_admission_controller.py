"""What the controller may do with its own token, at a real API server with the shipped RBAC and policies."""

from __future__ import annotations

import json

import pytest

from healthd.core.objects import Node, Taint, to_wire
from healthd.core.spares import Claim, claim_patch, return_patch, settle_patch
from tests.builders import a_node
from tests.deploy.accounts import SYSTEM, token_of_controller
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NODE = "/api/v1/nodes/spare-1"
PODS = "/api/v1/namespaces/default/pods"

Request = tuple[str, str, Json | None]


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policies are at work."""
    made = token_of_controller(installed)
    node = a_node("spare-1")
    taints = [Taint(key="nvidia.com/gpu")]
    body = to_wire(node) | {"spec": {"taints": [{"key": taint.key, "effect": taint.effect} for taint in taints]}}
    installed.api.create("/api/v1/nodes", body)
    wait_until("the policies at work", lambda: answer(installed, made, DRY_CORDON)[0] == 403, limit=30)
    return made


CORDON: Request = ("PATCH", NODE, {"spec": {"unschedulable": True}})
DRY_CORDON: Request = ("PATCH", f"{NODE}?dryRun=All", {"spec": {"unschedulable": True}})


def taints(*keys: str, effect: str = "NoSchedule") -> Json:
    """A patch that makes these the taints of the node, besides the one that is there."""
    ours = [{"key": key, "value": "x", "effect": effect} for key in keys]
    return {"spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, *ours]}}


def a_pod(labels: Json) -> Json:
    meta = {"generateName": "rank-", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [{"name": "c", "image": "localhost/none"}]},
    }


BY_POLICY: dict[str, tuple[Request, str]] = {
    "a cordon": (CORDON, "neither cordons"),
    "a quarantine": (("PATCH", NODE, taints("healthd.dev/quarantined")), "healthd.dev/reserved-for alone"),
    "a foreign taint taken off": (("PATCH", NODE, {"spec": {"taints": None}}), "healthd.dev/reserved-for alone"),
    "an eviction by taint": (
        ("PATCH", NODE, taints("healthd.dev/spare", effect="NoExecute")),
        "healthd.dev/reserved-for alone",
    ),
    "a foreign label": (("PATCH", NODE, {"metadata": {"labels": {"pool": "x"}}}), "healthd.dev/spare alone"),
    "the word that a node is off": (
        ("PATCH", NODE, {"metadata": {"annotations": {"healthd.dev/powered-off": "2026-01-01T00:00:00Z"}}}),
        "healthd.dev/claim alone",
    ),
    "a pod that is of no gang": (("POST", PODS, a_pod({})), "healthd.dev/gang"),
    "a pod of the cluster itself": (
        ("POST", "/api/v1/namespaces/kube-system/pods", a_pod({"healthd.dev/gang": "g"})),
        "namespaces of the cluster itself",
    ),
    "a pod beside the opener": (
        ("POST", f"/api/v1/namespaces/{SYSTEM}/pods", a_pod({"healthd.dev/gang": "g"})),
        "namespaces of the cluster itself",
    ),
}
BY_RBAC: dict[str, Request] = {
    "a secret": ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets", None),
    "a config map": ("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps", None),
    "a node's status": ("PATCH", NODE + "/status", {"status": {"capacity": {"cpu": "1"}}}),
    "a node deleted": ("DELETE", NODE, None),
    "a shell in a pod": ("POST", PODS + "/any/exec?command=sh&stdout=true", None),
    "the kubelet's own API": ("GET", NODE + "/proxy/pods", None),
    "a job deleted": ("DELETE", "/apis/batch/v1/namespaces/default/jobs/any", None),
    "a job made": ("POST", "/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "any"}}),
    "a node's report": ("PATCH", "/apis/healthd.dev/v1alpha1/nodehealths/any/status", {"status": {}}),
    "a token": ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/healthd-agent/token", {"spec": {}}),
    "another lease": (
        "PATCH",
        f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/healthd-quarantine-cluster-0",
        {"spec": {"holderIdentity": "me"}},
    ),
    "the policy that binds it": (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/healthd-controller-nodes",
        None,
    ),
}


def answer(installed: ControlPlane, token: str, request: Request) -> tuple[int, str]:
    method, path, body = request
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    text = json.dumps(body) if body is not None else None
    status, raw = installed.api_as(token).raw(method, path, text, {"Content-Type": kind})
    return status, raw.decode(errors="replace")


@pytest.mark.parametrize("what", BY_POLICY)
def test_the_policy_refuses(installed: ControlPlane, token: str, what: str) -> None:
    request, words = BY_POLICY[what]

    status, message = answer(installed, token, request)

    assert status == 403, message
    assert words in message
    assert "ValidatingAdmissionPolicy" in message


@pytest.mark.parametrize("what", BY_RBAC)
def test_rbac_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, BY_RBAC[what])

    assert status == 403, message
    assert "cannot" in message


def test_a_spare_may_be_claimed_returned_and_settled(installed: ControlPlane, token: str) -> None:
    node = a_node("spare-1")
    foreign = Taint(key="nvidia.com/gpu")
    bare = Node(metadata=node.metadata, spec=type(node.spec)(taints=[foreign]))
    claim = Claim(recovery="r", namespace="default", gang="llama", gang_uid="0af1c2d3-0000", instead_of="bad-1")

    for patch in (claim_patch(bare, claim), return_patch(bare), settle_patch(bare)):
        status, message = answer(installed, token, ("PATCH", NODE, patch))
        assert status == 200, message


def test_the_lease_of_the_leader_is_its_own(installed: ControlPlane, token: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "healthd-controller"},
        "spec": {"holderIdentity": "one"},
    }
    watched = f"{leases}?fieldSelector=metadata.name%3Dhealthd-controller"

    made = answer(installed, token, ("POST", leases, body))
    seen = answer(installed, token, ("GET", watched, None))
    taken = answer(installed, token, ("PATCH", f"{leases}/healthd-controller", {"spec": {"holderIdentity": "two"}}))

    assert [status for status, _ in (made, seen, taken)] == [201, 200, 200]


def test_a_pod_of_a_gang_may_be_made_and_removed(installed: ControlPlane, token: str, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"

    status, raw = answer(installed, token, ("POST", pods, a_pod({"healthd.dev/gang": "g"})))
    name = json.loads(raw)["metadata"]["name"]
    gone, message = answer(installed, token, ("DELETE", f"{pods}/{name}", None))

    assert (status, gone) == (201, 200), message


def test_others_are_not_bound_by_the_controllers_policy(installed: ControlPlane, token: str) -> None:
    try:
        installed.api.patch(NODE, {"metadata": {"labels": {"pool": "y"}}})
    except ApiError as error:
        pytest.fail(str(error))
