"""Which run a command is about: by its name, by the place of its state, or because there is only one it can be."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
from pathlib import Path

from healthd.cli.errors import UserError
from healthd.local.state.folder import database
from healthd.local.state.known_runs import KnownRun, read_run

LONGEST_NAME = 40
_ELSEWHERE = "if its state is elsewhere, say where with --state"
MARK = 6
"""Digits that distinguish directories of the same name."""


def add_arguments(parser: argparse.ArgumentParser, without: str = "the directory's, or the only") -> None:
    """The options that say which run is meant; *without* them it is that one, for the help."""
    parser.add_argument("--name", type=name_option, metavar="RUN", help=f"of the run (default: {without})")
    parser.add_argument("--state", type=state_folder, metavar="DIR", help="where the run keeps its state")


def name_option(text: str) -> str:
    """The value of `--name`. Raises ArgumentTypeError for an empty one: it would mean another run, or this machine."""
    if not text:
        raise argparse.ArgumentTypeError("it names no run: name one, or leave it out")
    return text


def state_folder(text: str) -> Path:
    """The folder of `--state`. Raises ArgumentTypeError: an empty one, as of a variable that is not set, is no `.`."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it names no folder: name the one for the state of the run, or leave it out")
    return Path(text)


def run_name(text: str) -> str:
    """
    *text*, where a run can be called that. Raises UserError.

    Nothing is left out of it: two names that users tell apart must never be one run.
    """
    name = _made_fit(text)
    if name != text:
        raise UserError(
            f"--name {text!r} is no name of a run: it has lower-case letters, digits and hyphens, at most "
            f"{LONGEST_NAME}; choose one such as {name or 'my-training'}"
        )
    return name


def name_of(folder: Path) -> str:
    """What a run is called after the directory that it is started in. Raises UserError."""
    if name := _made_fit(folder.name):
        return name
    raise UserError(f"the directory {str(folder)!r} has no name that a run can have: name it with --name")


def _made_fit(text: str) -> str:
    return re.sub("[^a-z0-9-]+", "-", text.lower()).strip("-")[:LONGEST_NAME].strip("-")


def known_runs(runs: Path) -> list[Path]:
    """The state of every run in *runs*."""
    return sorted(path.parent for path in runs.glob(f"*/{database(Path()).name}"))


def name_of_folder(here: Path, runs: Path) -> str:
    """
    What a run that is started in *here* without a name is called: as the directory.

    Where the run of that name was started in another directory, a mark of the whole path tells them apart. A run that
    has the mark already keeps it, also when the other one is forgotten. Raises UserError.
    """
    plain = name_of(here)
    mark = hashlib.sha256(os.fsencode(here)).hexdigest()[:MARK]
    marked = f"{plain[: LONGEST_NAME - MARK - 1].strip('-')}-{mark}"
    if database(runs / marked).is_file():
        return marked
    run = asyncio.run(read_run(runs / plain))
    return plain if run is None or run.folder == str(here) else marked


def holds_run(state: Path) -> bool:
    """Whether a run keeps its state in the folder *state*. Raises UserError when this user may not see that."""
    try:
        return database(state).is_file()
    except PermissionError as error:
        only = "only the user who started a run can read its state"
        raise UserError(f"the state in {state} cannot be read: {error.strerror}; {only}") from error


def check_name(run: KnownRun | None, name: str) -> None:
    """
    Raises UserError when *run*, which was found by its folder, is not called *name*. One that cannot be read passes:
    what opens its state says why.
    """
    if run is not None and run.name != name:
        raise UserError(f"the run in {run.state} is called {run.name}, not {name}: leave out one of the two")


def run_of(target: str, runs: Path) -> Path | None:
    """The state of the run that is called *target*, or whose recovery is: its name begins with that of its run."""
    names = [run for run in known_runs(runs) if run.name == target or target.startswith(f"{run.name}-")]
    return max(names, key=lambda run: len(run.name), default=None)


def find_state(args: argparse.Namespace, runs: Path, here: Path, target: str = "") -> Path:
    """
    Where the run that is meant keeps its state: one of those in *runs*, that of *target* or of the directory *here*.

    Raises UserError when there is none, or more than one that could be meant. It reads files, and is called outside the
    event loop.
    """
    known = known_runs(runs)
    names = ", ".join(run.name for run in known)
    if args.state or args.name:
        state: Path = args.state or runs / run_name(args.name)
        if not holds_run(state):
            others = f"; there are {names}" if names else ""
            hint = "" if args.state else f"; {_ELSEWHERE}"
            raise UserError(f"there is no run in {state}: {database(state).name} is missing{others}{hint}")
        if args.name and args.state:
            check_name(asyncio.run(read_run(state)), args.name)
        return state
    if target and (found := run_of(target, runs)) is not None:
        return found
    own = _name_of(here, runs)
    meant = [run for run in known if run.name == own] or known
    if len(meant) == 1:
        return meant[0]
    if meant and target:
        raise UserError(f"there is no run {target!r}; runs on this machine: {names}")
    if meant:
        raise UserError(f"there are {len(meant)} runs: {names}; choose one with --name")
    raise UserError(f"there is no run in {runs}; {_ELSEWHERE}")


def _name_of(directory: Path, runs: Path) -> str:
    """The name of a run started in *directory*. Empty when the user must name it."""
    try:
        return name_of_folder(directory, runs)
    except UserError:
        return ""
