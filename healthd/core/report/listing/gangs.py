"""One row for each gang: its state, its progress, and what a fault would cost it now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from healthd.core.api import Pod, Recovery
from healthd.core.api.model import ENDED, Phase
from healthd.core.api.save_stats import Concern
from healthd.core.checkpoint.precheck import newest_step
from healthd.core.checkpoint.restart_cost import Stake, at_stake
from healthd.core.hang.work.straggler_text import effect_of
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.hangs.gang_stragglers import open_stragglers
from healthd.core.recovery.hangs.silence_record import open_silence
from healthd.core.recovery.recovery_status import gang_text
from healthd.core.recovery.root_state import given_up_by, left_stopped, lost_attempt
from healthd.core.report.listing.ages import age
from healthd.core.report.listing.table import Column

COLUMNS = (
    Column("NAMESPACE"),
    Column("GANG"),
    Column("STATE"),
    Column("RUNNING"),
    Column("NODES", wide=True),
    Column("STEP"),
    Column("SAVED"),
    Column("EVERY", wide=True),
    Column("AT STAKE"),
    Column("ATTEMPT"),
    Column("RECOVERY", wide=True),
    Column("MESSAGE", flexible=True),
)


class GangState(StrEnum):
    """The state of a gang, in the order of a list: first those that need a person."""

    INVALID = "invalid"
    """The object of the gang has an unreadable or a wrong value: healthd does nothing for it."""
    HELD = "held"
    """Its recovery waits for something that healthd cannot provide."""
    GAVE_UP = "gave up"
    """Its recovery gave up: it stays stopped until a person starts it again."""
    STOPPED = "stopped"
    """healthd stopped it, and no recovery will start it again: the one that stopped it left it so, or is gone."""
    FAILED = "failed"
    RESTARTING = "restarting"
    STARTING = "starting"
    """Not all members run."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    """By its user."""
    COMPLETE = "complete"


NEED_A_PERSON = frozenset({GangState.INVALID, GangState.HELD, GangState.GAVE_UP, GangState.STOPPED})
"""The states that last until a person does something."""
_CONCERNS = {
    Concern.LATE: "no new checkpoint for long",
    Concern.REFUSED: "its newest checkpoint is refused",
    Concern.SLOWER: "writing a checkpoint takes longer than before",
    Concern.FULL: "its checkpoint store is nearly full",
}
_RANK = {state: number for number, state in enumerate(GangState)}


class GangRow(msgspec.Struct, frozen=True, kw_only=True):
    """One gang. Durations are in seconds; None for an unknown value."""

    namespace: str
    gang: str
    """For example `job/llama`."""
    state: GangState
    restarts: bool
    """Whether healthd may restart it."""
    running: int
    """Members that run."""
    members: int
    """Members that it should have."""
    nodes: int
    """Nodes on which they run."""
    step: int | None
    """The newest step that a checkpoint has shown, good or not."""
    saved: datetime | None
    """When the checkpoint of that step was saved; if that is unknown, when it was seen."""
    interval: float | None
    """The usual time between two checkpoints."""
    at_stake: float | None
    """The work that a fault would cost now."""
    attempt: int
    recovery: str
    """Its recovery that has not ended; else empty."""
    message: str


def gang_row(root: Root, pods: Collection[Pod], recoveries: Sequence[Recovery], now: datetime) -> GangRow:
    """The gang of *root*, from its *pods* and all *recoveries*, the newest first."""
    own = [each for each in recoveries if each.spec.gang.uid == root.ref.uid]
    active = next((each for each in own if each.status.phase not in ENDED), None)
    live = [pod for pod in pods if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None]
    stake = at_stake(root, now, recoveries)
    lost = lost_attempt(root, pods) if active is None and not root.invalid else ""
    state = GangState.INVALID if lost else state_of(root, active, len(live), own)
    newest = newest_step(root)
    return GangRow(
        namespace=root.ref.namespace,
        gang=gang_text(root.ref),
        state=state,
        restarts=root.options.restart,
        running=len(live),
        members=root.world,
        nodes=len({pod.spec.node_name for pod in live}),
        step=newest.step if newest and newest.step >= 0 else None,
        saved=newest.at if newest else None,
        interval=stake.interval_ms / 1000 if stake and stake.interval_ms is not None else None,
        at_stake=stake.lost_ms / 1000 if stake else None,
        attempt=root.attempt,
        recovery=active.metadata.name if active else "",
        message=lost or _message(root, active, stake, own, now),
    )


def state_of(root: Root, active: Recovery | None, running: int, own: Sequence[Recovery]) -> GangState:
    """The state of *root* with *running* members. *active* is the one of its *own* recoveries that has not ended."""
    if root.invalid:
        return GangState.INVALID
    if active is not None:
        return GangState.HELD if active.status.phase is Phase.HELD else GangState.RESTARTING
    if root.ending is not RootOutcome.NOT_ENDED:
        return GangState.COMPLETE if root.ending is RootOutcome.COMPLETE else GangState.FAILED
    if root.suspended:
        return _why_stopped(root, own)
    return GangState.RUNNING if running >= root.world > 0 else GangState.STARTING


def _why_stopped(root: Root, own: Sequence[Recovery]) -> GangState:
    if given_up_by(root, own):
        return GangState.GAVE_UP
    return GangState.STOPPED if _left_stopped(root, own) else GangState.SUSPENDED


def _left_stopped(root: Root, own: Sequence[Recovery]) -> str:
    """Why it stays as a recovery of healthd's has stopped it; empty when its user stopped or changed it."""
    if gone := left_stopped(root, [each.metadata.name for each in own]):
        return gone
    if not root.suspended or root.edited_since_stop:
        return ""
    by = next((each for each in own if each.metadata.name == root.stopped_by), None)
    if by is None or by.status.phase is not Phase.SUPERSEDED:
        return ""
    return f"recovery {by.metadata.name} stopped it, and does not start it: {by.status.message}"


def in_order(rows: Iterable[GangRow]) -> list[GangRow]:
    """Those that need a person first, then by namespace and name."""
    return sorted(rows, key=lambda row: (_RANK[row.state], row.namespace, row.gang))


def cells(row: GangRow, now: datetime) -> tuple[str, ...]:
    """*row* as text, a cell for each of `COLUMNS`."""
    return (
        row.namespace,
        row.gang,
        row.state.value,
        f"{row.running}/{row.members}",
        str(row.nodes),
        "" if row.step is None else str(row.step),
        f"{age((now - row.saved).total_seconds())} ago" if row.saved else "",
        age(row.interval),
        age(row.at_stake),
        str(row.attempt),
        row.recovery,
        row.message,
    )


def _message(root: Root, active: Recovery | None, stake: Stake | None, own: Sequence[Recovery], now: datetime) -> str:
    if root.invalid:
        return root.invalid[0]
    if active is not None:
        return f"{active.status.phase}: {active.status.message}" if active.status.message else active.status.phase
    if left := _left_stopped(root, own):
        return left
    if (given_up := given_up_by(root, own)) is not None:
        return given_up.status.message
    if root.suspended and root.ending is RootOutcome.NOT_ENDED:
        by_user = "its user changed it while it was stopped" if root.stopped_by else "its user stopped it"
        return root.unadmitted or by_user
    if (silence := open_silence(root, now)) is not None:
        return f"hangs: no rank has worked since {silence.since:%Y-%m-%d %H:%M:%S} UTC"
    if slow := open_stragglers(root, now):
        return effect_of(slow[-1])
    if not root.options.restart:
        return "healthd may not restart it"
    if stake is not None and stake.holds:
        return "no checkpoint would load: a fault would hold it"
    return "; ".join(_CONCERNS[each] for each in stake.concerns) if stake is not None else ""
