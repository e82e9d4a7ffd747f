"""`healthd runs`: which runs there are on this machine, how far they are, and what each of them is."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from healthd.cli.terminal.output import complain
from healthd.core.printable import printable
from healthd.local.state.folder import runs_dir
from healthd.local.state.known_runs import KnownRun, known_runs, unreadable_runs

COLUMNS = ("NAME", "STATUS", "STEP", "RANKS", "RESTARTS", "BEGUN", "STARTED IN", "CHECKPOINTS", "COMMAND")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd runs`."""
    parser.epilog = "Runs that were started with --state keep their state elsewhere and are not listed."
    parser.add_argument("--json", action="store_true", help="one JSON object for each run, one a line")


def run(args: argparse.Namespace) -> int:
    """Exit code 0, also where there is none. One that cannot be read is reported on standard error."""
    runs, unreadable = asyncio.run(_read())
    for why in unreadable.values():
        complain(f"healthd: {why}")
    if args.json:
        for each in runs:
            print(json.dumps(asdict(each), default=_plain))
    elif runs:
        _print_table([COLUMNS, *map(row, runs)])
    elif not unreadable:
        print(f"there is no run in {runs_dir()}")
    return 0


async def _read() -> tuple[list[KnownRun], dict[Path, str]]:
    return await known_runs(runs_dir()), await unreadable_runs(runs_dir())


def row(run: KnownRun) -> tuple[str, ...]:
    """One line of the table."""
    begun = run.since.astimezone().strftime("%Y-%m-%d %H:%M") if run.since else "?"
    step = str(run.step) if run.step >= 0 else "-"
    cells = (run.name, run.standing, step, str(run.ranks), str(run.restarts), begun, run.folder, run.checkpoints)
    return tuple(map(printable, (*cells, run.command)))


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value) if isinstance(value, Path) else repr(value)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Plain columns, as kubectl prints them."""
    widths = [max(len(line[column]) for line in rows) for column in range(len(COLUMNS))]
    for line in rows:
        print("   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
