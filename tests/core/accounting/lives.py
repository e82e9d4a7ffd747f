"""What is recorded of a gang's life: roots, members and recoveries, by minutes since the start of time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from healthd.core.accounting.timeline import milliseconds, totals
from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    Attempt,
    Cause,
    ChosenCheckpoint,
    Container,
    Pod,
    PodStatus,
    Recovery,
    RecoveryStatus,
    TimelineEntry,
)
from healthd.core.api.gpu_time import GangState, GpuTime
from healthd.core.api.kubernetes.pods import ContainerResources
from healthd.core.api.model import CauseKind, Phase
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.members import LABEL_OWN_RESTART
from healthd.core.recovery.progress import Progress
from tests.builders import a_cause, a_pod, a_recovery
from tests.core.gangs import a_root
from tests.fakes import START

MINUTE = 60_000
XID_79 = "0000:3b:00.0/xid-79"


def at(minutes: float) -> datetime:
    """A moment."""
    return START + timedelta(minutes=minutes)


def ms(minutes: float) -> int:
    """The same as an account has it."""
    return milliseconds(at(minutes))


def gpu_minutes(account: GpuTime) -> dict[str, float]:
    """The amounts of *account* in minutes of one GPU."""
    return {name: amount / MINUTE for name, amount in totals(account).items() if amount}


def an_account(**fields: Any) -> GpuTime:
    """Of a gang of two members and 16 GPUs that began at minute 0 and runs."""
    known: dict[str, Any] = {
        "since": ms(0),
        "start": ms(0),
        "state": GangState.RUNNING,
        "run_since": ms(0),
        "stepped": True,
        "world": 2,
        "full_world": 2,
        "gpus": 16,
    }
    return GpuTime(**known | fields)


def members(
    number: int = 2, *, gpus: int = 8, phase: str = "Running", attempt: int = 0, own_restart: int = 0
) -> tuple[Pod, ...]:
    """Members of a gang, with so many GPUs each."""
    resources = ContainerResources(limits={"nvidia.com/gpu": str(gpus)} if gpus else {})
    status, notes = PodStatus(phase=phase), {ANNOTATION_ATTEMPT: str(attempt)}
    container, labels = Container(resources=resources), {LABEL_OWN_RESTART: str(own_restart)}
    return tuple(
        a_pod(f"rank-{index}", index=index, container=container, status=status, annotations=notes, labels=labels)
        for index in range(number)
    )


def a_view(root: Root | None = None, pods: Sequence[Pod] | None = None) -> GangView:
    """What is observed of a gang whose members run."""
    root = root or a_root()
    running = members(root.world, attempt=root.attempt, own_restart=root.own_restarts)
    return GangView(root=root, pods=running if pods is None else tuple(pods))


def seen(step: int, minutes: float, *, every: float | None = None) -> Progress:
    """The step that was seen last, of a gang that saves so often."""
    return Progress(step=step, at=at(minutes), intervals=[every * 60] * 3 if every else [])


def xid(minutes: float) -> Cause:
    """A GPU falls off the bus."""
    return replace(a_cause(CauseKind.HARDWARE, node="node-a", finding=XID_79), at=at(minutes))


def crash(minutes: float) -> Cause:
    """A rank ends by itself."""
    return replace(a_cause(CauseKind.SOFTWARE), at=at(minutes))


def saved(step: int, minutes: float) -> ChosenCheckpoint:
    """A checkpoint."""
    return ChosenCheckpoint(path=f"/step_{step}", step=step, saved_ns=ms(minutes) * 1_000_000)


def a_life(
    phases: Sequence[tuple[float, Phase]],
    *,
    causes: Sequence[Cause],
    resumed: Sequence[ChosenCheckpoint] = (),
    confirmed: int = -1,
    messages: dict[int, str] | None = None,
) -> Recovery:
    """A recovery with these phases (minute, phase), which started an attempt from each of *resumed*."""
    timeline = [
        TimelineEntry(phase=phase, at=at(minutes), message=(messages or {}).get(number, ""))
        for number, (minutes, phase) in enumerate(phases)
    ]
    attempts = [Attempt(number=number, checkpoint=each) for number, each in enumerate(resumed, start=1)]
    status = RecoveryStatus(
        phase=timeline[-1].phase,
        timeline=timeline,
        causes=list(causes),
        attempts=attempts,
        checkpoint=resumed[-1] if resumed else None,
        confirmed_step=confirmed,
    )
    return a_recovery(cause=causes[0], status=status)
