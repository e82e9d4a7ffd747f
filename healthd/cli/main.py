"""
The command line: finds the command that was named, imports that module alone, and turns errors into exit codes.

`healthd --help` and `healthd klog` must start at once, so nothing heavy may be imported here. A command is a module
with `add_arguments(parser)` and `run(args) -> int`; its line in `COMMANDS` is all that the others need to know of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from healthd import __version__
from healthd.cli import streams, terminal
from healthd.cli.errors import UserError

USAGE_ERROR = 2
INTERRUPTED = 128 + 2
"""The exit code that a shell reports for a program ended by SIGINT."""
READER_GONE = 128 + 13
"""The exit code that a shell reports for a program ended by SIGPIPE."""


class Command(NamedTuple):
    """Where a command lives, and its line in `healthd --help`."""

    module: str
    help: str


class CommandModule(Protocol):
    """What the module of a command offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Describe the command's own arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the answer is the exit code. Raises UserError."""
        ...


COMMANDS: Mapping[str, Command] = {
    "demo": Command("healthd.cli.demo", "watch healthd save a training job from faults, on this machine, in a minute"),
    "run": Command("healthd.cli.run", "run a training job on this machine, and keep it going when a GPU breaks"),
    "runs": Command("healthd.cli.runs", "list the training jobs that `healthd run` knows on this machine"),
    "forget": Command("healthd.cli.forget", "forget a run on this machine; its checkpoints stay"),
    "repair": Command("healthd.cli.repair", "say that a node was repaired, so that it goes back into service"),
    "explain": Command("healthd.cli.explain", "show why a gang was restarted, and what was done"),
    "status": Command("healthd.cli.status", "show this machine's GPUs and ports, and what is wrong with them"),
    "check": Command("healthd.cli.check", "check a machine on which nothing runs: GPUs, links, memory, network"),
    "klog": Command("healthd.cli.klog", "show what healthd reads in a kernel log"),
    "rules": Command("healthd.cli.rules", "list the rules by which a node is judged"),
    "agent": Command("healthd.cli.agent", "guard a Kubernetes node: judge its hardware, cordon it when that is broken"),
    "controller": Command("healthd.cli.controller", "restart the training gangs of a Kubernetes cluster"),
    "alerts": Command("healthd.cli.alerts", "list incidents and who has accepted them, or try the alert services"),
    "doctor": Command("healthd.cli.doctor", "say what stands in the way of a gang's recovery, before anything breaks"),
    "checkpoints": Command("healthd.cli.checkpoints", "find the newest checkpoint that will really load"),
    "config": Command("healthd.cli.config", "check a configuration file, or print the reference of all keys"),
}


def main(argv: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    """Run one command; the answer is the exit code of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    streams.prepare()
    try:
        with terminal.guarded():
            code = _exit_code(arguments, commands)
        sys.stdout.flush()
    except BrokenPipeError:
        streams.forget_stdout()
        return READER_GONE
    except OSError as error:
        if error.errno not in streams.FAIL_WITH:
            raise
        streams.forget_stdout()
        return _complain(f"cannot read or write: {error.strerror}")
    return code


def _exit_code(arguments: list[str], commands: Mapping[str, Command]) -> int:
    try:
        return _run(arguments, commands)
    except UserError as error:
        return _complain(str(error))
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "healthd"):
            raise
        return _complain(f"the Python module {module!r} is not installed here: `pip install healthd` brings it")
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as left:  # argparse: --help, --version, or arguments that it refused
        if isinstance(left.__context__, BrokenPipeError):  # rich has already closed the pipe
            return READER_GONE
        return left.code if isinstance(left.code, int) else USAGE_ERROR


def _complain(text: str) -> int:
    terminal.complain(f"healthd: {text}")
    return USAGE_ERROR


def _run(arguments: list[str], commands: Mapping[str, Command]) -> int:
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    parser, chosen = _parser(commands, name)
    if not name and not arguments:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    if name and chosen is None:
        parser.error(f"there is no command {name!r}{_nearest(name, commands)}")
    args = parser.parse_args(arguments)
    if chosen is None:
        parser.error("which command?")
    return chosen.run(args)


def _parser(commands: Mapping[str, Command], name: str) -> tuple[argparse.ArgumentParser, CommandModule | None]:
    """
    The parser for all commands, and the module of the command *name*. Only this command has its arguments in the
    parser.
    """
    parser = argparse.ArgumentParser(
        prog="healthd",
        description="Keeps large GPU training jobs running when hardware breaks.",
        epilog="`healthd COMMAND --help` says more about one command.\n",
        formatter_class=_Wide,
    )
    parser.add_argument("--version", action="version", version=f"healthd {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    chosen: CommandModule | None = None
    for each, command in commands.items():
        subparser = subparsers.add_parser(each, help=command.help, description=_sentence(command.help))
        if each == name:
            chosen = cast("CommandModule", import_module(command.module))
            chosen.add_arguments(subparser)
    return parser, chosen


class _Wide(argparse.RawDescriptionHelpFormatter):
    """Makes enough space for a command's name and its help text on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=18)
        self._action_max_length = 15  # argparse ignores the indentation, and would break the longest line


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _nearest(name: str, commands: Mapping[str, Command]) -> str:
    from difflib import get_close_matches  # imported here, because only an error needs it

    found = get_close_matches(name, commands, n=1)
    return f"; did you mean {found[0]!r}?" if found else f"; there are {', '.join(commands)}"


if __name__ == "__main__":
    sys.exit(main())
