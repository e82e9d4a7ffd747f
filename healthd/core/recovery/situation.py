"""The input of every phase of a recovery (Situation), and its output (Decision)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import Cause, ChosenCheckpoint, Recovery, RecoveryStatus, TimelineEntry
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.printable import printable
from healthd.core.recovery.actions import Action
from healthd.core.recovery.faults import cause_text
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.terms import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about one recovery now. *recheck* is the delay after which time alone may change the decision."""

    record: RecoveryStatus | None = None
    actions: tuple[Action, ...] = ()
    reason: str
    recheck: timedelta | None = None
    event: str = ""
    """The reason of a Warning Event that says the same; empty: the phase has Events of its own."""

    @property
    def waits(self) -> bool:
        """There is nothing to write and nothing to do now."""
        return self.record is None and not self.actions


@dataclass(frozen=True, slots=True)
class Situation:
    """One recovery, the state of its cluster, and the time: the input of every phase."""

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
        """The recovery's own name, which is written on what it changes."""
        return self.recovery.metadata.name

    @property
    def terms(self) -> Terms:
        """The words for the parts of the gang, for people."""
        return self.root.terms

    @property
    def stopped_by_us(self) -> bool:
        """Whether the root is suspended by this recovery."""
        return self.root.suspended and self.root.stopped_by == self.name

    def enter(self, phase: Phase, message: str, **changes: object) -> Decision:
        """Record that *phase* begins, with *changes* to the status."""
        return enter(replace(self.status, **changes), phase, message, self.now)

    def hold(self, message: str) -> Decision:
        """Wait until the state of the cluster changes; recorded once for each reason."""
        message = printable(message)
        if self.status.phase is Phase.HELD and self.status.message == message:
            return Decision(reason=message)
        return enter(replace(self.status, held_in=self.phase), Phase.HELD, message, self.now)


def begin(recovery: Recovery, now: datetime) -> RecoveryStatus:
    """The first status, with the cause as the first entry of the timeline."""
    cause = recovery.spec.cause
    status = replace(recovery.status, causes=[cause], attempt=recovery.spec.first_attempt)
    return _entered(status, Phase.DETECTED, f"{cause.kind}: {cause_text(cause)}", now)


def enter(status: RecoveryStatus, phase: Phase, message: str, now: datetime) -> Decision:
    """Record that *phase* begins."""
    return Decision(record=_entered(status, phase, message, now), reason=f"{phase}: {message}")


def _entered(status: RecoveryStatus, phase: Phase, message: str, now: datetime) -> RecoveryStatus:
    message = printable(message)  # parts of it come from pods and nodes, and people read it on terminals
    entry = TimelineEntry(phase=phase, at=now, message=message)
    held_in = status.held_in if phase is Phase.HELD else None
    timeline = status.timeline
    if phase is Phase.HELD and status.phase is Phase.HELD:
        # One entry, however often the reason changes: with thousands of pods, the proofs come one by one.
        entry, timeline = replace(timeline[-1], message=message), timeline[:-1]
    return replace(
        status,
        phase=phase,
        phase_since=now,
        message=message,
        held_in=held_in,
        timeline=[*timeline, entry],
    )


def began(s: Situation, phase: Phase) -> datetime:
    """When *phase* began for this attempt; times in Held do not change that."""
    return _began(s.status, phase)


def _began(status: RecoveryStatus, phase: Phase) -> datetime:
    times = (entry.at for entry in reversed(status.timeline) if entry.phase is phase)
    return next(times, status.timeline[0].at)


def stopped_at(recovery: Recovery) -> datetime:
    """When the stop of the present attempt began, else when the recovery began; times in Held do not change that."""
    return _began(recovery.status, Phase.STOPPING)


def step_text(checkpoint: ChosenCheckpoint) -> str:
    """A checkpoint in words."""
    if not checkpoint.path:
        return "a fresh start"
    return f"step {checkpoint.step}" if checkpoint.step >= 0 else checkpoint.path
