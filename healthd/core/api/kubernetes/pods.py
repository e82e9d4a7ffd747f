"""Pods, and the status that the kubelet reports."""

from __future__ import annotations

import msgspec

from healthd.core.api.kubernetes.nodes import Toleration
from healthd.core.api.meta import Condition, ObjectMeta, Slim
from healthd.core.untrusted import Moment


class EnvVar(Slim, frozen=True, kw_only=True):
    """One environment variable of a container."""

    name: str
    value: str = ""


class VolumeMount(Slim, frozen=True, kw_only=True):
    """Where a container sees a volume of its pod."""

    name: str
    mount_path: str
    sub_path: str = ""


class ClaimSource(Slim, frozen=True, kw_only=True):
    """The claim behind a volume."""

    claim_name: str


class Volume(Slim, frozen=True, kw_only=True):
    """A volume of a pod. Of the many types only claims are read."""

    name: str
    persistent_volume_claim: ClaimSource | None = None


class ContainerResources(Slim, frozen=True, kw_only=True):
    """Requests and limits of a container, by resource."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class SecurityContext(Slim, frozen=True, kw_only=True):
    """The user and groups of a pod or a container. The fields of pods alone are empty for a container."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    fs_group: int | None = None
    supplemental_groups: list[int] = []


class Container(Slim, frozen=True, kw_only=True):
    """One container of a pod."""

    name: str = msgspec.field(default_factory=lambda: "main")
    """From a factory, so it is never left out on the wire: the API server has no default for it."""
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    working_dir: str = ""
    volume_mounts: list[VolumeMount] = []
    resources: ContainerResources = ContainerResources()
    security_context: SecurityContext | None = None


class SchedulingGate(Slim, frozen=True, kw_only=True):
    """The scheduler does not bind a pod that has one."""

    name: str


class PodSpec(Slim, frozen=True, kw_only=True):
    """What to run, and where."""

    node_name: str = ""
    containers: list[Container] = []
    tolerations: list[Toleration] = []
    restart_policy: str = ""
    scheduling_gates: list[SchedulingGate] = []
    volumes: list[Volume] = []
    security_context: SecurityContext | None = None
    termination_grace_period_seconds: int = 30


class Terminated(Slim, frozen=True, kw_only=True):
    """How a container ended. `signal` is 0 when it exited by itself."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None


class Running(Slim, frozen=True, kw_only=True):
    """When a container started."""

    started_at: Moment | None = None


class ContainerState(Slim, frozen=True, kw_only=True):
    """At most one of these is set. Neither: the container waits."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Slim, frozen=True, kw_only=True):
    """The status of one container, from the kubelet."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How it ended before the kubelet started it again."""


class PodStatus(Slim, frozen=True, kw_only=True):
    """The status of a pod, from the kubelet. Phases: Pending, Running, Succeeded, Failed, Unknown."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: Moment | None = None
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []
    conditions: list[Condition] = []


class Pod(Slim, frozen=True, kw_only=True):
    """One member of a gang."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(Slim, frozen=True, kw_only=True):
    """The template from which the pods of a gang are created."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
