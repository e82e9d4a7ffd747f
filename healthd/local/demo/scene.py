"""
The data to show: the newest state of the cluster, the output of the trainer, and the events so far.

The displays (lines, JSON, a live view) read it here. The script waits for conditions on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from healthd.core.api import Node, NodeHealth, Pod, Recovery
from healthd.core.api.model import ENDED, Finding, Phase
from healthd.core.node.quarantine import read_record
from healthd.local.demo.training import Training


class Who(StrEnum):
    """The actor of an event."""

    DEMO = "demo"
    KERNEL = "kernel"
    AGENT = "agent"
    CONTROLLER = "controller"
    TRAINER = "trainer"


class Tone(StrEnum):
    """How an event is shown."""

    PLAIN = "plain"
    BAD = "bad"
    GOOD = "good"


class Note(NamedTuple):
    """One event, at its real time."""

    at: datetime
    who: Who
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """One snapshot of the cluster."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    health: Mapping[str, NodeHealth] = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    """Oldest first."""

    @property
    def quarantined(self) -> list[str]:
        """The slots that are out of service."""
        return [name for name, node in self.nodes.items() if read_record(node)]

    def finding(self, node: str, rule: str) -> Finding | None:
        """What the agent of *node* found under *rule*."""
        known = self.health.get(node)
        return next((f for f in known.status.findings if f.rule == rule), None) if known else None

    def recovered(self, number: int) -> bool:
        """Whether the recovery *number* (from 1) has ended, however it ended."""
        return len(self.recoveries) >= number and self.recoveries[number - 1].status.phase in ENDED


def changes(before: ClusterSnapshot, after: ClusterSnapshot) -> list[Note]:
    """The events between two snapshots, in their order."""
    return sorted(
        [*_quarantines(before, after), *_findings(before, after), *_phases(before, after)], key=lambda n: n.at
    )


def _quarantines(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Note]:
    for name, node in after.nodes.items():
        record = read_record(node)
        if record and name not in before.quarantined:
            yield Note(record.since, Who.AGENT, f"{name} is quarantined for {record.finding}", Tone.BAD)


def _findings(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Note]:
    for name, health in after.health.items():
        for finding in health.status.findings:
            if not finding.quarantines and before.finding(name, finding.rule) is None:
                yield Note(finding.raised_at, Who.AGENT, f"{name} stays in service: {finding.message}")


def _phases(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Note]:
    known = {recovery.metadata.name: recovery.status for recovery in before.recoveries}
    for recovery in after.recoveries:
        status = recovery.status
        old = known.get(recovery.metadata.name)
        for entry in status.timeline[len(old.timeline) if old else 0 :]:
            if entry.phase is Phase.RESERVING:
                yield from _refusals(recovery, entry.at)
            yield Note(entry.at, Who.CONTROLLER, f"{entry.phase}: {entry.message}", _TONES.get(entry.phase, Tone.PLAIN))


def _refusals(recovery: Recovery, at: datetime) -> Iterator[Note]:
    for refused in recovery.status.rejected:
        yield Note(at, Who.CONTROLLER, f"step {refused.step} refused: {refused.reason}", Tone.BAD)


_TONES = {
    Phase.DETECTED: Tone.BAD,
    Phase.HELD: Tone.BAD,
    Phase.GAVE_UP: Tone.BAD,
    Phase.SUPERSEDED: Tone.BAD,
    Phase.RECOVERED: Tone.GOOD,
}


class Scene:
    """The current state, and an event that is set when it changes. Belongs to one event loop."""

    def __init__(self, began: datetime, *, show: Callable[[Note], None], root: str = "") -> None:
        self.began = began
        self.world = ClusterSnapshot()
        self.training = Training()
        self.notes: list[Note] = []
        self.waiting_for = ""
        """The condition that the script waits for."""
        self.warning = ""
        """Text that must always be visible."""
        self._show = show
        self._root = root
        self._bell = asyncio.Event()

    def see(self, world: ClusterSnapshot) -> None:
        """Take a new snapshot of the cluster."""
        for note in changes(self.world, world):
            self.note(note)
        self.world = world
        self._ring()

    def ingest_line(self, attempt: int, line: str, at: datetime) -> None:
        """Take a *line* that rank 0 of *attempt* has printed."""
        self.training.take_in(attempt, line, at)
        if line and not line.startswith("step "):
            self.note(Note(at, Who.TRAINER, line))
        self._ring()

    def note(self, note: Note) -> None:
        """Add an event. Paths are shown relative to the demo's own folder."""
        note = note._replace(text=note.text.replace(f"{self._root}/", "")) if self._root else note
        self.notes.append(note)
        self._show(note)

    async def until(self, what: str, condition: Callable[[Scene], bool]) -> None:
        """Return when *condition* holds. *what* names it for people."""
        self.waiting_for = what
        while not condition(self):
            await self._bell.wait()
        self.waiting_for = ""

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()
