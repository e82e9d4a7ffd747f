"""One row for each recovery: what happened to which gang, and how far its restart is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from healthd.core.api import Recovery
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.recovery.recovery_status import gang_text, running_since
from healthd.core.report.listing.ages import age
from healthd.core.report.listing.table import Column

COLUMNS = (
    Column("NAMESPACE"),
    Column("RECOVERY"),
    Column("GANG"),
    Column("PHASE"),
    Column("CAUSE"),
    Column("NODE"),
    Column("FROM STEP"),
    Column("AGE"),
    Column("RUNNING AFTER"),
    Column("TOOK"),
    Column("ATTEMPT", wide=True),
    Column("SPARES", wide=True, flexible=True),
    Column("MESSAGE", flexible=True),
)


class RecoveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery. Durations are in seconds; None where the recovery has not come so far, or a value is unknown."""

    namespace: str
    recovery: str
    gang: str
    """For example `job/llama`."""
    phase: Phase
    cause: CauseKind
    node: str
    """The node of the first cause; empty where no node is faulty."""
    from_step: int | None
    """The step of the checkpoint that was chosen."""
    began: datetime
    running_after: float | None
    """From the fault until all members ran again."""
    took: float | None
    """From the fault to the end."""
    attempt: int
    spares: dict[str, str]
    """Bad node -> its spare."""
    message: str


def recovery_row(recovery: Recovery) -> RecoveryRow:
    """*recovery* as a row."""
    status = recovery.status
    cause = (status.causes or [recovery.spec.cause])[0]
    began = status.timeline[0].at if status.timeline else cause.at
    running = running_since(status)
    ended = status.timeline[-1].at if status.timeline and status.phase in ENDED else None
    chosen = status.checkpoint
    return RecoveryRow(
        namespace=recovery.metadata.namespace,
        recovery=recovery.metadata.name,
        gang=gang_text(recovery.spec.gang),
        phase=status.phase,
        cause=cause.kind,
        node=cause.node,
        from_step=chosen.step if chosen is not None and chosen.path and chosen.step >= 0 else None,
        began=began,
        running_after=(running - began).total_seconds() if running else None,
        took=(ended - began).total_seconds() if ended else None,
        attempt=status.attempt,
        spares=status.replacements,
        message=status.message,
    )


def in_order(recoveries: Iterable[Recovery]) -> list[RecoveryRow]:
    """Those that go on first, held ones before all others; each the newest first."""
    newest = sorted(map(recovery_row, recoveries), key=lambda row: row.began, reverse=True)
    return sorted(newest, key=lambda row: (row.phase in ENDED, row.phase is not Phase.HELD))


def cells(row: RecoveryRow, now: datetime) -> tuple[str, ...]:
    """*row* as text, a cell for each of `COLUMNS`."""
    return (
        row.namespace,
        row.recovery,
        row.gang,
        row.phase.value,
        row.cause.value,
        row.node,
        "" if row.from_step is None else str(row.from_step),
        age((now - row.began).total_seconds()),
        age(row.running_after),
        age(row.took),
        str(row.attempt),
        ", ".join(f"{bad} -> {spare}" for bad, spare in sorted(row.spares.items())),
        row.message,
    )
