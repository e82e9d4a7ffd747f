"""`Recovery`: one incident of one gang, from the fault to confirmed progress."""

from __future__ import annotations

from datetime import datetime

from healthd.core.model import CauseKind, Phase
from healthd.core.objects.meta import Condition, ObjectMeta, Slim


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
    since: datetime | None = None
    """When it was made or, where its kubelet said so, started there."""
    boot_id: str = ""
    """The boot of its machine, as the kubelet first told it."""
    agent_boot_id: str = ""
    """The same, as the agent first told it."""
    machine: str = ""
    """The system UUID of its machine: another machine may take the name of the node."""
    proof: str = ""


class FenceOverride(Slim, frozen=True, kw_only=True):
    """A person's word that old pods have ended, and the attempt that it was given for. It counts for no other one."""

    said: str
    attempt: int


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


class PodHint(Slim, frozen=True, kw_only=True):
    """
    What every new pod of the gang gets when it is made, whatever makes it. The admission policy only copies this.

    It is recorded before the start that it is meant for and stays for the life of that attempt; new pods carry it while
    the recovery has the label `healthd.dev/hint: current`.
    """

    attempt: int
    """The attempt that the pods belong to."""
    resume_from: str = ""
    """The checkpoint to load, as the pods see it; empty: a fresh start."""
    resume_step: int = -1
    """The step of that checkpoint; -1: not known."""
    reserved_for: str = ""
    """The value of the taint on the spares of this gang, which its pods tolerate; empty: it has none."""
    avoid: list[str] = []
    """Nodes on which no pod of the gang may be put."""
    prefer: list[str] = []
    """Nodes on which its pods would best be."""


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
    fence_override: FenceOverride | None = None
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
    hint: PodHint | None = None
    """What the pods of the present attempt are told; recorded before each start."""
    attempts: list[Attempt] = []
    confirmed_step: int = -1
    gang: str = ""
    """The root as people name it: `job/llama`."""
    bad_nodes: str = ""
    """The nodes to blame, in words; empty where none is."""
    resumes_from: str = ""
    """The checkpoint that was chosen, in words: `step 1200`, or `a fresh start`."""
    ended_at: datetime | None = None
    took: str = ""
    """How long it took from the fault to the end, such as `2m13s`."""
    conditions: list[Condition] = []
    """`Progressing`, `Held` and `Recovered`, for whoever waits for one: `kubectl wait --for=condition=Recovered`."""


class Recovery(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, in the gang's namespace."""

    metadata: ObjectMeta
    spec: RecoverySpec
    status: RecoveryStatus = RecoveryStatus()
