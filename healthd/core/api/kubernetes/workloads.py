"""The objects that make pods: the roots of gangs."""

from __future__ import annotations

from typing import Any

import msgspec

from healthd.core.api.kubernetes.nodes import Toleration
from healthd.core.api.kubernetes.pods import PodTemplate
from healthd.core.api.meta import Condition, ObjectMeta, OwnerReference, Slim
from healthd.core.untrusted import Moment

TRIAL = "Trial"
"""The kind of a trial of Katib. It makes one job, and reads how that ends."""


_MAY_OWN_A_ROOT = {"CronJob": "batch/", TRIAL: "kubeflow.org/"}
"""Kinds that create their objects and never change them again, each with its API group."""


def may_own_a_root(owner: OwnerReference) -> bool:
    """Whether what *owner* has made is topmost: other controllers undo changes to what they own."""
    group = _MAY_OWN_A_ROOT.get(owner.kind)
    return group is not None and owner.api_version.startswith(group)


class JobSpec(Slim, frozen=True, kw_only=True):
    """A batch/v1 Job as far as healthd uses it."""

    suspend: bool = False
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    managed_by: str = ""
    template: PodTemplate = PodTemplate()


class JobStatus(Slim, frozen=True, kw_only=True):
    """The status from the Job controller. `failed` counts pods that failed by themselves, not deleted ones."""

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
    managed_by: str = ""
    replicated_jobs: list[dict[str, Any]] = []


class ReplicatedJobStatus(Slim, frozen=True, kw_only=True):
    """The status of the Jobs of one replicatedJob. `active` counts Jobs with pods."""

    name: str
    ready: int = 0
    active: int = 0


class JobSetStatus(Slim, frozen=True, kw_only=True):
    """The status from the JobSet controller. `restarts` counts those of its own failure policy."""

    restarts: int = 0
    conditions: list[Condition] = []
    replicated_jobs_status: list[ReplicatedJobStatus] = []


class JobSet(Slim, frozen=True, kw_only=True):
    """A group of Jobs that start, restart and end together."""

    metadata: ObjectMeta
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


class ClaimRetention(Slim, frozen=True, kw_only=True):
    """What happens to the volumes of the pods that a scale-down removes: `Retain` or `Delete`."""

    when_scaled: str = "Retain"


class StatefulSetSpec(Slim, frozen=True, kw_only=True):
    """An apps/v1 StatefulSet as far as healthd uses it."""

    replicas: int = 1
    pod_management_policy: str = "OrderedReady"
    persistent_volume_claim_retention_policy: ClaimRetention = ClaimRetention()
    template: PodTemplate = PodTemplate()


class StatefulSetStatus(Slim, frozen=True, kw_only=True):
    """The status from the StatefulSet controller: the generation that it describes, and the number of pods."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0


class StatefulSet(Slim, frozen=True, kw_only=True):
    """Pods with stable names. It never ends by itself."""

    metadata: ObjectMeta
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class Manifest(Slim, frozen=True, kw_only=True):
    """An object with its *spec* unparsed, so that nothing is lost. Not for kinds with many objects."""

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
    """A pod with its spec unparsed, from which healthd can create it again."""

    def __post_init__(self) -> None:
        """Raises ValidationError if the fields that healthd reads have another shape."""
        msgspec.convert(self.spec, _PodShape)


class JobManifest(Manifest, frozen=True, kw_only=True):
    """A Job with its spec unparsed."""


class JobSetManifest(Manifest, frozen=True, kw_only=True):
    """A JobSet with its spec unparsed."""


class StatefulSetManifest(Manifest, frozen=True, kw_only=True):
    """A StatefulSet with its spec unparsed."""


class CustomObject(Slim, frozen=True, kw_only=True):
    """
    An object of a kind that is described by data. Its spec and status are as they were read: a tenant may have written
    anything there. Each kind has a type of its own, a subclass (`healthd.core.api.resources.custom_type`).
    """

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class PodGangMember(Slim, frozen=True, kw_only=True):
    """One pod of a gang of plain pods."""

    name: str
    """Its name, which it keeps when it is created again."""
    uid: str = ""
    """The uid of the pod that has this name now; empty while there is none."""


class PodGangSpec(Slim, frozen=True, kw_only=True):
    """What healthd stores about pods that no controller would create again."""

    members: list[PodGangMember] = []
    """The pods of the gang."""
    size: int = 0
    """How many of them run at the same time."""
    manifests: str = ""
    """The manifests of the pods by name: JSON, compressed by gzip, in base64."""


class PodGang(Slim, frozen=True, kw_only=True):
    """
    healthd.dev/v1alpha1: the root of a gang of plain pods, named as the gang.

    healthd creates it when it first sees pods with the label `healthd.dev/gang` that ask for restarts. These pods own
    it: when all of them are deleted, it is deleted too.
    """

    metadata: ObjectMeta
    spec: PodGangSpec = PodGangSpec()
