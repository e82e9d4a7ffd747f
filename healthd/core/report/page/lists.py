"""The gangs, recoveries and incidents of the page: the rows of the terminal, and what a page needs beside them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from healthd.core.api import IncidentRecord, Pod, Recovery
from healthd.core.api.model import ENDED, Phase
from healthd.core.printable import printable
from healthd.core.recovery.gang import Root
from healthd.core.report.listing.gangs import NEED_A_PERSON, GangRow, gang_row
from healthd.core.report.listing.recoveries import RecoveryRow, recovery_row

LONGEST_MESSAGE = 300
"""Characters of a message in a list. The page of the object has the whole text."""


class GangEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One gang. Its row has no `at_stake`: that grows with every second, and `stake_since` says from when."""

    row: GangRow
    needs_person: bool
    stake_since: datetime | None
    """A fault now would cost the work since then; None: unknown."""


class PhaseBegan(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a timeline."""

    phase: Phase
    at: datetime
    message: str


class RecoveryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery, with the phases that it has gone through."""

    row: RecoveryRow
    is_over: bool
    held_in: str
    """While it is held: the phase that cannot continue."""
    timeline: list[PhaseBegan]


class IncidentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One open incident, as it was sent to the alert services."""

    severity: str
    title: str
    opened: datetime
    namespace: str
    gang: str
    nodes: tuple[str, ...]
    happened: str
    did: str
    todo: str
    command: str


NODES_SHOWN = 50
"""Nodes of an incident that are listed."""


def gang_entry(root: Root, pods: Collection[Pod], recoveries: Sequence[Recovery], now: datetime) -> GangEntry:
    """The gang of *root*, from its *pods* and its *recoveries*, the newest first."""
    row = gang_row(root, pods, recoveries, now)
    since = None if row.at_stake is None else _whole_millisecond(now - timedelta(seconds=row.at_stake))
    shown = replace(row, at_stake=None, message=short(row.message))
    return GangEntry(row=shown, needs_person=row.state in NEED_A_PERSON, stake_since=since)


def recovery_entry(recovery: Recovery) -> RecoveryEntry:
    """*recovery*, with its timeline."""
    row, status = recovery_row(recovery), recovery.status
    return RecoveryEntry(
        row=replace(
            row,
            node=printable(row.node),
            message=short(row.message),
            spares={printable(bad): printable(spare) for bad, spare in row.spares.items()},
        ),
        is_over=status.phase in ENDED,
        held_in=status.held_in.value if status.held_in else "",
        timeline=[PhaseBegan(each.phase, each.at, short(each.message)) for each in status.timeline],
    )


def incident_entry(record: IncidentRecord) -> IncidentEntry:
    """The incident of *record*, in the words of its message."""
    spec = record.spec
    return IncidentEntry(
        severity=spec.severity.value,
        title=printable(spec.title),
        opened=spec.opened,
        namespace=spec.namespace,
        gang=printable(spec.gang),
        nodes=tuple(map(printable, spec.nodes[:NODES_SHOWN])),
        happened=printable(spec.happened),
        did=printable(spec.did),
        todo=printable(spec.todo),
        command=printable(spec.command),
    )


def short(text: str) -> str:
    """*text* as it is shown in a list: safe, and not too long."""
    return printable(text)[:LONGEST_MESSAGE]


def _whole_millisecond(at: datetime) -> datetime:
    """So that the same moment, computed from two times, is the same."""
    rounded = at + timedelta(microseconds=500)
    return rounded.replace(microsecond=rounded.microsecond // 1000 * 1000)
