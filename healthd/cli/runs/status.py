"""
`healthd status --name RUN`: how a run of `healthd run` stands, from any directory and beside a run that goes on.

The answer comes from its recorded state alone. Exit codes: 0 for a run that goes on, has finished or was stopped; 3
for one that waits for a person, was given up, or was interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from healthd.cli.errors import UserError
from healthd.cli.target import run as target_run
from healthd.clock import Clock, SystemClock
from healthd.cluster.embedded import EmbeddedCluster, UnusableStore
from healthd.cluster.port import ClusterError, NotFound
from healthd.core.api import Job, Node, Pod, Recovery
from healthd.core.api.model import ENDED, Phase
from healthd.core.checkpoint.restart_cost import at_stake, cost_lines
from healthd.core.hang.describe import describe
from healthd.core.node.quarantine import read_record, repaired_at
from healthd.core.recovery.faults import cause_text
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.hangs.silence_record import open_silence
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.members import attempt_of, index_of, is_terminal
from healthd.core.recovery.nodes.spares import is_spare
from healthd.core.recovery.terms import ONE_SERVER
from healthd.core.report.explain import milliseconds
from healthd.core.report.explain_text import duration
from healthd.gangs.job import read_job
from healthd.local.gang import NAMESPACE
from healthd.local.reports.restarts import main_cause, way_out
from healthd.local.state.folder import database, explain_command, option_of, runs_dir
from healthd.local.state.known_runs import KnownRun, Standing, read_run, why_unreadable, with_way_out

NEEDS_A_PERSON = 3
_STANDS = {
    Standing.RUNNING: "is running",
    Standing.WAITING: "waits",
    Standing.FINISHED: "has finished",
    Standing.STOPPED: "was stopped",
    Standing.GAVE_UP: "was given up",
    Standing.INTERRUPTED: "was interrupted",
}
_GOES_ON = frozenset({Standing.RUNNING, Standing.WAITING})
_WELL = frozenset({Standing.RUNNING, Standing.FINISHED, Standing.STOPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What is reported."""

    run: KnownRun
    waits_for: str
    """Why it is held. Empty when it is not held."""
    way_out: str
    restarting: str
    """The current phase of its restart, while one is in progress."""
    hangs: str
    """For how long no rank has worked. Empty while one works, as far as is known."""
    last: str
    """The reason for the newest restart, or for giving up. Empty when there was no restart."""
    slots: dict[str, str]
    """The content of each slot."""
    next_fault: tuple[str, ...]
    """The cost of a fault now."""

    @property
    def code(self) -> int:
        """Of the process."""
        return 0 if self.run.standing in _WELL and not self.waits_for else NEEDS_A_PERSON


async def status_of(args: argparse.Namespace, clock: Clock) -> RunStatus:
    """The run that *args* name. Raises UserError."""
    state = await asyncio.to_thread(target_run.find_state, args, runs_dir(), Path.cwd())
    try:
        found = await read_state(state, clock)
    except (UnusableStore, ClusterError, OSError) as error:
        raise UserError(with_way_out(error, state)) from error
    if found is None:
        raise UserError(await why_unreadable(state) or f"the run in {state} has not begun, or cannot be read")
    return found


async def read_state(state: Path, clock: Clock) -> RunStatus | None:
    """
    The run that keeps its *state* there; None where it has not begun.

    Raises UnusableStore, ClusterError, OSError.
    """
    run = await read_run(state)
    if run is None:
        return None
    opened = EmbeddedCluster.open(database(state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4()))
    with opened as cluster:
        return await _read(cluster, run, clock.now())


async def _read(cluster: EmbeddedCluster, run: KnownRun, now: datetime) -> RunStatus | None:
    jobs = (await cluster.list(Job, namespace=NAMESPACE)).items
    try:
        root = read_job(jobs[0])
    except (IndexError, NotFound):
        return None
    recoveries = (await cluster.list(Recovery, namespace=NAMESPACE)).items
    own = sorted(
        (each for each in recoveries if each.spec.gang.uid == root.ref.uid), key=lambda each: each.spec.first_attempt
    )
    newest = own[-1] if own else None
    nodes, pods = (await cluster.list(Node)).items, (await cluster.list(Pod, namespace=NAMESPACE)).items
    if root.ending is RootOutcome.COMPLETE:  # its healthd may not have ended yet
        run = replace(run, standing=Standing.FINISHED)
    is_running = run.standing in _GOES_ON
    status = newest.status if newest is not None and newest.status.phase not in ENDED and is_running else None
    held = status is not None and status.phase is Phase.HELD
    option = option_of(run.name, run.state)
    stake = at_stake(root, now, own) if is_running and status is None else None
    return RunStatus(
        run=run,
        waits_for=status.message if status and held else "",
        way_out=way_out(hold_of(status), status.causes[-1].node, option) if status and held else "",
        restarting=f"{status.phase.value}: {status.message}" if status and not held else "",
        hangs=_hangs(root, now) if is_running else "",
        last=_last(newest),
        # When healthd was killed, the record still says that ranks run. They were ended together with healthd.
        slots={
            node.metadata.name: _on_slot(node, option, pods if run.standing is not Standing.INTERRUPTED else ())
            for node in sorted(nodes, key=lambda one: one.metadata.name)
        },
        next_fault=tuple(cost_lines(stake, ONE_SERVER)) if stake else (),
    )


def _hangs(root: Root, now: datetime) -> str:
    silence = open_silence(root, now)
    if silence is None:
        return ""
    return f"no rank has worked for {duration(milliseconds(now - silence.since))}: {describe(silence)}"


def _last(newest: Recovery | None) -> str:
    if newest is None:
        return ""
    status = newest.status
    if status.phase is Phase.GAVE_UP:
        return status.message
    causes = status.causes or [newest.spec.cause]
    return f"{cause_text(main_cause(causes))}, at {causes[-1].at.astimezone():%Y-%m-%d %H:%M:%S}"


def _on_slot(node: Node, option: str, pods: Sequence[Pod]) -> str:
    if record := read_record(node):
        name = node.metadata.name
        why = f"{ONE_SERVER.worded(record.message)} ({record.finding})"
        repaired = repaired_at(node)
        if repaired is not None and repaired != record.repaired and repaired >= (record.seen_at or record.since):
            return f"out of service: {why}; it is marked repaired, and given back when the run goes on"
        return f"out of service: {why}; after a repair: healthd repair {name} {option}"
    here = [pod for pod in pods if pod.spec.node_name == node.metadata.name and not is_terminal(pod)]
    if here:
        rank = max(here, key=attempt_of)
        return f"rank {index_of(rank)}, " + (
            "stopping" if rank.metadata.deletion_timestamp else rank.status.phase.lower()
        )
    return "spare" if is_spare(node) else "idle"


def as_json(status: RunStatus) -> str:
    """One object on one line."""
    return json.dumps(asdict(status), default=str)


def lines(status: RunStatus) -> Iterator[str]:
    """For a person."""
    run = status.run
    stands = "waits" if status.waits_for else "is being restarted" if status.restarting else _STANDS[run.standing]
    yield f"run {run.name} {stands}" + (f", at step {run.step}" if run.step >= 0 else "")
    if run.standing is Standing.INTERRUPTED:
        yield "  way out      the same command, given where it was started, goes on from the newest whole checkpoint"
    if status.waits_for:
        yield f"  waits for    {status.waits_for}"
        yield f"  way out      {status.way_out}"
    if status.hangs:
        yield f"  hangs        {status.hangs}"
    if status.restarting:
        yield f"  restart      {status.restarting}"
    yield f"  restarts     {run.restarts}" + (f", the last: {status.last}" if status.last and run.restarts else "")
    begun = f", since {run.since.astimezone():%Y-%m-%d %H:%M}" if run.since else ""
    yield f"  runs         {run.command} ({run.ranks} rank{'s' if run.ranks != 1 else ''}{begun})"
    yield f"  started in   {run.folder}"
    yield f"  checkpoints  {run.checkpoints}"
    yield f"  logs         {run.state / 'logs'}"
    for slot, text in status.slots.items():
        yield f"  {slot:<11}  {text}"
    for line in status.next_fault:
        yield f"  next fault   {line}"
    yield f"  more         {explain_command(run.name, run.state)}"
