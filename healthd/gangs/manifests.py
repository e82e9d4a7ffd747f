"""
How the manifest of a plain pod is stored, and how the pod is created again. Pure.

Fields that the API server, the scheduler or healthd added after the owner wrote the pod are left out: they were for
that one pod, and many of them are refused at creation.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_MADE_BY,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    TAINT_RESERVED,
    GangRef,
    ObjectMeta,
    PodManifest,
    PodSpec,
)
from healthd.core.recovery.gang import ClaimMount, StartHint
from healthd.core.untrusted import InvalidText, inflated
from healthd.gangs.annotations import hint_annotations, tolerating_reservation
from healthd.gangs.volumes import read_mounts

GATE = "healthd.dev/gang"
"""The scheduling gate that keeps a recreated pod off every node until the whole gang exists."""

_ENV = {
    "HEALTHD_RESUME_FROM": ANNOTATION_RESUME_FROM,
    "HEALTHD_RESUME_STEP": ANNOTATION_RESUME_STEP,
    "HEALTHD_ATTEMPT": ANNOTATION_ATTEMPT,
}
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_TOKEN = "kube-api-access-"
ADDED_BY_KUEUE = ("kueue.x-k8s.io/podset", "kueue.x-k8s.io/workload")
"""A label and an annotation of a pod that was admitted, since a Kueue newer than 0.11: its part of which Workload."""
_ADDED_LABELS = frozenset({"topology.kubernetes.io/zone", "topology.kubernetes.io/region", *ADDED_BY_KUEUE})
_ADDED_NOTES = frozenset({*_ENV.values(), ANNOTATION_MADE_BY, _APPLIED, *ADDED_BY_KUEUE})
_ADDED = ("nodeName", "serviceAccount", "priority", "preemptionPolicy", "ephemeralContainers", "schedulingGates")
"""Fields of a pod's spec that are set or changed after its owner wrote it."""

MOST_BYTES = 16 * 1024 * 1024
MOST_VALUES = 1_000_000
"""In all manifests of a gang, unpacked: ten thousand pods of a hundred values each. More would use half a gigabyte."""

Json = dict[str, Any]


class _Remembered(msgspec.Struct):
    metadata: dict[str, dict[str, str]]
    spec: Json


def remembered(pod: PodManifest) -> Json:
    """The manifest of *pod*, as its owner wrote it."""
    meta = pod.metadata
    labels = {key: value for key, value in meta.labels.items() if key not in _ADDED_LABELS}
    notes = {key: value for key, value in meta.annotations.items() if key not in _ADDED_NOTES}
    spec: Json = {key: value for key, value in pod.spec.items() if key not in _ADDED}
    if "volumes" in spec:
        spec["volumes"] = [volume for volume in spec["volumes"] if not volume["name"].startswith(_TOKEN)]
    if "tolerations" in spec:
        spec["tolerations"] = [each for each in spec["tolerations"] if each.get("key") != TAINT_RESERVED]
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [_as_written(container) for container in spec[kind]]
    return {"metadata": {"labels": labels, "annotations": notes}, "spec": spec}


def made_again(name: str, manifest: Json, ref: GangRef, hint: StartHint) -> PodManifest:
    """The pod *name* of the gang *ref* for the attempt of *hint*, behind the gate. It has the hint as env, too."""
    hints = {key: value for key, value in hint_annotations(hint).items() if value is not None}
    meta, spec = manifest["metadata"], manifest["spec"]
    env = _env_of(hints)
    containers = {
        kind: [_with_env(container, env) for container in spec[kind]]
        for kind in ("containers", "initContainers")
        if kind in spec
    }
    return PodManifest(
        metadata=ObjectMeta(
            name=name,
            namespace=ref.namespace,
            labels=meta["labels"],
            annotations={**meta["annotations"], **hints, ANNOTATION_MADE_BY: hint.recovery},
        ),
        spec={
            **spec,
            **containers,
            "tolerations": tolerating_reservation(spec, ref),
            "schedulingGates": [{"name": GATE}],
        },
    )


def packed(manifests: Mapping[str, Json]) -> str:
    """Manifests as text. The manifests of one gang differ little, so thousands fit into one object."""
    return base64.b64encode(gzip.compress(msgspec.json.encode(manifests), mtime=0)).decode()


def unpacked(text: str) -> dict[str, Json]:
    """The manifests in *text*. Raises Unreadable."""
    if not text:
        return {}
    raw = inflated(text, MOST_BYTES)
    if raw.count(b",") + raw.count(b":") + raw.count(b"[") > MOST_VALUES:
        raise InvalidText(f"the manifests of its pods have more than {MOST_VALUES:,} values")
    try:
        found = msgspec.json.decode(raw, type=dict[str, _Remembered])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidText(f"the manifests of its pods cannot be read: {error}") from error
    return {name: msgspec.structs.asdict(each) for name, each in found.items()}


@lru_cache(maxsize=16)
def mounts_in(text: str) -> tuple[ClaimMount, ...]:
    """Where the pods in *text* mount claims. Cached, because unpacking is expensive. Raises Unreadable."""
    specs = [msgspec.convert(manifest["spec"], PodSpec) for manifest in unpacked(text).values()]
    return tuple(dict.fromkeys(mount for spec in specs for mount in read_mounts(spec)))


def _as_written(container: Json) -> Json:
    kept = dict(container)
    if "volumeMounts" in kept:
        kept["volumeMounts"] = [each for each in kept["volumeMounts"] if not each["name"].startswith(_TOKEN)]
    if "env" in kept:
        kept["env"] = [each for each in kept["env"] if each["name"] not in _ENV or "valueFrom" in each]
    return kept


def _env_of(hints: Mapping[str, str]) -> Json:
    """The hint as env. As in every other kind, there is no step variable when the step is not known."""
    env = {name: hints[key] for name, key in _ENV.items() if hints.get(key)}
    if env.get("HEALTHD_RESUME_STEP", "").startswith("-"):
        del env["HEALTHD_RESUME_STEP"]
    return env


def _with_env(container: Json, env: Mapping[str, str]) -> Json:
    """Put *env* before the container's own env, which may refer to it. A name that the container sets itself stays."""
    own = container.get("env", [])
    taken = {each["name"] for each in own}
    return {**container, "env": [*({"name": n, "value": v} for n, v in env.items() if n not in taken), *own]}
