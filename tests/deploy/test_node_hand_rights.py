"""The component `node-hands`: what the controller may do with it, at a real API server, and what it still may not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from healthd.core.api import ANNOTATION_QUARANTINE, TAINT_QUARANTINED, to_wire
from healthd.core.api.names import ANNOTATION_REQUEST, LABEL_NODE_HAND
from healthd.core.api.remediations import RungAttempt
from healthd.core.remediation.hands.placeholders import facts_of
from healthd.core.remediation.hands.requests import labels_left, labels_missing, request_of
from healthd.core.remediation.hands.shipped import shipped_hands
from tests import quick_yaml
from tests.builders import a_node
from tests.deploy.accounts import Request, answer, token_of_controller
from tests.deploy.manifests import DEPLOY, all_of, component, of_kind
from tests.deploy.verifier_pods import IMAGE
from tests.fakes import START
from tests.hand.machines import BOOT
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

FOLDER = DEPLOY / "components" / "node-hands"
NAMESPACE = "healthd-node-hands"
NODES = "/api/v1/nodes"
OUT, IN = f"{NODES}/gpu-17?dryRun=All", f"{NODES}/gpu-18?dryRun=All"
"""The node that is in quarantine, and another one."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DRY = f"{PODS}?dryRun=All"
BASE = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/healthd-controller-pods"
OWN, MADE, LABELS = (f"healthd-controller-node-hand{end}" for end in ("", "-made", "-labels"))
BASE_POD, BASE_NODE = "healthd-controller-pods", "healthd-controller-nodes"
PLUGIN, PAUSED = "nvidia.com/gpu.deploy.device-plugin", "paused-for-gpu-reset"
ANYBODY = ""
"""Another part of the API server may refuse it first."""
HANDS = {hand.name: hand for hand in shipped_hands() if hand.namespace == NAMESPACE}
RESET, REBOOT = "healthd-gpu-reset", "healthd-reboot"
OTHER_BOOT = BOOT.replace("1", "9")


def an_attempt(name: str) -> RungAttempt:
    return RungAttempt(number=7, fault="f", rung=HANDS[name].rung, hand=name, why="w", at=START, boot_ids=[BOOT])


def facts(node: str = "gpu-17") -> dict[str, str]:
    return facts_of(a_node(node, uid=f"uid-of-{node}"), "", attempt=7, rung="r", image=IMAGE, boot_id=BOOT)


def a_hand(name: str = REBOOT, node: str = "gpu-17") -> Json:
    """The pod, as the controller makes it."""
    return request_of(HANDS[name], an_attempt(name), "v1", facts(node)).body


COMMAND = a_hand()["spec"]["containers"][0]["command"]


def patch_of_the_base() -> list[Json]:
    """What the component changes of the policy that is about all pods."""
    (kustomization,) = all_of(FOLDER / "kustomization.yaml")
    (patch,) = kustomization["patches"]
    operations: list[Json] = quick_yaml.load(patch["patch"])
    return operations


def changed(change: Callable[[Json], None], name: str = REBOOT) -> Request:
    """A request for another pod."""
    pod = copy.deepcopy(a_hand(name))
    change(pod)
    return "POST", DRY, pod


def spec(**fields: Any) -> Request:
    return changed(lambda pod: pod["spec"].update(fields))


def container(**fields: Any) -> Request:
    return changed(lambda pod: pod["spec"]["containers"][0].update(fields))


def command(at: int, word: str) -> Request:
    return changed(lambda pod: pod["spec"]["containers"][0]["command"].__setitem__(at, word))


def meta(**fields: Any) -> Request:
    return changed(lambda pod: pod["metadata"].update(fields))


def secure(**fields: Any) -> Request:
    return changed(lambda pod: pod["spec"]["containers"][0]["securityContext"].update(fields))


def elsewhere(namespace: str) -> Request:
    """The same pod for another namespace."""
    pod = a_hand()
    pod["metadata"]["namespace"] = namespace
    return "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod


def label(at: str, key: str, value: str | None) -> Request:
    return "PATCH", at, {"metadata": {"labels": {key: value}}}


def selects(value: str) -> Request:
    return spec(nodeSelector={LABEL_NODE_HAND: value})


REFUSED: dict[str, tuple[Request, str]] = {
    "another image": (container(image="busybox"), OWN),
    "another program": (command(0, "sh"), OWN),
    "another command of healthd": (command(1, "check"), OWN),
    "another deed": (command(2, "wipe"), OWN),
    "no boot": (command(3, "--boot-id="), OWN),
    "a boot that is none": (command(3, "--boot-id=$(cat /x)"), OWN),
    "another tree": (container(command=[*COMMAND, "--root=/"]), OWN),
    "a result that is left elsewhere": (command(4, "--result=/proc/1/root/etc/passwd"), OWN),
    "arguments": (container(args=["x"]), OWN),
    "an environment": (container(env=[{"name": "PATH", "value": "/x"}]), OWN),
    "a hook": (container(lifecycle={"preStop": {"exec": {"command": ["sh"]}}}), OWN),
    "a working directory": (container(workingDir="/x"), OWN),
    "no node": (spec(nodeName=""), OWN),
    "a node in service": (spec(nodeName="gpu-18", nodeSelector={}), OWN),
    "any node that is selected": (spec(nodeSelector={}), OWN),
    "another label that is selected": (spec(nodeSelector={"kubernetes.io/os": "linux"}), OWN),
    "another label beside it": (spec(nodeSelector={LABEL_NODE_HAND: f"reboot.{BOOT}", "a": "b"}), OWN),
    "what was let in for the other deed": (selects(f"gpu-reset.{BOOT}"), OWN),
    "what was let in for another boot": (selects(f"reboot.{OTHER_BOOT}"), OWN),
    "a folder of the host": (spec(volumes=[{"name": "x", "hostPath": {"path": "/"}}]), OWN),
    "a secret": (spec(volumes=[{"name": "x", "secret": {"secretName": "x"}}]), OWN),
    "the network of the host": (spec(hostNetwork=True), OWN),
    "the IPC of the host": (spec(hostIPC=True), OWN),
    "no PIDs of the host": (spec(hostPID=False), OWN),
    "a token": (spec(automountServiceAccountToken=True), OWN),
    "another account": (spec(serviceAccountName="theirs"), ANYBODY),
    "another user": (secure(runAsUser=1000), OWN),
    "further rights": (secure(capabilities={"add": ["ALL"]}), OWN),
    "a root of its own that it writes": (secure(readOnlyRootFilesystem=False), OWN),
    "rights of the whole pod": (spec(securityContext={"fsGroup": 1}), OWN),
    "no end": (spec(activeDeadlineSeconds=None), OWN),
    "an end that is late": (spec(activeDeadlineSeconds=86400), OWN),
    "a further start": (spec(restartPolicy="Always"), OWN),
    "an init container": (spec(initContainers=[{"name": "x", "image": IMAGE}]), OWN),
    "a second container": (
        changed(lambda pod: pod["spec"]["containers"].append({"name": "x", "image": IMAGE})),
        OWN,
    ),
    "a RuntimeClass": (spec(runtimeClassName="theirs"), ANYBODY),
    "another scheduler": (spec(schedulerName="theirs"), OWN),
    "an owner": (meta(ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "gpu-17", "uid": "x"}]), OWN),
    "a finalizer": (meta(finalizers=["theirs/keep"]), OWN),
    "a label of others": (meta(labels={"app": "theirs"}), OWN),
    "an annotation of others": (meta(annotations={"example.com/theirs": "x"}), OWN),
    "such a pod in another namespace": (elsewhere("default"), BASE_POD),
    "such a pod beside healthd": (elsewhere("healthd-system"), BASE_POD),
    "such a pod among those of the cluster": (elsewhere("kube-system"), BASE_POD),
    "its status": (("PATCH", f"{PODS}/theirs/status?dryRun=All", {"status": {"phase": "Succeeded"}}), MADE),
    "a label of one that runs": (("PATCH", f"{PODS}/theirs?dryRun=All", {"metadata": {"labels": {"x": "y"}}}), MADE),
    "a shell in it": (("POST", f"{PODS}/theirs/exec?command=sh&container=hand", None), ANYBODY),
    "a container put into it": (
        ("PATCH", f"{PODS}/theirs/ephemeralcontainers?dryRun=All", {"spec": {"ephemeralContainers": []}}),
        ANYBODY,
    ),
    "a node in service let in": (label(IN, LABEL_NODE_HAND, f"reboot.{BOOT}"), LABELS),
    "another boot let in": (label(OUT, LABEL_NODE_HAND, f"reboot.{OTHER_BOOT}"), LABELS),
    "another word let in": (label(OUT, LABEL_NODE_HAND, "true"), LABELS),
    "a device plugin taken off a node in service": (label(IN, PLUGIN, PAUSED), LABELS),
    "a device plugin taken off for good": (label(OUT, PLUGIN, "false"), LABELS),
    "its label taken away": (label(OUT, PLUGIN, None), LABELS),
    "a driver taken off": (label(OUT, "nvidia.com/gpu.deploy.driver", PAUSED), ANYBODY),
    "a quarantine of its own": (
        ("PATCH", IN, {"metadata": {"annotations": {ANNOTATION_QUARANTINE: "{}"}, "labels": {LABEL_NODE_HAND: "x"}}}),
        "healthd-controller-node",
    ),
    "the label of healthd's own quarantine with a taint of its own": (
        ("PATCH", IN, {"spec": {"taints": [{"key": TAINT_QUARANTINED, "effect": "NoSchedule"}]}}),
        BASE_NODE,
    ),
    "a cordon": (("PATCH", OUT, {"spec": {"unschedulable": False}}), "neither cordons"),
}


def labels_of(name: str, *, back: bool = False) -> Request:
    """The labels of a hand on the node in quarantine, set or taken back, as the controller writes them."""
    node = a_node("gpu-17", labels={PLUGIN: "true"})
    wanted = labels_missing(HANDS[name], an_attempt(name), facts(), node)
    if back:
        there = a_node("gpu-17", labels=wanted["metadata"]["labels"], annotations={ANNOTATION_REQUEST: "7"})
        wanted = labels_left(HANDS[name], an_attempt(name), facts(), there)
    return "PATCH", f"{NODES}/gpu-17", wanted


ALLOWED: dict[str, Request] = {
    "a reset": ("POST", DRY, a_hand(RESET)),
    "a reboot": ("POST", DRY, a_hand(REBOOT)),
    "the labels of a reset": labels_of(RESET),
    "these taken back": labels_of(RESET, back=True),
    "the label of a reboot": labels_of(REBOOT),
    "this taken back": labels_of(REBOOT, back=True),
    "a pod of a hand taken away": ("DELETE", f"{PODS}/theirs?dryRun=All", None),
    "the look whether the component is there": ("GET", f"/api/v1/namespaces/{NAMESPACE}", None),
}


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policies are at work."""
    installed.apply(DEPLOY / "components" / "remediation" / "rbac.yaml")
    for file in ("namespace.yaml", "network-policy.yaml", "rbac.yaml", "policy.yaml"):
        installed.apply(FOLDER / file)
    status, message = answer(installed, installed.token, ("PATCH", BASE, patch_of_the_base()))
    assert status == 200, message
    installed.await_service_account(NAMESPACE)
    made = token_of_controller(installed)
    for name, notes in (("gpu-17", {ANNOTATION_QUARANTINE: "{}"}), ("gpu-18", {})):
        installed.api.create(NODES, to_wire(a_node(name, annotations=notes, labels={PLUGIN: "true"})))
        installed.api.patch(f"{NODES}/{name}/status", {"status": {"nodeInfo": {"bootID": BOOT}}})
    taint = {"key": TAINT_QUARANTINED, "value": "xid-79", "effect": "NoSchedule"}
    installed.api.patch(f"{NODES}/gpu-17", {"spec": {"taints": [taint], "unschedulable": True}})
    theirs = a_hand()
    theirs["metadata"]["name"] = "theirs"
    installed.api.create(PODS, theirs)
    wait_until("the component at work", lambda: OWN in answer(installed, made, command(0, "sh"))[1], limit=30)
    wait_until("the base at work", lambda: answer(installed, made, ("POST", DRY, a_hand()))[0] == 201, limit=30)
    free = label(IN, LABEL_NODE_HAND, "x")
    wait_until("the labels guarded", lambda: LABELS in answer(installed, made, free)[1], limit=30)
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
def test_all_that_a_hand_of_healthd_writes_is_allowed(installed: ControlPlane, token: str) -> None:
    answers = {what: answer(installed, token, request) for what, request in ALLOWED.items()}

    assert {what: message for what, (status, message) in answers.items() if status not in (200, 201)} == {}


@pytest.mark.lab
@pytest.mark.slow
def test_what_others_make_in_its_namespace_is_none_of_its_business(installed: ControlPlane, token: str) -> None:
    """No admission object of healthd refuses what another account asks for."""
    pod = {"metadata": {"name": "any"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    requests: list[Request] = [
        ("POST", DRY, pod),
        label(IN, LABEL_NODE_HAND, "x"),
        label(OUT, PLUGIN, "false"),
        ("PATCH", f"{PODS}/theirs?dryRun=All", {"metadata": {"labels": {"x": "y"}}}),
    ]

    assert [answer(installed, installed.token, request)[0] for request in requests] == [201, 200, 200, 200]


def test_the_component_grants_to_make_pods_in_its_namespace_and_to_write_the_labels_of_its_hands() -> None:
    roles = {one["kind"]: one for one in component("node-hands") if one["kind"] in ("Role", "ClusterRole")}
    looks, marks = roles["ClusterRole"]["rules"]

    assert roles["Role"]["metadata"]["namespace"] == NAMESPACE
    assert roles["Role"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    assert (looks["resources"], looks["resourceNames"], looks["verbs"]) == (["namespaces"], [NAMESPACE], ["get"])
    assert (marks["resources"], marks["verbs"]) == (["nodemarks"], ["write"])
    assert set(marks["resourceNames"]) == {one.key for hand in HANDS.values() for one in hand.labels}


def test_its_namespace_alone_admits_privileged_pods_and_has_no_network() -> None:
    made = {one["kind"]: one for one in component("node-hands")}
    others = [one for name in ("node-check", "remediation") for one in component(name) if one["kind"] == "Namespace"]

    assert made["Namespace"]["metadata"]["name"] == NAMESPACE
    assert made["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert all(one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted" for one in others)
    assert made["NetworkPolicy"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_policy_of_all_pods_is_changed_by_one_condition_alone() -> None:
    (added,) = patch_of_the_base()
    conditions = of_kind("ValidatingAdmissionPolicy")["healthd-controller-pods"]["spec"]["matchConditions"]

    assert (added["op"], added["path"]) == ("add", "/spec/matchConditions/-")
    assert added["value"]["expression"] == f"request.namespace != '{NAMESPACE}'"
    assert added["value"]["name"] not in [each["name"] for each in conditions]


@pytest.mark.parametrize("name", [OWN, MADE, LABELS])
def test_each_of_its_policies_is_bound_and_is_about_the_controllers_account_alone(name: str) -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in component("node-hands")}
    policy = made["ValidatingAdmissionPolicy", name]["spec"]
    account = "request.userInfo.username == 'system:serviceaccount:healthd-system:healthd-controller'"

    assert made["ValidatingAdmissionPolicyBinding", name]["spec"] == {"policyName": name, "validationActions": ["Deny"]}
    assert policy["matchConditions"][0]["expression"] == account
    assert "paramKind" not in policy
