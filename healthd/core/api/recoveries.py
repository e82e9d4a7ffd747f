"""`Recovery`: one incident of one gang, from the fault to confirmed progress."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from healthd.core.api.meta import Condition, ObjectMeta, Slim
from healthd.core.api.model import CauseKind, Phase
from healthd.core.api.pod_packs import PACKED_ABOVE, FencedPod, packed, unpacked
from healthd.core.printable import printable
from healthd.core.untrusted import LARGEST_GANG, AttemptNumber, Moment, Step, shown

KIND_PATTERN = "[A-Za-z][A-Za-z0-9]{0,62}"
"""What a kind may be called."""
NAME_PATTERN = "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
"""What every object of Kubernetes may be called: a DNS subdomain."""
_KIND, _NAME = re.compile(KIND_PATTERN), re.compile(NAME_PATTERN)
KEPT_LEFT_NODES = 500
"""Nodes that a smaller gang left. One that left more grows back on spares."""
MemberCount = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_GANG)]
LONGEST_MESSAGE = 1024
"""Characters of the message of a cause. A pod can write any text, and a recovery keeps many causes."""
LONGEST_DOING = 240
"""Characters of what a suspect was doing, and of what one witness says of it."""
LONGEST_MEMBER = 320
MOST_SUSPECTS = 16
"""Of one hang. More are no suspicion."""
MOST_WITNESSES = 8
"""Of one suspect: more than there are sources."""


class GangRef(Slim, frozen=True, kw_only=True):
    """The root of a gang."""

    kind: str
    """The kind of the root: `Job`, `JobSet`, `StatefulSet`, …"""
    name: str
    """Its name."""
    namespace: str
    """Its namespace, which is also that of the recovery."""
    uid: str
    """Distinguishes it from a later object of the same name."""


class HangSuspect(Slim, frozen=True, kw_only=True):
    """A member that may hold up the others in a gang that hangs, or make it slow. It is suspected, not convicted."""

    member: str
    """Its index."""
    node: str = ""
    """Where it ran; empty: unknown."""
    pod: str = ""
    """Its pod; empty: it has none."""
    witnesses: int = 0
    """How many independent witnesses name it."""
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0
    """How sure the vote is. An estimate."""
    words: Annotated[list[str], msgspec.Meta(max_length=MOST_WITNESSES)] = []
    """What each witness says, for people."""
    doing: str = ""
    """The function in which it was, for people; empty: unknown."""
    stack: str = ""
    """A digest of the functions of its stack: the same text is the same place in the program. Empty: unknown."""

    def __post_init__(self) -> None:
        """Names of functions come from the program of the user. Its owner can write the record on a root."""
        for name, most in (("member", LONGEST_MEMBER), ("node", 253), ("pod", 253), ("doing", LONGEST_DOING)):
            msgspec.structs.force_setattr(self, name, printable(getattr(self, name))[:most])
        msgspec.structs.force_setattr(self, "words", [printable(each)[:LONGEST_DOING] for each in self.words])


class Cause(Slim, frozen=True, kw_only=True):
    """One reason for a recovery. Faults that occur during the recovery are added as further causes."""

    kind: CauseKind
    message: str
    """What happened, for a person."""
    at: Moment
    """When it happened, as far as known."""
    node: str = ""
    """The faulty node; empty where there is none."""
    finding: str = ""
    """The finding on that node that caused it, `<device>/<rule>`; empty where there is none."""
    suspects: list[HangSuspect] = []
    """Of a hang: the members that may hold up the others. Of a straggler: the slow ones. It blames no node."""
    step: Step = -1
    """Of a hang: the newest step that was known then; -1: none."""
    healthd_ended: bool = False
    """Under `healthd run`: healthd itself had ended, and its ranks with it. The program did not fail."""

    def __post_init__(self) -> None:
        """The text comes from pods, kernels and kubelets, and people read it on terminals."""
        msgspec.structs.force_setattr(self, "message", printable(self.message)[:LONGEST_MESSAGE])


class Shrunk(Slim, frozen=True, kw_only=True):
    """A gang that healthd made smaller. The numbers are of its elastic members: no launcher, no master, no head."""

    size: MemberCount
    """How many members it had before."""
    members: MemberCount
    """How many it has since. Where it has another number, somebody else has changed it, and this record is void."""
    nodes: Annotated[list[str], msgspec.Meta(max_length=KEPT_LEFT_NODES)] = []
    """The nodes that it left and that no other node replaced."""


class RecoverySpec(Slim, frozen=True, kw_only=True):
    """What started a recovery."""

    gang: GangRef
    first_attempt: AttemptNumber
    """The attempt that the first restart begins; the gang's very first run is attempt 0."""
    cause: Cause
    pod_labels: dict[str, str] = {}
    """Labels of every pod of the gang, where healthd cannot mark the pod template; else empty."""
    shrunk: Shrunk | None = None
    """What healthd had left out of the gang before this recovery; empty: nothing."""
    gang_started_at: Moment | None = None
    """When the gang was last started before this recovery, by the clock of its own controller; empty: unknown. Pods
    from before are history."""


class TimelineEntry(Slim, frozen=True, kw_only=True):
    """When a phase began, and why."""

    phase: Phase
    at: Moment
    """When it began."""
    message: str = ""
    """Why."""


class FenceOverride(Slim, frozen=True, kw_only=True):
    """A person's statement that old pods have ended. It is valid for one attempt."""

    said: str
    """The text of the annotation."""
    attempt: AttemptNumber
    """The attempt for which it is valid."""


class RejectedCheckpoint(Slim, frozen=True, kw_only=True):
    """A checkpoint that was newer than the chosen one, and why it was refused."""

    path: str
    """Where it is."""
    step: Step
    """Its step; -1: not known."""
    reason: str
    """Why it was refused."""
    unread: bool = False
    """It could not be read, or changed while it was read. So it may load, and a later look may tell."""


def unread_place(location: str, why: str) -> RejectedCheckpoint:
    """The stand-in for the checkpoints of a *location* that cannot be read: not the same as no checkpoint."""
    return RejectedCheckpoint(path=location, step=-1, reason=why, unread=True)


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
    """One start of the gang by a recovery: from which checkpoint, and where."""

    number: AttemptNumber
    """The attempt, counted from 1."""
    checkpoint: ChosenCheckpoint
    placement: dict[str, str] = {}
    """Where its members were planned to run: completion index -> node name. Only the newest attempts keep it."""
    ran_on: dict[str, str] = {}
    """Where they ran: index, or pod name where members have no index -> node name. Empty until all run."""
    shrunk: Shrunk | None = None
    """What this start leaves out of the gang; empty: nothing."""
    failed_early: bool = False
    """It failed by itself while it loaded the checkpoint or soon after. No node and no deletion caused it."""
    lacked_members: bool = False
    """It failed while some of its members were not made, as by a quota. It is no restart without progress."""


class Rebuild(Slim, frozen=True, kw_only=True):
    """The root failed for good, so healthd deletes it and makes it again. Recorded before the deletion."""

    uid: str
    """Of the root that failed. Its copy is the RootCopy of this name, in healthd's own namespace."""
    made: str = ""
    """Of the root that was made in its place; empty: not made yet."""


class PodHint(Slim, frozen=True, kw_only=True):
    """
    What every new pod of the gang gets at its creation. The admission policy only copies this.

    It is recorded before the start that it is for, and stays for the life of that attempt. New pods carry it while the
    recovery has the label `healthd.dev/hint: current`. The checkpoint is removed from it when the recovery ends: a
    later start, by the user or by the controller of the gang, finds the newest checkpoint as it does without healthd.
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
    """Nodes on which no pod of the gang may run."""
    prefer: list[str] = []
    """Nodes on which its pods should preferably run."""


class RecoveryStatus(Slim, frozen=True, kw_only=True):
    """The state of a recovery. Each intent is recorded here before the action."""

    phase: Phase = Phase.DETECTED
    phase_since: Moment | None = None
    """When the phase began."""
    message: str = ""
    """Why it is in this phase, for a person."""
    held_in: Phase | None = None
    """While `Held`: the phase that cannot continue."""
    timeline: list[TimelineEntry] = []
    """Every phase that began, oldest first."""
    causes: list[Cause] = []
    """Every cause: the first, and those that were added later."""
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
    """The checkpoint that the gang loaded before this recovery, if it then failed early by itself; else empty."""
    bad_state: bool = False
    """The exit code of a member said that its state is bad. The newest checkpoint has not been doubted for that yet."""
    doubted: list[ChosenCheckpoint] = []
    """They pass verification, and yet the gang failed early several times after loading them, or its exit code said
    that its state was bad after saving them."""
    step_at_fault: Step = -1
    """The furthest step known to have been reached before the stop; -1 when unknown."""
    no_advance: int = 0
    """Restarts in a row that brought no new step."""
    let_through: Moment | None = None
    """When the breaker allowed it to continue. Until then its gang is not started."""
    not_before: Moment | None = None
    """Back-off: the next start waits for this."""
    replacements: dict[str, str] = {}
    """Bad node -> spare, written before the spare is claimed."""
    placement: dict[str, str] = {}
    """Completion index -> node name of the next start."""
    stand_ins: dict[str, str] = {}
    """Node that others took while the gang was stopped -> its spare, written before the spare is claimed."""
    rebuild: Rebuild | None = None
    """The last time that the root was made again; empty: it was not."""
    hint: PodHint | None = None
    """What the pods of the current attempt get; recorded before each start."""
    attempts: list[Attempt] = []
    """Every start, oldest first."""
    confirmed_step: Step = -1
    """The step that showed progress after the restart; -1: none was seen."""
    gang: str = ""
    """The root as people name it: `job/llama`."""
    bad_nodes: str = ""
    """The faulty nodes, as text; empty where there is none."""
    resumes_from: str = ""
    """The chosen checkpoint, as text: `step 1200`, or `a fresh start`."""
    ended_at: Moment | None = None
    """When it ended."""
    running_since: Moment | None = None
    """Since when all members run again, with or without confirmed progress; empty until all run."""
    running_after: str = ""
    """How long that took from the fault, such as `5s`."""
    took: str = ""
    """The time from the fault to the end, such as `2m13s`. A recovered gang: to the confirmed progress."""
    conditions: list[Condition] = []
    """`Progressing`, `Held` and `Recovered`, for `kubectl wait --for=condition=Recovered`."""

    def __post_init__(self) -> None:
        """In memory the pods are never packed; `stored` packs them. Raises ValueError for an unreadable text."""
        if self.packed:
            pods, placement = unpacked(self.packed)
            msgspec.structs.force_setattr(self, "pods", pods)
            msgspec.structs.force_setattr(self, "placement", placement)
            msgspec.structs.force_setattr(self, "attempts", [self._placed(each) for each in self.attempts])
            msgspec.structs.force_setattr(self, "packed", "")

    def _placed(self, attempt: Attempt) -> Attempt:
        is_present = attempt.number == self.attempt and not attempt.placement
        return msgspec.structs.replace(attempt, placement=self.placement) if is_present else attempt


def stored(status: RecoveryStatus) -> dict[str, Any]:
    """
    *status* as it is written. The pods of a large gang are packed, and the placement of the present attempt stands
    there alone: an API server reads the whole object for each new pod of the gang.
    """
    body: dict[str, Any] = msgspec.to_builtins(status)
    if len(status.pods) <= PACKED_ABOVE:
        return body
    for attempt in body.get("attempts", ()):
        if attempt["number"] == status.attempt and attempt.get("placement") == status.placement:
            del attempt["placement"]
    rest = {key: value for key, value in body.items() if key not in ("pods", "placement")}
    return rest | {"packed": packed(status.pods, status.placement)}


class Recovery(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, in the gang's namespace."""

    metadata: ObjectMeta
    spec: RecoverySpec
    status: RecoveryStatus = RecoveryStatus()

    def __post_init__(self) -> None:
        """
        The gang is one of the recovery's own namespace.

        The right to write recoveries is granted by namespace. It is enforced here, where every recovery is created and
        decoded, so that no reader follows it to a gang of another namespace, or takes it for one of a gang of its own.

        After a rebuild the gang is that of the new root: in memory `spec` has its uid, and what is stored stays as it
        was. So everything that asks for the recoveries of a gang finds this one.

        Raises ValueError for a gang of another namespace, and for one that no object can be: the text would stand in
        commands, messages and metrics.
        """
        gang, namespace = self.spec.gang, self.metadata.namespace
        if (rebuild := self.status.rebuild) is not None:
            gang = msgspec.structs.replace(gang, uid=rebuild.made or rebuild.uid)
            msgspec.structs.force_setattr(self, "spec", msgspec.structs.replace(self.spec, gang=gang))
        if not (_NAME.fullmatch(gang.name) and _KIND.fullmatch(gang.kind)):
            raise ValueError(f"spec.gang: no object can be called {shown(gang.kind)} {shown(gang.name)}")
        if gang.namespace != namespace:
            raise ValueError(
                f"spec.gang.namespace is {shown(gang.namespace)}, and a recovery is about a gang of its own namespace; "
                "delete it"
            )
