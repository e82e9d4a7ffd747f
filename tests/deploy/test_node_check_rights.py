"""The component `node-check`: what the controller may do with it, at a real API server, and what it still may not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from healthd.core.api import to_wire
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.remediation.node_check import CheckOrder, check_pod
from tests import quick_yaml
from tests.builders import a_node
from tests.deploy.accounts import Request, answer, token_of_controller
from tests.deploy.manifests import DEPLOY, all_of, component, of_kind
from tests.deploy.verifier_pods import IMAGE
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

FOLDER = DEPLOY / "components" / "node-check"
NODE = "/api/v1/nodes/gpu-17"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BASE = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/healthd-controller-pods"
OWN, RESULT = "healthd-controller-node-check", "healthd-controller-node-check-result"
ANYBODY = ""
"""Another part of the API server may refuse it first."""


def a_check(name: str = "gpu-17", number: int = 1, **policy: Any) -> Json:
    """The pod, as the controller makes it."""
    order = CheckOrder(
        node=a_node(name, uid="no-such-uid"),
        attempt=7,
        check=number,
        gpus=8,
        image=IMAGE,
        policy=RemediationPolicy(check_by_pod=True, **policy),
    )
    return to_wire(check_pod(order))


COMMAND = a_check()["spec"]["containers"][0]["command"]


def elsewhere() -> Json:
    """The same pod for another namespace."""
    pod = a_check()
    pod["metadata"]["namespace"] = "default"
    return pod


def patch_of_the_base() -> list[Json]:
    """What the component changes of the policy that is about all pods."""
    (kustomization,) = all_of(FOLDER / "kustomization.yaml")
    (patch,) = kustomization["patches"]
    operations: list[Json] = quick_yaml.load(patch["patch"])
    return operations


def changed(change: Callable[[Json], None]) -> Request:
    """A request for another pod."""
    pod = copy.deepcopy(a_check())
    change(pod)
    return "POST", f"{PODS}?dryRun=All", pod


def spec(**fields: Any) -> Request:
    return changed(lambda pod: pod["spec"].update(fields))


def container(**fields: Any) -> Request:
    return changed(lambda pod: pod["spec"]["containers"][0].update(fields))


def command(at: int, word: str) -> Request:
    return changed(lambda pod: pod["spec"]["containers"][0]["command"].__setitem__(at, word))


def meta(**fields: Any) -> Request:
    return changed(lambda pod: pod["metadata"].update(fields))


REFUSED: dict[str, tuple[Request, str]] = {
    "no node": (spec(nodeName=""), OWN),
    "a node that does not own it": (spec(nodeName="gpu-18"), OWN),
    "no owner": (meta(ownerReferences=[]), OWN),
    "no label": (meta(labels={}), OWN),
    "the label of a verifier": (meta(labels={"healthd.dev/verifier": "true"}), "healthd-controller"),
    "another image": (container(image="busybox"), OWN),
    "another program": (command(0, "sh"), OWN),
    "a check beside others": (command(2, "--force"), OWN),
    "a result that is left elsewhere": (command(4, "--result=/tmp/x"), OWN),
    "fewer GPUs expected than asked for": (command(7, "--expect-gpus=1"), OWN),
    "a further word": (container(command=[*COMMAND, "--config=/x"]), OWN),
    "arguments": (container(args=["x"]), OWN),
    "an environment": (container(env=[{"name": "LD_PRELOAD", "value": "/x"}]), OWN),
    "no GPU": (container(resources={"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "16Gi"}}), OWN),
    "no end": (spec(activeDeadlineSeconds=None), OWN),
    "the network of the host": (spec(hostNetwork=True), ANYBODY),
    "the processes of the host": (spec(hostPID=True), ANYBODY),
    "a folder of the host": (spec(volumes=[{"name": "x", "hostPath": {"path": "/"}}]), ANYBODY),
    "a token": (spec(automountServiceAccountToken=True), OWN),
    "another account": (spec(serviceAccountName="healthd-controller"), ANYBODY),
    "a privileged container": (container(securityContext={"privileged": True}), ANYBODY),
    "root": (spec(securityContext={"runAsUser": 0}), ANYBODY),
    "an init container": (spec(initContainers=[{"name": "x", "image": IMAGE}]), ANYBODY),
    "a RuntimeClass of others": (spec(runtimeClassName="kata"), ANYBODY),
    "a check in another namespace": (("POST", "/api/v1/namespaces/default/pods?dryRun=All", elsewhere()), "healthd-"),
    "the result of a check": (("PATCH", f"{PODS}/theirs/status?dryRun=All", {"status": {"phase": "Failed"}}), RESULT),
    "a label of a check": (("PATCH", f"{PODS}/theirs?dryRun=All", {"metadata": {"labels": {"x": "y"}}}), RESULT),
    "a cordon": (("PATCH", f"{NODE}?dryRun=All", {"spec": {"unschedulable": True}}), "neither cordons"),
}
ALLOWED: dict[str, Request] = {
    "a check": ("POST", f"{PODS}?dryRun=All", a_check()),
    "a check taken away": ("DELETE", f"{PODS}/theirs?dryRun=All", None),
    "a check by a RuntimeClass": ("POST", f"{PODS}?dryRun=All", a_check(check_runtime_class="nvidia")),
    "a node given back": (
        "PATCH",
        NODE,
        {
            "metadata": {
                "annotations": {"healthd.dev/repaired": "2026-01-01T00:00:00Z"},
                "labels": {"healthd.dev/probation": "true"},
            }
        },
    ),
    "a spare that failed its check": (
        "PATCH",
        NODE,
        {"metadata": {"annotations": {"healthd.dev/failed-check": "2026-01-01T00:00:00+00:00 gpu-memory"}}},
    ),
    "the end of that note": ("PATCH", NODE, {"metadata": {"annotations": {"healthd.dev/failed-check": None}}}),
    "a check of an idle spare": ("POST", f"{PODS}?dryRun=All", a_check(number=0)),
    "the end of its probation": ("PATCH", NODE, {"metadata": {"labels": {"healthd.dev/probation": None}}}),
}


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policies are at work."""
    for file in ("namespace.yaml", "network-policy.yaml", "rbac.yaml", "policy.yaml"):
        installed.apply(FOLDER / file)
    status, message = answer(installed, installed.token, ("PATCH", BASE, patch_of_the_base()))
    assert status == 200, message
    installed.await_service_account(NAMESPACE)
    made = token_of_controller(installed)
    installed.api.create("/api/v1/nodes", to_wire(a_node("gpu-17")))
    installed.api.create(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
    )
    theirs = a_check()
    installed.api.create(PODS, {**theirs, "metadata": {"name": "theirs", "labels": theirs["metadata"]["labels"]}})
    wait_until("the component at work", lambda: OWN in answer(installed, made, command(0, "sh"))[1], limit=30)
    check = "POST", f"{PODS}?dryRun=All", a_check()
    wait_until("the base at work", lambda: answer(installed, made, check)[0] == 201, limit=30)
    return made


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused(installed: ControlPlane, token: str, what: str) -> None:
    request, words = REFUSED[what]

    status, message = answer(installed, token, request)

    assert status in (403, 422), message
    assert words in message


@pytest.mark.lab
@pytest.mark.slow
def test_all_that_a_check_of_a_node_writes_is_allowed(installed: ControlPlane, token: str) -> None:
    answers = {what: answer(installed, token, request) for what, request in ALLOWED.items()}

    assert {what: message for what, (status, message) in answers.items() if status not in (200, 201)} == {}


def test_the_component_grants_to_make_pods_in_its_namespace_and_to_give_a_node_back() -> None:
    roles = {one["kind"]: one for one in component("node-check") if one["kind"] in ("Role", "ClusterRole")}
    marks = roles["ClusterRole"]["rules"]

    assert roles["Role"]["metadata"]["namespace"] == NAMESPACE
    assert roles["Role"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in marks] == [
        (["nodemarks"], ["healthd.dev/repaired", "healthd.dev/probation", "healthd.dev/failed-check"], ["write"])
    ]


def test_pods_in_its_namespace_have_no_rights_and_no_network() -> None:
    made = {one["kind"]: one for one in component("node-check")}

    assert made["Namespace"]["metadata"]["name"] == NAMESPACE
    assert made["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert made["NetworkPolicy"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_policy_of_all_pods_is_changed_by_one_condition_alone() -> None:
    (added,) = patch_of_the_base()
    conditions = of_kind("ValidatingAdmissionPolicy")["healthd-controller-pods"]["spec"]["matchConditions"]

    assert (added["op"], added["path"]) == ("add", "/spec/matchConditions/-")
    assert added["value"]["expression"] == f"request.namespace != '{NAMESPACE}'"
    assert added["value"]["name"] not in [each["name"] for each in conditions]


@pytest.mark.parametrize("name", [OWN, RESULT])
def test_each_of_its_policies_is_bound_and_is_about_the_namespace_alone(name: str) -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in component("node-check")}
    conditions = made["ValidatingAdmissionPolicy", name]["spec"]["matchConditions"]

    assert made["ValidatingAdmissionPolicyBinding", name]["spec"] == {"policyName": name, "validationActions": ["Deny"]}
    assert f"request.namespace == '{NAMESPACE}'" in [each["expression"] for each in conditions]
