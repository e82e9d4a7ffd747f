"""A pod that verifies checkpoints is the pod that the controller's code makes, and no other, at a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from healthd.core.api import RESOURCES
from healthd.core.recovery.gang import RunsAs
from healthd.gangs.kinds import ALL
from tests.deploy.accounts import token_of_controller
from tests.deploy.verifier_pods import IMAGE, a_verifier, as_ordered, confined
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policy is at work; and what a pod could refer to."""
    made = token_of_controller(installed)
    installed.api.create(
        "/api/v1/namespaces/default/serviceaccounts",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}},
    )
    installed.api.create(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "other"}, "handler": "other"},
    )
    wait_until("the policy at work", lambda: ask(installed, made, a_verifier(hostname="x"))[0] == 403, limit=30)
    return made


def ask(installed: ControlPlane, token: str, pod: Json, namespace: str = "default") -> tuple[int, str]:
    """The status and the words of the answer to the controller that wants to make *pod*."""
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    status, raw = installed.api_as(token).raw("POST", path, json.dumps(pod), {"Content-Type": "application/json"})
    return status, raw.decode(errors="replace")


ORDERS: dict[str, dict[str, Any]] = {
    "everything": {},
    "as little as can be": {
        "folder": "/volume",
        "format": "",
        "quick": False,
        "newer_than": None,
        "near": (),
        "not_on": (),
        "runs_as": RunsAs(),
    },
    "a gang that runs as root": {"runs_as": RunsAs(user=0, group=0, fs_group=0, groups=(0, 5))},
    "a folder with dots and blanks": {"folder": "/volume/runs ü/..step/a.b/..."},
    "an age before the first step": {"newer_than": -1},
}


@pytest.mark.parametrize("what", ORDERS)
def test_what_the_controller_makes_is_let_in(installed: ControlPlane, token: str, what: str) -> None:
    status, message = ask(installed, token, as_ordered(**ORDERS[what]))

    assert status == 201, message


@pytest.mark.parametrize("kind", ALL)
def test_it_may_go_with_a_gang_of_every_kind(installed: ControlPlane, token: str, kind: str) -> None:
    of_root = RESOURCES[ALL[kind].kind]
    owner = {"apiVersion": of_root.api_version, "kind": of_root.kind, "name": "train", "uid": "no"}

    status, message = ask(installed, token, a_verifier(metadata={"ownerReferences": [owner]}))

    assert status == 201, message


def test_it_may_be_made_where_the_strictest_standard_for_pods_holds(
    installed: ControlPlane, token: str, namespace: str
) -> None:
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    installed.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": restricted}})

    status, message = ask(installed, token, as_ordered(), namespace)

    assert status == 201, message


def test_what_the_namespace_adds_to_every_pod_is_let_in(installed: ControlPlane, token: str, namespace: str) -> None:
    limits = {"type": "Container", "default": {"cpu": "1", "ephemeral-storage": "1Gi"}}
    range_ = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual"}, "spec": {"limits": [limits]}}
    installed.api.create(f"/api/v1/namespaces/{namespace}/limitranges", range_)
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    installed.api.patch(account, {"imagePullSecrets": [{"name": "registry"}]})
    answers: list[tuple[int, str]] = []

    def has_both() -> bool:
        answers.append(ask(installed, token, as_ordered(), namespace))
        return "limit-ranger" in answers[-1][1] and "imagePullSecrets" in answers[-1][1]

    wait_until("a pod with what its namespace adds", has_both, limit=30)

    assert answers[-1][0] == 201


def test_a_verifier_may_be_removed(installed: ControlPlane, token: str, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"

    made = installed.api_as(token).create(pods, as_ordered())
    gone, _ = installed.api_as(token).raw("DELETE", f"{pods}/{made['metadata']['name']}")

    assert gone == 200


COMMAND = ["healthd", "checkpoints", "report", "/volume/llama", "--to=/dev/termination-log"]
CLAIM = {"name": "claim", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
MOUNT = {"name": "claim", "mountPath": "/volume", "readOnly": True}
OF_THE_POD: Json = {
    "dnsConfig": {"nameservers": ["192.0.2.1"]},
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["registry"]}],
    "hostIPC": True,
    "hostNetwork": True,
    "hostPID": True,
    "hostUsers": False,
    "hostname": "api",
    "hostnameOverride": "api",
    "initContainers": [{"name": "first", "image": IMAGE}],
    "nodeName": "n-1",
    "os": {"name": "linux"},
    "readinessGates": [{"conditionType": "example.com/never"}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    "resources": {"requests": {"cpu": "1"}},
    "runtimeClassName": "other",
    "schedulingGates": [{"name": "example.com/never"}],
    "setHostnameAsFQDN": True,
    "shareProcessNamespace": True,
    "subdomain": "api",
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
}
FURTHER: dict[str, Json] = {
    # Of the pod.
    **{field: a_verifier(**{field: value}) for field, value in OF_THE_POD.items()},
    # Of the security of the pod.
    **{
        field: a_verifier(security={field: value})
        for field, value in {
            "appArmorProfile": {"type": "Unconfined"},
            "seLinuxChangePolicy": "Recursive",
            "seLinuxOptions": {"type": "spc_t"},
            "supplementalGroupsPolicy": "Merge",
            "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
            "windowsOptions": {"runAsUserName": "ContainerAdministrator"},
        }.items()
    },
    # Of the container.
    **{
        field: a_verifier(container={field: value})
        for field, value in {
            "args": ["x"],
            "env": [{"name": "LD_PRELOAD", "value": "/volume/evil.so"}],
            "envFrom": [{"secretRef": {"name": "keys"}}],
            "lifecycle": {"postStart": {"exec": {"command": ["/volume/evil"]}}},
            "livenessProbe": {"exec": {"command": ["/volume/evil"]}},
            "ports": [{"containerPort": 80}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 80, "host": "192.0.2.1"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            "restartPolicy": "Never",
            "startupProbe": {"exec": {"command": ["/volume/evil"]}},
            "stdin": True,
            "tty": True,
            "workingDir": "/volume",
        }.items()
    },
    # Of the security of the container.
    **{
        f"container's {field}": a_verifier(container=confined(**{field: value}))
        for field, value in {
            "appArmorProfile": {"type": "Unconfined"},
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "runAsUser": 0,
            "seLinuxOptions": {"type": "spc_t"},
            "seccompProfile": {"type": "Unconfined"},
        }.items()
    },
    "volumeDevices": a_verifier(
        volumes=[CLAIM, {**CLAIM, "name": "other"}],
        container={"volumeDevices": [{"name": "other", "devicePath": "/dev/x"}]},
    ),
    "podAntiAffinity": a_verifier(
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
                ]
            }
        }
    ),
    "finalizers": a_verifier(metadata={"finalizers": ["example.com/never"]}),
    "app": a_verifier(metadata={"labels": {"healthd.dev/verifier": "true", "app": "of-somebody"}}),
    "k8s.v1.cni.cncf.io/networks": a_verifier(metadata={"annotations": {"k8s.v1.cni.cncf.io/networks": "host"}}),
    "container.apparmor.security.beta.kubernetes.io/verifier": a_verifier(
        metadata={"annotations": {"container.apparmor.security.beta.kubernetes.io/verifier": "unconfined"}}
    ),
}
"""A field or key that the controller never sets, and a pod that carries it."""


@pytest.mark.parametrize("what", FURTHER)
def test_nothing_further_is_let_in(installed: ControlPlane, token: str, what: str) -> None:
    status, message = ask(installed, token, FURTHER[what])

    assert (status, "may not carry" in message) == (403, True), message
    assert what.removeprefix("container's ") in message


PLACED: Json = {
    "activeDeadlineSeconds": None,
    "dnsPolicy": "Default",
    "enableServiceLinks": True,
    "restartPolicy": "Always",
    "schedulerName": "other",
    "terminationGracePeriodSeconds": 86_400,
}
OTHERWISE: dict[str, tuple[Json, str]] = {
    "a second container": (
        a_verifier(containers=[*as_ordered()["spec"]["containers"], {"name": "other", "image": IMAGE}]),
        "one container",
    ),
    "a controller that counts it": (
        a_verifier(
            metadata={
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "no", "controller": True}
                ]
            }
        ),
        "goes with the recovery",
    ),
    "an owner that lives for ever": (
        a_verifier(metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "no"}]}),
        "goes with the recovery",
    ),
    "another image": (a_verifier(container={"image": "localhost/other"}), "transformers: [../deploy/verifier-image]"),
    "no command": (a_verifier(container={"command": None}), "healthd checkpoints report"),
    "a shell": (a_verifier(container={"command": ["sh", "-c", "true", "a", "b"]}), "healthd checkpoints report"),
    **{
        f"the folder {folder}": (
            a_verifier(container={"command": [*COMMAND[:3], folder, *COMMAND[4:]]}),
            "healthd checkpoints report",
        )
        for folder in ("/", "/etc", "/volume/..", "/volume/../etc", "/volume/a/../..", "/volumes", "/volume/./a", "-h")
    },
    **{
        f"the option {option}": (a_verifier(container={"command": [*COMMAND, option]}), "healthd checkpoints report")
        for option in ("--to=/volume/x", "--format", "--format=", "--newer-than=x", "--config=/volume/x", "/volume", "")
    },
    "another place for its answer": (
        a_verifier(container={"command": [*COMMAND[:4], "--to=/proc/self/fd/1"]}),
        "healthd checkpoints report",
    ),
    "a folder of its host": (a_verifier(volumes=[{"name": "claim", "hostPath": {"path": "/"}}]), "mounts one claim"),
    "a secret as volume": (
        a_verifier(volumes=[{"name": "claim", "secret": {"secretName": "keys"}}]),
        "mounts one claim",
    ),
    "a second claim": (a_verifier(volumes=[CLAIM, {**CLAIM, "name": "other"}]), "mounts one claim"),
    "no claim": (a_verifier(volumes=None, container={"volumeMounts": None}), "mounts one claim"),
    "a claim to write to": (
        a_verifier(volumes=[{"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}]),
        "read-only",
    ),
    **{
        f"a mount with {field}": (a_verifier(container={"volumeMounts": [MOUNT | {field: value}]}), "mounts one claim")
        for field, value in {
            "readOnly": False,
            "mountPath": "/opt/healthd",
            "subPath": "bin",
            "subPathExpr": "bin",
            "mountPropagation": "HostToContainer",
        }.items()
    },
    "a token": (a_verifier(automountServiceAccountToken=None), "mounts one claim"),
    "an account of its choice": (a_verifier(serviceAccountName="other"), "no account but"),
    "no word about its user": (a_verifier(securityContext=None), "root's"),
    "root": (a_verifier(security={"runAsUser": 0}), "root's"),
    "no user": (a_verifier(security={"runAsUser": None}), "root's"),
    "the group of root": (a_verifier(security={"runAsGroup": 0}), "root's"),
    "no group": (a_verifier(security={"runAsGroup": None}), "root's"),
    "files of root's group": (a_verifier(security={"fsGroup": 0}), "root's"),
    "a further group of root": (a_verifier(security={"supplementalGroups": [5, 0]}), "root's"),
    "no seccomp": (a_verifier(security={"seccompProfile": {"type": "Unconfined"}}), "no rights on its machine"),
    "no word about its rights": (a_verifier(container={"securityContext": None}), "no rights on its machine"),
    **{
        f"the right {field}": (a_verifier(container=confined(**{field: value})), "no rights on its machine")
        for field, value in {
            "allowPrivilegeEscalation": None,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            "readOnlyRootFilesystem": False,
        }.items()
    },
    **{
        f"the placement {field}": (a_verifier(**{field: value}), "placed like any other")
        for field, value in PLACED.items()
    },
    "a GPU": (
        a_verifier(
            container={
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"memory": "512Mi", "nvidia.com/gpu": "8"},
                }
            }
        ),
        "is small",
    ),
    "no limit": (a_verifier(container={"resources": None}), "is small"),
    "a priority above others": (a_verifier(priorityClassName="system-node-critical"), "ends no other pod"),
}
"""A pod that differs in a field that the controller does set, and words of the refusal."""


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_the_controller_sets_it_sets_so(installed: ControlPlane, token: str, what: str) -> None:
    pod, words = OTHERWISE[what]

    status, message = ask(installed, token, pod)

    assert (status, words in message) == (403, True), message
    assert "healthd-controller-verifier" in message
