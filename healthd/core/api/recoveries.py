"""`Recovery`: one incident of one gang, from the fault to confirmed progress."""

from __future__ import annotations

from typing import Any

import msgspec

from healthd.core.api.meta import Condition, ObjectMeta, Slim
from healthd.core.api.model import CauseKind, Phase
from healthd.core.api.pod_packs import PACKED_ABOVE, FencedPod, packed, unpacked
from healthd.core.printable import printable
from healthd.core.untrusted import AttemptNumber, Moment, Step

LONGEST_MESSAGE = 1024
"""Characters of a cause: a pod says what it likes, and a recovery keeps many causes."""


class GangRef(Slim, frozen=True, kw_only=True):
    """The root of a gang."""

    kind: str
    """The kind of the root: `Job`, `JobSet`, `StatefulSet`, …"""
    name: str
    """Its name."""
    namespace: str
    """Its namespace, which is that of the recovery, too."""
    uid: str
    """Tells it from a later object of the same name."""


class Cause(Slim, frozen=True, kw_only=True):
    """One reason for a recovery; several when faults join. *node* is empty where no node is to blame."""

    kind: CauseKind
    message: str
    """What happened, for a person."""
    at: Moment
    """When it happened, as far as is known."""
    node: str = ""
    """The node to blame."""
    finding: str = ""
    """The finding on that node, `<device>/<rule>`, where one was the reason."""

    def __post_init__(self) -> None:
        """Pods, kernels and kubelets said what happened, and people read it on terminals."""
        msgspec.structs.force_setattr(self, "message", printable(self.message)[:LONGEST_MESSAGE])


class RecoverySpec(Slim, frozen=True, kw_only=True):
    """What started a recovery. *first_attempt* is the attempt that its first restart begins."""

    gang: GangRef
    first_attempt: AttemptNumber
    """The attempt that the first restart begins; the gang's very first run is attempt 0."""
    cause: Cause


class TimelineEntry(Slim, frozen=True, kw_only=True):
    """When a phase began, and why."""

    phase: Phase
    at: Moment
    """When it began."""
    message: str = ""
    """Why."""


class FenceOverride(Slim, frozen=True, kw_only=True):
    """A person's word that old pods have ended, and the attempt that it was given for. It counts for no other one."""

    said: str
    """The person's words."""
    attempt: AttemptNumber
    """The attempt that they were given for."""


class RejectedCheckpoint(Slim, frozen=True, kw_only=True):
    """A checkpoint that was newer than the chosen one, and why it was refused."""

    path: str
    """Where it is."""
    step: Step
    """Its step; -1: not known."""
    reason: str
    """What is wrong with it."""


class ChosenCheckpoint(Slim, frozen=True, kw_only=True):
    """The checkpoint that the gang resumes from. *step* -1: not known; without a *path*: a fresh start."""

    path: str = ""
    """Where it is; empty: there is none to load."""
    step: Step = -1
    """Its step; -1: not known."""
    saved_ns: int = 0
    """When its newest file was written, in nanoseconds of the store's clock; 0: not known."""
    format: str = ""
    """The format that it was verified as."""


class Attempt(Slim, frozen=True, kw_only=True):
    """One start of the gang by a recovery: what it was told, and where."""

    number: AttemptNumber
    """The attempt, counted from 1."""
    checkpoint: ChosenCheckpoint
    placement: dict[str, str] = {}
    """Where its members were to run: completion index -> node name. Only the newest attempts keep it."""
    ran_on: dict[str, str] = {}
    """Where they ran in the end: index, or the pod where members have none -> node name. Empty while not all run."""
    failed_early: bool = False
    """It failed while it loaded the checkpoint or soon after, by itself: no node was to blame, and no deletion."""


class PodHint(Slim, frozen=True, kw_only=True):
    """
    What every new pod of the gang gets when it is made, whatever makes it. The admission policy only copies this.

    It is recorded before the start that it is meant for and stays for the life of that attempt; new pods carry it while
    the recovery has the label `healthd.dev/hint: current`. The checkpoint goes from it when the recovery is over: what
    starts later, by its user's doing or its own controller's, finds the newest one as it does without healthd.
    """

    attempt: AttemptNumber
    """The attempt that the pods belong to."""
    resume_from: str = ""
    """The checkpoint to load, as the pods see it; empty: a fresh start, or the recovery is over."""
    resume_step: Step = -1
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
    phase_since: Moment | None = None
    """When the phase began."""
    message: str = ""
    """Why it is in this phase, for a person."""
    held_in: Phase | None = None
    """While `Held`: the phase that cannot go on."""
    timeline: list[TimelineEntry] = []
    """Every phase that began, oldest first."""
    causes: list[Cause] = []
    """Every cause: the first, and those that joined."""
    attempt: AttemptNumber = 0
    """The attempt being prepared or confirmed; 0 until the first stop is recorded."""
    pods: list[FencedPod] = []
    """The pods of the attempt being stopped."""
    open_ends: int = 0
    """How many of them are not yet proven to have ended."""
    packed: str = ""
    """The pods and the placement of a gang of more than 500, compressed; `healthd explain` shows them."""
    fence_override: FenceOverride | None = None
    checkpoint: ChosenCheckpoint | None = None
    rejected: list[RejectedCheckpoint] = []
    """Checkpoints that were newer than the chosen one, and why each was refused."""
    fell_from: str = ""
    """The path that the gang was told to load before this recovery, and then failed early by itself; else empty."""
    bad_state: bool = False
    """A member said by its exit code that its state is bad: the newest checkpoint is still to be doubted for that."""
    doubted: list[ChosenCheckpoint] = []
    """Good by all that can be seen of them, and yet the gang failed early again and again after loading them, or said
    that its state was bad when it had saved them."""
    step_at_fault: Step = -1
    """The furthest step known to have been reached before the stop; -1 when unknown."""
    no_advance: int = 0
    """Restarts in a row that brought no new step."""
    let_through: Moment | None = None
    """When the breaker let it go on; until then its gang is not started."""
    not_before: Moment | None = None
    """Back-off: the next start waits for this."""
    replacements: dict[str, str] = {}
    """Bad node -> spare, written before the spare is claimed."""
    placement: dict[str, str] = {}
    """Completion index -> node name of the next start."""
    stand_ins: dict[str, str] = {}
    """Node that others took while the gang was stopped -> spare in its stead, written before the spare is claimed."""
    hint: PodHint | None = None
    """What the pods of the present attempt are told; recorded before each start."""
    attempts: list[Attempt] = []
    """Every start, oldest first."""
    confirmed_step: Step = -1
    """The step that showed that training moved on; -1: none was seen."""
    gang: str = ""
    """The root as people name it: `job/llama`."""
    bad_nodes: str = ""
    """The nodes to blame, in words; empty where none is."""
    resumes_from: str = ""
    """The checkpoint that was chosen, in words: `step 1200`, or `a fresh start`."""
    ended_at: Moment | None = None
    """When it was over."""
    running_since: Moment | None = None
    """Since when every member runs again, whether or not progress was seen; empty while not all do."""
    running_after: str = ""
    """How long that took from the fault, such as `5s`."""
    took: str = ""
    """How long it took from the fault to the end, such as `2m13s`; to the confirmed progress, where it recovered."""
    conditions: list[Condition] = []
    """`Progressing`, `Held` and `Recovered`, for whoever waits for one: `kubectl wait --for=condition=Recovered`."""

    def __post_init__(self) -> None:
        """In memory there are only pods; `stored` packs them. Raises ValueError for a text that is none of ours."""
        if self.packed:
            pods, placement = unpacked(self.packed)
            msgspec.structs.force_setattr(self, "pods", pods)
            msgspec.structs.force_setattr(self, "placement", placement)
            msgspec.structs.force_setattr(self, "packed", "")


def stored(status: RecoveryStatus) -> dict[str, Any]:
    """*status* as it is written: that of a large gang packed."""
    body: dict[str, Any] = msgspec.to_builtins(status)
    if len(status.pods) <= PACKED_ABOVE:
        return body
    rest = {key: value for key, value in body.items() if key not in ("pods", "placement")}
    return rest | {"packed": packed(status.pods, status.placement)}


class Recovery(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, in the gang's namespace."""

    metadata: ObjectMeta
    spec: RecoverySpec
    status: RecoveryStatus = RecoveryStatus()

    def __post_init__(self) -> None:
        """
        The gang is one of the recovery's own namespace, whatever its spec says.

        The right to write recoveries is given by namespace. Set here, where every recovery is made and decoded, so that
        no reader can be led to the gang of another one.
        """
        gang, namespace = self.spec.gang, self.metadata.namespace
        if gang.namespace != namespace:
            own = msgspec.structs.replace(gang, namespace=namespace)
            msgspec.structs.force_setattr(self, "spec", msgspec.structs.replace(self.spec, gang=own))
