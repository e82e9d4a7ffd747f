"""
The pod that runs `healthd check --deep` on a repaired node: when it may start, what it is, and what its status says.

Pure. It has no token, no network and no rights: the kubelet gives it all GPUs of the node, as it gives them to any pod
that asks for them. The controller creates it (`healthd.controller.remediation.node_checks`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from healthd.core.api import (
    MachineHistory,
    Node,
    NodeHealth,
    NodeHealthStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodManifest,
    Terminated,
)
from healthd.core.api.kubernetes.gpu_names import GPU_RESOURCE, LABEL_GPU_PRODUCT, LABEL_GPU_REPLICAS, MIG_RESOURCES
from healthd.core.api.remediations import NodePhase, NodeRemediationStatus, RungAttempt, SpareCheck
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.check_pods import LABEL_CHECK, NAMESPACE, is_check
from healthd.core.node.expected_devices import expected_devices
from healthd.core.printable import printable
from healthd.core.remediation.check_summary import read_result, shortfall, words_of
from healthd.core.remediation.situation import CheckLeftover, CheckPlan, CheckSeen, CheckState
from healthd.core.untrusted import number_or

CONTAINER = "check"
NOT_SEEN = ("nics", "rdma-loopback")
"""Checks that would fail in a pod without the network of the host. The agent watches the ports."""
TERMINATION_LOG = "/dev/termination-log"
OF_A_SPARE = 0
"""The number, in the name of its pod, of a check that follows no rung. Those after a rung count from 1."""
_LONGEST_NAME = 63
"""Characters of the name of a pod that is also its host name."""
_LONGEST_REASON = 500
_ENDED = frozenset({"Succeeded", "Failed"})
_MARGIN = timedelta(seconds=30)
"""The check ends by itself so long before its pod is ended, so that it can say what it found."""


def plan_of(
    node: Node | None, health: NodeHealth | None, history: MachineHistory | None, policy: RemediationPolicy
) -> CheckPlan:
    """Whether and how healthd can check *node* itself."""
    if not policy.check_by_pod or node is None:
        return CheckPlan()
    expected = expected_devices(node, health.status if health is not None else NodeHealthStatus(), history).gpus
    if lacks := _lacks(node):
        return CheckPlan(lacks=lacks)
    if expected is None:
        return CheckPlan(lacks="nothing says how many GPUs it has")
    return CheckPlan(gpus=expected.count, waits_for=_waits_for(node, expected.count))


def _lacks(node: Node) -> str:
    """What keeps a pod from being given whole GPUs, all of them."""
    offers, labels = node.status.allocatable, node.metadata.labels
    slices = any(name.startswith(MIG_RESOURCES) and number_or(count, 0) for name, count in offers.items())
    if slices or "-MIG-" in labels.get(LABEL_GPU_PRODUCT, ""):
        return "its GPUs are partitioned (MIG)"
    if number_or(labels.get(LABEL_GPU_REPLICAS, ""), 1) > 1:
        return f"its GPUs are shared ({LABEL_GPU_REPLICAS})"
    return "" if GPU_RESOURCE in offers else f"it offers no {GPU_RESOURCE}"


def _waits_for(node: Node, gpus: int) -> str:
    """After a boot the driver and the device plugin need minutes; a pod that comes before them is refused."""
    if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
        return "the Node to be ready"
    offered = number_or(node.status.allocatable.get(GPU_RESOURCE, ""), 0)
    return f"{gpus} {GPU_RESOURCE}; the Node offers {offered}" if offered < gpus else ""


def checked_attempt(status: NodeRemediationStatus) -> RungAttempt | None:
    """The attempt after which a check goes on; None: no check goes on."""
    last = status.attempts[-1] if status.attempts else None
    is_checked = status.phase is NodePhase.CHECKING and last is not None and last.outcome is None and last.check
    return last if is_checked else None


def pod_name(node: str, attempt: int, check: int) -> str:
    """
    The name of the pod of check number *check* after attempt number *attempt*: to create it twice is to create it once.
    """
    name = f"check-{node}-{attempt}-{check}"
    if len(name) <= _LONGEST_NAME and "." not in node:
        return name
    short = hashlib.sha256(node.encode()).hexdigest()[:10]
    return f"check-{node[:24].replace('.', '-').rstrip('-')}-{short}-{attempt}-{check}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOrder:
    """What to check, and with which image."""

    node: Node
    attempt: int
    check: int
    gpus: int
    image: str
    policy: RemediationPolicy


def check_pod(order: CheckOrder) -> PodManifest:
    """The manifest of the pod. The policy `healthd-controller-node-check` lets exactly this one pass."""
    meta, runtime = order.node.metadata, order.policy.check_runtime_class
    return PodManifest(
        metadata=ObjectMeta(
            name=pod_name(meta.name, order.attempt, order.check),
            namespace=NAMESPACE,
            labels={LABEL_CHECK: "true", "sidecar.istio.io/inject": "false"},
            owner_references=[OwnerReference(api_version="v1", kind="Node", name=meta.name, uid=meta.uid)],
        ),
        spec={
            "nodeName": meta.name,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(order.policy.check_timeout.total_seconds()),
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(order)],
            **({"runtimeClassName": runtime} if runtime else {}),
        },
    )


def _container(order: CheckOrder) -> dict[str, Any]:
    timeout = max(order.policy.check_timeout - _MARGIN, order.policy.check_timeout / 2)
    options = [f"--skip={name}" for name in NOT_SEEN]
    options += [f"--expect-gpus={order.gpus}", f"--timeout={int(timeout.total_seconds())}s"]
    return {
        "name": CONTAINER,
        "image": order.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["healthd", "check", "--deep", "--json", f"--result={TERMINATION_LOG}", *options],
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "1", "memory": "2Gi"},
            "limits": {"memory": "16Gi", GPU_RESOURCE: str(order.gpus)},
        },
    }


def running_spare_check(status: NodeRemediationStatus, node: Node | None) -> SpareCheck | None:
    """The check of *node* as an idle spare that goes on."""
    check = status.spare_check
    if check is None or node is None or check.outcome is not None:
        return None
    return check if check.node_uid == node.metadata.uid else None


def leftovers_of(
    pods: Iterable[Pod], node: Node | None, attempt: RungAttempt | None, spare: SpareCheck | None = None
) -> tuple[CheckLeftover, ...]:
    """The check pods among *pods* but those of checks that go on: after *attempt*, and of the node as a *spare*."""
    going_on = {name for name in (_name_after(node, attempt), _name_of_spare(node, spare)) if name}
    return tuple(
        CheckLeftover(
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            has_ended=pod.status.phase in _ENDED,
            is_going=pod.metadata.deletion_timestamp is not None,
        )
        for pod in pods
        if is_check(pod) and not (pod.metadata.name in going_on and is_owned_by(pod, node))
    )


def seen_of(pods: Iterable[Pod], node: Node | None, attempt: RungAttempt | None, gpus: int) -> CheckSeen:
    """What is seen of the check of *attempt* that was begun last, among the *pods* of *node*."""
    return CheckSeen() if attempt is None else _seen(pods, node, attempt.number, attempt.check, gpus)


def spare_seen(pods: Iterable[Pod], node: Node | None, check: SpareCheck | None, gpus: int) -> CheckSeen:
    """The same of the *check* of *node* as an idle spare."""
    return CheckSeen() if check is None else _seen(pods, node, check.number, OF_A_SPARE, gpus)


def _seen(pods: Iterable[Pod], node: Node | None, attempt: int, check: int, gpus: int) -> CheckSeen:
    name = pod_name(node.metadata.name, attempt, check) if node is not None else ""
    pod = next((p for p in pods if is_check(p) and p.metadata.name == name and is_owned_by(p, node)), None)
    if pod is None:
        return CheckSeen(attempt=attempt, check=check)
    state, why, boot_id = _state_of(pod, gpus)
    is_finding = state is CheckState.FAILED and bool(boot_id)  # only a result says in which boot it was found
    began = pod.metadata.creation_timestamp
    return CheckSeen(
        attempt=attempt, check=check, state=state, began=began, boot_id=boot_id, why=why, is_finding=is_finding
    )


def is_owned_by(pod: Pod, node: Node | None) -> bool:
    """Whether *pod* was made for this very *node*, not for one of the same name before it."""
    return node is not None and any(owner.uid == node.metadata.uid for owner in pod.metadata.owner_references)


def _name_after(node: Node | None, attempt: RungAttempt | None) -> str:
    return pod_name(node.metadata.name, attempt.number, attempt.check) if node is not None and attempt else ""


def _name_of_spare(node: Node | None, check: SpareCheck | None) -> str:
    return pod_name(node.metadata.name, check.number, OF_A_SPARE) if node is not None and check else ""


def _state_of(pod: Pod, gpus: int) -> tuple[CheckState, str, str]:
    """The state of the check, why, and the boot in which it ran."""
    status, name = pod.status, pod.metadata.name
    if status.phase not in _ENDED:
        return CheckState.RUNNING, _what_it_waits_for(pod), ""
    if status.reason:  # evicted, out of time, refused by the kubelet: the kubelet's word, whatever a container says
        return CheckState.FAILED, f"pod {name} failed: {_line(f'{status.reason}: {status.message}')}", ""
    end = next((each.state.terminated for each in status.container_statuses if each.name == CONTAINER), None)
    if end is None or (status.phase == "Failed" and not end.exit_code):
        return CheckState.FAILED, f"pod {name} failed without a result: {_line(status.message)}", ""
    return _state_of_end(end, gpus)


def _state_of_end(end: Terminated, gpus: int) -> tuple[CheckState, str, str]:
    """What the container of the check left. A pass needs an exit code of 0 and all that `shortfall` asks for."""
    result = read_result(end.message)
    if result is None:
        why = end.message or end.reason or "it does not say why"
        return CheckState.FAILED, f"the check ended with code {end.exit_code} and no result: {_line(why)}", ""
    if result.result == "busy":
        return CheckState.BUSY, _line(words_of(result)), result.boot_id
    if result.result == "unchecked":
        return CheckState.UNCHECKED, "every check was skipped", result.boot_id
    if result.result != "pass":
        boot_id = result.boot_id if result.result == "fail" else ""
        return CheckState.FAILED, _line(words_of(result)) or f"it says {_line(result.result)}", boot_id
    if end.exit_code:
        return CheckState.FAILED, f"it says that it passed, and ended with code {end.exit_code}", ""
    if short := shortfall(result, gpus):
        return CheckState.UNCHECKED, _line(short), result.boot_id
    return CheckState.PASSED, "", result.boot_id


def _what_it_waits_for(pod: Pod) -> str:
    name = pod.metadata.name
    if pod.metadata.deletion_timestamp is not None:
        return f"pod {name} is being deleted"
    if pod.status.phase == "Running":
        return f"pod {name} runs it"
    return f"pod {name} has not started: `kubectl describe pod -n {NAMESPACE} {name}` shows what it waits for"


def _line(text: str) -> str:
    """*text* as one short printable line: it comes from the node, or from the pod on it."""
    return printable(text[:_LONGEST_REASON])[:_LONGEST_REASON].strip(" :")
