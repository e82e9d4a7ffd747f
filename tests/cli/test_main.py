"""The command line: it starts quickly, and every way to fail has its exit code."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from healthd import __version__
from healthd.cli.errors import UserError
from healthd.cli.main import COMMANDS, Command, main

pytestmark = pytest.mark.slow

HERE = {"play": Command(__name__, "do as this test says"), "other": Command("no.such.module", "is never imported")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command `play`, whose module this is."""
    parser.add_argument("outcome")
    parser.add_argument("--twice", action="store_true")


def run(args: argparse.Namespace) -> int:
    """The command `play`."""
    match args.outcome:
        case "user-error":
            raise UserError("no such place")
        case "interrupt":
            raise KeyboardInterrupt
        case outcome:
            return int(outcome) * (2 if args.twice else 1)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def in_a_shell(arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a person sees who writes *arguments* after `healthd`, with redirections."""
    script = f'set -o pipefail; "{sys.executable}" -m healthd.cli.main {arguments}'
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"COLUMNS": "80"} | environment,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A kernel log with something in every letter, as `dmesg -x` shows it."""
    path = tmp_path / "kern.log"
    line = "kern  :err   : [    1.0] NVRM: Xid (PCI:0000:c1:00): 79, pid=9, name=größe→, GPU has fallen off the bus.\n"
    path.write_text(line * 300)
    return path


@pytest.mark.parametrize(("arguments", "usage"), [("play 3 --nosuch", "healthd play"), ("--nosuch play 3", "healthd")])
def test_an_option_that_is_not_there_is_answered_with_the_usage_of_its_command(
    arguments: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split(), HERE) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: {usage} [-h] [--")
    assert said.endswith(f"{usage}: error: unrecognized arguments: --nosuch\n")


def test_a_command_gets_its_arguments_and_gives_the_exit_code() -> None:
    assert main(["play", "--twice", "3"], HERE) == 6


def test_help_lists_every_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], {"other": HERE["other"]}) == 0
    assert re.search(r"other +is never imported", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_a_terminal(name: str) -> None:
    command = [sys.executable, "-m", "healthd.cli.main", *([name] if name else []), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env={"COLUMNS": "80"})

    assert max(map(len, done.stdout.splitlines())) <= 80


def test_every_command_has_its_line_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    printed = capsys.readouterr().out
    assert all(re.search(rf"^ +{name} +\w", printed, re.MULTILINE) for name in COMMANDS)


def test_help_of_a_command_shows_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--help"], HERE) == 0

    printed = capsys.readouterr().out
    assert "Do as this test says." in printed
    assert "--twice" in printed


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"healthd {__version__}\n"


def test_no_command_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], HERE) == 2
    assert "usage: healthd" in capsys.readouterr().err


def test_an_unknown_command_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pley"], HERE) == 2
    assert "there is no command 'pley'; did you mean 'play'?" in capsys.readouterr().err


def test_a_user_error_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "user-error"], HERE) == 2
    assert capsys.readouterr() == ("", "healthd: no such place\n")


def test_ctrl_c_is_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "interrupt"], HERE) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_went_away_ends_the_command_quietly() -> None:
    code = "import sys; from healthd.cli.main import main; sys.exit(main(['config', '--reference']))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()

    assert (process.returncode, complaint) == (141, b"")


@pytest.mark.parametrize("arguments", ["klog LOG", "rules", "status", "check --only inventory", "config --reference"])
def test_a_table_that_no_one_reads_to_its_end_ends_quietly(arguments: str, log: Path) -> None:
    done = in_a_shell(f"{arguments} | true".replace("LOG", str(log)))

    assert (done.returncode, done.stderr) in ((141, ""), (0, ""))  # 0: the pipe took all before it was closed


@pytest.mark.parametrize(
    "arguments", ["--help", "--version", "klog", "klog --json", "rules", "status", "config --reference"]
)
def test_to_print_where_output_was_closed_fails_in_one_line(arguments: str, log: Path) -> None:
    done = in_a_shell(f"{arguments} < {log} >&-")

    assert (done.returncode, done.stderr) == (2, "healthd: cannot read or write: Bad file descriptor\n")


@pytest.mark.parametrize("output", [">&-", "> /dev/full", "| true"])
def test_a_run_ends_as_its_ranks_do_where_nothing_takes_their_output(output: str, tmp_path: Path) -> None:
    options = f"--name llama --state {tmp_path}/state --checkpoint {tmp_path}/out --nproc 1"
    done = in_a_shell(f"run {options} -- echo hello {output}", PYTHONUNBUFFERED="", XDG_STATE_HOME=str(tmp_path))

    assert done.returncode == 0, done.stderr


def test_to_read_input_that_was_closed_fails_in_one_line() -> None:
    done = in_a_shell("klog <&-")

    assert (done.returncode, done.stderr) == (2, "healthd: cannot read or write: Bad file descriptor\n")


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    path = tmp_path / "what is opened first"
    code = f"from healthd.cli.terminal import streams; streams.prepare(); print(open({str(path)!r}, 'w').fileno() > 2)"
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -c "{code}" <&- 2>&-'], capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\n"


@pytest.mark.parametrize("arguments", ["klog LOG", "rules", "--help", "config --reference", "status"])
def test_what_a_terminal_has_no_letter_for_is_escaped(arguments: str, log: Path) -> None:
    done = in_a_shell(arguments.replace("LOG", str(log)), PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


@pytest.mark.parametrize("arguments", [["doctor", "job/x"], ["explain", "job/x", "--kubeconfig", "x"], ["controller"]])
def test_a_package_that_is_missing_is_named_in_one_line(arguments: list[str]) -> None:
    without = (
        f"import sys; sys.modules['kubernetes'] = None; from healthd.cli.main import main; sys.exit(main({arguments}))"
    )
    done = run_python(without)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "'kubernetes' is not installed here" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["config", "--reference"]], ids=["at the end", "in the middle"])
def test_output_that_does_not_fit_on_the_disk_is_said_in_one_line(arguments: list[str]) -> None:
    code = f"import sys; from healthd.cli.main import main; sys.exit(main({arguments!r}))"
    command = [sys.executable, "-E", "-c", code]  # -E: buffered, whatever the environment says
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, "healthd: cannot read or write: No space left on device\n")


def test_every_command_in_the_table_is_there() -> None:
    assert [name for name, command in COMMANDS.items() if find_spec(command.module) is None] == []


@pytest.mark.parametrize("command", [[], ["klog"]], ids=["healthd --help", "healthd klog --help"])
def test_starting_imports_nothing_heavy(command: list[str]) -> None:
    code = f"""
import sys
from healthd.cli.main import main
main({[*command, "--help"]!r})
print(*sys.modules, file=sys.stderr)
"""

    loaded = set(run_python(code).stderr.split())

    assert "healthd.cli.main" in loaded
    assert not loaded & {"asyncio", "aiohttp", "rich", "yaml", "structlog", "prometheus_client", "sqlite3", "pynvml"}
