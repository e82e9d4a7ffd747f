"""
The runs that this machine knows, read from their state folders.

The Job says where a run was started, what it runs, and where it saves. Nothing here changes a run.
"""

from __future__ import annotations

import os
import re
import shlex
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from healthd.clock import SystemClock
from healthd.cluster.embedded import DamagedStore, EmbeddedCluster, UnusableStore
from healthd.cluster.port import ClusterError
from healthd.controller.checkpoints.mounted import path_of
from healthd.core.api import ChosenCheckpoint, Job, Node, Recovery
from healthd.core.api.model import Phase
from healthd.core.node.quarantine import read_record
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.root_state import given_up_by
from healthd.gangs.job import read_job
from healthd.local.checkpoints.memory import ended_with, seen_of
from healthd.local.gang import NAMESPACE, restarts_of, since_of
from healthd.local.state.folder import database, forget_command

LOCKS = Path("/proc/locks")
_FLOCK = re.compile(r"FLOCK\s+ADVISORY\s+WRITE\s+\S+\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s")


class Standing(StrEnum):
    """The current state of a run."""

    RUNNING = "running"
    WAITING = "waits"
    """The run is held: a person has to act."""
    FINISHED = "finished"
    STOPPED = "stopped"
    """Stopped by its user."""
    GAVE_UP = "gave up"
    INTERRUPTED = "interrupted"
    """healthd was killed while the run was running."""


_ENDED = frozenset({Standing.FINISHED, Standing.STOPPED, Standing.GAVE_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """One run."""

    name: str
    state: Path
    standing: Standing
    folder: str
    """The folder where it was started."""
    command: str
    checkpoints: str
    """The folder where it saves."""
    ranks: int
    step: int
    """
    The step of the checkpoint that it left or, while it has not ended, the highest step seen. -1: no checkpoint, or the
    names give no step.
    """
    restarts: int
    """Restarts by healthd, without those by its user."""
    since: datetime | None
    """Checkpoints saved since this time belong to the run."""
    out_of_service: tuple[str, ...] = ()
    """Its slots in quarantine, each with its GPU and its finding."""

    def __str__(self) -> str:
        step = f" at step {self.step}" if self.step >= 0 else ""
        return f"the run {self.name!r}, {self.standing}{step} ({self.command}, started in {self.folder})"


async def known_runs(runs: Path) -> list[KnownRun]:
    """All runs in *runs* that can be read, the newest first."""
    found = [await read_run(path.parent) for path in sorted(runs.glob(f"*/{database(Path()).name}"))]
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted((run for run in found if run), key=lambda run: run.since or oldest, reverse=True)


async def read_run(state: Path) -> KnownRun | None:
    """The run whose state is in the folder *state*. None when there is no run, or it cannot be read."""
    try:
        return await _read(state)
    except (UnusableStore, ClusterError, OSError):
        return None


async def unreadable_runs(runs: Path) -> dict[Path, str]:
    """The states in *runs* that cannot be read: each folder, with the reason."""
    states = sorted(path.parent for path in runs.glob(f"*/{database(Path()).name}"))
    return {state: why for state in states if (why := await why_unreadable(state))}


async def why_unreadable(state: Path) -> str:
    """Why the run in the folder *state* cannot be read, with the way out. Empty when it can, or there is none."""
    try:
        await _read(state)
    except (UnusableStore, ClusterError, OSError) as error:
        return with_way_out(error, state)
    return ""


def with_way_out(error: Exception, state: Path) -> str:
    """*error*, met in the folder *state*, in words. A store that is damaged does not mend by itself."""
    if not isinstance(error, DamagedStore):
        return str(error)
    return f"{error}; where there is no copy of it, `{forget_command(state)}` removes it and leaves the checkpoints"


async def _read(state: Path) -> KnownRun | None:
    """As `read_run`. Raises UnusableStore, ClusterError, OSError."""
    if not database(state).is_file():
        return None
    with EmbeddedCluster.open(database(state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
        jobs = (await cluster.list(Job, namespace=NAMESPACE)).items
        recoveries = (await cluster.list(Recovery, namespace=NAMESPACE)).items
        nodes = (await cluster.list(Node)).items
    return _run_of(state, jobs[0], recoveries, nodes) if jobs else None


def _run_of(state: Path, job: Job, recoveries: Sequence[Recovery], nodes: Sequence[Node]) -> KnownRun:
    root, container = read_job(job), job.spec.template.spec.containers[0]
    own = [recovery for recovery in recoveries if recovery.spec.gang.uid == root.ref.uid]
    standing = _standing(root, own, is_running=is_held(state))
    has_ended = standing in _ENDED or root.ending is not RootOutcome.NOT_ENDED
    return KnownRun(
        name=job.metadata.name,
        state=state,
        standing=standing,
        folder=container.working_dir,
        command=shlex.join([*container.command, *container.args]),
        checkpoints=str(path_of(root.options.checkpoint) or root.options.checkpoint),
        ranks=root.world,
        step=(ended_with if has_ended else seen_of)(job, root, own).step,
        restarts=restarts_of(job, root),
        since=since_of(job),
        out_of_service=tuple(map(_slot_text, (node for node in nodes if node.spec.unschedulable))),
    )


def _standing(root: Root, recoveries: Sequence[Recovery], *, is_running: bool) -> Standing:
    latest = max(recoveries, key=lambda recovery: recovery.spec.first_attempt, default=None)
    if is_running:
        is_waiting = latest is not None and latest.status.phase is Phase.HELD
        return Standing.WAITING if is_waiting else Standing.RUNNING
    if root.ending is RootOutcome.COMPLETE:
        return Standing.FINISHED
    if root.ending is RootOutcome.FAILED or given_up_by(root, recoveries):
        return Standing.GAVE_UP
    return Standing.STOPPED if root.suspended and not root.stopped_by else Standing.INTERRUPTED


def _slot_text(node: Node) -> str:
    record = read_record(node)
    return f"{node.metadata.name} ({record.finding})" if record else node.metadata.name


def is_held(state: Path) -> bool:
    """
    Whether a process holds the lock of *state*. Read from the kernel: trying the lock could make another start fail.
    """
    try:
        found = (state / "lock").stat()
        locks = LOCKS.read_text()
    except OSError:
        return False
    lock = (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    return lock in {(int(a, 16), int(b, 16), int(c)) for a, b, c in _FLOCK.findall(locks)}


def who_saved(checkpoint: ChosenCheckpoint, folder: Path, since: datetime, others: Sequence[KnownRun]) -> str:
    """
    Which run saved *checkpoint* in *folder*. Empty when the run itself saved it: its checkpoints are saved since
    *since*.
    """
    at = datetime.fromtimestamp(checkpoint.saved_ns / 1e9, UTC) if checkpoint.saved_ns else None
    if at is None or at >= since:
        return ""
    place = os.path.realpath(folder)  # unlike `resolve` it takes links that lead in a circle
    before = [run for run in others if run.since and run.since <= at and os.path.realpath(run.checkpoints) == place]
    if before:
        return str(max(before, key=lambda run: run.since or since))
    return "no run that this machine knows of"
