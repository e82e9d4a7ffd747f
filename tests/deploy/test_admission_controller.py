"""What the controller may do with its own token, at a real API server with the shipped RBAC and policies."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from healthd.core.api import ANNOTATION_BELOW_PEERS, Node, Taint, to_wire
from healthd.core.node import work_request
from healthd.core.recovery.nodes.spares import Claim, claim_patch, return_patch, settle_patch
from tests.builders import a_node
from tests.deploy.accounts import SYSTEM, Request, answer, refuser, token_of_controller
from tests.deploy.verifier_pods import a_verifier
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NODE = "/api/v1/nodes/spare-1"
PODS = "/api/v1/namespaces/default/pods"


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
    installed.api.create(INCIDENTS, an_incident("open"))
    installed.api.create(HISTORIES, a_history("there"))
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


def a_history(name: str, away: bool = False, **meta: object) -> Json:
    spec = {"machine": name, "node": "n1", "since": NOW, "absences": [{"began": NOW}] if away else []}
    metadata = {"name": name, **meta}
    return {"apiVersion": "healthd.dev/v1alpha1", "kind": "HardwareHistory", "metadata": metadata, "spec": spec}


def an_incident(name: str, **meta: object) -> Json:
    spec = {"key": name, "severity": "page", "title": "it waits", "opened": NOW, "updated": NOW}
    return {"apiVersion": "healthd.dev/v1alpha1", "kind": "Incident", "metadata": {"name": name, **meta}, "spec": spec}


NOW = "2026-01-01T00:00:00Z"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
EVENTS = "/api/v1/namespaces/default/events"
HISTORIES = f"/apis/healthd.dev/v1alpha1/namespaces/{SYSTEM}/hardwarehistories"
INCIDENTS = f"/apis/healthd.dev/v1alpha1/namespaces/{SYSTEM}/incidents"


def an_event(by: str, **meta: object) -> Json:
    return {
        "metadata": {"generateName": "any.", **meta},
        "involvedObject": {"kind": "Node", "name": "spare-1"},
        "source": {"component": by},
        "type": "Warning",
        "reason": "Any",
        "message": "m",
        "reportingComponent": by,
        "reportingInstance": "any",
    }


BY_POLICY: dict[str, tuple[Request, str]] = {
    "a slot of the budget, and so nothing quarantined": (
        ("POST", LEASES, {"metadata": {"name": "healthd-quarantine-cluster-0"}, "spec": {"holderIdentity": "me"}}),
        "healthd-controller alone",
    ),
    "a lease that nothing can delete": (
        ("POST", LEASES, {"metadata": {"name": "healthd-controller", "finalizers": ["example.com/keep"]}}),
        "healthd-controller alone",
    ),
    "an event in the kubelet's name": (("POST", EVENTS, an_event("kubelet")), "in its own name"),
    "an event that never goes": (
        ("POST", EVENTS, an_event("healthd-controller", finalizers=["example.com/keep"])),
        "nothing may keep it",
    ),
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
        "healthd.dev/below-peers and healthd.dev/publish-work-until alone",
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
    "a pod of the cluster itself": (
        ("POST", "/api/v1/namespaces/kube-system/pods", a_pod({"healthd.dev/gang": "g"})),
        "namespaces of the cluster itself",
    ),
    "a pod beside the opener": (
        ("POST", f"/api/v1/namespaces/{SYSTEM}/pods", a_pod({"healthd.dev/gang": "g"})),
        "namespaces of the cluster itself",
    ),
    "an incident that nothing can delete": (
        ("POST", INCIDENTS, an_incident("kept", finalizers=["example.com/keep"])),
        "nothing may keep it",
    ),
    "an incident deleted that is open": (("DELETE", f"{INCIDENTS}/open", None), "only incidents that are over"),
    "a hardware history that goes with its node": (
        ("POST", HISTORIES, a_history("kept", finalizers=["example.com/keep"])),
        "outlives its Node",
    ),
    "the history of a machine that is there deleted": (
        ("DELETE", f"{HISTORIES}/there", None),
        "only the histories of machines that are away",
    ),
}


POLICIES = {
    NODE: "nodes",
    LEASES: "lease",
    EVENTS: "events",
    INCIDENTS: "incidents",
    HISTORIES: "histories",
    "/api/v1/namespaces/": "pods",
}


def policy_of(what: str) -> str:
    """The one that refuses it."""
    path = BY_POLICY[what][0][1]
    return next(f"healthd-controller-{name}" for start, name in POLICIES.items() if path.startswith(start))


BY_RBAC: dict[str, Request] = {
    "a secret": ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets", None),
    "a config map": ("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps", None),
    "a node's status": ("PATCH", NODE + "/status", {"status": {"capacity": {"cpu": "1"}}}),
    "a node deleted": ("DELETE", NODE, None),
    "a shell in a pod": ("POST", PODS + "/any/exec?command=sh&stdout=true", None),
    "the kubelet's own API": ("GET", NODE + "/proxy/pods", None),
    "a job deleted": ("DELETE", "/apis/batch/v1/namespaces/default/jobs/any", None),
    "a job made": ("POST", "/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "any"}}),
    "a gang of plain pods": (
        "POST",
        "/apis/healthd.dev/v1alpha1/namespaces/default/podgangs",
        {"metadata": {"name": "g"}},
    ),
    "a pod evicted": ("POST", PODS + "/of-somebody/eviction", {"metadata": {"name": "of-somebody"}}),
    "a container put into a pod": ("PATCH", PODS + "/of-somebody/ephemeralcontainers", {"spec": {}}),
    "a pod put on a node": ("POST", PODS + "/of-somebody/binding", {"target": {"kind": "Node", "name": "spare-1"}}),
    "a pod made larger": ("PATCH", PODS + "/of-somebody/resize", {"spec": {}}),
    "replicas by way of the scale": (
        "PATCH",
        "/apis/apps/v1/namespaces/default/statefulsets/any/scale",
        {"spec": {"replicas": 9}},
    ),
    "the status of a job": ("PATCH", "/apis/batch/v1/namespaces/default/jobs/any/status", {"status": {}}),
    "a statefulset made": ("POST", "/apis/apps/v1/namespaces/default/statefulsets", {"metadata": {"name": "any"}}),
    "a deployment": ("PATCH", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/healthd-controller", {"spec": {}}),
    "a daemon set": ("PATCH", f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/healthd-agent", {"spec": {}}),
    "a right": (
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {"metadata": {"name": "any"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}},
    ),
    "a label of a namespace": ("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {"a": "b"}}}),
    "a node's report": ("PATCH", "/apis/healthd.dev/v1alpha1/nodehealths/any/status", {"status": {}}),
    "a token": ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/healthd-agent/token", {"spec": {}}),
    "an incident elsewhere": (
        "POST",
        "/apis/healthd.dev/v1alpha1/namespaces/default/incidents",
        an_incident("elsewhere"),
    ),
    "a hardware history elsewhere": (
        "POST",
        "/apis/healthd.dev/v1alpha1/namespaces/default/hardwarehistories",
        a_history("elsewhere"),
    ),
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


@pytest.mark.parametrize("what", BY_POLICY)
def test_the_policy_refuses(installed: ControlPlane, token: str, what: str) -> None:
    request, words = BY_POLICY[what]

    status, message = answer(installed, token, request)

    assert status == 403, message
    assert words in message
    assert refuser(message) == policy_of(what)


@pytest.mark.parametrize("what", BY_RBAC)
def test_rbac_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, BY_RBAC[what])

    assert (status, refuser(message)) == (403, "RBAC"), message


def test_a_spare_may_be_claimed_returned_settled_and_a_node_reported_and_asked(
    installed: ControlPlane, token: str
) -> None:
    node = a_node("spare-1")
    foreign = Taint(key="nvidia.com/gpu")
    bare = Node(metadata=node.metadata, spec=type(node.spec)(taints=[foreign]))
    claim = Claim(recovery="r", namespace="default", gang="llama", gang_uid="0af1c2d3-0000", instead_of="bad-1")

    report = {"metadata": {"annotations": {ANNOTATION_BELOW_PEERS: "7 GPUs on the PCI bus (its peers: 8)"}}}
    question = work_request.patch(datetime(2026, 1, 1, tzinfo=UTC))
    for patch in (claim_patch(bare, claim), return_patch(bare), settle_patch(bare), report, question):
        status, message = answer(installed, token, ("PATCH", NODE, patch))
        assert status == 200, message


def test_the_lease_of_the_leader_is_its_own(installed: ControlPlane, token: str) -> None:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "healthd-controller"},
        "spec": {"holderIdentity": "one"},
    }
    watched = f"{LEASES}?fieldSelector=metadata.name%3Dhealthd-controller"

    made = answer(installed, token, ("POST", LEASES, body))
    seen = answer(installed, token, ("GET", watched, None))
    taken = answer(installed, token, ("PATCH", f"{LEASES}/healthd-controller", {"spec": {"holderIdentity": "two"}}))

    assert [status for status, _ in (made, seen, taken)] == [201, 200, 200]


def test_the_right_to_verify_is_not_the_right_to_make_pods_of_gangs(
    installed: ControlPlane, token: str, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    refused = answer(installed, token, ("POST", pods, a_pod({"healthd.dev/gang": "g"})))
    verifier = answer(installed, token, ("POST", pods, a_verifier()))

    assert "where it may remake podgangs" in refused[1]
    assert verifier[0] == 201, verifier[1]


def test_others_are_not_bound_by_the_controllers_policy(installed: ControlPlane, token: str) -> None:
    try:
        installed.api.patch(NODE, {"metadata": {"labels": {"pool": "y"}}})
    except ApiError as error:
        pytest.fail(str(error))


def test_an_agent_may_create_an_event(installed: ControlPlane, token: str) -> None:
    status, message = answer(installed, token, ("POST", EVENTS, an_event("healthd-controller")))

    assert status == 201, message


def test_an_incident_may_be_made_reported_and_deleted_when_it_is_over(installed: ControlPlane, token: str) -> None:
    over = {"spec": {"resolved": NOW, "revision": 2}, "status": {"deliveries": {"oncall": {"revision": 2}}}}
    requests: list[Request] = [
        ("POST", INCIDENTS, an_incident("mine")),
        ("PATCH", f"{INCIDENTS}/mine", over),
        ("GET", INCIDENTS, None),
        ("DELETE", f"{INCIDENTS}/mine", None),
    ]
    answers = [answer(installed, token, request) for request in requests]

    assert [status for status, _ in answers] == [201, 200, 200, 200], answers


def test_a_hardware_history_may_be_made_changed_and_deleted_when_its_machine_is_away(
    installed: ControlPlane, token: str
) -> None:
    requests: list[Request] = [
        ("POST", HISTORIES, a_history("mine")),
        ("PATCH", f"{HISTORIES}/mine", {"spec": {"absences": [{"began": NOW}]}}),
        ("GET", HISTORIES, None),
        ("DELETE", f"{HISTORIES}/mine", None),
    ]
    answers = [answer(installed, token, request) for request in requests]

    assert [status for status, _ in answers] == [201, 200, 200, 200], answers
