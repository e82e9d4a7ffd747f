"""What the controller may do with its own token, at a real API server with the shipped RBAC and policies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from healthd.core.gang import RunsAs
from healthd.core.objects import Node, OwnerReference, Taint, Toleration, to_wire
from healthd.core.spares import Claim, claim_patch, return_patch, settle_patch
from healthd.core.verification import Order, verifier_pod
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
    of_somebody = a_pod({}) | {"metadata": {"name": "of-somebody"}}
    installed.api.create(PODS, of_somebody)
    other = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}}
    installed.api.create("/api/v1/namespaces/default/serviceaccounts", other)
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


IMAGE = "healthd:0.1.0"
"""What the shipped Deployment runs."""


def a_verifier(
    *, labels: Json | None = None, container: Json | None = None, metadata: Json | None = None, **spec: Any
) -> Json:
    """The pod that the controller makes, with other fields: None takes one away."""
    order = Order(
        name="verifier",
        namespace="default",
        owner=OwnerReference(api_version="healthd.dev/v1alpha1", kind="Recovery", name="r", uid="no-such-uid"),
        image=IMAGE,
        claim="data",
        folder="/volume/llama",
        runs_as=RunsAs(user=1000, fs_group=1000, tolerations=(Toleration(key="nvidia.com/gpu", operator="Exists"),)),
        near=["n-1"],
        not_on=["n-2"],
    )
    made = to_wire(verifier_pod(order))
    made["metadata"] = {"generateName": "verifier-", "labels": made["metadata"]["labels"] | (labels or {})}
    made["spec"] = _without_none({**made["spec"], **spec})
    made["spec"]["containers"][0] = _without_none({**made["spec"]["containers"][0], **(container or {})})
    return made


def _without_none(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


NOT_A_VERIFIER: dict[str, tuple[Json, str]] = {
    "another image": (a_verifier(container={"image": "localhost/other"}), "of the controller's own image"),
    "a second container": (
        a_verifier(containers=[*a_verifier()["spec"]["containers"], {"name": "other", "image": IMAGE}]),
        "one container",
    ),
    "a container before it": (a_verifier(initContainers=[{"name": "first", "image": IMAGE}]), "one container"),
    "another command": (a_verifier(container={"command": ["sh", "-c", "true"]}), "healthd checkpoints report"),
    "further arguments": (a_verifier(container={"args": ["x"]}), "healthd checkpoints report"),
    "a secret as environment": (
        a_verifier(container={"envFrom": [{"secretRef": {"name": "keys"}}]}),
        "no secret beside it",
    ),
    "a secret as one variable": (
        a_verifier(container={"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}]}),
        "no secret beside it",
    ),
    "a folder of its host": (
        a_verifier(volumes=[{"name": "claim", "hostPath": {"path": "/"}}]),
        "mounts claims alone",
    ),
    "a secret as volume": (
        a_verifier(volumes=[{"name": "claim", "secret": {"secretName": "keys"}}]),
        "mounts claims alone",
    ),
    "a claim to write to": (
        a_verifier(volumes=[{"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}]),
        "read-only",
    ),
    "a mount to write to": (
        a_verifier(container={"volumeMounts": [{"name": "claim", "mountPath": "/volume"}]}),
        "read-only",
    ),
    "a token": (a_verifier(automountServiceAccountToken=None), "mounts claims alone"),
    "an account of its choice": (a_verifier(serviceAccountName="other"), "no account but"),
    "root": (a_verifier(securityContext={"runAsUser": 0}), "is not root"),
    "no word about its user": (a_verifier(securityContext=None), "is not root"),
    "a container of root": (
        a_verifier(
            container={
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "runAsUser": 0,
                }
            }
        ),
        "is not root",
    ),
    "a capability": (
        a_verifier(
            container={
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
                }
            }
        ),
        "no rights on its machine",
    ),
    "no word about its rights": (a_verifier(container={"securityContext": None}), "no rights on its machine"),
    "the network of its host": (a_verifier(hostNetwork=True), "no rights on its machine"),
    "a node of its choice": (a_verifier(nodeName="spare-1"), "no rights on its machine"),
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
    "a label that makes a verifier of a pod": (
        ("PATCH", f"{PODS}/of-somebody", {"metadata": {"labels": {"healthd.dev/verifier": "true"}}}),
        "when it is made",
    ),
    "a verifier beside the opener": (
        ("POST", f"/api/v1/namespaces/{SYSTEM}/pods", a_verifier()),
        "namespaces of the cluster itself",
    ),
    **{f"a verifier with {what}": (("POST", PODS, pod), words) for what, (pod, words) in NOT_A_VERIFIER.items()},
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


def test_a_pod_that_verifies_checkpoints_may_be_made_and_removed(
    installed: ControlPlane, token: str, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"

    status, raw = answer(installed, token, ("POST", pods, a_verifier()))
    assert status == 201, raw
    gone, message = answer(installed, token, ("DELETE", f"{pods}/{json.loads(raw)['metadata']['name']}", None))

    assert gone == 200, message


def test_it_may_be_made_where_the_strictest_standard_for_pods_holds(
    installed: ControlPlane, token: str, namespace: str
) -> None:
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    installed.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": restricted}})

    status, message = answer(installed, token, ("POST", f"/api/v1/namespaces/{namespace}/pods", a_verifier()))

    assert status == 201, message


def test_the_right_to_verify_is_not_the_right_to_make_pods_of_gangs(
    installed: ControlPlane, token: str, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    of_gang: Request = ("POST", pods, a_pod({"healthd.dev/gang": "g"}))
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/healthd-controller-plain-pods"
    kept = installed.api.get(binding)
    installed.api.delete(binding)
    try:
        wait_until("the right is gone", lambda: answer(installed, token, of_gang)[0] == 403, limit=30)
        refused = answer(installed, token, of_gang)
        verifier = answer(installed, token, ("POST", pods, a_verifier()))
    finally:
        meta = {"name": kept["metadata"]["name"]}
        installed.api.create(binding.rpartition("/")[0], {**kept, "metadata": meta})

    assert "where it may remake podgangs" in refused[1]
    assert verifier[0] == 201, verifier[1]
    wait_until("the right is back", lambda: answer(installed, token, of_gang)[0] == 201, limit=30)


def test_others_are_not_bound_by_the_controllers_policy(installed: ControlPlane, token: str) -> None:
    try:
        installed.api.patch(NODE, {"metadata": {"labels": {"pool": "y"}}})
    except ApiError as error:
        pytest.fail(str(error))
