"""
Verification of checkpoints on a volume: the verifier pod, the meaning of its status, and its report.

Only computes. The controller creates the pod (`healthd.controller.checkpoints.verifier_pods`). The program in it is
`healthd checkpoints report`: it writes a `VerificationReport` to the container's termination message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from healthd.core.api import ChosenCheckpoint, ObjectMeta, OwnerReference, Pod, PodManifest, RejectedCheckpoint
from healthd.core.printable import printable
from healthd.core.recovery.gang import RunsAs

LABEL_VERIFIER = "healthd.dev/verifier"
"""On a pod that verifies checkpoints, value `true`: the admission policy lets the controller create only such pods."""
CONTAINER = "verifier"
"""The name of the verifier's container; other containers may have been injected beside it."""
VOLUME = "/volume"
"""Where the verifier pod mounts the claim."""
NO_SIDECARS = {"sidecar.istio.io/inject": "false"}
"""Prevents the injection of a proxy container, which would never end."""
TERMINATION_LOG = "/dev/termination-log"
"""The path of a container's termination message, unless its pod sets another path."""
LONGEST_TERMINATION_LOG = 4096
"""Bytes of a termination message that a kubelet passes on."""
MOST = 2**62
"""Every number is smaller than this."""
PLACED_WITHIN = timedelta(minutes=5)
"""A pod that has not started by then waits for something that a person must provide."""
_REASON_LENGTHS = (500, 200, 80)
"""Characters of each reason; the next smaller limit is used while the report is too large."""
MOST_TOLERATIONS = MOST_NODES = 16
"""The pod must stay small for every gang. Tolerations and nodes only make it quicker to schedule."""


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the verifier found. Sizes are bytes; paths are those in the verifier pod."""

    found: ChosenCheckpoint | None = None
    rejected: list[RejectedCheckpoint] = []
    """The rejected checkpoints that are newer than *found*, newest first."""
    left_out: int = 0
    """The number of further rejected checkpoints, for which there was no space."""
    size: int = 0
    """The size of *found*."""
    write_seconds: float = 0.0
    """The time from its oldest to its newest file."""
    free: int = -1
    """Free space on the file system; -1: unknown."""


class SaveId(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a save among the saves at one location."""

    step: int
    saved_ns: int


def saves(checkpoints: Iterable[ChosenCheckpoint]) -> tuple[SaveId, ...]:
    """The saves of *checkpoints*. Paths are not compared: they differ between the pods that read them."""
    return tuple(SaveId(each.step, each.saved_ns) for each in checkpoints)


@dataclass(frozen=True, slots=True)
class Busy:
    """The pod has not ended; *why* is for people."""

    why: str


@dataclass(frozen=True, slots=True)
class VerifierFailed:
    """The pod ended without a report, or will never start; *why* is for people."""

    why: str


Verdict = Busy | VerifierFailed | VerificationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to verify, where, and as which user."""

    name: str
    namespace: str
    owner: OwnerReference
    image: str
    claim: str
    folder: str
    """The path below `VOLUME` to verify."""
    format: str = ""
    quick: bool = False
    """Check only headers and sizes."""
    newer_than: int | None = None
    doubted: tuple[SaveId, ...] = ()
    """Saves to use only when there is no other."""
    runs_as: RunsAs
    user: int = 65532
    """The user when the gang's pods run as root or set no user."""
    near: Collection[str] = ()
    """Nodes on which the claim is or was in use."""
    not_on: Collection[str] = ()
    """Nodes that are to blame for something."""
    deadline: timedelta = timedelta(minutes=30)


def fitted(report: VerificationReport, most: int = LONGEST_TERMINATION_LOG) -> bytes:
    """*report* in at most *most* bytes: first its reasons are cut, then the oldest rejected ones are left out."""
    for length in _REASON_LENGTHS:
        short = [msgspec.structs.replace(each, reason=each.reason[:length]) for each in report.rejected]
        report = msgspec.structs.replace(report, rejected=short)
        if len(words := msgspec.json.encode(report)) <= most:
            return words
    while report.rejected and len(words) > most:
        report = msgspec.structs.replace(report, rejected=report.rejected[:-1], left_out=report.left_out + 1)
        words = msgspec.json.encode(report)
    return words


def judge_verifier(pod: Pod, deadline: timedelta, now: datetime) -> Verdict:
    """The state of the verifier at *now*, from its *pod*, which may run for *deadline*."""
    name = pod.metadata.name
    end = next((each.state.terminated for each in pod.status.container_statuses if each.name == CONTAINER), None)
    if end and (report := read_report(end.message)):
        return report
    if end or pod.status.phase in ("Succeeded", "Failed"):
        why = pod.status.message or pod.status.reason or (end and (end.message or end.reason)) or "it does not say why"
        return VerifierFailed(f"verifier pod {name} ended{f' with code {end.exit_code}' if end else ''}: {_line(why)}")
    made = pod.metadata.creation_timestamp or now
    going = pod.metadata.deletion_timestamp
    if now - made >= deadline + PLACED_WITHIN or (going is not None and now - going >= PLACED_WITHIN):
        return VerifierFailed(
            f"verifier pod {name} should have ended long ago: {pod.spec.node_name or 'no node'} is silent"
        )
    if going is not None:
        return Busy(f"verifier pod {name} is being deleted")
    if pod.status.phase == "Running":
        return Busy(f"verifier pod {name} reads the checkpoints")
    waits = _what_it_waits_for(pod)
    return VerifierFailed(waits) if now - made >= PLACED_WITHIN else Busy(waits)


def read_report(message: str | bytes) -> VerificationReport | None:
    """
    The report in a termination message; None when it is not a valid report.

    A user who can create pods in that namespace can write anything there, and people read it on terminals.
    """
    try:
        report = msgspec.json.decode(message, type=VerificationReport) if message else None
    except msgspec.MsgspecError:
        return None
    if report is None or not _is_plausible(report):
        return None
    rejected = [msgspec.structs.replace(each, reason=_line(each.reason)) for each in report.rejected]
    return msgspec.structs.replace(report, rejected=rejected)


def _is_plausible(report: VerificationReport) -> bool:
    """Whether the numbers fit into a Kubernetes object, and the paths are printable."""
    named: list[ChosenCheckpoint | RejectedCheckpoint] = [*report.rejected]
    named += [report.found] if report.found else []
    numbers = [report.size, report.left_out, report.found.saved_ns if report.found else 0]
    return (
        all(each.path.isprintable() and -1 <= each.step < MOST for each in named)
        and all(0 <= number < MOST for number in numbers)
        and -1 <= report.free < MOST
        and 0 <= report.write_seconds < MOST
    )


def _what_it_waits_for(pod: Pod) -> str:
    name = pod.metadata.name
    if not pod.spec.node_name:
        unplaced = [each.message for each in pod.status.conditions if each.type == "PodScheduled" and each.message]
        return f"verifier pod {name} waits for a node{f': {_line(unplaced[0])}' if unplaced else ''}"
    return (
        f"verifier pod {name} has not started on {pod.spec.node_name}: `kubectl describe pod -n "
        f"{pod.metadata.namespace} {name}` shows what it waits for, an image or the volume"
    )


def _line(text: str) -> str:
    """*text* as one printable line: it comes from a pod in a user's namespace."""
    return printable(text)[:500].strip()


def verifier_pod(order: Order) -> PodManifest:
    """The manifest of the verifier pod: no token, no rights, no capability, and the claim read-only."""
    return PodManifest(
        metadata=ObjectMeta(
            name=order.name,
            namespace=order.namespace,
            labels={LABEL_VERIFIER: "true", **NO_SIDECARS},
            owner_references=[order.owner],
        ),
        spec={
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(order.deadline.total_seconds()),
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [msgspec.to_builtins(each) for each in order.runs_as.tolerations[:MOST_TOLERATIONS]],
            **_affinity(order),
            "securityContext": _security(order),
            "containers": [_container(order)],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": order.claim, "readOnly": True}}],
        },
    )


def _container(order: Order) -> dict[str, Any]:
    options = [f"--format={order.format}"] if order.format else []
    options += ["--quick"] if order.quick else []
    options += [f"--newer-than={order.newer_than}"] if order.newer_than is not None else []
    options += [f"--doubted={each.step}:{each.saved_ns}" for each in order.doubted]
    return {
        "name": CONTAINER,
        "image": order.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["healthd", "checkpoints", "report", order.folder, f"--to={TERMINATION_LOG}", *options],
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "claim", "mountPath": VOLUME, "readOnly": True}],
    }


def _security(order: Order) -> dict[str, Any]:
    """
    The gang's own user and groups: the verifier can read the same files as the gang.

    Neither the user nor a group is root. An fsGroup that the gang's pods do not have would change the owner of the
    files.
    """
    own = order.runs_as
    security: dict[str, Any] = {
        "runAsNonRoot": True,
        "runAsUser": own.user or order.user,
        "runAsGroup": own.group or order.user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if own.fs_group:
        security |= {"fsGroup": own.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    if groups := [group for group in own.groups if group]:
        security["supplementalGroups"] = groups
    return security


def _affinity(order: Order) -> dict[str, Any]:
    """
    Prefers the gang's nodes: a claim that only one node at a time may mount is mounted there. Excludes blamed nodes:
    a broken node is no place to read from.
    """
    node: dict[str, Any] = {}
    near = sorted(set(order.near) - set(order.not_on))[:MOST_NODES]
    if near:
        terms = [{"weight": 100, "preference": {"matchFields": [_named("In", name)]}} for name in near]
        node["preferredDuringSchedulingIgnoredDuringExecution"] = terms
    if order.not_on:
        fields = [_named("NotIn", name) for name in sorted(order.not_on)[:MOST_NODES]]
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"affinity": {"nodeAffinity": node}} if node else {}


def _named(operator: str, node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": [node]}
