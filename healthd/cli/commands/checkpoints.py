"""
`healthd checkpoints latest | list | verify`: ask by hand what a recovery would resume from.

Read-only. Its exit codes stand in `EXIT_CODES`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from healthd.checkpoints.doubts import doubts
from healthd.checkpoints.formats import UnknownFormat, declared
from healthd.checkpoints.latest import (
    UNKNOWN_STEP,
    Candidate,
    Checkpoint,
    Rejected,
    VerifyLevel,
    latest,
    misplaced,
    verify,
)
from healthd.checkpoints.lookalikes import lookalike
from healthd.checkpoints.pointers import misled
from healthd.checkpoints.step_names import parse_step
from healthd.checkpoints.steps import find
from healthd.checkpoints.stores.urls import Location, NoSuchStore, locate, store_of
from healthd.checkpoints.tree import explain
from healthd.cli import checkpoint_report
from healthd.cli.terminal.output import complain, console

FOUND = 0
NONE_VALID = 3
EXIT_CODES = """\
exit codes:
  0  there is a checkpoint that will load; `list`: at least one
  2  the command line is wrong
  3  none will load: nothing there, all refused, or the place cannot be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands."""
    parser.epilog, parser.formatter_class = EXIT_CODES, argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="checkpoints_command", required=True, metavar="COMMAND")
    for name, about, reads in (
        ("latest", "the newest checkpoint that will load, and why newer ones will not", VerifyLevel.FULL),
        ("list", "every checkpoint, newest first, and whether it will load", VerifyLevel.QUICK),
        ("verify", "whether one checkpoint will load", VerifyLevel.FULL),
    ):
        command = commands.add_parser(
            name,
            help=about,
            description=f"Show {about}.",
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_place(command)
        _add_output(command, path_only=name == "latest")
        _add_level(command, reads)
    checkpoint_report.add_arguments(commands)


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "path",
        type=_location,
        metavar="PATH",
        help="a file or directory, or the URL of one: s3://BUCKET/PATH, gs://, az://; nothing in it is changed",
    )
    command.add_argument("--format", type=_format, default="", help="declared format (default: detect), or marked:FILE")


def _add_output(command: argparse.ArgumentParser, *, path_only: bool) -> None:
    output = command.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON object")
    if path_only:
        output.add_argument(
            "-q",
            "--quiet",
            dest="path_only",
            action="store_true",
            help="print the path of the checkpoint and nothing else, for a script",
        )


def _add_level(command: argparse.ArgumentParser, default: VerifyLevel) -> None:
    levels = command.add_mutually_exclusive_group()
    for option, level, about in (
        ("--full", VerifyLevel.FULL, "read all data that has a checksum"),
        ("--quick", VerifyLevel.QUICK, "read headers and sizes alone"),
    ):
        levels.add_argument(
            option, dest="level", action="store_const", const=level, help=_default(about, level is default)
        )
    command.set_defaults(level=default)


def run(args: argparse.Namespace) -> int:
    """Run the chosen command; returns the exit code."""
    match args.checkpoints_command:
        case "latest":
            return _latest(args)
        case "list":
            return _list(args)
        case "report":
            return checkpoint_report.run(args)
        case _:
            return _verify(args)


def _latest(args: argparse.Namespace) -> int:
    answer = latest(args.path, format=args.format, level=args.level)
    if args.json:
        found = _row(answer.found) if answer.found else {"path": None, "step": None, "format": None}
        _print_json({**found, "rejected": [_row(rejected) for rejected in answer.rejected]})
    elif args.path_only:
        if answer.found:
            print(answer.found.path)
    else:
        _print_table([*answer.rejected, *([answer.found] if answer.found else [])], args.path)
    for line in misled(args.path, answer.found.path if answer.found else None):
        complain(f"healthd: {line}")
    if answer.found:
        _print_doubts(answer.found, args)
        return FOUND
    _complain_none(args.path)
    return NONE_VALID


def _list(args: argparse.Namespace) -> int:
    try:
        candidates = find(args.path, declared(args.format) if args.format else None)
    except OSError as error:
        complain(f"healthd: {explain(str(args.path), error)}")
        return NONE_VALID
    outcomes = [
        verify(candidate, format=args.format, level=args.level, before=candidates[number:])
        for number, candidate in enumerate(_with_progress(candidates), start=1)
    ]
    outcomes = outcomes or [*misplaced(args.path)]
    if args.json:
        _print_json(
            {"checkpoints": [{**_row(outcome), "valid": isinstance(outcome, Checkpoint)} for outcome in outcomes]}
        )
    else:
        _print_table(outcomes, args.path)
    if any(isinstance(outcome, Checkpoint) for outcome in outcomes):
        return FOUND
    _complain_none(args.path)
    return NONE_VALID


def _verify(args: argparse.Namespace) -> int:
    path = args.path.absolute()
    step = parse_step(path.name)
    candidate = Candidate(path=path, step=UNKNOWN_STEP if step is None else step)
    outcome = verify(candidate, format=args.format, level=args.level)
    if args.json:
        _print_json({**_row(outcome), "valid": isinstance(outcome, Checkpoint)})
    else:
        _print_table([outcome], args.path)
    if not isinstance(outcome, Checkpoint):
        return NONE_VALID
    _print_doubts(outcome, args)
    return FOUND


def _print_doubts(found: Checkpoint, args: argparse.Namespace) -> None:
    """Print doubts to standard error, so that standard output stays clean."""
    if args.level is VerifyLevel.FULL:
        for line in doubts(locate(found.path)):
            complain(f"healthd: {line}")


def _row(outcome: Checkpoint | Rejected) -> dict[str, str | int | None]:
    step = None if outcome.step == UNKNOWN_STEP else outcome.step
    if isinstance(outcome, Checkpoint):
        return {"path": outcome.path, "step": step, "format": outcome.format}
    return {"path": outcome.path, "step": step, "reason": outcome.reason}


def _print_json(value: object) -> None:
    print(json.dumps(value))


def _print_table(outcomes: Sequence[Checkpoint | Rejected], root: Location) -> None:
    from rich.markup import escape  # imported here: programs must not wait for what only people need
    from rich.table import Column, Table

    narrow = [Column(head, no_wrap=True) for head in ("step", "checkpoint", "saved (UTC)")]
    size = Column("size", no_wrap=True, justify="right")
    table = Table(*narrow, size, Column("will it load?", overflow="fold"), box=None, pad_edge=False)
    for outcome in outcomes:
        valid = isinstance(outcome, Checkpoint)
        step = "?" if outcome.step == UNKNOWN_STEP else str(outcome.step)
        verdict = (
            f"[green]yes[/] ({outcome.format})"
            if isinstance(outcome, Checkpoint)
            else f"[red]no[/]: {escape(outcome.reason)}"
        )
        where = escape(_shown(outcome.path, str(root.absolute())))
        table.add_row(step, where, *_saved_and_size(outcome), verdict, style="" if valid else "dim")
    if outcomes:
        width = None if sys.stdout.isatty() else 1000  # in a pipe one line each, so that grep finds all of it
        console(width=width).print(table)


def _saved_and_size(outcome: Checkpoint | Rejected) -> tuple[str, str]:
    """Time and size, for a person to compare. Empty for a rejected checkpoint, where they would mislead."""
    if not isinstance(outcome, Checkpoint):
        return "", ""
    saved = f"{datetime.fromtimestamp(outcome.saved_ns // 10**9, UTC):%Y-%m-%d %H:%M}" if outcome.saved_ns else "?"
    size, unit = float(outcome.size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return saved, f"{size:.{0 if unit == 'B' else 1}f} {unit}"


def _with_progress(candidates: Sequence[Candidate]) -> Iterable[Candidate]:
    """The same candidates. On a terminal also a progress line: verification may read terabytes."""
    if len(candidates) < 2 or not sys.stderr.isatty():
        return candidates
    from rich.progress import track

    return track(candidates, description="verifying", console=console(stderr=True), transient=True)


def _shown(path: str, root: str) -> str:
    """The path as the user knows it: relative to *root* when it is below *root*."""
    return path.removeprefix(f"{root}/") if path.startswith(f"{root}/") else path.rpartition("/")[2]


def _complain_none(path: Location) -> None:
    complain(f"healthd: no valid checkpoint at {path}{_why_none(path)}")


def _why_none(path: Location) -> str:
    try:
        if next(iter(store_of(path).names(path)), None) is None:
            return ": there is nothing in it"
        seen = lookalike(path)
    except FileNotFoundError:
        return ": there is nothing of that name"
    except OSError:
        return ""
    return f": {seen.unfinished}" if seen else ""


def _location(text: str) -> Location:
    try:
        return locate(text)
    except NoSuchStore as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _format(text: str) -> str:
    if not text:  # the default, which argparse passes through here, too
        return text
    try:
        declared(text)
    except UnknownFormat as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _default(text: str, is_default: bool) -> str:
    return f"{text} (default)" if is_default else text
