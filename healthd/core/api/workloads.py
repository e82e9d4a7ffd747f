"""The objects that make pods: the roots of gangs."""

from __future__ import annotations

from typing import Any

import msgspec

from healthd.core.api.meta import Condition, ObjectMeta, Slim
from healthd.core.api.nodes import Toleration
from healthd.core.api.pods import PodTemplate
from healthd.core.untrusted import Moment


class JobSpec(Slim, frozen=True, kw_only=True):
    """A batch/v1 Job as far as healthd uses it."""

    suspend: bool = False
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    template: PodTemplate = PodTemplate()


class JobStatus(Slim, frozen=True, kw_only=True):
    """The Job controller's word. `failed` counts pods that failed by themselves, never those deleted by suspend."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    start_time: Moment | None = None
    completion_time: Moment | None = None
    conditions: list[Condition] = []


class Job(Slim, frozen=True, kw_only=True):
    """A gang's root in `healthd run`, and one of its kinds on Kubernetes."""

    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class JobSetSpec(Slim, frozen=True, kw_only=True):
    """
    A jobset.x-k8s.io/v1alpha2 JobSet as far as healthd uses it.

    *replicated_jobs* are kept as they were read: to change one of them the whole list has to be written back.
    """

    suspend: bool = False
    replicated_jobs: list[dict[str, Any]] = []


class ReplicatedJobStatus(Slim, frozen=True, kw_only=True):
    """The JobSet controller's word about the Jobs of one of its parts. `active` counts Jobs with pods."""

    name: str
    ready: int = 0
    active: int = 0


class JobSetStatus(Slim, frozen=True, kw_only=True):
    """The JobSet controller's word. `restarts` counts those that its own failure policy made."""

    restarts: int = 0
    conditions: list[Condition] = []
    replicated_jobs_status: list[ReplicatedJobStatus] = []


class JobSet(Slim, frozen=True, kw_only=True):
    """A group of Jobs that start, restart and end together."""

    metadata: ObjectMeta
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


class ClaimRetention(Slim, frozen=True, kw_only=True):
    """What becomes of the volumes of pods that a StatefulSet is scaled down by: `Retain` or `Delete`."""

    when_scaled: str = "Retain"


class StatefulSetSpec(Slim, frozen=True, kw_only=True):
    """An apps/v1 StatefulSet as far as healthd uses it."""

    replicas: int = 1
    pod_management_policy: str = "OrderedReady"
    persistent_volume_claim_retention_policy: ClaimRetention = ClaimRetention()
    template: PodTemplate = PodTemplate()


class StatefulSetStatus(Slim, frozen=True, kw_only=True):
    """The StatefulSet controller's word: about which generation, and how many pods there are."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0


class StatefulSet(Slim, frozen=True, kw_only=True):
    """Pods with names that stay. It never ends by itself."""

    metadata: ObjectMeta
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class Manifest(Slim, frozen=True, kw_only=True):
    """An object with everything that its maker wrote: *spec* as it was read. Not for objects that there are many of."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}


class _Named(msgspec.Struct, frozen=True):
    name: str


class _ContainerShape(msgspec.Struct, frozen=True, rename="camel"):
    env: list[_Named] = []
    volume_mounts: list[_Named] = []


class _PodShape(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_ContainerShape] = []
    init_containers: list[_ContainerShape] = []
    volumes: list[_Named] = []
    tolerations: list[Toleration] = []


class PodManifest(Manifest, frozen=True, kw_only=True):
    """A pod as it was written, to remember it and make it again."""

    def __post_init__(self) -> None:
        """Raises ValidationError for a spec of another shape than what is read of it."""
        msgspec.convert(self.spec, _PodShape)


class JobManifest(Manifest, frozen=True, kw_only=True):
    """A Job as it was written."""


class JobSetManifest(Manifest, frozen=True, kw_only=True):
    """A JobSet as it was written."""


class StatefulSetManifest(Manifest, frozen=True, kw_only=True):
    """A StatefulSet as it was written."""


class PodGangMember(Slim, frozen=True, kw_only=True):
    """One pod of a gang that nothing else owns."""

    name: str
    """It keeps it when it is made again."""
    uid: str = ""
    """Of the pod that has the name now; empty while there is none."""


class PodGangSpec(Slim, frozen=True, kw_only=True):
    """What healthd remembers of pods that nobody would make again."""

    members: list[PodGangMember] = []
    """Its pods."""
    size: int = 0
    """How many of them run at once."""
    manifests: str = ""
    """The manifests by name, as their maker wrote them: JSON, compressed by gzip, in base64."""


class PodGang(Slim, frozen=True, kw_only=True):
    """
    healthd.dev/v1alpha1: the root of a gang of plain pods, named as the gang.

    Made by healthd when it first sees pods with the label `healthd.dev/gang` that ask for restarts. It belongs to these
    pods: when all of them are deleted, it goes too.
    """

    metadata: ObjectMeta
    spec: PodGangSpec = PodGangSpec()
