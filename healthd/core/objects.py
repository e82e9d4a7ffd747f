"""
Slim typed Kubernetes objects: only the fields that healthd reads or writes.

Decoding ignores every field that is not named here, so an object must never be written back whole:
change one with a patch (see `healthd.cluster.port`). All structs are immutable; `msgspec.structs.replace` copies.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from healthd.core.model import CauseKind, Finding, Phase, Verdict

LABEL_GANG = "healthd.dev/gang"
"""On a pod: the name of its gang."""
LABEL_SPARE = "healthd.dev/spare"
"""On a node, value `true`: held free for recoveries."""
LABEL_NODE = "healthd.dev/node"
"""On a budget slot: the node that fills it."""
TAINT_QUARANTINED = "healthd.dev/quarantined"
"""On a node, `<reason>:NoSchedule`: healthd took it out of service."""
TAINT_RESERVED = "healthd.dev/reserved-for"
"""On a node, `<gang>:NoSchedule`: a recovery claimed this spare."""
ANNOTATION_QUARANTINE = "healthd.dev/quarantine"
"""On a node: JSON of `core.quarantine.Record` - owner, finding, since, and what was there before."""
ANNOTATION_REPAIRED = "healthd.dev/repaired"
"""On a node: RFC 3339 time at which a person or a tool said that it was repaired."""
ANNOTATION_CLAIM = "healthd.dev/claim"
"""On a node: JSON of `core.spares.Claim` - the recovery that took this spare, and the node that it stands in for."""
ANNOTATION_STOPPED_BY = "healthd.dev/stopped-by"
"""On a gang root: the recovery that suspended it. Absent on a suspended root: the user did."""
ANNOTATION_RESTART = "healthd.dev/restart"
"""On a gang root: `enabled` lets healthd restart it."""
ANNOTATION_CHECKPOINT = "healthd.dev/checkpoint"
"""On a gang root: where its checkpoints are, `file:///path`, `s3://…`, `pvc://…`."""
ANNOTATION_CHECKPOINT_FORMAT = "healthd.dev/checkpoint-format"
"""On a gang root: the format's name; absent: detect."""
ANNOTATION_MIN_NODES = "healthd.dev/min-nodes"
"""On a gang root: the smallest world that may go on when there is no spare."""
ANNOTATION_MAX_NO_ADVANCE = "healthd.dev/max-no-advance"
"""On a gang root: give up after so many restarts without a new step."""
ANNOTATION_PROGRESS = "healthd.dev/progress"
"""On a gang root: JSON of `core.progress.Progress` - the last step seen, when, and the gang's own rhythm."""
ANNOTATION_ATTEMPT = "healthd.dev/attempt"
"""On a gang root, its pod template and its pods: which attempt this is, from 0."""
ANNOTATION_RESUME_FROM = "healthd.dev/resume-from"
"""On a pod template and its pods: the checkpoint to load."""
ANNOTATION_RESUME_STEP = "healthd.dev/resume-step"
"""On a pod template and its pods: the step of that checkpoint."""
ANNOTATION_PLACEMENT = "healthd.dev/placement"
"""On a pod template: JSON object, completion index -> node name. The scheduler keeps to it."""
ANNOTATION_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""On a pod of an Indexed Job: its index, which is the rank's node position."""
FINALIZER_FENCE = "healthd.dev/fence"
"""On a pod: keeps the object until the controller has read the proof that its processes are gone."""


class Slim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of every struct on the wire: camelCase keys, defaults left out, unknown keys ignored."""


class OwnerReference(Slim, frozen=True, kw_only=True):
    """Who made this object; it is collected when its last owner is gone."""

    api_version: str = ""
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Slim, frozen=True, kw_only=True):
    """Identity, versions and marks of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Condition(Slim, frozen=True, kw_only=True):
    """One observed aspect; `last_transition_time` moves only when `status` does."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None


class Taint(Slim, frozen=True, kw_only=True):
    """Keeps pods without a matching toleration off a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    time_added: datetime | None = None


class Toleration(Slim, frozen=True, kw_only=True):
    """Lets a pod onto a node with a matching taint. An empty key with `Exists` matches every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeSpec(Slim, frozen=True, kw_only=True):
    """What may run on a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeSystemInfo(Slim, frozen=True, kw_only=True):
    """Which boot of which machine."""

    boot_id: str = msgspec.field(default="", name="bootID")
    machine_id: str = msgspec.field(default="", name="machineID")


class NodeStatus(Slim, frozen=True, kw_only=True):
    """What a node reports."""

    conditions: list[Condition] = []
    node_info: NodeSystemInfo = NodeSystemInfo()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class Node(Slim, frozen=True, kw_only=True):
    """A machine, or in `healthd run` a slot of one machine."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class EnvVar(Slim, frozen=True, kw_only=True):
    """One environment variable of a container."""

    name: str
    value: str = ""


class Container(Slim, frozen=True, kw_only=True):
    """One process tree of a pod."""

    name: str = "main"
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    working_dir: str = ""


class PodSpec(Slim, frozen=True, kw_only=True):
    """What to run, and where."""

    node_name: str = ""
    containers: list[Container] = []
    tolerations: list[Toleration] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int = 30


class Terminated(Slim, frozen=True, kw_only=True):
    """How a container ended. `signal` is 0 when it exited by itself."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Running(Slim, frozen=True, kw_only=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class ContainerState(Slim, frozen=True, kw_only=True):
    """Exactly one of these is set; neither means waiting."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Slim, frozen=True, kw_only=True):
    """The kubelet's word about one container."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(Slim, frozen=True, kw_only=True):
    """The kubelet's word about a pod. Phases: Pending, Running, Succeeded, Failed, Unknown."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    container_statuses: list[ContainerStatus] = []
    conditions: list[Condition] = []


class Pod(Slim, frozen=True, kw_only=True):
    """One member of a gang."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(Slim, frozen=True, kw_only=True):
    """What every pod of a gang starts as."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


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
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: list[Condition] = []


class Job(Slim, frozen=True, kw_only=True):
    """A gang's root in `healthd run`, and one of its kinds on Kubernetes."""

    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class LeaseSpec(Slim, frozen=True, kw_only=True):
    """Who holds a lease."""

    holder_identity: str = ""
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_duration_seconds: int | None = None


class Lease(Slim, frozen=True, kw_only=True):
    """A coordination.k8s.io/v1 Lease. healthd's budget is a set of them: one per slot, made when it is taken."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class Device(Slim, frozen=True, kw_only=True):
    """One GPU of a node's inventory. `pci` is `dddd:bb:dd.f`, lower case."""

    pci: str
    uuid: str = ""
    name: str = ""
    index: int | None = None


class KernelLogCursor(Slim, frozen=True, kw_only=True):
    """
    Where reading stopped: *sequence* is the last kernel record that was judged in boot *boot_id*.

    Every *source* (`kmsg`, `journal`, `file`) numbers in its own way, so the number means nothing to another one.
    """

    boot_id: str = ""
    sequence: int = -1
    source: str = ""


class NodeHealthStatus(Slim, frozen=True, kw_only=True):
    """Everything that an agent knows and must not forget."""

    verdict: Verdict = Verdict.UNKNOWN
    message: str = ""
    findings: list[Finding] = []
    inventory: list[Device] = []
    boot_id: str = ""
    cursor: KernelLogCursor = KernelLogCursor()
    lost_records: int = 0


class NodeHealth(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, cluster scope, named as its node."""

    metadata: ObjectMeta
    status: NodeHealthStatus = NodeHealthStatus()


class GangRef(Slim, frozen=True, kw_only=True):
    """The root of a gang."""

    kind: str
    name: str
    namespace: str
    uid: str


class Cause(Slim, frozen=True, kw_only=True):
    """One reason for a recovery; several when faults join. *node* is empty where no node is to blame."""

    kind: CauseKind
    message: str
    at: datetime
    node: str = ""
    finding: str = ""


class RecoverySpec(Slim, frozen=True, kw_only=True):
    """What started a recovery. *first_attempt* is the attempt that its first restart begins."""

    gang: GangRef
    first_attempt: int
    cause: Cause


class TimelineEntry(Slim, frozen=True, kw_only=True):
    """When a phase began, and why."""

    phase: Phase
    at: datetime
    message: str = ""


class FencedPod(Slim, frozen=True, kw_only=True):
    """A pod of a stopped attempt. *proof* says how we know that it can no longer write; empty while we do not."""

    name: str
    uid: str
    node: str
    index: str = ""
    boot_id: str = ""
    proof: str = ""


class RejectedCheckpoint(Slim, frozen=True, kw_only=True):
    """A checkpoint that was newer than the chosen one, and why it was refused."""

    path: str
    step: int
    reason: str


class ChosenCheckpoint(Slim, frozen=True, kw_only=True):
    """The checkpoint that the gang resumes from. *step* -1: not known; without a *path*: a fresh start."""

    path: str = ""
    step: int = -1
    saved_ns: int = 0
    """When its newest file was written, in nanoseconds of the store's clock; 0: not known."""
    format: str = ""


class Attempt(Slim, frozen=True, kw_only=True):
    """One start of the gang by a recovery: what it was told, and where."""

    number: int
    checkpoint: ChosenCheckpoint
    placement: dict[str, str] = {}
    """Completion index -> node name."""


class RecoveryStatus(Slim, frozen=True, kw_only=True):
    """The state of a recovery: intent is written here before each act."""

    phase: Phase = Phase.DETECTED
    phase_since: datetime | None = None
    message: str = ""
    held_in: Phase | None = None
    """While `Held`: the phase that cannot go on."""
    timeline: list[TimelineEntry] = []
    causes: list[Cause] = []
    """Every cause: the first, and those that joined."""
    attempt: int = 0
    """The attempt being prepared or confirmed; 0 until the first stop is recorded."""
    pods: list[FencedPod] = []
    """The pods of the attempt being stopped."""
    checkpoint: ChosenCheckpoint | None = None
    rejected: list[RejectedCheckpoint] = []
    step_at_fault: int = -1
    """The furthest step known to have been reached before the stop; -1 when unknown."""
    no_advance: int = 0
    """Restarts in a row that brought no new step."""
    not_before: datetime | None = None
    """Back-off: the next start waits for this."""
    replacements: dict[str, str] = {}
    """Bad node -> spare, written before the spare is claimed."""
    placement: dict[str, str] = {}
    """Completion index -> node name of the next start."""
    attempts: list[Attempt] = []
    confirmed_step: int = -1


class Recovery(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, in the gang's namespace."""

    metadata: ObjectMeta
    spec: RecoverySpec
    status: RecoveryStatus = RecoveryStatus()


class Resource(NamedTuple):
    """How the API names a kind."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    has_status: bool
    """Status is a subresource: the main verbs leave it alone."""


RESOURCES: dict[type[Slim], Resource] = {
    Node: Resource("v1", "Node", "nodes", namespaced=False, has_status=True),
    Pod: Resource("v1", "Pod", "pods", namespaced=True, has_status=True),
    Job: Resource("batch/v1", "Job", "jobs", namespaced=True, has_status=True),
    Lease: Resource("coordination.k8s.io/v1", "Lease", "leases", namespaced=True, has_status=False),
    NodeHealth: Resource("healthd.dev/v1alpha1", "NodeHealth", "nodehealths", namespaced=False, has_status=True),
    Recovery: Resource("healthd.dev/v1alpha1", "Recovery", "recoveries", namespaced=True, has_status=True),
}

AnyObject = Node | Pod | Job | Lease | NodeHealth | Recovery


def to_wire(obj: AnyObject) -> dict[str, Any]:
    """The JSON object that an API server would be sent, with `apiVersion` and `kind`."""
    resource = RESOURCES[type(obj)]
    body: dict[str, Any] = msgspec.to_builtins(obj)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
