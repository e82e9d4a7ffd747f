"""Pods of a gang as the API server makes them, and the recovery that tells them where to resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthd.clock import SystemClock
from healthd.core.api import (
    HINT_CURRENT,
    LABEL_GANG,
    LABEL_HINT,
    Cause,
    GangRef,
    ObjectMeta,
    PodHint,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    to_wire,
)
from healthd.core.api.model import CauseKind
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

HINT = PodHint(
    attempt=3,
    resume_from="/ckpt/step-70",
    resume_step=70,
    reserved_for="llama-0af1",
    avoid=["bad-1", "bad-2"],
    prefer=["good-1", "good-2"],
)
BY_LABEL = frozenset({"PodGang", "StatefulSet"})
"""Kinds with pods whose template healthd does not mark."""
NAME = "llama"
UID = "0af1c2d3"
HINTED = {"HEALTHD_ATTEMPT": "3", "HEALTHD_RESUME_FROM": "/ckpt/step-70", "HEALTHD_RESUME_STEP": "70"}


def mutate(
    installed: ControlPlane,
    namespace: str,
    hint: PodHint,
    *,
    kind: str = "PodGang",
    name: str = "recovery",
    gang: str = NAME,
    uid: str = UID,
    label: str = HINT_CURRENT,
    pod_labels: Mapping[str, str] | None = None,
) -> None:
    """Make a recovery whose hint new pods of the gang must carry."""
    recovery = Recovery(
        metadata=ObjectMeta(name=name, namespace=namespace, labels={LABEL_HINT: label}),
        spec=RecoverySpec(
            gang=GangRef(kind=kind, name=gang, namespace=namespace, uid=uid),
            first_attempt=1,
            cause=Cause(kind=CauseKind.HARDWARE, message="xid 79", at=SystemClock().now()),
            pod_labels=dict(pod_labels if pod_labels is not None else {LABEL_GANG: gang} if kind in BY_LABEL else {}),
        ),
        status=RecoveryStatus(attempt=hint.attempt, hint=hint),
    )
    body = to_wire(recovery)
    path = f"/apis/healthd.dev/v1alpha1/namespaces/{namespace}/recoveries"
    installed.api.create(path, body)
    installed.api.patch(f"{path}/{name}/status", {"status": body["status"]})


def made(installed: ControlPlane, namespace: str, **parts: Any) -> Json:
    """A pod of the gang as the API server would make it, once the policy has seen the recovery."""
    pods: list[Json] = []

    def reported() -> bool:
        pods.append(create(installed, namespace, **parts))
        return gets_hint(pods[-1])

    wait_until("a pod that knows its attempt", reported, limit=30)
    return pods[-1]


def create(
    installed: ControlPlane,
    namespace: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str = "",
    **spec: Any,
) -> Json:
    """What the API server makes of a pod, without keeping it."""
    owners = [{"apiVersion": "v1", "kind": "Any", "name": NAME, "uid": owner}] if owner else []
    metadata = {
        "generateName": "rank-",
        "labels": {LABEL_GANG: NAME} if labels is None else labels,
        "annotations": annotations or {},
        "ownerReferences": owners,
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [a_container("c")], **spec}}
    return installed.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)


def a_container(name: str, **parts: Any) -> Json:
    return {"name": name, "image": "localhost/none", **parts}


def gets_hint(pod: Json) -> bool:
    reported = [env_of(container).get("HEALTHD_ATTEMPT") for container in pod["spec"]["containers"]]
    return any(reported)


def env_of(container: Json) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container.get("env", [])}


def required(spec: Json) -> list[Json]:
    affinity: Json = spec["affinity"]["nodeAffinity"]
    terms: list[Json] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return terms


def is_not(node: str) -> Json:
    return {"key": "metadata.name", "operator": "NotIn", "values": [node]}


def with_required(terms: list[Json]) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def with_preferred(preferred: list[Json]) -> Json:
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
