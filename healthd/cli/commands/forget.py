"""`healthd forget`: remove what healthd remembers of a run on this machine. Its checkpoints stay where they are."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from healthd.cli.errors import UserError
from healthd.cli.target.run import check_name, holds_run, run_name, state_folder
from healthd.local.state.folder import AlreadyRunning, forget, held, runs_dir
from healthd.local.state.known_runs import KnownRun, known_runs, read_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd forget`."""
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="as `healthd runs` lists it")
    parser.add_argument("--state", type=state_folder, metavar="DIR", help="where the run keeps its state")


def run(args: argparse.Namespace) -> int:
    """Exit code 0; a run that is under way, or is not there, is a UserError."""
    if not args.name and not args.state:
        raise UserError("name the run that is to be forgotten, or where it keeps its state: NAME or --state DIR")
    state = args.state or runs_dir() / run_name(args.name)
    if not holds_run(state):
        raise UserError(_unknown(state))
    known = asyncio.run(read_run(state))
    if args.name and args.state:
        _check_name(known, args.name, state)
    try:
        with held(state):
            forget(state)
    except AlreadyRunning as error:
        raise UserError(f"{error}: stop it first") from None
    except OSError as error:
        raise UserError(f"the state in {state} cannot be removed: {error}") from None
    for line in _lines(known, state):
        print(line)
    return 0


def _check_name(known: KnownRun | None, name: str, state: Path) -> None:
    """Raises UserError also where the name cannot be read: what is forgotten is gone."""
    if known is None:
        raise UserError(f"whether the run in {state} is called {name} could not be read: leave out the name")
    check_name(known, name)


def _lines(known: KnownRun | None, state: Path) -> list[str]:
    if known is None:
        return [f"{state} is forgotten; what run it was of could not be read"]
    return [
        f"forgotten: {known}; its state and logs in {state} are gone",
        f"its checkpoints in {known.checkpoints} are left",
        *(f"forgotten, too: {slot} was out of service" for slot in known.out_of_service),
    ]


def _unknown(state: Path) -> str:
    names = ", ".join(run.name for run in asyncio.run(known_runs(runs_dir()))) or "none"
    return f"there is no run in {state}; `healthd runs` lists those that there are: {names}"
