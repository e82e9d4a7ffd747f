"""
The next action for one pod of this machine, and the status to report: the decisions of its kubelet. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import Condition, ContainerState, ContainerStatus, Pod, PodStatus, Running, Terminated
from healthd.core.recovery.members import is_terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How a rank ended. That it exists is the proof that no process of the rank is left."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    """
    `Completed`, `Error`, `OOMKilled`, `DiskFull`, `NotWritable`, `StartError`, `Lost`, `EndedWithHealthd` or
    `NeverStarted`.
    """
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """The known state of a pod's processes: not yet running (no *pid*), running, or ended."""

    pid: int = 0
    ending: RankExit | None = None
    ended_at: datetime | None = None
    """When its end was first seen. The state may have had no room for it then."""


@dataclass(frozen=True, slots=True)
class Start:
    """Run the command of the pod."""


@dataclass(frozen=True, slots=True)
class StopRank:
    """SIGTERM now, SIGKILL after *grace*."""

    grace: timedelta


@dataclass(frozen=True, slots=True)
class EndLost:
    """Make sure that no process of a pod is left that an earlier healthd may have started."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write this status."""

    status: PodStatus


@dataclass(frozen=True, slots=True)
class Remove:
    """Complete the requested deletion: no process of the pod is left."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now."""


Act = Start | StopRank | EndLost | WriteStatus | Remove | Wait


def decide_pod(pod: Pod, rank: RankView | None, *, may_start: bool, begun_here: bool, now: datetime) -> Act:
    """
    The next action for a pod that is bound to this machine.

    *may_start*: its slot is free, and the GPUs for its process are known. *begun_here*: this healthd has written the
    start of the pod. A start time that it did not write is from an earlier healthd, whose processes must be proven
    gone. They are never started a second time under the same uid.
    """
    if is_terminal(pod):
        return _decide_ended(pod, rank)
    if rank is None:
        return _decide_unstarted(pod, may_start=may_start, begun_here=begun_here, now=now)
    if rank.ending is not None:
        return WriteStatus(ended(pod, rank.ending, rank.ended_at or now))
    if pod.metadata.deletion_timestamp is not None:
        return StopRank(max(timedelta(0), pod.metadata.deletion_timestamp - now))
    if rank.pid and pod.status.phase != "Running":
        return WriteStatus(running(pod, now))
    return Wait()


def _decide_ended(pod: Pod, rank: RankView | None) -> Act:
    if rank is not None and rank.ending is None:  # another writer reported the end; make it true
        return StopRank(timedelta(0))
    meta = pod.metadata
    if meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds != 0:
        return Remove()
    return Wait()


def _decide_unstarted(pod: Pod, *, may_start: bool, begun_here: bool, now: datetime) -> Act:
    if pod.status.start_time is not None and not begun_here:
        return EndLost()
    if pod.metadata.deletion_timestamp is not None:
        never = RankExit(exit_code=137, reason="NeverStarted", message="deleted before it was started")
        return WriteStatus(ended(pod, never, now))
    return Start() if may_start else Wait()


def begun(pod: Pod, now: datetime) -> PodStatus:
    """The status written before the start: a later reader knows that there may be processes."""
    scheduled = with_condition(pod.status.conditions, Condition(type="PodScheduled", status="True"), now)
    start_time = pod.status.start_time or now
    return msgspec.structs.replace(pod.status, phase="Pending", start_time=start_time, conditions=scheduled)


def running(pod: Pod, now: datetime) -> PodStatus:
    """The status while the command runs."""
    state = ContainerState(running=Running(started_at=now))
    return msgspec.structs.replace(
        pod.status,
        phase="Running",
        start_time=pod.status.start_time or now,
        container_statuses=_containers(pod, state, ready=True),
        conditions=with_condition(pod.status.conditions, Condition(type="Ready", status="True"), now),
    )


def ended(pod: Pod, ending: RankExit, now: datetime) -> PodStatus:
    """The status when the command has ended and no process of it is left: the proof for the fence."""
    terminated = Terminated(
        exit_code=ending.exit_code,
        signal=ending.signal,
        reason=ending.reason,
        message=ending.message,
        started_at=_started_at(pod),
        finished_at=now,
    )
    succeeded = ending.exit_code == 0
    return msgspec.structs.replace(
        pod.status,
        phase="Succeeded" if succeeded else "Failed",
        reason="" if succeeded else ending.reason,
        message=ending.message,
        container_statuses=_containers(pod, ContainerState(terminated=terminated), ready=False),
        conditions=with_condition(
            pod.status.conditions, Condition(type="Ready", status="False", reason=ending.reason), now
        ),
    )


def with_condition(conditions: Sequence[Condition], new: Condition, now: datetime) -> list[Condition]:
    """*conditions* with *new* in the place of its type. Its transition time changes only when its status changes."""
    before = next((c for c in conditions if c.type == new.type), None)
    since = before.last_transition_time if before is not None and before.status == new.status else now
    dated = msgspec.structs.replace(new, last_transition_time=since)
    if before is None:
        return [*conditions, dated]
    return [dated if c.type == new.type else c for c in conditions]


def _containers(pod: Pod, state: ContainerState, *, ready: bool) -> list[ContainerStatus]:
    return [ContainerStatus(name=c.name, ready=ready, state=state) for c in pod.spec.containers[:1]]


def _started_at(pod: Pod) -> datetime | None:
    """The start time. A rank that ended before it was reported as running has at least a written start."""
    states = [status.state.running for status in pod.status.container_statuses]
    return next((state.started_at for state in states if state is not None), pod.status.start_time)
