"""
`healthd explain [RECOVERY | GANG]`: why a gang was restarted, and what was done, from the recorded state alone.

Read-only, and safe beside a run that is going on. Without a name: one line for each recovery. With a gang, `job/llama`:
its newest recovery, and what a fault would cost it now. With --svg, a picture of the last minutes before its last hang.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from healthd.cli.errors import UserError
from healthd.cli.explain_hang import lines_of_hang, write_svg
from healthd.cli.listing import read_recoveries
from healthd.cli.quiet_ranks import lines_of_ranks, read_quiet_ranks
from healthd.cli.refusals import read_refusal
from healthd.cli.target.gang import gang_named, gang_of
from healthd.cli.target.run import known_runs
from healthd.cli.target.target import Target, add_target_arguments, open_target
from healthd.cli.terminal.output import console
from healthd.clock import SystemClock
from healthd.cluster.port import NotFound, Reader
from healthd.core.alerts.advice import IN_CLUSTER, way_out
from healthd.core.api import Job, Node, NodeHealth, Recovery
from healthd.core.api.model import ENDED, Phase
from healthd.core.checkpoint.restart_cost import Stake, at_stake
from healthd.core.hang.suspects.evidence import RankEvidence
from healthd.core.hang.work.straggler_text import straggler_lines
from healthd.core.recovery.gang import Root
from healthd.core.recovery.hangs.silence_record import open_silence
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.recovery_status import blamed, gang_text, kind_named
from healthd.core.recovery.terms import KUBERNETES, ONE_SERVER, Terms
from healthd.core.report.explain import Explanation, explain
from healthd.core.report.explain_text import (
    Section,
    columns,
    explain_sections,
    gpu_time,
    row,
    sections_without_incident,
    silent,
    slow,
)
from healthd.core.report.gpu_time_text import gpu_time_lines
from healthd.core.report.silence_text import silence_lines
from healthd.local.hang.record import HangRecord, record_of
from healthd.local.reports.restarts import way_out as way_out_of_run
from healthd.local.state.folder import option_of, runs_dir
from healthd.local.state.known_runs import is_held

T = TypeVar("T", Node, NodeHealth)

PIPE_WIDTH = 120
"""The width in columns without a terminal."""
_INDENT = "  "


class Recorded(NamedTuple):
    """All that an explanation is made of."""

    where: str
    state: Path | None
    """Set for a run on this machine."""
    recoveries: list[Recovery]
    """The requested recoveries, the oldest first."""
    nodes: dict[str, Node]
    health: dict[str, NodeHealth]
    gang: Root | None
    """The requested gang, or the gang of the newest recovery, if it still exists."""
    stake: Stake | None
    """The cost of a fault for that gang now. None while one of its recoveries runs, or when it is unknown."""
    gpu_time: list[str]
    """What the GPUs of that gang were used for. Empty beside an older recovery of it."""
    silence: list[str]
    """The last time that all its members fell silent. Empty beside an older recovery of it."""
    hang: HangRecord | None
    """What the witnesses said of each rank then, where they were asked."""
    ranks: list[RankEvidence]
    """What each rank does, by the agents of a cluster, while the gang hangs. Empty: it does not, or it is a run."""
    stragglers: list[str]
    """The ranks that the others waited for. Empty beside an older recovery."""
    refusal: str = ""
    """What the Events of a cluster say that its newest step was refused for. Empty: nothing, or it has ended."""

    @property
    def terms(self) -> Terms:
        """The words of the world that was looked at."""
        return KUBERNETES if self.state is None else ONE_SERVER

    @property
    def is_attended(self) -> bool:
        """The healthd that goes on with a recovery runs. Of a cluster that is taken for granted."""
        return self.state is None or is_held(self.state)

    @property
    def option(self) -> str:
        """The option by which commands find the run. Empty for a cluster."""
        names = [self.gang.ref.name] if self.gang else [each.spec.gang.name for each in self.recoveries]
        return option_of(names[0], self.state) if self.state is not None and names else ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd explain`."""
    parser.add_argument(
        "recovery",
        nargs="?",
        default="",
        metavar="RECOVERY",
        help="its name, or the beginning of it, or its run, or its gang such as job/llama; none: list all",
    )
    add_target_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object for each recovery, one a line")
    form.add_argument(
        "--svg", type=Path, metavar="FILE", help="write what each rank did before the last hang of a run as a picture"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 0; what is not there is a UserError."""
    recorded = asyncio.run(_read(args))
    if args.svg:
        name = recorded.gang.ref.name if recorded.gang else ""
        write_svg(recorded.hang if recorded.silence else None, name, args.svg)
        print(args.svg)
    elif args.json:
        _print_json(recorded)
    elif args.recovery and recorded.recoveries:
        recovery = recorded.recoveries[0]
        _print(lambda width: _of_recovery(recovery, recorded, width))
    elif recorded.gang is not None:
        gang = recorded.gang
        _print(lambda width: _of_gang(gang, recorded, width))
    elif recorded.recoveries:
        _print_table([columns(recorded.terms), *map(row, recorded.recoveries)])
    else:
        print(f"{recorded.where}: no recovery so far")
    return 0


def _of_recovery(recovery: Recovery, recorded: Recorded, width: int) -> list[Section]:
    explanation = _explained(recovery, recorded)
    sections = explain_sections(
        explanation,
        width=width,
        terms=recorded.terms,
        option=recorded.option,
        is_attended=recorded.is_attended,
        way_out=_way_out(recovery, recorded),
        refusal=recorded.refusal,
    )
    return [
        *_with_hang(sections, recorded, width),
        *gpu_time(recorded.gpu_time, width, recorded.terms),
        *_logs(explanation, recorded.state),
    ]


def _of_gang(gang: Root, recorded: Recorded, width: int) -> list[Section]:
    """One without a recovery."""
    sections = sections_without_incident(gang, recorded.stake, width=width)
    return [*_with_hang(sections, recorded, width), *gpu_time(recorded.gpu_time, width, recorded.terms)]


async def _read(args: argparse.Namespace) -> Recorded:
    """The requested recoveries, and only the nodes that they blame: a cluster has thousands of others."""
    async with open_target(args, args.recovery) as found:
        known = sorted(await read_recoveries(found), key=lambda recovery: recovery.spec.cause.at)
        chosen = _chosen(known, args.recovery) if args.recovery else known
        gang = await _gang(args.recovery, chosen, found) if args.recovery else None
        if args.recovery and not chosen and gang is None:
            jobs = (await found.cluster.list(Job)).items if found.state is not None else []
            raise UserError(_nothing_of(args.recovery, known, found, [job.metadata.name for job in jobs]))
        names = {node for recovery in chosen for node in blamed(recovery.status)}
        names |= {recovery.spec.cause.node for recovery in chosen} - {""}
        nodes = {name: node for name in names if (node := await _get(found.cluster, Node, name))}
        health = {name: given for name in names if (given := await _get(found.cluster, NodeHealth, name))}
        notes = await _notes(gang, found) if gang and found.state is not None else {}
        ranks = await read_quiet_ranks(gang, found, SystemClock().now()) if gang and found.state is None else []
        refusal = await read_refusal(chosen[0], found) if args.recovery and chosen and found.state is None else ""
    stake = _stake(gang, chosen, known) if gang else None
    lines = _gpu_time(gang, chosen, known) if gang else []
    is_newest = gang is not None and _is_newest(gang, chosen, known)
    silence = silence_lines(gang, SystemClock().now()) if gang and is_newest else []
    hang = record_of(notes, gang.silence) if gang else None
    stragglers = straggler_lines(gang.stragglers) if gang and is_newest else []
    return Recorded(
        found.name, found.state, chosen, nodes, health, gang, stake, lines, silence, hang, ranks, stragglers, refusal
    )


async def _gang(given: str, chosen: Sequence[Recovery], found: Target) -> Root | None:
    if chosen:
        return await gang_of(found.cluster, chosen[0].spec.gang)
    return await gang_named(found.cluster, given, found.namespace)


async def _notes(gang: Root, found: Target) -> Mapping[str, str]:
    """The annotations of a run on this machine."""
    try:
        job = await found.cluster.get(Job, gang.ref.name, gang.ref.namespace)
    except NotFound:
        return {}
    return job.metadata.annotations


def _with_hang(sections: Sequence[Section], recorded: Recorded, width: int) -> list[Section]:
    """*sections* and the last silence, which comes right below the headline while the gang hangs."""
    hangs = recorded.gang is not None and open_silence(recorded.gang, SystemClock().now()) is not None
    place = 1 if hangs else len(sections)
    return [*sections[:place], *_silent(recorded, width), *sections[place:]]


def _silent(recorded: Recorded, width: int) -> Iterator[Section]:
    """The last silence in sentences, its table and picture as they are (they must not be wrapped), and stragglers."""
    for section in silent(recorded.silence, width):
        room = width - len(_INDENT)
        lines = lines_of_hang(recorded.hang, room) if recorded.hang else lines_of_ranks(recorded.ranks, room)
        yield Section(section.title, [*section.lines, *(_INDENT + line if line else line for line in lines)])
    yield from slow(recorded.stragglers, width)


def _stake(gang: Root, chosen: Sequence[Recovery], known: Sequence[Recovery]) -> Stake | None:
    """Shown beside the newest recovery of a gang, when that recovery is over."""
    own = [recovery for recovery in known if recovery.spec.gang.uid == gang.ref.uid]
    is_over = all(recovery.status.phase in ENDED for recovery in own)
    return at_stake(gang, SystemClock().now(), known) if is_over and chosen == own[-1:] else None


def _is_newest(gang: Root, chosen: Sequence[Recovery], known: Sequence[Recovery]) -> bool:
    """Whether *chosen* is the newest recovery of the gang, or it has none."""
    return chosen == [recovery for recovery in known if recovery.spec.gang.uid == gang.ref.uid][-1:]


def _gpu_time(gang: Root, chosen: Sequence[Recovery], known: Sequence[Recovery]) -> list[str]:
    """Shown for a gang, and beside its newest recovery."""
    own = [recovery for recovery in known if recovery.spec.gang.uid == gang.ref.uid]
    active = next((recovery for recovery in own if recovery.status.phase not in ENDED), None)
    return gpu_time_lines(gang, active, SystemClock().now()) if chosen == own[-1:] else []


async def _get(cluster: Reader, kind: type[T], name: str) -> T | None:
    try:
        return await cluster.get(kind, name)
    except NotFound:
        return None


def _chosen(recoveries: Sequence[Recovery], given: str) -> list[Recovery]:
    """
    The one recovery with this name or this prefix; for a gang, its newest. Raises UserError when there are several.
    """
    exact = [recovery for recovery in recoveries if recovery.metadata.name == given]
    found = exact or [recovery for recovery in recoveries if recovery.metadata.name.startswith(given)]
    kind, slash, name = given.partition("/")
    gang = f"{kind_named(kind)}/{name}" if slash else given
    of_gang = [recovery for recovery in recoveries if gang in (gang_text(recovery.spec.gang), recovery.spec.gang.name)]
    if not exact and of_gang:
        _be_one_gang(given, of_gang)
        return of_gang[-1:]
    if len(found) > 1:
        raise UserError(f"{given!r} could be {', '.join(recovery.metadata.name for recovery in found)}")
    return found


def _nothing_of(given: str, recoveries: Sequence[Recovery], found: Target, own: Sequence[str]) -> str:
    """The error text. *own* is the name of the run that was read, where it is one."""
    if found.state is not None:
        return _no_run_of(given, recoveries, next(iter(own), found.state.name))
    names = [recovery.metadata.name for recovery in recoveries]
    names += [gang_text(recovery.spec.gang) for recovery in recoveries]
    near = get_close_matches(given, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}" if names else "there is none yet"
    return (
        f"there is no recovery {given!r}{_in(found)}, and no gang of that name has an annotation of healthd's; {hint}"
    )


def _no_run_of(given: str, recoveries: Sequence[Recovery], own: str) -> str:
    """The error text, with the runs on this machine, and the recoveries of the run that was read."""
    runs = sorted({run.name for run in known_runs(runs_dir())} | {own})
    names = [recovery.metadata.name for recovery in recoveries]
    near = get_close_matches(given, [*runs, *names], n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    of_run = f"; recoveries of {own}: {', '.join(names)}" if names else ""
    return f"there is no run and no recovery {given!r}; {meant}runs on this machine: {', '.join(runs)}{of_run}"


def _be_one_gang(given: str, recoveries: Sequence[Recovery]) -> None:
    """Raises UserError when several gangs of the same name, in several namespaces or of several kinds, match."""
    gangs = {(recovery.spec.gang.namespace, gang_text(recovery.spec.gang)) for recovery in recoveries}
    if len(gangs) > 1:
        candidates = ", ".join(f"{gang} in {namespace}" for namespace, gang in sorted(gangs))
        raise UserError(f"{given!r} could be {candidates}; say which, with -n NAMESPACE")


def _in(found: Target) -> str:
    return f" in namespace {found.namespace}" if found.namespace else ""


def _explained(recovery: Recovery, recorded: Recorded) -> Explanation:
    # On one machine the agents end with the run: silence of the agents is normal.
    now = SystemClock().now() if recorded.state is None else None
    saves = recorded.gang.saves.good if recorded.gang else []
    return explain(
        recovery,
        recorded.nodes,
        recorded.health,
        now,
        good_before=saves[-1].at if saves and recovery.status.phase not in ENDED else None,
        stake=recorded.stake,
    )


def _way_out(recovery: Recovery, recorded: Recorded) -> str:
    if recorded.state is None:
        return way_out(recovery, IN_CLUSTER)
    node = (recovery.status.causes or [recovery.spec.cause])[-1].node
    return way_out_of_run(hold_of(recovery.status), node, recorded.option)


def _print_json(recorded: Recorded) -> None:
    for recovery in recorded.recoveries:
        print(json.dumps(msgspec.to_builtins(_explained(recovery, recorded))))
    if recorded.gang is not None and not recorded.recoveries:
        ref = recorded.gang.ref
        candidates = {"recovery": None, "namespace": ref.namespace, "gang": f"{ref.kind} {ref.name}"}
        print(json.dumps({**candidates, "at_stake": msgspec.to_builtins(recorded.stake)}))


def _print(sections: Callable[[int], Sequence[Section]]) -> None:
    """Print *sections* at the width of the terminal."""
    from rich.text import Text  # imported here: programs must not wait for what only people need

    page = console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    for section in sections(page.width):
        page.print(Text(section.title, style="bold"), soft_wrap=True)
        for line in section.lines:
            page.print(Text(line), soft_wrap=True)


def _logs(explanation: Explanation, state: Path | None) -> Iterator[Section]:
    """The paths of the ranks' log files, if they still exist."""
    if explanation.stopped_attempt is None or state is None:
        return
    stops = sum(lap.phase is Phase.STOPPING for lap in explanation.timeline)
    attempts = [explanation.stopped_attempt, *(attempt.number for attempt in explanation.attempts)][:stops]
    folders = [state / "logs" / f"attempt-{number}" for number in attempts]
    if lines := [f"  {folder}" for folder in folders if folder.is_dir()]:
        yield Section("Last output of the ranks that were stopped", lines)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Plain columns, as kubectl prints them, easy to cut and search."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for line in rows:
        print("   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
