"""
Builds a pod from the template of its Job: its name, its owner, and the environment of its process.
"""

from __future__ import annotations

import msgspec

from healthd.core.api import (
    ANNOTATION_COMPLETION_INDEX,
    ANNOTATION_PLACEMENT,
    Container,
    EnvVar,
    Job,
    ObjectMeta,
    OwnerReference,
    Pod,
)
from healthd.gangs.job import LABEL_JOB_NAME
from healthd.local.environment import rank_env

FINALIZER_TRACKING = "batch.kubernetes.io/job-tracking"
LABEL_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
LONGEST_PREFIX = 50
"""The longest prefix of a pod name. The rest is for the index and the random part."""


def new_pod(job: Job, index: int, world: int, port: int, suffix: str) -> Pod:
    """Member *index* of *world*. The members meet at *port*. *suffix* makes the name unique."""
    template = job.spec.template
    labels = {LABEL_JOB_NAME: job.metadata.name, LABEL_CONTROLLER_UID: job.metadata.uid}
    notes = {key: value for key, value in job.metadata.annotations.items() if key == ANNOTATION_PLACEMENT}
    meta = ObjectMeta(
        name=f"{job.metadata.name[:LONGEST_PREFIX]}-{index}-{suffix}",
        namespace=job.metadata.namespace,
        labels={**template.metadata.labels, **labels, ANNOTATION_COMPLETION_INDEX: str(index)},
        annotations={**template.metadata.annotations, **notes, ANNOTATION_COMPLETION_INDEX: str(index)},
        finalizers=[*template.metadata.finalizers, FINALIZER_TRACKING],
        owner_references=[_owner(job)],
    )
    run_id = f"{job.metadata.name}-{job.metadata.uid[:8]}"
    env = rank_env(index, world, port, run_id, meta.annotations)
    containers = [_with_env(container, env) for container in template.spec.containers]
    return Pod(metadata=meta, spec=msgspec.structs.replace(template.spec, containers=containers))


def _owner(job: Job) -> OwnerReference:
    return OwnerReference(
        api_version="batch/v1",
        kind="Job",
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _with_env(container: Container, env: dict[str, str]) -> Container:
    merged = {variable.name: variable.value for variable in container.env} | env
    return msgspec.structs.replace(container, env=[EnvVar(name=n, value=v) for n, v in merged.items()])
