"""
`healthd explain [RECOVERY]`: why a gang was restarted, and what was done, told from the recorded state alone.

Read-only, and safe beside a run that is going on. Without a name: one line for each recovery.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import msgspec

from healthd.cli import which_run
from healthd.cli.errors import UserError
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster, UnusableStore
from healthd.core.explain import Explanation, explain
from healthd.core.explain_text import COLUMNS, Section, row, tell
from healthd.core.model import Phase
from healthd.core.objects import Node, NodeHealth, Recovery
from healthd.local.state import database, runs_dir

PIPE_WIDTH = 120
"""Columns where there is no terminal."""


class Recorded(NamedTuple):
    """All that an explanation is made of."""

    recoveries: list[Recovery]
    nodes: dict[str, Node]
    health: dict[str, NodeHealth]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd explain`."""
    parser.add_argument(
        "recovery", nargs="?", default="", metavar="RECOVERY", help="its name, or the beginning of it; none: list all"
    )
    which_run.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each recovery, one a line")


def run(args: argparse.Namespace) -> int:
    """Exit code 0; what is not there is a UserError."""
    state = which_run.find_state(args, runs_dir(), Path.cwd())
    recorded = asyncio.run(_read(state))
    chosen = _chosen(recorded.recoveries, args.recovery) if args.recovery else recorded.recoveries
    if args.json:
        for recovery in chosen:
            print(json.dumps(msgspec.to_builtins(_explained(recovery, recorded))))
    elif args.recovery:
        _print_story(_explained(chosen[0], recorded), state)
    elif chosen:
        _print_table(chosen)
    else:
        print(f"{state}: no recovery so far")
    return 0


async def _read(state: Path) -> Recorded:
    try:
        with EmbeddedCluster.open(database(state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
            recoveries = (await cluster.list(Recovery)).items
            nodes = {node.metadata.name: node for node in (await cluster.list(Node)).items}
            health = {known.metadata.name: known for known in (await cluster.list(NodeHealth)).items}
    except UnusableStore as error:
        raise UserError(str(error)) from error
    return Recorded(sorted(recoveries, key=lambda recovery: recovery.spec.cause.at), nodes, health)


def _chosen(recoveries: Sequence[Recovery], name: str) -> list[Recovery]:
    """The one recovery that is named so, or whose name begins so."""
    exact = [recovery for recovery in recoveries if recovery.metadata.name == name]
    found = exact or [recovery for recovery in recoveries if recovery.metadata.name.startswith(name)]
    if len(found) == 1:
        return found
    names = [recovery.metadata.name for recovery in found or recoveries]
    if found:
        raise UserError(f"{name!r} could be {', '.join(names)}")
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}" if names else "there is none yet"
    raise UserError(f"there is no recovery {name!r}; {hint}")


def _explained(recovery: Recovery, recorded: Recorded) -> Explanation:
    return explain(recovery, recorded.nodes, recorded.health)


def _print_story(story: Explanation, state: Path) -> None:
    from rich.console import Console  # imported here: machines should not wait for what only people need
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    for section in [*tell(story, width=console.width), *_logs(story, state)]:
        console.print(Text(section.title, style="bold"), soft_wrap=True)
        for line in section.lines:
            console.print(Text(line), soft_wrap=True)


def _logs(story: Explanation, state: Path) -> Iterator[Section]:
    """Where the ranks' own last words are, if they are still there."""
    if story.stopped_attempt is None:
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
