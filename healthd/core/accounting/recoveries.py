"""A recovery in a gang's account: the work that it takes back, and the time of each of its phases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.accounting.causes import loss_cause
from healthd.core.accounting.timeline import extend, milliseconds, take_back
from healthd.core.api import Cause, ChosenCheckpoint, Recovery, RecoveryStatus, TimelineEntry
from healthd.core.api.gpu_time import GangState, GpuTime, LossCause, Part
from healthd.core.api.model import Hold, Phase
from healthd.core.recovery.holds import hold_of

PARTS: Mapping[Phase, Part] = {
    Phase.DETECTED: Part.DETECTED,
    Phase.STOPPING: Part.STOPPING,
    Phase.FENCING: Part.FENCING,
    Phase.CHOOSING: Part.CHOOSING,
    Phase.RESERVING: Part.RESERVING,
    Phase.STARTING: Part.STARTING,
}
"""What the time of a phase is."""

WAITING: Mapping[GangState, Part] = {
    GangState.QUEUED: Part.QUEUED,
    GangState.RESTARTING: Part.STARTING,
    GangState.SUSPENDED: Part.SUSPENDED,
    GangState.GAVE_UP: Part.GAVE_UP,
}
"""What the time of a gang is that does not run."""


class Saving(NamedTuple):
    """What is known about the checkpoints of a gang."""

    is_watched: bool = True
    """healthd knows where it saves."""
    usual: int | None = None
    """Milliseconds between two saves; None while its rhythm is not known."""


class Stop(NamedTuple):
    """One stop of the gang by a recovery, with what followed until the next one; a recovery has one or several."""

    entries: Sequence[TimelineEntry]
    causes: Sequence[Cause]
    resumed: ChosenCheckpoint | None
    """The checkpoint that was chosen after it; None: none was."""

    @property
    def begins(self) -> int:
        """When it was noticed."""
        return milliseconds(self.entries[0].at)

    @property
    def stopping(self) -> int:
        """When the stop of the members began."""
        began = (entry.at for entry in self.entries if entry.phase is Phase.STOPPING)
        return milliseconds(next(began, self.entries[0].at))


def enter(account: GpuTime, recovery: Recovery, saving: Saving, until: datetime) -> GpuTime:
    """
    *account* with *recovery*, up to *until* (its end, or now).

    A recovery that never stopped the gang cost nothing: the gang ran on.
    """
    timeline = recovery.status.timeline
    account = replace(account, entered=milliseconds(timeline[0].at))
    if not any(entry.phase is Phase.STOPPING for entry in timeline):
        return account
    found = stops(recovery)
    ends = [stop.begins for stop in found[1:]] + [milliseconds(until)]
    for stop, end in zip(found, ends, strict=True):
        account = _enter_stop(account, stop, end, saving)
    if recovery.status.phase is Phase.RECOVERED and recovery.status.confirmed_step >= 0:
        account = verified(account, ends[-1], recovery.status.confirmed_step, saving.usual)
    return account


def verified(account: GpuTime, at: int, step: int, usual: int | None) -> GpuTime:
    """
    *account* of a gang that runs, when *step* was seen at *at*: training got there.

    A run begins with a start-up, of which a step shows only the end. Training took as long as it *usually* takes from
    one save to the next; what is left is start-up. While the gang's rhythm is not known, neither is the start-up.
    """
    if account.state is not GangState.RUNNING or at <= account.until:
        return account
    if not account.stepped:
        unknown = usual is None
        began = at if usual is None else at - usual
        account = extend(account, began, Part.UNVERIFIED if unknown else Part.STARTUP, account.run_cause)
    return replace(extend(account, at, Part.PRODUCTIVE), stepped=True, step=step)


def stops(recovery: Recovery) -> list[Stop]:
    """The stops of *recovery*: a fault of the gang that it has started stops the gang again."""
    status = recovery.status
    firsts = [0, *_restarted(status.timeline)]
    ranges = [slice(*pair) for pair in pairwise([*firsts, None])]
    parts = [status.timeline[each] for each in ranges]
    numbers = range(recovery.spec.first_attempt, recovery.spec.first_attempt + len(parts))
    causes = _causes_of(parts, status.causes or [recovery.spec.cause])
    return [
        Stop(entries, why, _resumed(status, entries, number))
        for entries, why, number in zip(parts, causes, numbers, strict=True)
    ]


def _restarted(timeline: Sequence[TimelineEntry]) -> Iterator[int]:
    """Where a stop follows a start."""
    started = False
    for number, entry in enumerate(timeline):
        if entry.phase is Phase.STOPPING and started:
            yield number
        started = entry.phase in (Phase.STARTING, Phase.CONFIRMING) or (started and entry.phase is Phase.HELD)


def _causes_of(parts: Sequence[Sequence[TimelineEntry]], causes: Sequence[Cause]) -> Iterator[list[Cause]]:
    """The causes of each stop: those that came before the next start, and after the one before."""
    left = list(causes)
    for entries in parts:
        start = next((entry.at for entry in reversed(entries) if entry.phase is Phase.STARTING), None)
        own = [cause for cause in left if start is None or cause.at <= start]
        if entries is parts[-1]:
            own = left
        own = own or left[:1]
        yield own or list(causes[-1:])
        left = [cause for cause in left if cause not in own]


def _resumed(status: RecoveryStatus, entries: Sequence[TimelineEntry], number: int) -> ChosenCheckpoint | None:
    """The checkpoint of the attempt, or the one that was chosen for it before it began."""
    is_last = entries[-1] is status.timeline[-1]
    found = next((each.checkpoint for each in status.attempts if each.number == number), None)
    if found is not None or not is_last:
        return found
    return status.checkpoint if Phase.RESERVING in (entry.phase for entry in entries) else None


def _enter_stop(account: GpuTime, stop: Stop, end: int, saving: Saving) -> GpuTime:
    cause = loss_cause(stop.causes)
    account = _fall_back(account, stop, cause, saving)
    account = extend(account, stop.begins, Part.DETECTION, cause)
    account = replace(account, state=GangState.QUEUED, stepped=False, run_cause=cause)
    for entry, until, part in _spans(stop.entries, end):
        if entry.phase is Phase.CONFIRMING:
            began = max(account.until, milliseconds(entry.at))
            return replace(account, state=GangState.RUNNING, run_since=began)
        if part is not None:
            account = extend(account, until, part, cause)
        if entry.phase is Phase.GAVE_UP:
            account = replace(account, state=GangState.GAVE_UP)
    return account


def _fall_back(account: GpuTime, stop: Stop, cause: LossCause, saving: Saving) -> GpuTime:
    """The end of the run before *stop*: what a checkpoint holds was training, what came after it is done again."""
    resumed, fault = stop.resumed, _fault(stop)
    if account.state in WAITING:
        return extend(account, fault, WAITING[account.state], account.run_cause)
    if resumed is None or not saving.is_watched:
        return extend(account, fault, Part.UNVERIFIED)
    saved = min(_saved(account, resumed, saving), stop.stopping)
    account = verified(account, saved, resumed.step, saving.usual)
    account = take_back(account, saved, cause)
    if saving.usual is not None and cause is LossCause.HANG:
        fault = min(fault, saved + saving.usual)  # noticed late: work ended before the next save was due
    account = extend(account, fault, Part.REDONE, cause)
    return replace(account, step=resumed.step if resumed.path else -1)


def _saved(account: GpuTime, resumed: ChosenCheckpoint, saving: Saving) -> int:
    """
    When *resumed* was saved; for a fresh start, before everything. If unknown, when the newest step was seen.

    A copied checkpoint may have any time. One with the newest step was seen at the next look: it takes back no more
    than the usual time between two saves.
    """
    if not resumed.path:
        return account.since
    saved = resumed.saved_ns // 1_000_000 if resumed.saved_ns > 0 else account.until
    if saving.usual is None or resumed.step < 0 or resumed.step < account.step:
        return saved
    return max(saved, account.until - saving.usual)


def _fault(stop: Stop) -> int:
    """When the first fault of *stop* came."""
    return min([stop.stopping, *(milliseconds(cause.at) for cause in stop.causes)])


def _spans(entries: Sequence[TimelineEntry], end: int) -> Iterator[tuple[TimelineEntry, int, Part | None]]:
    """Each entry, when it ended, and what its time was spent on; None: nothing that a recovery did."""
    ends = [milliseconds(entry.at) for entry in entries[1:]] + [end]
    before = Phase.DETECTED
    for entry, until in zip(entries, ends, strict=True):
        yield entry, until, _held(entry, before) if entry.phase is Phase.HELD else PARTS.get(entry.phase)
        before = before if entry.phase is Phase.HELD else entry.phase


def _held(entry: TimelineEntry, phase: Phase) -> Part:
    waits_for = hold_of(RecoveryStatus(phase=Phase.HELD, held_in=phase, message=entry.message))
    return Part.NO_SPARE if waits_for is Hold.SPARE else Part.HELD
