"""
The restarts of a run, read from its recoveries. Pure.

A restart makes one line for the user, when all ranks run again. Before that there is a line only when it takes long,
fails, or waits for a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from healthd.core.api import Cause, ChosenCheckpoint, Recovery
from healthd.core.api.model import ENDED, Hold, Phase
from healthd.core.recovery.faults import blames_node, cause_text
from healthd.core.recovery.holds import hold_of
from healthd.local.reports.endings import saved_at

SLOW = timedelta(seconds=15)
"""A restart that takes longer gets a line with its current phase: the grace period of the ranks alone may be 30 s."""
AGAIN = timedelta(minutes=10)
"""A run that is held repeats its line at this interval."""
LONG_WAIT = timedelta(seconds=5)
"""A shorter back-off gets no line."""


class RunMessageKind(StrEnum):
    """The subject of a line. `--notify` reports the first six, too."""

    RESTART = "restart"
    HOLD = "hold"
    GIVE_UP = "give-up"
    DONE = "done"
    HANG = "hang"
    """No rank works any more."""
    STRAGGLER = "straggler"
    """The ranks wait for one of them in every step."""
    SLOW = "slow"
    FAILED = "failed"
    """A restart ended before all ranks ran."""
    WAITS = "waits"
    """The next start waits."""
    GOES_ON = "goes-on"
    """A hold is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMessage:
    """One line for the user, and its parts."""

    kind: RunMessageKind
    text: str
    recovery: str = ""
    cause: str = ""
    """The kind of the fault: hardware, software, hang, interrupted."""
    why: str = ""
    """What happened, or what the run waits for."""
    hint: str = ""
    """What to do about it."""
    step: int | None = None
    """The step from which the ranks start. None: not known, or from step 0."""
    attempt: int = 0
    down: timedelta = timedelta(0)
    """From the fault until all ranks ran again."""
    lost: timedelta = timedelta(0)
    """Work that has to be done again."""


@dataclass(slots=True)
class _Reported:
    """What was reported of one recovery."""

    attempt: int = -1
    """The last attempt whose ranks all ran again."""
    causes: int = 0
    """How many of its causes are already in a line."""
    stops: int = 0
    """How many of its stops were seen."""
    hold: str = ""
    held_at: datetime | None = None
    waits: datetime | None = None
    slow: int = -1
    """The attempt whose slow start was reported."""


def _past_of(recovery: Recovery) -> _Reported:
    """What the healthd that was killed has reported of *recovery*: the restarts after which all ranks ran."""
    status = recovery.status
    ran = next((entry.at for entry in reversed(status.timeline) if entry.phase is Phase.CONFIRMING), None)
    newest = next((e.phase for e in reversed(status.timeline) if e.phase in (Phase.STOPPING, Phase.CONFIRMING)), None)
    return _Reported(
        attempt=status.attempt if newest is Phase.CONFIRMING else status.attempt - 1,
        causes=sum(cause.at <= ran for cause in status.causes) if ran is not None else 0,
        stops=_stops(recovery),
    )


@dataclass(slots=True)
class Restarts:
    """The restarts in one process of `healthd run`, and which of them were reported."""

    asked: int
    """Ranks that the user asked for."""
    option: str = ""
    """By which commands find the run."""
    count: int = 0
    down: timedelta = timedelta(0)
    lost: timedelta = timedelta(0)
    _reported: dict[str, _Reported] = field(default_factory=dict)
    _past: set[str] = field(default_factory=set)

    def skip(self, recoveries: Sequence[Recovery]) -> None:
        """Ignore what an earlier start of the run has reported: recoveries that have ended, and restarts of others."""
        self._past |= {each.metadata.name for each in recoveries if each.status.phase in ENDED}
        self._reported |= {each.metadata.name: _past_of(each) for each in recoveries if each.status.timeline}

    def poll(self, recoveries: Sequence[Recovery], world: int, now: datetime) -> list[RunMessage]:
        """The new lines about *recoveries* of a gang of *world* ranks."""
        found: list[RunMessage] = []
        for each in sorted(recoveries, key=lambda recovery: recovery.spec.first_attempt):
            if each.metadata.name not in self._past and each.status.timeline:
                reported = self._reported.setdefault(each.metadata.name, _Reported())
                found += self._messages_of(each, reported, world, now)
                if each.status.phase in ENDED:
                    self._past.add(each.metadata.name)
        return found

    def _messages_of(self, recovery: Recovery, reported: _Reported, world: int, now: datetime) -> list[RunMessage]:
        found = [*_goes_on(recovery, reported), *self._failed(recovery, reported)]
        if is_back(recovery) and reported.attempt < recovery.status.attempt:
            found.append(self._back(recovery, reported, world))
        found += _held(recovery, reported, now, self.option)
        found += [*_waits(recovery, reported, now), *_slow(recovery, reported, now)]
        return found

    def _back(self, recovery: Recovery, reported: _Reported, world: int) -> RunMessage:
        """The line for: all ranks run again."""
        status = recovery.status
        fresh = status.causes[reported.causes :] or status.causes[-1:]
        cause = main_cause(fresh)
        began = min(each.at for each in fresh)
        ran = next((entry.at for entry in reversed(status.timeline) if entry.phase is Phase.CONFIRMING), None)
        down = max(timedelta(0), (ran or status.phase_since or began) - began)
        lost = _lost(recovery, began)
        reported.attempt, reported.causes = status.attempt, len(status.causes)
        self.count, self.down, self.lost = self.count + 1, self.down + down, self.lost + lost
        ranks = "all ranks" if world >= self.asked else f"{world} of {self.asked} ranks"
        places = "".join(f"; {spare} in place of {bad}" for bad, spare in status.replacements.items())
        back = f"back after {spoken(down)} (restart {self.count})"
        return RunMessage(
            kind=RunMessageKind.RESTART,
            text=f"{cause_text(cause)}: {ranks} again from {place(status.checkpoint)}, {back}{places}",
            recovery=recovery.metadata.name,
            cause=cause.kind.value,
            why=cause_text(cause),
            step=step_of(status.checkpoint),
            attempt=status.attempt,
            down=down,
            lost=lost,
        )

    def _failed(self, recovery: Recovery, reported: _Reported) -> list[RunMessage]:
        """The line for a start that ended before all ranks ran."""
        status = recovery.status
        stops = _stops(recovery)
        before, reported.stops = reported.stops, max(reported.stops, stops)
        ended = status.attempt - 1  # the attempt that the last of these stops ended
        if stops <= max(before, 1) or reported.attempt >= ended:
            return []
        reported.attempt = ended
        cause = status.causes[-1]
        reported.causes = len(status.causes) - 1
        self.count += 1
        text = f"restart {self.count} failed: {cause_text(cause)}, before all ranks ran"
        return [_message(RunMessageKind.FAILED, recovery, text, why=cause_text(cause))]


def _stops(recovery: Recovery) -> int:
    return sum(entry.phase is Phase.STOPPING for entry in recovery.status.timeline)


def _lost(recovery: Recovery, fault: datetime) -> timedelta:
    """Work to do again: since the loaded checkpoint was saved, or since the start of the ranks that failed."""
    status = recovery.status
    marks = [saved_at(status.checkpoint), *(pod.since for pod in status.pods)]
    return fault - max((at for at in marks if at is not None and at <= fault), default=fault)


def is_back(recovery: Recovery) -> bool:
    """Every rank of the newest attempt is running, or completed."""
    status = recovery.status
    return status.phase in (Phase.CONFIRMING, Phase.RECOVERED) and any(
        attempt.number == status.attempt for attempt in status.attempts
    )


def _held(recovery: Recovery, reported: _Reported, now: datetime, option: str) -> list[RunMessage]:
    status = recovery.status
    if status.phase is not Phase.HELD:
        return []
    is_due = reported.held_at is None or now - reported.held_at >= AGAIN
    if reported.hold == status.message and not is_due:
        return []
    since = status.timeline[-1].at
    again = f" for {spoken(now - since)}" if reported.hold == status.message else ""
    reported.hold, reported.held_at = status.message, now
    hint = way_out(hold_of(status), status.causes[-1].node, option)
    text = f"the run waits{again}: {status.message}"
    return [_message(RunMessageKind.HOLD, recovery, text, why=status.message, hint=hint)]


def _goes_on(recovery: Recovery, reported: _Reported) -> list[RunMessage]:
    if not reported.hold or recovery.status.phase is Phase.HELD:
        return []
    reported.hold, reported.held_at = "", None
    if recovery.status.phase in ENDED:
        return []
    return [_message(RunMessageKind.GOES_ON, recovery, "the run waits no longer")]


def _waits(recovery: Recovery, reported: _Reported, now: datetime) -> list[RunMessage]:
    """The line for a back-off before the next start."""
    status = recovery.status
    until = status.not_before
    if status.phase is not Phase.RESERVING or until is None or until == reported.waits or until - now < LONG_WAIT:
        return []
    reported.waits = until
    times = "a restart" if status.no_advance == 1 else f"{status.no_advance} restarts in a row"
    text = f"{times} brought nothing beyond {place(status.checkpoint)}: the next one waits {spoken(until - now)}"
    return [_message(RunMessageKind.WAITS, recovery, text)]


def _slow(recovery: Recovery, reported: _Reported, now: datetime) -> list[RunMessage]:
    """The line for a restart that takes long, once per attempt."""
    status = recovery.status
    doing = _DOING.get(status.phase)
    stop = next((entry for entry in reversed(status.timeline) if entry.phase is Phase.STOPPING), status.timeline[0])
    since = max(stop.at, reported.waits or stop.at)
    if doing is None or reported.slow >= status.attempt or now - since < SLOW:
        return []
    reported.slow = status.attempt
    why = cause_text(main_cause(status.causes[reported.causes :] or status.causes[-1:]))
    return [_message(RunMessageKind.SLOW, recovery, f"{why}: {doing}", why=why)]


_DOING = {
    Phase.STOPPING: "the other ranks are asked to end, and get their grace",
    Phase.FENCING: "the ends of all old processes are awaited",
    Phase.CHOOSING: "healthd searches the newest checkpoint that will load",
    Phase.RESERVING: "the restart is being prepared",
    Phase.STARTING: "the ranks are being started",
}


def _message(kind: RunMessageKind, recovery: Recovery, text: str, *, why: str = "", hint: str = "") -> RunMessage:
    status = recovery.status
    return RunMessage(
        kind=kind,
        text=text,
        recovery=recovery.metadata.name,
        cause=main_cause(status.causes).kind.value,
        why=why,
        hint=hint,
        step=step_of(status.checkpoint),
        attempt=status.attempt,
    )


def main_cause(causes: Sequence[Cause]) -> Cause:
    """The most informative cause: broken hardware before the ranks that failed because of it; otherwise the first."""
    return next((cause for cause in causes if blames_node(cause)), causes[0])


def way_out(hold: Hold | None, slot: str = "", option: str = "") -> str:
    """
    What a person can do about a hold. The run continues without a command when that is done. By *option* commands find
    the run.
    """
    repair = " ".join(["healthd repair", slot or "SLOT", *([option] if option else [])])
    match hold:
        case Hold.SPARE:
            return (
                f"after a repair say `{repair}`; or stop the run with Ctrl-C and start it with "
                "a smaller --nproc, or with --min-nodes"
            )
        case Hold.CHECKPOINT:
            return (
                "where checkpoints were moved or deleted, or a disk is not mounted, put that right; else put one there "
                "that loads (`healthd checkpoints list DIR` says what is wrong with each); or "
                "stop the run with Ctrl-C, and declare a format of your own with --checkpoint-format and "
                "--accept-changes, or begin again from nothing with --fresh"
            )
        case Hold.FENCE:
            return (
                "a process that does not end is held by a driver or a dead file system: see `ps -o pid,stat,wchan,cmd`;"
                " where it cannot be ended, restart the machine and give the same command again"
            )
        case Hold.BUDGET:
            return f"after a repair say `{repair}`, or raise quarantine.budget"
        case Hold.PROGRAM:
            return (
                "look at the stacks of the ranks now, for nothing was stopped (`py-spy dump --pid PID`); mend the "
                "program or its data, stop the run with Ctrl-C, and give the same command again"
            )
        case Hold.BREAKER:
            return "many faults at once have one cause as a rule: look for it; it goes on by itself when they cease"
        case _:
            return f"`{' '.join(['healthd explain', *([option] if option else [])])}` shows more"


def place(checkpoint: ChosenCheckpoint | None) -> str:
    """The point from which ranks start, in words."""
    if checkpoint is None or not checkpoint.path:
        return "the beginning"
    return f"step {checkpoint.step}" if checkpoint.step >= 0 else checkpoint.path


def step_of(checkpoint: ChosenCheckpoint | None) -> int | None:
    """The step of *checkpoint*, when it is known."""
    return checkpoint.step if checkpoint is not None and checkpoint.path and checkpoint.step >= 0 else None


def spoken(duration: timedelta) -> str:
    """A duration for people: `0.4 s`, `8 s`, `3 min 20 s`, `2 h 5 min`."""
    seconds = max(0.0, duration.total_seconds())
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
