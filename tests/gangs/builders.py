"""Roots of all kinds as their users write them, and the hint that a recovery gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import (
    ChosenCheckpoint,
    ClaimRetention,
    ClaimSource,
    GangRef,
    JobSet,
    JobSetSpec,
    JobSetStatus,
    ObjectMeta,
    PodGang,
    PodSpec,
    PodTemplate,
    StatefulSet,
    StatefulSetSpec,
    StatefulSetStatus,
    Volume,
    VolumeMount,
)
from healthd.core.recovery.gang import Root, StartHint
from healthd.gangs.adapter import GangAdapter
from tests.builders import A_CONTAINER
from tests.fakes import ManualClock, counting_uids

ENABLED = {"healthd.dev/restart": "enabled"}


def an_empty_cluster() -> EmbeddedCluster:
    """In memory."""
    return EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids())


def a_hint(placement: Mapping[str, str] | None = None, checkpoint: ChosenCheckpoint | None = None) -> StartHint:
    """The hint of attempt 3."""
    return StartHint(
        recovery="train-3", attempt=3, checkpoint=checkpoint or ChosenCheckpoint(), placement=placement or {}
    )


A_STEP = ChosenCheckpoint(path="/data/step_7", step=7)


def mounting(spec: PodSpec, *, claim: str, path: str) -> PodSpec:
    """*spec*, whose container sees *claim* at *path*."""
    volume = Volume(name="data", persistent_volume_claim=ClaimSource(claim_name=claim))
    mount = VolumeMount(name="data", mount_path=path)
    container = msgspec.structs.replace(spec.containers[0], volume_mounts=[mount])
    return msgspec.structs.replace(spec, containers=[container], volumes=[volume])


def a_part(
    name: str = "workers",
    *,
    replicas: int = 1,
    pods: int = 2,
    template_annotations: Mapping[str, str] | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    **job: Any,
) -> dict[str, Any]:
    """One entry of a JobSet's replicatedJobs, as JSON; *job* are further fields of the Job's spec."""
    container = msgspec.to_builtins(A_CONTAINER)
    template = {
        "metadata": {"labels": {"app": "train"}, "annotations": dict(template_annotations or {})},
        "spec": {"containers": [container], "restartPolicy": "Never", "tolerations": list(tolerations)},
    }
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template, **job}
    return {"name": name, "replicas": replicas, "template": {"metadata": {"labels": {"tier": name}}, "spec": spec}}


def a_jobset(
    name: str = "train",
    *,
    parts: Sequence[Mapping[str, Any]] | None = None,
    suspend: bool = False,
    status: JobSetStatus | None = None,
    annotations: Mapping[str, str] | None = None,
    **meta: Any,
) -> JobSet:
    """A JobSet of one Job with two pods, that healthd may restart."""
    return JobSet(
        metadata=ObjectMeta(
            name=name, namespace="default", annotations=dict(ENABLED if annotations is None else annotations), **meta
        ),
        spec=JobSetSpec(suspend=suspend, replicated_jobs=[dict(part) for part in parts or [a_part()]]),
        status=status or JobSetStatus(),
    )


def a_statefulset(
    name: str = "train",
    *,
    replicas: int = 2,
    when_scaled: str = "Retain",
    status: StatefulSetStatus | None = None,
    annotations: Mapping[str, str] | None = None,
    **meta: Any,
) -> StatefulSet:
    """A StatefulSet whose pods start all at once, that healthd may restart."""
    return StatefulSet(
        metadata=ObjectMeta(name=name, namespace="default", annotations={**ENABLED, **(annotations or {})}, **meta),
        spec=StatefulSetSpec(
            replicas=replicas,
            pod_management_policy="Parallel",
            persistent_volume_claim_retention_policy=ClaimRetention(when_scaled=when_scaled),
            template=PodTemplate(metadata=ObjectMeta(labels={"app": name}), spec=PodSpec(containers=[A_CONTAINER])),
        ),
        status=status or StatefulSetStatus(),
    )


async def pod_gang(cluster: EmbeddedCluster, adapter: GangAdapter[PodGang]) -> Root:
    """The root of the plain pods `train` as it stands, by *adapter*."""
    gang = await cluster.get(PodGang, "train", "default")
    root = await adapter.find(
        cluster, GangRef(kind="PodGang", name="train", namespace="default", uid=gang.metadata.uid)
    )
    assert root is not None
    return root
