"""
What an attacker who broke into a pod of healthd would try with the token that is mounted there, and who must refuse it.

Pure data: `test_security.py` tries all of it from inside real pods, and `tests.deploy.attacks` writes it into
docs/security.md. Names in braces are put in when the pods are there.
"""

from __future__ import annotations

from tests.deploy.accounts import SYSTEM, Request
from tests.lab.api import Json

AGENT = "the agent's real pod"
CONTROLLER = "the controller's real pod"

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HEALTHS = "/apis/healthd.dev/v1alpha1/nodehealths"
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
SLOT = "healthd-quarantine-cluster-0"
"""Another node holds it."""

IMAGE: list[Json] = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
CORDON: Json = {"spec": {"unschedulable": True}}
ACCUSED: Json = {"status": {"conditions": [{"type": "AcceleratorHealthy", "status": "False"}]}}
LATER: Json = {"spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}}
HOST: Json = {
    "metadata": {"generateName": "evil-"},
    "spec": {
        "containers": [{"name": "c", "image": "evil", "volumeMounts": [{"name": "host", "mountPath": "/host"}]}],
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
    },
}
SHELL = "exec?command=id&stdout=true"


def a_slot(node: str, name: str = SLOT) -> Json:
    """A slot of the budget that *node* holds."""
    meta = {"name": name, "labels": {"healthd.dev/node": node}}
    spec = {"holderIdentity": node}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def _refused_to_both() -> dict[str, tuple[Request, str]]:
    return {
        "a shell in the opener's container": (("POST", f"{PODS}/{{agent}}/{SHELL}&container=opener", None), "RBAC"),
        "a shell in a controller": (("POST", f"{PODS}/{{controller}}/{SHELL}", None), "RBAC"),
        "a container put into the agent's pod": (
            ("PATCH", f"{PODS}/{{agent}}/ephemeralcontainers", {"spec": {"ephemeralContainers": []}}),
            "RBAC",
        ),
        "a port of a pod": (("POST", f"{PODS}/{{agent}}/portforward?ports=9400", None), "RBAC"),
        "the secrets of all namespaces": (("GET", "/api/v1/secrets", None), "RBAC"),
        "the secrets of kube-system": (("GET", "/api/v1/namespaces/kube-system/secrets", None), "RBAC"),
        "the config maps of kube-system": (("GET", "/api/v1/namespaces/kube-system/configmaps", None), "RBAC"),
        "the configuration of healthd": (("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps", None), "RBAC"),
        "a token of the controller": (
            ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/healthd-controller/token", {"spec": {}}),
            "RBAC",
        ),
        "a token of an agent": (
            ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/healthd-agent/token", {"spec": {}}),
            "RBAC",
        ),
        "the kubelet of its node, by way of the API server": (("GET", "/api/v1/nodes/{node}/proxy/pods", None), "RBAC"),
        "the kubelet of another node, likewise": (("GET", "/api/v1/nodes/{other}/proxy/pods", None), "RBAC"),
        "its node deleted": (("DELETE", "/api/v1/nodes/{node}", None), "RBAC"),
        "another node deleted": (("DELETE", "/api/v1/nodes/{other}", None), "RBAC"),
        "the word that another node's kubelet lives": (("PATCH", f"{NODE_LEASES}/{{other}}", LATER), "RBAC"),
        "the agents' image": (
            ("PATCH", f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/healthd-agent", {"spec": {"template": {}}}),
            "RBAC",
        ),
        "its own rights": (
            ("PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/healthd-agent", {"rules": []}),
            "RBAC",
        ),
    }


ATTEMPTS: dict[str, dict[str, tuple[Request, str]]] = {
    AGENT: {
        "another node's cordon": (("PATCH", "/api/v1/nodes/{other}", CORDON), "healthd-agent-node"),
        "another node's conditions": (("PATCH", "/api/v1/nodes/{other}/status", ACCUSED), "healthd-agent-node"),
        "a foreign taint taken off its node": (
            ("PATCH", "/api/v1/nodes/{node}", {"spec": {"taints": None}}),
            "healthd-agent-node",
        ),
        "another node's report": (
            ("PATCH", HEALTHS + "/{other}/status", {"status": {"verdict": "unhealthy"}}),
            "healthd-agent-report",
        ),
        "another node's slot given back": (("DELETE", f"{LEASES}/{SLOT}", None), "healthd-agent-slots"),
        "a slot in another node's name": (
            ("POST", LEASES, a_slot("{other}", "healthd-quarantine-cluster-1")),
            "healthd-agent-slots",
        ),
        "the controller's lease": (("POST", LEASES, a_slot("{node}", "healthd-controller")), "healthd-agent-slots"),
        "any other lease": (("POST", LEASES, a_slot("{node}", "mine")), "healthd-agent-slots"),
        "a lease in another namespace": (("POST", NODE_LEASES, a_slot("{node}")), "RBAC"),
        "a pod with the disk of its host": (("POST", PODS, HOST), "RBAC"),
        "the image of its own pod": (("PATCH", f"{PODS}/{{agent}}", IMAGE), "RBAC"),
        "the image of a controller that runs": (("PATCH", f"{PODS}/{{controller}}", IMAGE), "RBAC"),
        "a controller deleted": (("DELETE", f"{PODS}/{{controller}}", None), "RBAC"),
        **_refused_to_both(),
    },
    CONTROLLER: {
        "a node's cordon": (("PATCH", "/api/v1/nodes/{node}", CORDON), "healthd-controller-nodes"),
        "a node's conditions": (("PATCH", "/api/v1/nodes/{node}/status", ACCUSED), "RBAC"),
        "a node's report": (
            ("PATCH", HEALTHS + "/{other}/status", {"status": {"verdict": "unhealthy"}}),
            "RBAC",
        ),
        "a slot of the budget": (
            ("POST", LEASES, a_slot("{node}", "healthd-quarantine-cluster-1")),
            "healthd-controller-lease",
        ),
        "a slot given back": (("DELETE", f"{LEASES}/{SLOT}", None), "RBAC"),
        "a lease in another namespace": (("POST", NODE_LEASES, a_slot("{node}")), "RBAC"),
        "a pod with the disk of its host, beside the opener": (("POST", PODS, HOST), "healthd-controller-pods"),
        "a pod with the disk of its host, anywhere": (
            ("POST", "/api/v1/namespaces/default/pods", HOST),
            "healthd-controller-pods",
        ),
        "the image of its own pod": (("PATCH", f"{PODS}/{{controller}}", IMAGE), "healthd-controller-pods"),
        "the image of an agent that runs": (("PATCH", f"{PODS}/{{agent}}", IMAGE), "healthd-controller-pods"),
        "an agent deleted": (("DELETE", f"{PODS}/{{agent}}", None), "healthd-controller-pods"),
        **_refused_to_both(),
    },
}
"""By who tries it: a request, and who refuses it."""

OF_KUBELET: dict[str, tuple[str, str]] = {
    "the pods of the node": ("GET", "/pods"),
    "a shell in the opener's container": ("POST", f"/run/{SYSTEM}/{{agent}}/opener?cmd=id"),
    "the log of a pod": ("GET", f"/containerLogs/{SYSTEM}/{{agent}}/agent"),
    "the files below /var/log": ("GET", "/logs/"),
    "the configuration of the kubelet": ("GET", "/configz"),
    "its metrics": ("GET", "/metrics"),
}
"""On port 10250 of a node: method and path."""
