"""
The command line: finds the command that was named, imports that module alone, and turns errors into exit codes.

`healthd --help` and `healthd klog` must start at once, so nothing heavy may be imported here. A command is a module
in `healthd.cli.commands` with `add_arguments(parser)` and `run(args) -> int`; its line of help here is all that the
others need to know of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from healthd import __version__
from healthd.cli.errors import UserError
from healthd.cli.terminal import output, streams
from healthd.core.nearest import nearest

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


_HELP = {
    "demo": "watch healthd save a training job from faults, on this machine, in a minute",
    "run": "run a training job on this machine, and keep it going when a GPU breaks",
    "runs": "list the training jobs that `healthd run` knows on this machine",
    "forget": "forget a run on this machine; its checkpoints stay",
    "repair": "say that a node was repaired, so that it goes back into service",
    "gangs": "list the training gangs, their state, and what a fault would cost now",
    "recoveries": "list the restarts of gangs, those in progress first",
    "top": "a live view of a cluster or of a run: nodes, recoveries, gangs",
    "explain": "show why a gang was restarted, and what was done",
    "status": "show this machine's GPUs and ports, and what is wrong with them",
    "nodes": "list the nodes of a cluster: health, faults so far, and lemons",
    "spares": "say how many spares a fleet needs, and what one more is worth",
    "check": "check a machine on which nothing runs: GPUs, links, memory, network",
    "klog": "show what healthd reads in a kernel log",
    "rules": "list the rules by which a node is judged",
    "agent": "guard a Kubernetes node: judge its hardware, cordon it when that is broken",
    "controller": "restart the training gangs of a Kubernetes cluster",
    "hand": "reset the GPUs of a node or reboot it: what healthd's own pod on it runs",
    "alerts": "list incidents and who has accepted them, or try the alert services",
    "doctor": "say what stands in the way of a gang's recovery, before anything breaks",
    "checkpoints": "find the newest checkpoint that will really load",
    "completion": "print what makes a shell complete healthd's commands",
    "config": "check a configuration file, or print the reference of all keys",
}
OF_A_CLUSTER = ("top", "nodes", "gangs", "recoveries", "explain", "doctor", "repair", "spares", "alerts")
"""The commands of `kubectl healthd`, which are the modules in `commands/cluster/`."""
COMMANDS: Mapping[str, Command] = {
    name: Command(f"healthd.cli.commands.{'cluster.' if name in OF_A_CLUSTER else ''}{name}", text)
    for name, text in _HELP.items()
}

PROGRAM, PLUGIN = "healthd", "kubectl healthd"
COMPLETING = "_ARGCOMPLETE"
"""In the environment where a shell asks how a command line may go on."""


def main(
    argv: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS, *, program: str = PROGRAM
) -> int:
    """Run one command; the answer is the exit code of the process. *program* is the name in help texts."""
    if COMPLETING in os.environ:
        return _complete(commands, program)
    arguments = list(sys.argv[1:] if argv is None else argv)
    streams.prepare()
    try:
        with output.guarded():
            code = _exit_code(arguments, commands, program)
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


def kubectl_plugin() -> int:
    """`kubectl healthd COMMAND`: the commands that ask a cluster, and always a cluster."""
    return main(commands=_of_a_cluster(), program=PLUGIN)


def kubectl_completion() -> int:
    """`kubectl_complete-healthd WORD…`: what kubectl runs at each Tab after `kubectl healthd`."""
    from healthd.cli.kubectl_completion import answer  # imported here: only kubectl needs it

    words, commands = sys.argv[1:], _of_a_cluster()
    name = next((word for word in words[:-1] if word in commands), "")
    sys.stdout.write(answer(_parser(commands, name, PLUGIN).parser, words))
    return 0


def _of_a_cluster() -> dict[str, Command]:
    return {name: COMMANDS[name] for name in OF_A_CLUSTER}


def _complete(commands: Mapping[str, Command], program: str) -> int:
    """Answer the shell, which asks at each Tab. Nothing else is done."""
    import argcomplete  # imported here: only a shell that completes needs it

    words = os.environ.get("COMP_LINE", "").split()[1:]
    name = next((word for word in words if word in commands), "")
    argcomplete.autocomplete(_parser(commands, name, program).parser)  # ends the process
    return 0


def _exit_code(arguments: list[str], commands: Mapping[str, Command], program: str) -> int:
    try:
        return _run(arguments, commands, program)
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
    output.complain(f"healthd: {text}")
    return USAGE_ERROR


def _run(arguments: list[str], commands: Mapping[str, Command], program: str) -> int:
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    parser, chosen, usage = _parser(commands, name, program)
    if not name and not arguments:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    if name and chosen is None:
        parser.error(f"there is no command {name!r}{_nearest(name, commands)}")
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        (usage if arguments[0] == name else parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    args.plugin = program != PROGRAM
    if chosen is None:
        parser.error("which command?")
    return chosen.run(args)


class _Parsers(NamedTuple):
    """The parser for all commands, the module of the command that was named, and the parser of that command."""

    parser: argparse.ArgumentParser
    chosen: CommandModule | None
    usage: argparse.ArgumentParser
    """Says how the named command is used; without one, how healthd is."""


def _parser(commands: Mapping[str, Command], name: str, program: str) -> _Parsers:
    """Only the command *name* has its arguments in the parser."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Keeps large GPU training jobs running when hardware breaks.",
        epilog=f"`{program} COMMAND --help` says more about one command.\n",
        formatter_class=_Wide,
    )
    parser.add_argument("--version", action="version", version=f"healthd {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    chosen: CommandModule | None = None
    usage = parser
    for each, command in commands.items():
        subparser = subparsers.add_parser(each, help=command.help, description=_sentence(command.help))
        if each == name:
            chosen = cast("CommandModule", import_module(command.module))
            chosen.add_arguments(subparser)
            usage = subparser
    return _Parsers(parser, chosen, usage)


class _Wide(argparse.RawDescriptionHelpFormatter):
    """Makes enough space for a command's name and its help text on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=18)
        self._action_max_length = 15  # argparse ignores the indentation, and would break the longest line


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _nearest(name: str, commands: Mapping[str, Command]) -> str:
    found = nearest(name, commands)
    return f"; did you mean {found!r}?" if found else f"; there are {', '.join(commands)}"


if __name__ == "__main__":
    sys.exit(main())
