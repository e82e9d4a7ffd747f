"""What tenants and kubelets can do to healthd, at a real API server with the shipped manifests."""

from __future__ import annotations

import pytest

from tests.deploy.accounts import SYSTEM, Request, answer, refuser
from tests.deploy.test_admission_pods import BINDING, a_recovery
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane, Options
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

OWN = "team-d"
NODE, OTHER = "real-1", "real-2"
USERS = {"a tenant": "tenant", "a kubelet": f"system:node:{NODE}"}
OURS = "/apis/healthd.dev/v1alpha1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
PLAIN_PODS = {
    "metadata": {"name": "mine"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "healthd-controller-plain-pods",
    },
    "subjects": BINDING["subjects"],
}
SPARE: Json = {"metadata": {"labels": {"healthd.dev/spare": "true"}}}
QUARANTINE: Json = {"spec": {"taints": [{"key": "healthd.dev/quarantined", "effect": "NoSchedule"}]}}
RESERVED: Json = {"spec": {"taints": [{"key": "healthd.dev/spare", "effect": "NoSchedule"}]}}
SLOT: Json = {"metadata": {"name": "healthd-quarantine-cluster-0"}, "spec": {"holderIdentity": "me"}}
TOKEN: Json = {"spec": {}}


def a_pod(**spec: str) -> Json:
    meta = {"generateName": "any-", "labels": {"healthd.dev/verifier": "true"}}
    return {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "none"}], **spec}}


ALLOWED = "allowed"
ATTACKS: dict[str, dict[str, tuple[Request, str]]] = {
    "a tenant": {
        "a Recovery in its own namespace": (("POST", f"{OURS}/namespaces/{OWN}/recoveries", a_recovery("r")), "RBAC"),
        "a Recovery in another namespace": (("POST", f"{OURS}/namespaces/default/recoveries", a_recovery("r")), "RBAC"),
        "a PodGang": (("POST", f"{OURS}/namespaces/{OWN}/podgangs", {"metadata": {"name": "g"}}), "RBAC"),
        "a report of a node": (("POST", f"{OURS}/nodehealths", {"metadata": {"name": NODE}}), "RBAC"),
        "the reports of all nodes": (("GET", f"{OURS}/nodehealths", None), "RBAC"),
        "a slot of the budget": (("POST", LEASES, SLOT), "RBAC"),
        "the controller's lease": (
            ("PATCH", f"{LEASES}/healthd-controller", {"spec": {"holderIdentity": "me"}}),
            "RBAC",
        ),
        "a spare": (("PATCH", f"/api/v1/nodes/{NODE}", SPARE), "RBAC"),
        "a node out of service": (("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": True}}), "RBAC"),
        "the configuration": (("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps", None), "RBAC"),
        "the controller's token": (
            ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/healthd-controller/token", TOKEN),
            "RBAC",
        ),
        "a pod beside the opener": (("POST", f"/api/v1/namespaces/{SYSTEM}/pods", a_pod()), "RBAC"),
        "plain pods of its own, made by the controller": (
            ("POST", f"{RBAC}/namespaces/{OWN}/rolebindings", PLAIN_PODS),
            "RBAC",
        ),
        "the policies gone": (
            (
                "DELETE",
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/healthd-controller-roots",
                None,
            ),
            "RBAC",
        ),
        "a pod that says that it verifies checkpoints, in its own namespace": (
            ("POST", f"/api/v1/namespaces/{OWN}/pods", a_pod()),
            ALLOWED,
        ),
        "the priority of healthd": (
            ("POST", f"/api/v1/namespaces/{OWN}/pods", a_pod(priorityClassName="healthd")),
            ALLOWED,
        ),
        "the priority of the cluster itself, with or without healthd": (
            ("POST", f"/api/v1/namespaces/{OWN}/pods", a_pod(priorityClassName="system-node-critical")),
            ALLOWED,
        ),
    },
    "a kubelet": {
        "its own node quarantined, or freed": (("PATCH", f"/api/v1/nodes/{NODE}", QUARANTINE), "NodeRestriction"),
        "the taint of a spare on its own node": (
            (
                "PATCH",
                f"/api/v1/nodes/{NODE}",
                {"spec": {"taints": [{"key": "healthd.dev/spare", "effect": "NoSchedule"}]}},
            ),
            "NodeRestriction",
        ),
        "the label of a spare on another node": (("PATCH", f"/api/v1/nodes/{OTHER}", SPARE), "NodeRestriction"),
        "the word that another node is off": (
            (
                "PATCH",
                f"/api/v1/nodes/{OTHER}",
                {"metadata": {"annotations": {"healthd.dev/powered-off": "2026-01-01T00:00:00Z"}}},
            ),
            "NodeRestriction",
        ),
        "a report of its node": (("POST", f"{OURS}/nodehealths", {"metadata": {"name": NODE}}), "RBAC"),
        "a Recovery": (("POST", f"{OURS}/namespaces/default/recoveries", a_recovery("r", of="default")), "RBAC"),
        "a slot of the budget": (("POST", LEASES, SLOT), "RBAC"),
        "the token of a controller that runs elsewhere": (
            ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/healthd-controller/token", TOKEN),
            "Node authorizer",
        ),
        "the label of a spare on its own node": (("PATCH", f"/api/v1/nodes/{NODE}", SPARE), ALLOWED),
        "the word that its own node is off": (
            (
                "PATCH",
                f"/api/v1/nodes/{NODE}",
                {"metadata": {"annotations": {"healthd.dev/powered-off": "2026-01-01T00:00:00Z"}}},
            ),
            ALLOWED,
        ),
    },
}
"""By who tries it: a request, and who refuses it."""
CASES = [(who, what) for who, table in ATTACKS.items() for what in table]


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    return Options(users=(("tenant", ()),), nodes=(NODE, OTHER))


@pytest.fixture(scope="module")
def installed_beside_others(installed: ControlPlane) -> ControlPlane:
    """healthd, two nodes, and a tenant with every right in a namespace of its own."""
    installed.api.create("/api/v1/namespaces", {"metadata": {"name": OWN}})
    installed.await_service_account(OWN)
    for node in (NODE, OTHER):
        installed.api.create("/api/v1/nodes", {"metadata": {"name": node}})
    binding = {
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "tenant", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    installed.api.create(f"{RBAC}/namespaces/{OWN}/rolebindings", binding)
    own: Request = ("GET", f"/api/v1/namespaces/{OWN}/pods", None)
    token = installed.identity("tenant")
    wait_until("the tenant's rights", lambda: answer(installed, token, own)[0] == 200, limit=30)
    return installed


@pytest.mark.parametrize(("who", "what"), CASES, ids=[f"{who}: {what}" for who, what in CASES])
def test_who_refuses_it(installed_beside_others: ControlPlane, who: str, what: str) -> None:
    (method, path, body), outcome = ATTACKS[who][what]
    token = installed_beside_others.identity(USERS[who])

    status, message = answer(installed_beside_others, token, (method, f"{path}?dryRun=All", body))

    assert (refuser(message) if status == 403 else ALLOWED if status < 300 else message) == outcome, message
