"""
The Kubernetes Events of a recovery: on the recovery, on the root of its gang, and on the nodes.

A phase has its Event when it is entered. A node has Events only for what happened to it: a gang left it, or took it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from healthd.core.api import Node, ObjectReference, Recovery, RecoveryStatus, TimelineEntry
from healthd.core.api.model import Phase
from healthd.core.recovery.recovery_status import blamed, gang_text
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import NORMAL, WARNING, Announce, about, about_gang

TROUBLE = frozenset({Phase.DETECTED, Phase.HELD, Phase.GAVE_UP})
"""Phases in which a person may have to do something."""
INNER = frozenset({Phase.FENCING, Phase.CHOOSING, Phase.RESERVING})
"""Phases with an Event on the recovery alone: a user who looks at a job wants fewer details."""


class EventText(NamedTuple):
    """One event."""

    about: ObjectReference
    kind: str
    reason: str
    message: str


def emit_events(
    announce: Announce, before: Recovery, after: Recovery, adapter: GangAdapter[Any], find: Callable[[str], Node | None]
) -> None:
    """Emit the Events of the step from *before* to *after*; *find* looks up a node."""
    for event in events_of(before, after, adapter, find):
        announce(*event)


def events_of(
    before: Recovery, after: Recovery, adapter: GangAdapter[Any], find: Callable[[str], Node | None]
) -> Iterator[EventText]:
    """The Events of one step."""
    for refused in after.status.rejected:
        if refused not in before.status.rejected:
            yield EventText(about(after), WARNING, "CheckpointRejected", f"{refused.path}: {refused.reason}")
    for entry in _new_entries(before.status, after.status):
        yield from _phase_events(entry, after, adapter, find)


def _new_entries(before: RecoveryStatus, after: RecoveryStatus) -> list[TimelineEntry]:
    """The new entries of the timeline. A hold is one entry, whose reason may change: each new reason is an Event."""
    return [entry for entry in after.timeline if entry not in before.timeline]


def _phase_events(
    entry: TimelineEntry, recovery: Recovery, adapter: GangAdapter[Any], find: Callable[[str], Node | None]
) -> Iterator[EventText]:
    kind = WARNING if entry.phase in TROUBLE else NORMAL
    yield EventText(about(recovery), kind, entry.phase.value, entry.message)
    if entry.phase not in INNER:
        root = about_gang(recovery.spec.gang, adapter.kind)
        yield EventText(root, kind, f"Recovery{entry.phase}", f"recovery {recovery.metadata.name}: {entry.message}")
    for name, message in _on_nodes(entry.phase, recovery):
        if node := find(name):
            yield EventText(about(node), kind, f"Gang{entry.phase}", message)


def _on_nodes(phase: Phase, recovery: Recovery) -> Iterator[tuple[str, str]]:
    """The nodes that this phase affects, and how."""
    gang = f"{gang_text(recovery.spec.gang)} in {recovery.spec.gang.namespace}"
    if phase is Phase.STOPPING:
        for node in blamed(recovery.status):
            yield node, f"{gang} is stopped to leave this node (recovery {recovery.metadata.name})"
    if phase is Phase.STARTING:
        for bad, spare in (*recovery.status.replacements.items(), *recovery.status.stand_ins.items()):
            yield spare, f"takes the place of {bad} for {gang} (recovery {recovery.metadata.name})"
