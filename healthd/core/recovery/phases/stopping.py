"""
The phases Detected and Stopping: whether to stop the gang, and until no member runs and no new member can start.

Hardware that is found bad before the gang is started again joins the recovery, here and in the later phases.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import FencedPod, Pod, RecoveryStatus
from healthd.core.api.model import CauseKind, Phase
from healthd.core.api.names import LABEL_STOPS
from healthd.core.phrases import some
from healthd.core.recovery.actions import StopGang
from healthd.core.recovery.faults import blames_node, could_not_write, lost_members, node_fault
from healthd.core.recovery.fence import CLOCKS_DIFFER, fence_pods, has_unread_end
from healthd.core.recovery.members import index_of, members, will_not_run
from healthd.core.recovery.nodes.foreign_signs import Effect
from healthd.core.recovery.nodes.spares import is_ready
from healthd.core.recovery.planned.growth import left_out_of, room
from healthd.core.recovery.planned.moving import MOVES, nodes_to_leave, nodes_to_move_to
from healthd.core.recovery.planned.restarts import is_planned, recently_saved
from healthd.core.recovery.situation import Decision, Situation, began

BAD_STATE = 65
"""Exit code of a member that finds its own state bad, such as a loss that is NaN: `EX_DATAERR` of sysexits."""
OVERDUE = timedelta(minutes=1)
"""How long after its grace period a pod may take to end before it counts as overdue: clocks differ, and busy machines
are slow."""


def detected(s: Situation) -> Decision:
    """A fault was observed: decides whether to stop the gang for it now."""
    first = s.status.causes[0]
    passes = blames_node(first) or first.kind is CauseKind.HANG
    if s.stopped_by_us:  # the record is older than the stop: it was deleted, and made again from a cache
        return s.enter(Phase.STOPPING, f"the {s.terms.gang} was stopped already", pods=members_to_fence(s))
    if is_planned(s.recovery):
        return _as_planned(s)
    if not s.faults and (passes or s.status.phase is Phase.HELD):
        return s.enter(Phase.SUPERSEDED, f"the fault was gone before the {s.terms.gang} was stopped")
    if _began_anew(s):
        return s.enter(Phase.SUPERSEDED, f"the {s.terms.gang} was restarted as a whole without healthd")
    if (unquarantined := _all_refused(s)) and not _lost_some(s):
        return s.hold(
            f"{', '.join(unquarantined)} is not quarantined: {s.terms.refusal}; "
            f"the {s.terms.gang} runs on until a rank fails"
        )
    pods, fell_from = members_to_fence(s), _fell_from(s)
    if not s.refusal:
        return s.enter(Phase.STOPPING, "stop first, diagnose later", pods=pods, fell_from=fell_from, let_through=s.now)
    if not _lost_some(s):
        return s.hold(s.refusal)
    message = f"stop it before it fails for good; {s.refusal}"
    return s.enter(Phase.STOPPING, message, pods=pods, fell_from=fell_from)


def _as_planned(s: Situation) -> Decision:
    """Stop a gang that has no fault, if all is still as it was when this recovery was opened."""
    kind = s.status.causes[0].kind
    if s.faults or s.refusal:
        return s.enter(Phase.SUPERSEDED, f"it {_negated(kind)} now: {s.refusal or s.faults[0].message}")
    if why := _why_not_now(s):
        return s.enter(Phase.SUPERSEDED, why)
    message = f"a planned restart: the {s.terms.gang} {_AIMS[kind]}"
    return s.enter(Phase.STOPPING, message, pods=members_to_fence(s), let_through=s.now)


def _why_not_now(s: Situation) -> str:
    """Why a gang that has no fault is not stopped any more, such as after a controller that died; empty: it is."""
    kind = s.status.causes[0].kind
    what = _negated(kind)
    if not recently_saved(s.root, s.now):
        return f"it {what} now: its last save is too old, so steps would be lost"
    if kind in MOVES and not nodes_to_move_to(nodes_to_leave(kind, s.view), s.view, s.policy):
        return f"it {what}: nothing asks for it any more, or there is no spare for it"
    if kind not in MOVES and not room(s.view, left_out_of(s.recovery, s.root), s.policy):
        return f"it {what}: its size was changed, or there is no node for it"
    return ""


def _negated(kind: CauseKind) -> str:
    return "is not moved" if kind in MOVES else "does not grow back"


_AIMS = {
    CauseKind.MAINTENANCE: "leaves nodes before their maintenance",
    CauseKind.STRAGGLER: "leaves a node on which a rank makes it slow",
    CauseKind.CAPACITY: "grows back",
}


def _fell_from(s: Situation) -> str:
    """The checkpoint that its pod template names, if the gang failed by itself soon after its start; else empty."""
    first, began = s.status.causes[0], s.root.started_at
    is_early = began is not None and first.at - began < s.policy.confirm_after
    by_itself = first.kind is CauseKind.SOFTWARE and not could_not_write(s.view)
    return s.root.template_resumes_from if by_itself and is_early else ""


def _lost_some(s: Situation) -> bool:
    return bool(lost_members(s.view) or s.root.gone)


def _began_anew(s: Situation) -> bool:
    """Whether every member is younger than the fault: the root's own failure policy was faster."""
    present = members(s.view)
    if s.faults or len(present) < s.root.world:
        return False
    made = [pod.metadata.creation_timestamp for pod in present]
    return all(at is not None and at > s.status.causes[0].at for at in made)


def _all_refused(s: Situation) -> list[str]:
    """
    The bad nodes, where none of them was let out of service. Where one was, the gang has to leave that one anyway; and
    while it stays, that node is not repaired, so its slot of the budget does not come free for the others.
    """
    bad = [cause.node for cause in s.faults if blames_node(cause)]
    refused = [name for name in bad if not _is_out_of_service(s, name)]
    return refused if len(refused) == len(bad) else []


def _is_out_of_service(s: Situation, node_name: str) -> bool:
    """Whether the node is out of service. The budget is healthd's own: signs of other detectors do not wait for it."""
    node, sign = s.view.nodes.get(node_name), s.view.sign_on(node_name)
    return node is None or node.spec.unschedulable or (sign is not None and sign.effect is Effect.RESTART)


def stopping(s: Situation) -> Decision:
    """Lasts until no member runs any more, and the root's controller has reported that it creates no more members."""
    pods = with_latecomers(s)
    if pods != s.status.pods:
        return Decision(record=replace(s.status, pods=pods), reason="one more pod to see the end of")
    if joined := join_hardware(s):
        return joined
    if not s.status.bad_state and _has_bad_state_exit(s):
        return Decision(record=_bad_state(s.status), reason="a member says that its state is bad")
    if not s.stopped_by_us:
        if is_planned(s.recovery) and not s.faults and not _has_begun_to_stop(s) and (why := _why_not_now(s)):
            return s.enter(Phase.SUPERSEDED, why)
        return Decision(actions=(StopGang(s.name),), reason=f"stop the {s.terms.gang}")
    proven = {pod.uid for pod in pods if pod.proof and not has_kubelet(s, pod.node)}
    alive = [pod for pod in s.view.pods if not will_not_run(pod) and pod.metadata.uid not in proven]
    late = [_named(s, pod) for pod in alive if is_overdue(pod, s.now)]
    if len(late) < len(alive):
        return Decision(reason=f"waiting for {some([_named(s, pod) for pod in alive])} to end")
    if not s.root.stopped:
        return Decision(
            reason=f"waiting for the controller of {s.root.ref.kind} {s.root.ref.name} to say that it stopped"
        )
    return s.enter(
        Phase.FENCING, f"{some(late)} should have ended long ago" if late else f"no {s.terms.member} runs any more"
    )


def _has_begun_to_stop(s: Situation) -> bool:
    """Whether a write that stops the gang may be done: a stop may be more than one, and is then finished."""
    return LABEL_STOPS in s.recovery.metadata.labels


def _bad_state(status: RecoveryStatus) -> RecoveryStatus:
    """The checkpoint that was loaded is good: the fault is in what was saved after it."""
    attempts = [*status.attempts[:-1], *(replace(last, failed_early=False) for last in status.attempts[-1:])]
    return replace(status, bad_state=True, fell_from="", attempts=attempts)


def _has_bad_state_exit(s: Situation) -> bool:
    """
    Whether a member exited with BAD_STATE, in any order of the ends: its peers fail with other codes because it is
    gone. An end from long ago does not count.
    """
    present = members(s.view)
    gone = members(replace(s.view, pods=s.view.deleted))
    states = [status for pod in (*present, *gone) for status in pod.status.container_statuses]
    ends = [end for status in states for end in (status.state.terminated, status.last_state.terminated) if end]
    since = s.status.causes[-1].at - CLOCKS_DIFFER
    reported = [end for end in ends if end.exit_code == BAD_STATE and not end.signal]
    return any(end.finished_at is not None and end.finished_at >= since for end in reported)


def _named(s: Situation, pod: Pod) -> str:
    return s.terms.named(pod.metadata.name, index_of(pod, s.root))


def members_to_fence(s: Situation) -> list[FencedPod]:
    """
    The pods of the attempt that is to be stopped.

    A pod that vanished before the gang was last started is history: its user did that, without a new attempt. A pod of
    an earlier attempt that this controller still has as alive keeps the recorded proof.
    """
    left = {pod.metadata.uid for pod in s.view.pods if has_unread_end(pod)}
    proven = [pod for pod in s.status.pods if pod.proof and pod.uid in left]
    return fence_pods(s.view, proven, s.now, since=s.root.started_at)


def with_latecomers(s: Situation) -> list[FencedPod]:
    """The recorded pods, and the pods that were created while the gang was being stopped."""
    return fence_pods(s.view, s.status.pods, s.now, since=_latecomers_since(s))


def _latecomers_since(s: Situation) -> datetime:
    """
    From when on a pod that vanished may be a latecomer.

    The clock that stamped the stop may be hours behind or ahead. What the cluster stamped, as it stamps pods, bounds
    it: a stop is later than the last start of the gang, and no pod from before this start is a latecomer. And the
    recovery is opened before the stop.
    """
    stopped, opened = began(s, Phase.STOPPING), s.recovery.metadata.creation_timestamp
    started = s.recovery.spec.gang_started_at
    if started is not None and stopped < started and (opened is None or started <= opened):
        return started
    return min(filter(None, (stopped - CLOCKS_DIFFER, opened)))


def has_kubelet(s: Situation, node_name: str) -> bool:
    """Whether the node has a live kubelet, which will soon report that a pod ended."""
    node = s.view.nodes.get(node_name)
    return node is not None and is_ready(node)


def will_report(pod: Pod, now: datetime) -> bool:
    """Whether an event is still to come that says how the pod ended."""
    return not will_not_run(pod) and not is_overdue(pod, now)


def is_overdue(pod: Pod, now: datetime) -> bool:
    """
    Whether no report of its end will come: its machine is dead, or a process in it cannot be killed. The fence must
    prove the end.
    """
    deadline = pod.metadata.deletion_timestamp
    return deadline is not None and now - deadline >= OVERDUE


def join_hardware(s: Situation) -> Decision | None:
    """While the gang is being stopped, newly found bad hardware joins; failing ranks are only consequences."""
    known = {cause.node for cause in s.status.causes if blames_node(cause)}
    nodes = sorted({pod.node for pod in s.status.pods if pod.node} - known)
    found = [fault for node in nodes if (fault := node_fault(node, s.view, s.now))]
    if not found:
        return None
    record = replace(s.status, causes=[*s.status.causes, *found])
    return Decision(record=record, reason=f"{found[0].message} joins")
