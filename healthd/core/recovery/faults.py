"""
Finds the faults of a running gang: broken hardware under it, a rank that failed by itself, or a hang.

Only members of the root's present attempt count. A member that was lost before the root was last started does not
count: a user may have suspended and resumed the gang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import cache

from msgspec.structs import replace

from healthd.core.api import Cause, Node, NodeHealth, Pod, Terminated
from healthd.core.api.model import CauseKind, Verdict
from healthd.core.config import HangPolicy
from healthd.core.node.quarantine import read_record, repaired_at
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.hangs.gang_silence import a_rank_works
from healthd.core.recovery.hangs.suspicion import hang_cause
from healthd.core.recovery.members import deletion_asked_at, index_of, members, with_seats
from healthd.core.recovery.nodes.foreign_signs import Effect, Sign
from healthd.core.recovery.progress import NO_PROGRESS, has_rhythm, is_past_waiting, output_allowed, silence_allowed
from healthd.core.recovery.terms import Terms

LATE = 2.0
"""A step is late after this many times the longest interval between two steps: a gang that lost a node makes no more
steps."""
FAULT_BEFORE = timedelta(minutes=15)
"""A root that failed so long after a node broke did not fail because of that. A node that is not reachable is emptied
after five minutes."""
FAULT_AFTER = timedelta(minutes=2)
"""A fault may be reported after the ranks have died of it: clocks differ, and some sources are read once a minute."""
FAILED_LATELY = timedelta(hours=1)
"""What failed earlier is an old story: its owner has seen it."""
WORKED_LATELY = timedelta(minutes=1)
"""Within this time of its last work a member is taken to work still: it may pause in each long step."""
RAN = timedelta(minutes=2)
"""A container that ended sooner and restarts is still starting: it may wait for its peers or for their DNS names."""
DISK_FULL = "DiskFull"
"""Pod reason under `healthd run`: the rank had no disk space to write. The checkpoint that it loaded is not at
fault."""
NOT_WRITABLE = "NotWritable"
"""Pod reason under `healthd run`: the rank could not write, as to a file system that is read-only. The same is true of
its checkpoint."""
LOST = "Lost"
"""Pod reason: the supervisor of its processes went away, and the processes were ended for that."""
ENDED_WITH_HEALTHD = "EndedWithHealthd"
"""Pod reason under `healthd run`: healthd was killed, or the machine restarted. A person has started healthd again."""


def find_faults(view: GangView, policy: HangPolicy, now: datetime) -> list[Cause]:
    """
    Every fault of the present attempt, the most significant first: hardware, then interruption, software, hang.

    A member on a bad node is a hardware fault, whether or not its process is dead yet. So the cascade of failing ranks
    that follows a dead GPU is not taken for a software fault.
    """
    if view.root is not None and view.root.ending is RootOutcome.FAILED:
        return _behind_failure(view, view.root, now)
    if not _is_going(view.root):
        return []
    pods = _unfinished(view)
    bad_nodes = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    causes = [cause for name in bad_nodes if (cause := node_fault(name, view, now))]
    blamed = {cause.node for cause in causes}
    lost = _lost_of(pods, view)
    causes += [_rank_failure(pod, view, now) for pod in lost if pod.spec.node_name not in blamed]
    causes += [_gone(index, now) for index in (view.root.gone if view.root else ())]
    if not causes and (hang := _hang(view, members(view), policy, now)):
        causes.append(hang)
    return sorted(causes, key=_significance)


def _behind_failure(view: GangView, root: Root, now: datetime) -> list[Cause]:
    """
    The broken nodes because of which *root* failed for good, a moment ago; empty where none is to blame.

    Its members are stopped and deleted by its own controller, so the last states of those that are gone count as well.
    """
    at = root.failure.at if root.failure else None
    is_its_users = root.suspended and not root.stopped_by
    if at is None or root.deleting or root.invalid or is_its_users or now - at > FAILED_LATELY:
        return []
    ran = [pod for pod in (*members(view), *members(replace(view, pods=view.deleted))) if pod.spec.node_name]
    causes = {name: node_fault(name, view, now) for name in sorted({pod.spec.node_name for pod in ran})}
    return [
        cause
        for name, cause in causes.items()
        if cause is not None
        and may_have_ended(cause, root)
        and any(_was_there(pod, cause.at) for pod in ran if pod.spec.node_name == name)
    ]


def may_have_ended(cause: Cause, root: Root) -> bool:
    """
    Whether *root* failed for good because of the broken node in *cause*, by the times of both.

    A gang is stopped within seconds of a fault. One that ran on for long beside it failed for another reason.
    """
    at = root.failure.at if root.failure else None
    return at is not None and blames_node(cause) and -FAULT_BEFORE <= cause.at - at <= FAULT_AFTER


def _was_there(pod: Pod, at: datetime) -> bool:
    """Whether it ran until then: a member that had ended before, and was replaced, did not suffer from the fault."""
    lost = _lost_at(pod)
    return pod.status.phase != "Succeeded" and (lost is None or lost >= at - FAULT_AFTER)


def lost_members(view: GangView) -> list[Pod]:
    """Members of the present attempt that failed or were deleted: the other members wait for them without end."""
    return _lost_of(_unfinished(view), view)


def could_not_write(view: GangView) -> bool:
    """Whether a member ended because it had no room, or no permission, to write: another checkpoint would not help."""
    return any(pod.status.reason in (DISK_FULL, NOT_WRITABLE) for pod in members(view))


def _lost_of(unfinished: Sequence[Pod], view: GangView) -> list[Pod]:
    return [*filter(_is_lost, unfinished), *_made_again(view)]


def _made_again(view: GangView) -> list[Pod]:
    """
    The last known states of members that are gone and were created again while other members kept running.

    A StatefulSet creates a pod again at once, maybe between two reads of healthd. When every member that runs was
    created later, the whole gang was created again, and the earlier members are history. Members that are only being
    removed, as after a stop by the user, do not show that any kept running.
    """
    if not view.deleted:
        return []
    present, root = members(view), view.root
    made = [at for pod in present if not _is_lost(pod) and (at := pod.metadata.creation_timestamp) is not None]
    if root is None or not made:
        return []
    gone = [pod for pod in members(replace(view, pods=view.deleted)) if pod.status.phase != "Succeeded"]
    missed = [pod for pod in gone if (lost := _lost_at(pod)) is not None and lost > min(made)]
    missed = [pod for pod in missed if pod.metadata.uid not in view.resized_away]
    standing = _standing(present, root)
    return [pod for pod in with_seats(missed, root) if not _is_history(pod, standing, root)]


def _is_going(root: Root | None) -> bool:
    return root is not None and not (root.suspended or root.deleting or root.invalid) and root.has_begun


def _unfinished(view: GangView) -> list[Pod]:
    """
    Members of the present attempt, without those that succeeded and those that are history.

    Also without those that go, or will go, because their owner made the gang smaller: no member waits for them.
    """
    present, root = members(view), view.root
    if root is None:
        return []
    standing = _standing(present, root)
    here = [pod for pod in present if pod.status.phase != "Succeeded" and not _is_history(pod, standing, root)]
    here = [pod for pod in here if not (pod.metadata.uid in view.resized_away and pod.metadata.deletion_timestamp)]
    return with_seats(here, root) if len(here) > root.world or any(map(_is_lost, here)) else here


_BY_PRIORITY = [
    CauseKind.HARDWARE,
    CauseKind.INTERRUPTED,
    CauseKind.SOFTWARE,
    CauseKind.HANG,
    CauseKind.MAINTENANCE,
    CauseKind.STRAGGLER,
    CauseKind.CAPACITY,
]


def _significance(cause: Cause) -> tuple[bool, int]:
    """Ranks that ended together with healthd come last: what was on record before that has a reason of its own."""
    return cause.healthd_ended, _BY_PRIORITY.index(cause.kind)


def blames_node(cause: Cause) -> bool:
    """Whether the node under a member is to blame, and not the program on it."""
    return cause.kind is CauseKind.HARDWARE or bool(cause.node)


def cause_text(cause: Cause) -> str:
    """A cause in words, with its node: a finding names a part of the node alone."""
    text = cause.message.removesuffix(".")
    return f"{cause.node}: {text}" if cause.node and cause.node not in text else text


def node_fault(name: str, view: GangView, now: datetime) -> Cause | None:
    """Why no member may stay on node *name*, which the cause blames; None while it is fit or its health is unknown."""
    node = view.nodes.get(name)
    if node is None:
        return Cause(
            kind=CauseKind.HARDWARE,
            node=name,
            message=f"{view.terms.node} {name} is gone",
            at=now,
        )
    if record := read_record(node):
        return Cause(
            kind=CauseKind.HARDWARE,
            node=name,
            finding=record.finding,
            message=view.terms.worded(record.message),
            at=record.since,
        )
    health = view.health.get(name)
    if health is not None and health.status.verdict is Verdict.UNHEALTHY and not _repaired_since(node, health):
        return _unhealthy(node, health, view.terms, now)
    return _foreign(view, name, now)


def _foreign(view: GangView, name: str, now: datetime) -> Cause | None:
    """What another detector reports. A silent kubelet is no fault while the gang still makes steps without it."""
    sign = view.sign_on(name)
    if sign is None or sign.effect is not Effect.RESTART or (sign.of_readiness and _still_advances(view, sign, now)):
        return None
    return Cause(kind=sign.cause, node=name, finding=sign.row, message=sign.message, at=sign.since or now)


def _still_advances(view: GangView, sign: Sign, now: datetime) -> bool:
    """The gang made a step since the sign appeared, and its next step is not late yet by its own rhythm."""
    progress = view.root.progress if view.root else NO_PROGRESS
    if progress.at is None or sign.since is None or progress.at <= sign.since or not progress.intervals:
        return False
    return now - progress.at <= timedelta(seconds=LATE * max(progress.intervals))


def _repaired_since(node: Node, health: NodeHealth) -> bool:
    """A person has declared a repair after these faults, and the agent, which judges anew then, has not seen it yet."""
    repaired, seen = repaired_at(node), health.status.repair_seen
    if repaired is None or (seen is not None and seen.stamp == repaired):
        return False
    return all(f.last_at <= repaired for f in health.status.findings if f.quarantines and f.cleared_at is None)


def _unhealthy(node: Node, health: NodeHealth, terms: Terms, now: datetime) -> Cause:
    worst = next((f for f in health.status.findings if f.quarantines and f.cleared_at is None), None)
    return Cause(
        kind=CauseKind.HARDWARE,
        node=node.metadata.name,
        finding=worst.id if worst else "",
        message=terms.worded(worst.message if worst else health.status.message),
        at=worst.raised_at if worst else now,
    )


def _standing(present: Sequence[Pod], root: Root) -> Callable[[], Collection[str]]:
    """The indexes of those that are not lost. They are looked up when they are asked for first, once for all pods."""
    return cache(lambda: frozenset(index_of(pod, root) for pod in present if not _is_lost(pod)))


def _is_history(pod: Pod, standing: Callable[[], Collection[str]], root: Root) -> bool:
    """
    Deleted before the root was last started, or failed before that and replaced since.

    The times come from clocks of different machines. A rank that fails right at its start may seem to have failed
    before the start. Such a rank is not replaced yet, and it counts.

    They are whole seconds. A gang that its user stopped and started within one loses its pods in the second in which it
    is started: then it matters whether the pod was made before.
    """
    lost, started = _lost_at(pod), root.started_at
    if lost is None or started is None or lost > started:
        return False
    made = pod.metadata.creation_timestamp
    if lost == started and (made is None or made >= started):
        return False
    return pod.metadata.deletion_timestamp is not None or index_of(pod, root) in standing()


def _lost_at(pod: Pod) -> datetime | None:
    ends = [status.state.terminated for status in pod.status.container_statuses if status.state.terminated]
    ends += [end for end in [_ended_before(pod)] if end is not None]
    moments = [end.finished_at for end in ends if end.finished_at is not None]
    if (asked := deletion_asked_at(pod)) is not None:
        moments.append(asked)
    return min(moments, default=None)


def _is_lost(pod: Pod) -> bool:
    """Failed, deleted under the running gang, or restarted alone: in each case the others wait for it without end."""
    return pod.status.phase == "Failed" or pod.metadata.deletion_timestamp is not None or _ended_before(pod) is not None


def _ended_before(pod: Pod) -> Terminated | None:
    """How a container ended that had run for a while and that its kubelet restarted: it lost its state."""
    ends = [status.last_state.terminated for status in pod.status.container_statuses if status.restart_count]
    return next((end for end in ends if end is not None and (ran(end) or timedelta(0)) >= RAN), None)


def ran(end: Terminated) -> timedelta | None:
    """How long a container ran, by the clock of its kubelet; None: not known."""
    return end.finished_at - end.started_at if end.finished_at and end.started_at else None


def _gone(index: str, now: datetime) -> Cause:
    return Cause(kind=CauseKind.INTERRUPTED, message=f"{index} is gone, and nothing creates it again", at=now)


def _rank_failure(pod: Pod, view: GangView, now: datetime) -> Cause:
    ended = next((s.state.terminated for s in pod.status.container_statuses if s.state.terminated), _ended_before(pod))
    deleted = pod.metadata.deletion_timestamp is not None
    ended_with_healthd = pod.status.reason == ENDED_WITH_HEALTHD
    is_lost = pod.status.reason == LOST or ended_with_healthd
    kind = CauseKind.INTERRUPTED if deleted or is_lost else CauseKind.SOFTWARE
    how = "was deleted" if deleted else pod.status.message or pod.status.reason
    if ended is not None and kind is CauseKind.SOFTWARE:
        # The pod's message adds to the exit code: the command was not found, or the memory ran out.
        message = f": {pod.status.message}" if pod.status.message and pod.status.reason not in ("", "Error") else ""
        how = (
            f"was killed (signal {ended.signal})" if ended.signal else f"exited with code {ended.exit_code}"
        ) + message
        how += _after_early_end(view, ended.finished_at)
    return Cause(
        kind=kind,
        message=f"{view.terms.named(pod.metadata.name, index_of(pod, view.root))} {how}",
        at=ended.finished_at if ended and ended.finished_at else now,
        healthd_ended=ended_with_healthd,
    )


def _after_early_end(view: GangView, at: datetime | None) -> str:
    """Which rank had ended well before, where one had: the others lost their peer then, and may fail because of it."""
    ends = [
        (end.finished_at, pod)
        for pod in members(view)
        if pod.status.phase == "Succeeded" and pod.metadata.deletion_timestamp is None
        for end in (status.state.terminated for status in pod.status.container_statuses)
        if end is not None and end.finished_at is not None
    ]
    earlier = [(ended, pod) for ended, pod in ends if at is not None and ended < at]
    if not earlier:
        return ""
    _, pod = min(earlier, key=lambda each: each[0])
    return f", after {view.terms.named(pod.metadata.name, index_of(pod, view.root))} had exited with code 0"


def _hang(view: GangView, present: Sequence[Pod], policy: HangPolicy, now: datetime) -> Cause | None:
    """
    A hang is also found when some members have finished: members that wait for them wait for ever.

    Silent members are believed once the gang has saved a few times: by then its usual pauses are known. Most silences
    end by themselves, so they have to last.
    """
    root = view.root
    if root is None or not policy.enabled or len(present) < root.world:
        return None
    if {pod.status.phase for pod in present} - {"Succeeded"} != {"Running"}:
        return None
    is_known = has_rhythm(root.progress)
    silence = view.silence if is_known else None
    if silence is not None and is_past_waiting(silence, root.progress, policy, root.attempt, now):
        return hang_cause(silence, root.progress.step, view.terms, now)
    overdue = _overdue_step if is_known else _overdue_first_steps
    message = overdue(view, root, policy, now)
    if not message:
        return None
    if view.silence is None:
        return Cause(kind=CauseKind.HANG, message=message, at=now)
    known = hang_cause(view.silence, root.progress.step, view.terms, now)
    return replace(known, message=f"{message}; {known.message}")


def _overdue_first_steps(view: GangView, root: Root, policy: HangPolicy, now: datetime) -> str:
    """
    Why the first steps of *root* will not come, for a person; empty: they may.

    It may save for the first time in hours, and print nothing until then. Only one sign shows that it hangs: it does
    nothing at all, where that can be observed.
    """
    allowed = silence_allowed(root.progress, policy, root.attempt)
    seen = _last(root.progress.at, view.last_activity, root.started_at, view.last_work)
    if seen is None or view.last_work is None:
        return ""
    lasted = now - seen - view.missed_since(seen)
    if lasted <= allowed:
        return ""
    return (
        f"no rank has printed or done anything for {_seconds(lasted)}, more than the {_seconds(allowed)} that a "
        f"{view.terms.gang} may take for its first steps (hang.first_step): they wait for each other, or for something "
        "that never comes"
    )


def _overdue_step(view: GangView, root: Root, policy: HangPolicy, now: datetime) -> str:
    """
    Why the next step of *root*, whose rhythm is known, will not come, for a person; empty: it may.

    While a member works as usual, the first evaluation or export may take as long as the first steps. Not longer: a
    member that is caught in a loop may look the same.
    """
    allowed = silence_allowed(root.progress, policy, root.attempt)
    seen = _last(root.progress.at, view.last_activity, root.started_at)
    if seen is None:
        return ""
    lasted = now - seen - view.missed_since(seen)
    if lasted <= allowed:
        return _only_prints(view, root, policy, now)
    if not _works(view, now):
        most = f"the {_seconds(allowed)} that its own rhythm allows"
        return f"no new step and no sign of life for {_seconds(lasted)}, more than {most}"
    allowed = max(allowed, policy.first_step)
    if lasted <= allowed:
        return ""
    most = f"{_seconds(allowed)}, though a {view.terms.member} works as usual"
    return f"no new step for {_seconds(lasted)}, more than {most}"


def _only_prints(view: GangView, root: Root, policy: HangPolicy, now: datetime) -> str:
    """
    Why output does not show that *root* lives, for a person; empty: it does.

    It does for any time, unless all members do next to nothing else: they may print only that they try again.
    """
    allowed, inactive = output_allowed(root.progress, policy, root.attempt), view.inactive_for
    seen = _last(root.progress.at, root.started_at)
    if inactive is None or inactive <= allowed or seen is None or now - seen <= allowed:
        return ""
    return (
        f"no new step for {_seconds(now - seen)}, and hardly anything but output for {_seconds(inactive)}, more than "
        f"the {_seconds(allowed)} for which that is a sign of life"
    )


def _last(*signs: datetime | None) -> datetime | None:
    return max((sign for sign in signs if sign is not None), default=None)


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.0f} s"


def _works(view: GangView, now: datetime) -> bool:
    """Whether a member works as usual, by its samples here or by what the agent of its node publishes."""
    is_silent = view.silence is not None  # its newest work is not long ago, and still it works no more
    works_here = not is_silent and view.usual_work is not None and now - view.usual_work <= WORKED_LATELY
    return works_here or a_rank_works(view, now)
