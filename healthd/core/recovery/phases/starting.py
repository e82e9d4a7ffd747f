"""The phases Starting and Confirming: until all members run and training advances, or the new attempt has a fault."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import Attempt, Cause, ChosenCheckpoint, ContainerState
from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import short_duration
from healthd.core.recovery.actions import ClaimSpare, StartGang
from healthd.core.recovery.faults import could_not_write, ran
from healthd.core.recovery.gang import StartHint
from healthd.core.recovery.hangs.suspicion import in_same_place, waits_in_same_place
from healthd.core.recovery.holds import NOT_MADE, QUEUED, is_held_as
from healthd.core.recovery.members import index_of, is_terminal, members, with_seats
from healthd.core.recovery.nodes.came_back import held_after_return
from healthd.core.recovery.nodes.placement import Shortage, place
from healthd.core.recovery.nodes.replacement_nodes import is_claimed, stand_ins, stranded
from healthd.core.recovery.phases.stopping import members_to_fence
from healthd.core.recovery.planned.growth import added_members, grows_back, left_out_of, record_of
from healthd.core.recovery.progress import is_beyond
from healthd.core.recovery.resume_point import is_premature, report_unread
from healthd.core.recovery.situation import Decision, Situation, step_text

ADMITTED_WITHIN = timedelta(seconds=15)
"""How long a queue may take before a recovery says that it waits for it."""
MADE_WITHIN = timedelta(minutes=2)
"""How long the first member of a started gang may take to be made. A quota, a policy or a dead webhook may keep the
controller of its kind from making any: a further restart would change nothing, and proves nothing about the job. Where
some are made the others have the whole deadline: a controller may make them one after the other."""


def starting(s: Situation) -> Decision:
    """Start the gang once, and wait until every member runs."""
    if why := _held_by_queue(s):
        return _queued(s, why)
    if is_held_as(s.status, QUEUED):
        return s.enter(Phase.STARTING, "its queue lets it run")
    if stopped := _stopped_since(s, has_run=_has_run(s)):
        return stopped
    if s.root.attempt < s.status.attempt or s.stopped_by_us:  # a start may be more than one write
        return _start(s)
    if faulted := held_after_return(s) or _faulted_again(s):
        return faulted
    running = _running(s)
    if running >= max(s.root.world, 1):  # what an object below the root says may come later
        return s.enter(Phase.CONFIRMING, f"{running} {s.terms.member}s run", attempts=_with_places(s))
    made = len(with_seats(members(s.view), s.root))
    waited = s.now - _started_at(s)
    if unmade := _held_unmade(s, made, running, waited):
        return unmade
    deadline = _deadline(s)
    if waited >= deadline:
        cause = Cause(
            kind=CauseKind.SOFTWARE,
            message=f"only {running} of {s.root.world} {s.terms.member}s ran after {short_duration(waited)}",
            at=s.now,
        )
        return _again(s, [cause])
    missing = "" if made >= s.root.world else f"; {s.root.ref.kind} {s.root.ref.name} has made {made} so far"
    message = f"{running} of {s.root.world} {s.terms.member}s run{missing}"
    late, until_next = stranded(s.view, s.now)
    until = [deadline - waited, until_next, MADE_WITHIN - waited if waited < MADE_WITHIN else None]
    return _helped(s, late) or Decision(reason=message, recheck=min(each for each in until if each))


def _deadline(s: Situation) -> timedelta:
    """A gang that could run with fewer members waits less long for a node that it hoped to have again."""
    return s.policy.start_deadline / 3 if grows_back(s.recovery) else s.policy.start_deadline


def _held_by_queue(s: Situation) -> str:
    """Why it cannot start yet, or has started and does not run; empty where no queue is in the way."""
    if s.stopped_by_us and s.root.holds_quota:
        return "the quota that it had before its stop is not back yet"
    return s.root.unadmitted


def _queued(s: Situation, why: str) -> Decision:
    """Its queue takes a moment to let it run again, or as long as others have its quota."""
    waited = s.now - (s.status.phase_since or s.now)
    if s.status.phase is not Phase.HELD and waited < ADMITTED_WITHIN:
        return Decision(reason=why, recheck=ADMITTED_WITHIN - waited)
    return s.hold(f"{QUEUED}: {why}")


def _held_unmade(s: Situation, made: int, running: int, waited: timedelta) -> Decision | None:
    """
    Hold while nothing makes a member, or none beside those that run: a quota may have room for some of them. None: they
    are made, there is time yet, or it may start with fewer instead.
    """
    is_held = is_held_as(s.status, NOT_MADE)
    lives = any(not is_terminal(pod) for pod in s.view.pods)  # also one that did not get its attempt
    if running < made or made >= s.root.world or (lives and not made):
        return s.enter(Phase.STARTING, f"its {s.terms.member}s are made") if is_held else None
    lacked_before = any(each.lacked_members for each in s.status.attempts[:-1])  # then it is no matter of patience
    within = _deadline(s) if made and not lacked_before else MADE_WITHIN
    if (waited < within and not is_held) or grows_back(s.recovery):
        return None
    what = f"{s.root.ref.kind} {s.root.ref.name} has made {made or 'none'} of {s.root.world}"
    return s.hold(f"{NOT_MADE}: {what} since its start; its Events say why")


def _started_at(s: Situation) -> datetime:
    """
    Since when members could start: the gang starts some time after this phase began, where the API server or a
    controller was slow. Later than half the deadline it was not started (`_start`), whatever another clock says.
    """
    since = s.status.phase_since or s.now
    delay = s.root.started_at - since if s.root.started_at else timedelta()
    return since + min(max(delay, timedelta()), s.policy.start_deadline / 2)


def _helped(s: Situation, late: int) -> Decision | None:
    """A spare for each of *late* members whose nodes other pods took while the gang was stopped, if there is one."""
    if not late:
        return (
            s.enter(Phase.STARTING, f"every {s.terms.member} has a {s.terms.node}")
            if s.status.phase is Phase.HELD
            else None
        )
    chosen, short = stand_ins(late, s.status, s.view, s.name, s.policy)
    if chosen != s.status.stand_ins:
        pairs = {node: spare for node, spare in chosen.items() if s.status.stand_ins.get(node) != spare}
        step_text = ", ".join(f"{spare} in place of {node}, {_took(s, node)}" for node, spare in pairs.items())
        return s.enter(Phase.STARTING, step_text or "a spare is not needed any more", stand_ins=chosen)
    unclaimed = [
        ClaimSpare(spare, node) for node, spare in chosen.items() if not is_claimed(spare, node, s.view, s.name)
    ]
    if unclaimed:
        return Decision(actions=tuple(unclaimed), reason=f"claim spares for {s.terms.member}s without a {s.terms.node}")
    if not short:
        return None
    if grows_back(s.recovery):
        message = f"it cannot grow back: no node for {short[0]}, {_took(s, short[0])}"
        return _again(s, [Cause(kind=CauseKind.INTERRUPTED, message=message, at=s.now)])
    return s.hold("no spare for " + ", ".join(f"{node}, {_took(s, node)}" for node in short[:3]))


def _took(s: Situation, node: str) -> str:
    pod = (s.view.taken or {}).get(node)
    return f"which {pod} took" if pod else f"where no {s.terms.member} can run"


def _running(s: Situation) -> int:
    return sum(pod.status.phase in ("Running", "Succeeded") for pod in with_seats(members(s.view), s.root))


def _with_places(s: Situation) -> list[Attempt]:
    """The attempts so far; the present one with the real nodes of its members: the scheduler may choose other nodes."""
    places = {index_of(pod, s.root) or pod.metadata.name: pod.spec.node_name for pod in members(s.view)}
    return [replace(each, ran_on=places) if each.number == s.status.attempt else each for each in s.status.attempts]


def _start(s: Situation) -> Decision:
    """The last check before the gang runs: the cluster may have changed since the spares were claimed."""
    if not s.stopped_by_us:
        return s.enter(Phase.SUPERSEDED, f"somebody else started the {s.terms.gang} again")
    if is_premature(s):
        return s.enter(Phase.RESERVING, "a step was seen before the fresh start")
    shrunk, added = left_out_of(s.recovery, s.root), added_members(s.recovery, s.root)
    plan = place(s.status, s.view, s.root, s.name, s.policy, shrunk, added)
    if isinstance(plan, Shortage) or plan.placement != s.status.placement:
        # The intent stays recorded until there is a better one: another controller may start the gang by it now.
        return s.enter(Phase.RESERVING, f"a {s.terms.node} of the plan went bad before the start")
    own_size = next((a.shrunk.size for a in s.status.attempts if a.number == s.status.attempt and a.shrunk), None)
    left_out = record_of(plan.placement, plan.left_out, s.root, shrunk)
    if own_size != (left_out.size if left_out else None):  # else it would grow to a size that its owner gave up
        return s.enter(Phase.RESERVING, f"the size of the {s.terms.gang} was changed before the start")
    if s.now - (s.status.phase_since or s.now) >= s.policy.start_deadline / 2:
        # Members get the whole deadline, also when the API server, or a clock that was set, delayed the start.
        return s.enter(Phase.STARTING, "the start was held up")
    hint = StartHint(
        recovery=s.name,
        attempt=s.status.attempt,
        checkpoint=s.status.checkpoint or ChosenCheckpoint(),
        placement=s.status.placement,
        own_size=own_size,
    )
    return Decision(actions=(StartGang(hint),), reason=f"start attempt {s.status.attempt}")


def confirming(s: Situation) -> Decision:
    """Lasts until training is past the checkpoint or, where steps cannot be seen, until it has run for long enough."""
    decision = _confirming(s)
    return report_unread(s) or decision if decision.waits else decision


def _stopped_since(s: Situation, *, has_run: bool) -> Decision | None:
    """Stop it as a further attempt, where the record is older than that stop: it was deleted, and made again."""
    if not (has_run and s.stopped_by_us and s.root.attempt == s.status.attempt):
        return None
    message = f"the {s.terms.gang} was stopped again; the record of why was deleted"
    return _again(s, [Cause(kind=CauseKind.INTERRUPTED, message=message, at=s.now)])


def _has_run(s: Situation) -> bool:
    """
    Whether it was stopped since its start, and not only half started. Where one write gives it the attempt and lets it
    run, its start was whole. In a queue two writes do that: then its controller has not done all of the stop yet, or a
    member has ended or will.
    """
    if not s.root.queue:
        return True
    placed = [pod for pod in members(s.view) if pod.spec.node_name]
    return not s.root.stopped or any(is_terminal(pod) or pod.metadata.deletion_timestamp is not None for pod in placed)


def _confirming(s: Situation) -> Decision:
    if stopped := _stopped_since(s, has_run=True):
        return stopped
    if held := held_after_return(s):
        return held
    resumed = s.status.checkpoint or ChosenCheckpoint()
    newest = s.view.newer.found if s.view.newer else None
    if newest is not None and is_beyond(newest, resumed):
        return s.enter(Phase.RECOVERED, _moved_on(newest), confirmed_step=newest.step)
    if in_vain := _hangs_in_same_place(s):
        return in_vain
    if faulted := _faulted_again(s):
        return faulted
    waited = s.now - (s.status.phase_since or s.now)
    if s.root.options.checkpoint:
        return _without_a_step(s) or Decision(reason=f"waiting for a checkpoint beyond {step_text(resumed)}")
    if waited >= s.policy.confirm_after:
        return s.enter(
            Phase.RECOVERED, f"every {s.terms.member} has run for {short_duration(waited)}; its steps cannot be seen"
        )
    return Decision(reason="waiting for sustained activity", recheck=s.policy.confirm_after - waited)


def _hangs_in_same_place(s: Situation) -> Decision | None:
    """
    Hold where a restart for a hang would end in the same hang. The processes stay as they are, for a look at them.

    It goes on when it does not hang any more, or has another fault.
    """
    if any(fault.kind is not CauseKind.HANG for fault in s.faults):
        return None
    if waits_in_same_place(s.status):
        if s.faults or s.view.silence is not None:  # a silence may become too long to be restarted for, and goes on
            return Decision(reason=s.status.message)
        return s.enter(Phase.CONFIRMING, f"the {s.terms.gang} does not hang any more")
    why = next((why for each in s.faults if (why := in_same_place(each, s.status.causes, s.terms))), "")
    return s.hold(why) if why else None


def _moved_on(newest: ChosenCheckpoint) -> str:
    return f"training moved on to step {newest.step}" if newest.step >= 0 else f"training saved {newest.path} again"


def _without_a_step(s: Situation) -> Decision | None:
    """
    A gang that saves its first step after hours, or never, has recovered when it is still active after a while.

    When the gang's rhythm is known, the recovery waits for a step: silence is then a hang.
    """
    if s.root.progress.intervals or s.view.last_activity is None or _running(s) < s.root.world:
        return None
    lived = s.view.last_activity - (s.status.phase_since or s.now)
    if lived < s.policy.confirm_after:
        return None
    return s.enter(
        Phase.RECOVERED,
        f"every {s.terms.member} runs and shows life after {short_duration(lived)}; no new step was seen yet",
    )


def _faulted_again(s: Situation) -> Decision | None:
    """A fault of the attempt that this recovery started joins the recovery, and the gang is stopped again."""
    if not s.faults:
        return None
    # The most significant faults come first; ranks that fail beside a broken GPU are only consequences.
    causes = [fault for fault in s.faults if fault.kind is s.faults[0].kind]
    by_itself = causes[0].kind is CauseKind.SOFTWARE and not could_not_write(s.view)
    return _again(s, causes, early=by_itself and _is_early(s))


def _again(s: Situation, causes: Sequence[Cause], *, early: bool = False) -> Decision:
    lacked = _lacks_members(s)
    attempts = [
        replace(each, failed_early=early, lacked_members=lacked) if each.number == s.status.attempt else each
        for each in s.status.attempts
    ]
    uncounted = f"; its {s.terms.member}s were not all made, so this restart does not count" if lacked else ""
    return s.enter(
        Phase.STOPPING,
        f"again, {causes[0].kind}: {causes[0].message}{uncounted}",
        causes=[*s.status.causes, *causes],
        attempt=s.status.attempt + 1,
        pods=members_to_fence(s),
        attempts=attempts,
        bad_state=False,
        not_before=None,
        stand_ins={},
    )


def _is_early(s: Situation) -> bool:
    """
    Whether the fault came while members start and load, or before they ran for `confirm_after`.

    A controller that was away sees the failure late. So the times of the kubelets count, too. What members do that wait
    in vain for others, which are not made, says nothing of the checkpoint.
    """
    if _lacks_members(s):
        return False
    if s.status.phase is Phase.STARTING or s.now - (s.status.phase_since or s.now) < s.policy.confirm_after:
        return True
    runs = [_lived(status.state, s.now) for pod in members(s.view) for status in pod.status.container_statuses]
    longest = max((run for run in runs if run is not None), default=None)
    return longest is not None and longest < s.policy.confirm_after


def _lacks_members(s: Situation) -> bool:
    """
    Whether some of its members were never made, long after its start: those that run end by their own time-outs.

    Soon after its start this says nothing: a program that always ends at once may do so before the last one is made.
    """
    is_late = s.status.phase is Phase.HELD or s.now - _started_at(s) >= MADE_WITHIN
    if s.phase is not Phase.STARTING or not is_late:
        return False
    made = with_seats((*members(s.view), *members(replace(s.view, pods=s.view.deleted))), s.root)
    return len({index_of(pod, s.root) or pod.metadata.name for pod in made}) < s.root.world


def _lived(state: ContainerState, now: datetime) -> timedelta | None:
    """How long a container runs or ran; None: not known."""
    if state.running is not None:
        return now - state.running.started_at if state.running.started_at else None
    return ran(state.terminated) if state.terminated is not None else None
