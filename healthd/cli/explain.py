"""
`healthd explain [RECOVERY | GANG]`: why a gang was restarted, and what was done, told from the recorded state alone.

Read-only, and safe beside a run that is going on. Without a name: one line for each recovery. With a gang, `job/llama`:
its newest recovery.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from healthd.cli import which_world
from healthd.cli.errors import UserError
from healthd.cli.which_world import World
from healthd.clock import SystemClock
from healthd.cluster.port import NotFound, Reader
from healthd.core.explain import Explanation, explain
from healthd.core.explain_text import COLUMNS, Section, row, tell
from healthd.core.model import Phase
from healthd.core.objects import Node, NodeHealth, Recovery
from healthd.core.telling import blamed, gang_text, kind_named

T = TypeVar("T", Node, NodeHealth)

PIPE_WIDTH = 120
"""Columns where there is no terminal."""


class Recorded(NamedTuple):
    """All that an explanation is made of."""

    where: str
    state: Path | None
    """Of a run on this machine."""
    recoveries: list[Recovery]
    """Those that were asked for, the oldest first."""
    nodes: dict[str, Node]
    health: dict[str, NodeHealth]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd explain`."""
    parser.add_argument(
        "recovery",
        nargs="?",
        default="",
        metavar="RECOVERY",
        help="its name, or the beginning of it, or its gang such as job/llama; none: list all",
    )
    which_world.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each recovery, one a line")


def run(args: argparse.Namespace) -> int:
    """Exit code 0; what is not there is a UserError."""
    recorded = asyncio.run(_read(args))
    if args.json:
        for recovery in recorded.recoveries:
            print(json.dumps(msgspec.to_builtins(_explained(recovery, recorded))))
    elif args.recovery:
        _print_story(_explained(recorded.recoveries[0], recorded), recorded.state)
    elif recorded.recoveries:
        _print_table(recorded.recoveries)
    else:
        print(f"{recorded.where}: no recovery so far")
    return 0


async def _read(args: argparse.Namespace) -> Recorded:
    """What is asked for, and the nodes that are to blame: a cluster has thousands of others."""
    async with which_world.open_world(args, args.recovery) as world:
        everything = (await world.cluster.list(Recovery, namespace=world.namespace)).items
        known = sorted(everything, key=lambda recovery: recovery.spec.cause.at)
        chosen = _chosen(known, args.recovery, world) if args.recovery else known
        names = {node for recovery in chosen for node in blamed(recovery.status)}
        names |= {recovery.spec.cause.node for recovery in chosen} - {""}
        nodes = {name: node for name in names if (node := await _get(world.cluster, Node, name))}
        health = {name: said for name in names if (said := await _get(world.cluster, NodeHealth, name))}
    return Recorded(world.name, world.state, chosen, nodes, health)


async def _get(cluster: Reader, kind: type[T], name: str) -> T | None:
    try:
        return await cluster.get(kind, name)
    except NotFound:
        return None


def _chosen(recoveries: Sequence[Recovery], said: str, world: World) -> list[Recovery]:
    """The one recovery that is named so, or whose name begins so; of a gang, the newest."""
    exact = [recovery for recovery in recoveries if recovery.metadata.name == said]
    found = exact or [recovery for recovery in recoveries if recovery.metadata.name.startswith(said)]
    kind, slash, name = said.partition("/")
    gang = f"{kind_named(kind)}/{name}" if slash else said
    of_gang = [recovery for recovery in recoveries if gang in (gang_text(recovery.spec.gang), recovery.spec.gang.name)]
    if not exact and of_gang:
        _be_one_gang(said, of_gang)
        return of_gang[-1:]
    if len(found) == 1:
        return found
    names = [recovery.metadata.name for recovery in found or recoveries]
    if found:
        raise UserError(f"{said!r} could be {', '.join(names)}")
    names += [gang_text(recovery.spec.gang) for recovery in recoveries]
    near = get_close_matches(said, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}" if names else "there is none yet"
    raise UserError(f"there is no recovery {said!r}{_in(world)}; {hint}")


def _be_one_gang(said: str, recoveries: Sequence[Recovery]) -> None:
    """Raises UserError where gangs of the same name, in several namespaces or of several kinds, could be meant."""
    gangs = {(recovery.spec.gang.namespace, gang_text(recovery.spec.gang)) for recovery in recoveries}
    if len(gangs) > 1:
        told = ", ".join(f"{gang} in {namespace}" for namespace, gang in sorted(gangs))
        raise UserError(f"{said!r} could be {told}; say which, with -n NAMESPACE")


def _in(world: World) -> str:
    return f" in namespace {world.namespace}" if world.namespace else ""


def _explained(recovery: Recovery, recorded: Recorded) -> Explanation:
    # On one machine the agents end with the run: that nothing is heard of them is no news.
    now = SystemClock().now() if recorded.state is None else None
    return explain(recovery, recorded.nodes, recorded.health, now)


def _print_story(story: Explanation, state: Path | None) -> None:
    from rich.console import Console  # imported here: machines should not wait for what only people need
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    for section in [*tell(story, width=console.width), *_logs(story, state)]:
        console.print(Text(section.title, style="bold"), soft_wrap=True)
        for line in section.lines:
            console.print(Text(line), soft_wrap=True)


def _logs(story: Explanation, state: Path | None) -> Iterator[Section]:
    """Where the ranks' own last words are, if they are still there."""
    if story.stopped_attempt is None or state is None:
        return
    stops = sum(lap.phase is Phase.STOPPING for lap in story.timeline)
    attempts = [story.stopped_attempt, *(attempt.number for attempt in story.attempts)][:stops]
    folders = [state / "logs" / f"attempt-{number}" for number in attempts]
    if lines := [f"  {folder}" for folder in folders if folder.is_dir()]:
        yield Section("Last words of the ranks that were stopped", lines)


def _print_table(recoveries: Sequence[Recovery]) -> None:
    """Plain columns, as kubectl prints them: made to be cut and searched."""
    rows = [COLUMNS, *(row(recovery) for recovery in recoveries)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(COLUMNS))]
    for line in rows:
        print("   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
