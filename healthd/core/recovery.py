"""
The recovery of one gang: one fault, one restart.

    Detected → Stopping → Fencing → Choosing → Reserving → Starting → Confirming → Recovered
    or Held (left again when what it waits for is there), GaveUp, Superseded.

`decide` computes only; the controller performs. A decision holds *either* a status to record *or* acts to perform,
never both, so every intent is on record before its act, and a controller that dies anywhere is continued by the next:
each phase looks at the world, does what is missing, and moves on when its goal is seen.

Once a member fails the gang is stopped at once and judged later: a root with a small retry limit of its own would be
Failed for good within seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.acts import Act, ClaimSpare, FindCheckpoint, ReleasePods, RemovePods, StartGang, StopGang
from healthd.core.faults import blames_node, lost_members, node_fault
from healthd.core.fence import CLOCKS_DIFFER, fence_pods, overridden, unproven
from healthd.core.foreign import Effect
from healthd.core.gang import Ending, GangView, Root, StartHint, index_of, members, will_not_run
from healthd.core.model import CauseKind, Phase
from healthd.core.objects import (
    ANNOTATION_FENCE_OVERRIDE,
    ANNOTATION_RESTART,
    FINALIZER_FENCE,
    Attempt,
    Cause,
    ChosenCheckpoint,
    FencedPod,
    FenceOverride,
    ObjectMeta,
    Pod,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    TimelineEntry,
)
from healthd.core.placement import Shortage, place
from healthd.core.policy import RecoveryPolicy
from healthd.core.progress import is_beyond
from healthd.core.spares import is_ready
from healthd.core.stand_ins import is_claimed, stand_ins, stranded

OVERDUE = timedelta(minutes=1)
"""How long after its grace a pod may take to end before that is said: clocks differ, and busy machines are slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about one recovery now. *recheck* is when time alone may change the answer."""

    record: RecoveryStatus | None = None
    acts: tuple[Act, ...] = ()
    reason: str
    recheck: timedelta | None = None


def open_recovery(root: Root, cause: Cause, earlier: Sequence[Recovery] = ()) -> Recovery:
    """
    The object that begins the recovery from *cause*. *earlier* are all recoveries of the gang so far.

    Its name follows from the gang and the attempt that it will start, so two controllers that see the same fault
    create the same object, and the API server lets only one of them. A recovery that ended before it started its
    attempt (superseded, given up) leaves the name to nobody else: the next one for that attempt is numbered.
    """
    attempt = root.attempt + 1
    name = f"{root.ref.name}-{root.ref.uid[:5]}-{attempt}"
    if tries := sum(recovery.spec.first_attempt == attempt for recovery in earlier):
        name = f"{name}-{tries}"
    return Recovery(
        metadata=ObjectMeta(name=name, namespace=root.ref.namespace),
        spec=RecoverySpec(gang=root.ref, first_attempt=attempt, cause=cause),
    )


def decide(
    recovery: Recovery,
    view: GangView,
    faults: Sequence[Cause],
    policy: RecoveryPolicy,
    now: datetime,
    refusal: str = "",
) -> Decision:
    """
    The next move of *recovery*. *faults* are those of the root's present attempt (`core.faults`); *refusal* is why the
    breaker would not let it through now.
    """
    status = recovery.status
    root = view.root
    if not status.timeline:
        # In one write with what follows at once: a root with a small retry limit is Failed within two seconds.
        begun = _begin(recovery, now)
        then = decide(replace(recovery, status=begun), view, faults, policy, now, refusal)
        return then if then.record is not None else Decision(record=begun, reason=f"{begun.phase}: {begun.message}")
    if root is None or root.deleting or root.ref.uid != recovery.spec.gang.uid:
        return _enter(status, Phase.SUPERSEDED, "the gang was deleted", now)
    phase = status.held_in if status.phase is Phase.HELD and status.held_in else status.phase
    situation = Situation(recovery, status, phase, view, root, tuple(faults), policy, now, refusal)
    return _stepped_aside(situation) or _PHASES[phase](situation)


@dataclass(frozen=True, slots=True)
class Situation:
    """One recovery, the world around it, and the time: what every phase decides from."""

    recovery: Recovery
    status: RecoveryStatus
    phase: Phase
    view: GangView
    root: Root
    faults: tuple[Cause, ...]
    policy: RecoveryPolicy
    now: datetime
    refusal: str = ""

    @property
    def name(self) -> str:
        """The recovery's own name, which marks what it did."""
        return self.recovery.metadata.name

    @property
    def stopped_by_us(self) -> bool:
        """The root is suspended, and by this recovery."""
        return self.root.suspended and self.root.stopped_by == self.name

    def enter(self, phase: Phase, message: str, **changes: object) -> Decision:
        """Record that *phase* begins, with *changes* to the status."""
        return _enter(replace(self.status, **changes), phase, message, self.now)

    def hold(self, message: str) -> Decision:
        """Wait for the world to change; recorded once for each reason."""
        if self.status.phase is Phase.HELD and self.status.message == message:
            return Decision(reason=message)
        return _enter(replace(self.status, held_in=self.phase), Phase.HELD, message, self.now)


def _begin(recovery: Recovery, now: datetime) -> RecoveryStatus:
    cause = recovery.spec.cause
    status = replace(recovery.status, causes=[cause], attempt=recovery.spec.first_attempt)
    return _entered(status, Phase.DETECTED, f"{cause.kind}: {cause.message}", now)


def _enter(status: RecoveryStatus, phase: Phase, message: str, now: datetime) -> Decision:
    return Decision(record=_entered(status, phase, message, now), reason=f"{phase}: {message}")


def _entered(status: RecoveryStatus, phase: Phase, message: str, now: datetime) -> RecoveryStatus:
    entry = TimelineEntry(phase=phase, at=now, message=message)
    held_in = status.held_in if phase is Phase.HELD else None
    timeline = status.timeline
    if phase is Phase.HELD and status.phase is Phase.HELD:
        # One entry however often the reason changes: a fence of thousands of pods opens one by one.
        entry, timeline = replace(timeline[-1], message=message), timeline[:-1]
    return replace(
        status,
        phase=phase,
        phase_since=now,
        message=message,
        held_in=held_in,
        timeline=[*timeline, entry],
    )


_BEFORE_START = frozenset({Phase.FENCING, Phase.CHOOSING, Phase.RESERVING})


def _stepped_aside(s: Situation) -> Decision | None:
    """Somebody else decided about this gang: its owner, its own end, or another controller."""
    if s.root.ending is Ending.COMPLETE:
        if s.phase in (Phase.STARTING, Phase.CONFIRMING) and s.root.attempt == s.status.attempt:
            return s.enter(Phase.RECOVERED, "the gang finished its work")
        return s.enter(Phase.SUPERSEDED, "the gang finished by itself")
    if s.root.ending is Ending.FAILED:
        return s.enter(Phase.GAVE_UP, "the root is failed for good and may not be rebuilt")
    if s.root.suspended and not s.stopped_by_us:
        # Also where the mark of an earlier recovery is left over from when that one gave the gang up.
        return s.enter(Phase.SUPERSEDED, "the user suspended the gang; it stays so")
    if not s.root.options.restart:
        # His way to keep a gang stopped that healthd has stopped: there is no other mark that he could set on it.
        left = "it stays stopped" if s.stopped_by_us else "it is left as it is"
        return s.enter(Phase.SUPERSEDED, f"restarts of the gang were switched off ({ANNOTATION_RESTART}); {left}")
    if s.stopped_by_us and s.root.edited_since_stop:
        message = "somebody changed the gang while it was stopped; it stays so, for him to resume when he is done"
        return s.enter(Phase.SUPERSEDED, message)
    if s.phase in _BEFORE_START and not s.stopped_by_us:
        if s.root.attempt == s.status.attempt:
            # Another controller had read the recovery before this one went back to its plan.
            return s.enter(Phase.STARTING, "the start was on its way already")
        return s.enter(Phase.SUPERSEDED, "somebody else started the gang again")
    if s.phase in (Phase.DETECTED, Phase.STOPPING) and s.root.attempt >= s.status.attempt:
        return s.enter(Phase.SUPERSEDED, f"the gang is at attempt {s.root.attempt} already")
    return None


def _detected(s: Situation) -> Decision:
    first = s.status.causes[0]
    passes = blames_node(first) or first.kind is CauseKind.HANG
    if not s.faults and (passes or s.status.phase is Phase.HELD):
        return s.enter(Phase.SUPERSEDED, "the fault was gone before the gang was stopped")
    unquarantined = [c.node for c in s.faults if blames_node(c) and not _is_out_of_service(s, c.node)]
    if _began_anew(s):
        return s.enter(Phase.SUPERSEDED, "the gang was restarted as a whole without healthd")
    if unquarantined and not _lost_some(s):
        return s.hold(
            f"{', '.join(unquarantined)} is not quarantined: the budget is used up, or healthd may not cordon; "
            "the gang runs on until a rank fails"
        )
    pods = _members_to_fence(s)
    if not s.refusal:
        return s.enter(Phase.STOPPING, "stop first, diagnose later", pods=pods, let_through=s.now)
    if not _lost_some(s):
        return s.hold(s.refusal)
    return s.enter(Phase.STOPPING, f"stop it before it fails for good; {s.refusal}", pods=pods)


def _lost_some(s: Situation) -> bool:
    return bool(lost_members(s.view) or s.root.gone)


def _began_anew(s: Situation) -> bool:
    """Every member is younger than the fault: a root with a failure policy of its own was faster."""
    present = members(s.view)
    if s.faults or len(present) < s.root.world:
        return False
    made = [pod.metadata.creation_timestamp for pod in present]
    return all(at is not None and at > s.status.causes[0].at for at in made)


def _is_out_of_service(s: Situation, node_name: str) -> bool:
    """The budget is healthd's own: what another detector says of a node does not wait for it."""
    node, sign = s.view.nodes.get(node_name), s.view.sign_on(node_name)
    return node is None or node.spec.unschedulable or (sign is not None and sign.effect is Effect.RESTART)


def _stopping(s: Situation) -> Decision:
    pods = _with_latecomers(s)
    if pods != s.status.pods:
        return Decision(record=replace(s.status, pods=pods), reason="one more pod to see the end of")
    if joined := _joined(s):
        return joined
    if not s.stopped_by_us:
        return Decision(acts=(StopGang(s.name),), reason="stop the gang")
    proven = {pod.uid for pod in pods if pod.proof and not _has_kubelet(s, pod.node)}
    alive = [pod for pod in s.view.pods if not will_not_run(pod) and pod.metadata.uid not in proven]
    late = [pod.metadata.name for pod in alive if _is_overdue(pod, s.now)]
    if len(late) < len(alive):
        return Decision(reason=f"waiting for {_some([pod.metadata.name for pod in alive])} to end")
    if not s.root.stopped:
        return Decision(
            reason=f"waiting for the controller of {s.root.ref.kind} {s.root.ref.name} to say that it stopped"
        )
    return s.enter(Phase.FENCING, f"{_some(late)} should have ended long ago" if late else "no member runs any more")


def _members_to_fence(s: Situation) -> list[FencedPod]:
    """
    The pods of the attempt that is to be stopped.

    What vanished before the gang was last set going is history: its user did that, without a new attempt.
    """
    return fence_pods(s.view, [], s.now, since=s.root.started_at)


def _with_latecomers(s: Situation) -> list[FencedPod]:
    """The pods on record, and those that were made while the gang was being stopped."""
    return fence_pods(s.view, s.status.pods, s.now, since=_began(s, Phase.STOPPING) - CLOCKS_DIFFER)


def _has_kubelet(s: Situation, node_name: str) -> bool:
    """Whether somebody is there who will soon say himself that a pod ended."""
    node = s.view.nodes.get(node_name)
    return node is not None and is_ready(node)


def _is_overdue(pod: Pod, now: datetime) -> bool:
    """Nobody will say that it ended: its machine is dead, or a process in it cannot be. The fence must tell."""
    deadline = pod.metadata.deletion_timestamp
    return deadline is not None and now - deadline >= OVERDUE


def _fencing(s: Situation) -> Decision:
    pods = _with_latecomers(s)
    if pods != s.status.pods:
        return Decision(record=replace(s.status, pods=pods), reason="one more end is proven")
    if open_ends := unproven(pods):
        return _overridden(s) or _without_proof(s, open_ends)
    held = [p.metadata.name for p in s.view.pods if FINALIZER_FENCE in p.metadata.finalizers]
    if held:
        return Decision(acts=(ReleasePods(tuple(held)),), reason="their ends are on record")
    left = [p.metadata.name for p in s.view.pods if not will_not_run(p)]
    if left:
        return Decision(acts=(RemovePods(tuple(left)),), reason="their ends are proven, and no kubelet will say so")
    return s.enter(Phase.CHOOSING, f"{len(pods)} pods are proven gone")


def _overridden(s: Situation) -> Decision | None:
    """A person answers for old pods. His word was about what he saw then: it does not count for the next attempt."""
    said = s.recovery.metadata.annotations.get(ANNOTATION_FENCE_OVERRIDE, "")
    used = s.status.fence_override
    if used is not None and used.said == said and used.attempt != s.status.attempt:
        return None
    pods = overridden(s.status.pods, said)
    if pods == s.status.pods:
        return None
    word = FenceOverride(said=said, attempt=s.status.attempt)
    return Decision(record=replace(s.status, pods=pods, fence_override=word), reason=f"a person answers: {said}")


def _without_proof(s: Situation, open_ends: list[str]) -> Decision:
    message = f"no proof that {_some(open_ends)} can no longer write"
    limit = s.root.options.fence_timeout or s.policy.fence_timeout
    if limit is None:
        return s.hold(message)
    waited = s.now - _began(s, Phase.FENCING)
    if waited < limit:
        return Decision(reason=message, recheck=limit - waited)
    pods = [replace(p, proof=p.proof or f"none: fence_timeout of {limit} is over") for p in s.status.pods]
    return Decision(record=replace(s.status, pods=pods), reason=f"{message}; the owner allowed to go on after {limit}")


def _began(s: Situation, phase: Phase) -> datetime:
    """When *phase* began for this attempt, whatever it was held for since."""
    began = (entry.at for entry in reversed(s.status.timeline) if entry.phase is phase)
    return next(began, s.status.timeline[0].at)


def _choosing(s: Situation) -> Decision:
    if joined := _joined(s):
        return joined
    if not blames_node(s.status.causes[-1]):
        left = s.policy.fault_window - (s.now - _began(s, Phase.STOPPING))
        if left > timedelta(0):
            return Decision(reason="waiting for evidence of broken hardware", recheck=left)
    return Decision(acts=(FindCheckpoint(),), reason="find the newest checkpoint that will load")


def _reserving(s: Situation) -> Decision:
    if joined := _joined(s):
        return joined
    if s.status.let_through is None:
        if s.refusal:
            return s.hold(s.refusal)
        return Decision(record=replace(s.status, let_through=s.now), reason="the breaker lets it through")
    if s.status.not_before is not None and s.now < s.status.not_before:
        return Decision(reason="backing off", recheck=s.status.not_before - s.now)
    plan = place(s.status, s.view, s.root, s.name, s.policy)
    if isinstance(plan, Shortage):
        return s.hold(plan.message)
    if (plan.placement, plan.replacements) != (s.status.placement, s.status.replacements):
        record = replace(s.status, placement=plan.placement, replacements=plan.replacements)
        return Decision(record=record, reason=plan.message)
    unclaimed = [
        ClaimSpare(spare, bad) for bad, spare in plan.replacements.items() if not is_claimed(spare, s.view, s.name)
    ]
    if unclaimed:
        return Decision(acts=tuple(unclaimed), reason=plan.message)
    earlier = [attempt for attempt in s.status.attempts if attempt.number != s.status.attempt]
    return s.enter(Phase.STARTING, plan.message, attempts=[*earlier, _attempt(s)])


def _attempt(s: Situation) -> Attempt:
    checkpoint = s.status.checkpoint or ChosenCheckpoint()
    return Attempt(number=s.status.attempt, checkpoint=checkpoint, placement=s.status.placement)


def _starting(s: Situation) -> Decision:
    if s.root.attempt < s.status.attempt:
        return _start(s)
    if faulted := _faulted_again(s):
        return faulted
    running = _running(s)
    if running >= s.root.world:
        return s.enter(Phase.CONFIRMING, f"{running} members run", attempts=_with_places(s))
    waited = s.now - (s.status.phase_since or s.now)
    if waited >= s.policy.start_deadline:
        cause = Cause(
            kind=CauseKind.SOFTWARE,
            message=f"only {running} of {s.root.world} members ran after {waited}",
            at=s.now,
        )
        return _again(s, [cause])
    made = len(members(s.view))
    missing = "" if made >= s.root.world else f"; {s.root.ref.kind} {s.root.ref.name} has made {made} so far"
    message = f"{running} of {s.root.world} members run{missing}"
    late, until_next = stranded(s.view, s.policy.spare_after, s.now)
    until = [s.policy.start_deadline - waited, *([until_next] if until_next else [])]
    return _helped(s, late) or Decision(reason=message, recheck=min(until))


def _helped(s: Situation, late: int) -> Decision | None:
    """A spare for each of *late* members whose nodes others took while the gang was stopped, while there are any."""
    if not late:
        return s.enter(Phase.STARTING, "every member has a node") if s.status.phase is Phase.HELD else None
    chosen, short = stand_ins(late, s.status, s.view, s.name, s.policy)
    if chosen != s.status.stand_ins:
        pairs = {node: spare for node, spare in chosen.items() if s.status.stand_ins.get(node) != spare}
        told = ", ".join(f"{spare} in place of {node}, {_took(s, node)}" for node, spare in pairs.items())
        return s.enter(Phase.STARTING, told or "a spare is not needed any more", stand_ins=chosen)
    unclaimed = [ClaimSpare(spare, node) for node, spare in chosen.items() if not is_claimed(spare, s.view, s.name)]
    if unclaimed:
        return Decision(acts=tuple(unclaimed), reason="claim spares for members without a node")
    if not short:
        return None
    return s.hold("no spare for " + ", ".join(f"{node}, {_took(s, node)}" for node in short[:3]))


def _took(s: Situation, node: str) -> str:
    pod = (s.view.taken or {}).get(node)
    return f"which {pod} took" if pod else "where no member can run"


def _running(s: Situation) -> int:
    return sum(pod.status.phase in ("Running", "Succeeded") for pod in members(s.view))


def _with_places(s: Situation) -> list[Attempt]:
    """The attempts so far, the last one with where its members are: the scheduler may have chosen other nodes."""
    places = {index_of(pod) or pod.metadata.name: pod.spec.node_name for pod in members(s.view)}
    return [replace(each, ran_on=places) if each.number == s.status.attempt else each for each in s.status.attempts]


def _start(s: Situation) -> Decision:
    """The last look before the gang runs: the world may have changed since the spares were claimed."""
    if not s.stopped_by_us:
        return s.enter(Phase.SUPERSEDED, "somebody else started the gang again")
    plan = place(s.status, s.view, s.root, s.name, s.policy)
    if isinstance(plan, Shortage) or plan.placement != s.status.placement:
        # The intent stays on record until there is a better one: another controller may be about to start by it.
        return s.enter(Phase.RESERVING, "a node of the plan went bad before the start")
    hint = StartHint(
        recovery=s.name,
        attempt=s.status.attempt,
        checkpoint=s.status.checkpoint or ChosenCheckpoint(),
        placement=s.status.placement,
    )
    return Decision(acts=(StartGang(hint),), reason=f"start attempt {s.status.attempt}")


def _confirming(s: Situation) -> Decision:
    resumed = s.status.checkpoint or ChosenCheckpoint()
    if s.view.newest is not None and is_beyond(s.view.newest, resumed):
        return s.enter(Phase.RECOVERED, _moved_on(s.view.newest), confirmed_step=s.view.newest.step)
    if faulted := _faulted_again(s):
        return faulted
    waited = s.now - (s.status.phase_since or s.now)
    if s.root.options.checkpoint:
        return _without_a_step(s) or Decision(reason=f"waiting for a checkpoint beyond {told(resumed)}")
    if waited >= s.policy.confirm_after:
        return s.enter(Phase.RECOVERED, f"every member has run for {waited}; its steps cannot be seen")
    return Decision(reason="waiting for sustained activity", recheck=s.policy.confirm_after - waited)


def _moved_on(newest: ChosenCheckpoint) -> str:
    return f"training moved on to step {newest.step}" if newest.step >= 0 else f"training saved {newest.path} again"


def told(checkpoint: ChosenCheckpoint) -> str:
    """A checkpoint in words."""
    if not checkpoint.path:
        return "a fresh start"
    return f"step {checkpoint.step}" if checkpoint.step >= 0 else checkpoint.path


def _without_a_step(s: Situation) -> Decision | None:
    """
    A gang that saves its first step in hours, or never, has recovered when it still shows life after a while.

    One whose rhythm is known is waited for: should it stay silent, that is a hang.
    """
    if s.root.progress.intervals or s.view.last_activity is None or _running(s) < s.root.world:
        return None
    lived = s.view.last_activity - (s.status.phase_since or s.now)
    if lived < s.policy.confirm_after:
        return None
    return s.enter(Phase.RECOVERED, f"every member runs and shows life after {lived}; no new step was seen yet")


def _faulted_again(s: Situation) -> Decision | None:
    """A fault of the attempt that this recovery started joins it, and the gang is stopped once more."""
    if not s.faults:
        return None
    # The most telling come first; ranks that fail beside a broken GPU are only consequences.
    return _again(s, [fault for fault in s.faults if fault.kind is s.faults[0].kind])


def _again(s: Situation, causes: Sequence[Cause]) -> Decision:
    return s.enter(
        Phase.STOPPING,
        f"again, {causes[0].kind}: {causes[0].message}",
        causes=[*s.status.causes, *causes],
        attempt=s.status.attempt + 1,
        pods=_members_to_fence(s),
        not_before=None,
        stand_ins={},
    )


def _joined(s: Situation) -> Decision | None:
    """While the gang is being stopped, hardware that turns out bad joins; failing ranks are only consequences."""
    known = {cause.node for cause in s.status.causes if blames_node(cause)}
    nodes = sorted({pod.node for pod in s.status.pods if pod.node} - known)
    found = [fault for node in nodes if (fault := node_fault(node, s.view, s.now))]
    if not found:
        return None
    record = replace(s.status, causes=[*s.status.causes, *found])
    return Decision(record=record, reason=f"{found[0].message} joins")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


_PHASES: dict[Phase, Callable[[Situation], Decision]] = {
    Phase.DETECTED: _detected,
    Phase.STOPPING: _stopping,
    Phase.FENCING: _fencing,
    Phase.CHOOSING: _choosing,
    Phase.RESERVING: _reserving,
    Phase.STARTING: _starting,
    Phase.CONFIRMING: _confirming,
}
