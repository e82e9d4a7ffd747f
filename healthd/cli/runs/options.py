"""The options of `healthd run`, and what they override in the configuration."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import msgspec

from healthd.checkpoints.stores.urls import NoSuchStore, locate
from healthd.cli.errors import UserError
from healthd.cli.target.run import name_option, state_folder
from healthd.controller.checkpoints.declaration import why_no_format
from healthd.core.config import Config, format_duration, parse_duration
from healthd.core.config.gangs import SilenceMode
from healthd.local.reports.notify import why_no_target
from healthd.local.reports.page import FREE_PORT, check_address
from healthd.telemetry.address import AddressError

MOST_RANKS = 99_999
"""Of ranks, and of spares: more than any machine has."""
EPILOG = """\
Each rank gets what torchrun gives it (RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, ...), the GPUs of all ranks in
their order in CUDA_VISIBLE_DEVICES, HEALTHD_ATTEMPT, and where there is a
checkpoint to load HEALTHD_RESUME_FROM and HEALTHD_RESUME_STEP. Ctrl-C stops the
job with its grace period, a second Ctrl-C at once. A run is where it was
started, what it runs and where it saves: the same command in the same directory
goes on later from the newest checkpoint that loads, another one is refused
until you say what you mean. `healthd runs` lists all runs, and
`healthd forget NAME` forgets one.

example:
  healthd run --nproc 7 --spares 1 --checkpoint out/ -- \\
    python train.py --save-dir out/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd run`."""
    parser.usage = "healthd run [options] --nproc N --checkpoint DIR -- COMMAND [ARG ...]"
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    _add_gang(parser)
    _add_run(parser)
    _add_output(parser)
    parser.add_argument(
        "command", nargs=argparse.PARSER, action=_Command, metavar="COMMAND", help="what every rank runs, after --"
    )


def _add_gang(parser: argparse.ArgumentParser) -> None:
    """Ranks, slots and checkpoints."""
    parser.add_argument("--nproc", type=_positive, required=True, metavar="N", help="ranks, one on each slot")
    parser.add_argument("--spares", type=_natural, default=0, metavar="N", help="slots held free for recoveries (0)")
    parser.add_argument(
        "--min-nodes", type=_positive, metavar="M", help="without a spare go on with fewer ranks, but not below M"
    )
    parser.add_argument(
        "--checkpoint", type=_folder, required=True, metavar="DIR", help="where the job saves checkpoints"
    )
    parser.add_argument(
        "--checkpoint-format",
        type=_format,
        default="",
        metavar="FORMAT",
        help="of checkpoints of your own, where it is not one that healthd knows; for example marked:DONE",
    )
    parser.add_argument("--grace", type=_duration, metavar="30s", help="between SIGTERM and SIGKILL (recovery.grace)")


def _add_run(parser: argparse.ArgumentParser) -> None:
    """Which run it is, and how healthd treats it."""
    parser.add_argument(
        "--name", type=name_option, help="of the run, to go on with it later (default: the directory's name)"
    )
    anew = parser.add_mutually_exclusive_group()
    anew.add_argument(
        "--fresh", action="store_true", help="begin from nothing; checkpoints that are there are moved aside"
    )
    anew.add_argument(
        "--accept-changes", action="store_true", help="go on, although the command, the directory or options changed"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file, see `healthd config`")
    parser.add_argument("--metrics", default="", metavar="ADDR", help="serve /metrics, /healthz and /readyz there")
    parser.add_argument(
        "--web",
        nargs="?",
        const=FREE_PORT,
        default="",
        metavar="ADDR",
        help="serve a live page for a browser on this address (127.0.0.1, a free port); its address is printed",
    )
    parser.add_argument("--state", type=state_folder, metavar="DIR", help="where the run keeps its state and logs")
    parser.add_argument(
        "--allow-launcher", action="store_true", help="let COMMAND be torchrun, mpirun or the like, which starts ranks"
    )
    parser.add_argument(
        "--notify",
        action="append",
        type=_target,
        default=[],
        metavar="COMMAND|URL",
        help="report restarts, holds and the end: run by the shell, or sent a POST (may be repeated)",
    )
    parser.add_argument(
        "--hang",
        choices=[mode.value for mode in SilenceMode],
        help="when every rank has stopped its usual work: report it, restart, or do not sample ranks (hang.silence)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """What is shown meanwhile."""
    parser.add_argument("--live", action="store_true", help="a picture of the run on a terminal, in place of lines")
    parser.add_argument("--quiet", action="store_true", help="ranks' output goes to their log files only")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="healthd's whole log, which is also in logs/healthd.log"
    )


def words_of(args: argparse.Namespace, without: Collection[str] = ()) -> list[str]:
    """The options in *args* that differ from their defaults, as words of a command line, *without* those named so."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    words: list[str] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of its options
        value = getattr(args, action.dest, action.default)
        if action.dest in without or value == action.default:
            continue
        option = action.option_strings[-1]
        values = value if isinstance(value, list) else [value]
        words += [option] if action.nargs == 0 else [word for each in values for word in (option, _word(each))]
    return words


def _word(value: object) -> str:
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def with_options(config: Config, args: argparse.Namespace) -> Config:
    """The configuration with the command line's options, which override the file. Raises UserError."""
    if args.metrics:
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, address=args.metrics))
    if args.web:
        config = msgspec.structs.replace(config, web=msgspec.structs.replace(config.web, address=args.web))
    if args.hang:
        hang = msgspec.structs.replace(config.hang, silence=SilenceMode(args.hang))
        config = msgspec.structs.replace(config, hang=hang)
    if config.web.address:
        _check_page(config.web.address, "--web" if args.web else f"{args.config}: web.address")
    return config


def _check_page(address: str, said_in: str) -> None:
    """A controller may serve what a run may not. Raises UserError."""
    try:
        check_address(address)
    except AddressError as error:
        raise UserError(f"{said_in}: {error}") from None


class _Command(argparse.Action):
    """Everything from the name of the command on, unchanged. One `--` before it may be left out."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: object, _option: object = None) -> None:
        words = [str(word) for word in values] if isinstance(values, list) else []
        namespace.command = words[1:] if words[:1] == ["--"] else words


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    return _number(text, least=1)


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("it names no folder: name the one where the job saves, such as out/")
    if (path := _folder_named(text)).exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder: name the folder that holds the checkpoints")
    return path


def _folder_named(text: str) -> Path:
    """The folder that a path or a `file:` URL names. No other URL is a path: its folder would be `s3:/`, here."""
    scheme, separator, _ = text.partition("://")
    if text.lower().startswith("file:"):
        try:
            place = locate(text)
        except NoSuchStore as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if isinstance(place, Path) and place != Path():
            return place
        raise argparse.ArgumentTypeError(f"{text} names no folder: write file:///path with three slashes")
    if separator and "/" not in scheme:
        raise argparse.ArgumentTypeError(
            f"{text} is no folder of this machine: healthd run watches and locks the folder that the ranks save in, "
            "and does so in no bucket or other store. Name that folder, such as out/ or file:///data/out, and copy "
            "from there what has to be elsewhere"
        )
    return Path(text)


def _format(text: str) -> str:
    if why := why_no_format(text):
        raise argparse.ArgumentTypeError(why)
    return text


def _target(text: str) -> str:
    if why := why_no_target(text):
        raise argparse.ArgumentTypeError(why)
    return text


def _natural(text: str) -> int:
    return _number(text, least=0)


def _number(text: str, *, least: int) -> int:
    if not text.isdecimal() or len(text) > len(str(MOST_RANKS)) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {MOST_RANKS}")
    return int(text)
