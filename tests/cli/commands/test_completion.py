"""Completion by Tab, in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from healthd.cli.commands.completion import SHELLS
from healthd.cli.main import main
from tests.lab.build import CannotBuild, binaries

pytestmark = pytest.mark.slow

TAB = """\
eval "$(healthd completion bash)"
COMP_WORDS=({words}) COMP_CWORD={at} COMP_LINE="{line}" COMP_POINT={point} COMP_TYPE=9
_python_argcomplete healthd
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def bash(tmp_path: Path) -> dict[str, str]:
    """The environment of a bash in which `healthd` is this one."""
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    program = tmp_path / "healthd"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m healthd.cli.main "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def completed(line: str, environment: dict[str, str]) -> list[str]:
    """What bash offers where the cursor is at the end of *line*."""
    words = line.split(" ")
    script = TAB.format(words=" ".join(f"'{word}'" for word in words), at=len(words) - 1, line=line, point=len(line))
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    return [word.strip() for word in done.stdout.splitlines()]


def test_commands_are_completed(bash: dict[str, str]) -> None:
    assert completed("healthd gan", bash) == ["gangs"]


def test_options_of_a_command_are_completed(bash: dict[str, str]) -> None:
    assert {"--active", "--output", "--namespace"} <= set(completed("healthd recoveries --", bash))


def test_choices_of_an_option_are_completed(bash: dict[str, str]) -> None:
    assert completed("healthd gangs -o w", bash) == ["wide"]


OFFERS = {
    (): "doctor explain gangs nodes recoveries repair spares top alerts",
    ("",): "doctor explain gangs nodes recoveries repair spares top alerts",
    ("gan",): "gangs",
    ("gangs", "-o", ""): "json table wide",
    ("gangs", "--output=w"): "--output=wide",
    ("spares", ""): "plan",
    ("recoveries", "--act"): "--active",
    ("explain", ""): "",
    ("explain", "it's"): "",
    ("explain", "a b", "c\nd", "--sta"): "--state",
    ("explain", "größe", "--sta"): "--state",
    ("explain", "\udcff\udcfe", "--sta"): "--state",
    ("agent", "--nod"): "",
}


@pytest.mark.parametrize("words", OFFERS)
def test_kubectl_gets_one_word_a_line_and_that_no_file_fits(words: tuple[str, ...]) -> None:
    *lines, directive = asked(*words)

    assert {line.partition("\t")[0] for line in lines} == set(OFFERS[words].split())
    assert directive == ":4"


def test_kubectl_gets_what_a_command_does_beside_its_name() -> None:
    assert asked("gan")[0] == "gangs\tlist the training gangs, their state, and what a fault would cost now"


def test_kubectl_offers_files_where_an_option_takes_one() -> None:
    assert asked("gangs", "--kubeconfig", "/etc/ku") == [":0"]


@pytest.mark.lab
def test_kubectl_finds_the_completion_of_its_plugin(tmp_path: Path) -> None:
    for name, function in (("kubectl-healthd", "kubectl_plugin"), ("kubectl_complete-healthd", "kubectl_completion")):
        script = tmp_path / name
        code = f"import sys; from healthd.cli.main import {function}; sys.exit({function}())"
        script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
        script.chmod(0o755)
    try:
        kubectl = binaries().kubectl
    except CannotBuild as why:
        pytest.skip(str(why))
    done = subprocess.run(
        [*kubectl, "__complete", "healthd", "gangs", "-o", "w"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["wide", ":4"]


def asked(*words: str) -> list[str]:
    """The lines of the answer to kubectl."""
    code = "import sys; from healthd.cli.main import kubectl_completion; sys.exit(kubectl_completion())"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_code_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "healthd" in capsys.readouterr().out
