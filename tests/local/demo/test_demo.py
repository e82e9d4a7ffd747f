"""`healthd demo` as a person or a machine runs it: the whole story, with real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo")]  # one worker, so that the story is played once

COMMAND = [sys.executable, "-m", "healthd.cli.main", "demo"]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every object that `healthd demo --json` prints."""
    temporary = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [*COMMAND, "--json"], capture_output=True, text=True, env={"TMPDIR": str(temporary)}, timeout=120, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert list(temporary.iterdir()) == []
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_weights_equal_those_of_the_undisturbed_run(reported: list[dict[str, Any]]) -> None:
    assert reported[-1]["weights_equal"] is True
    assert reported[-1]["differences"] == []


def test_the_lost_gpu_costs_a_spare_and_the_torn_checkpoint_is_refused(reported: list[dict[str, Any]]) -> None:
    recovery = reported[-1]["recoveries"][0]

    assert recovery["cause"] == "hardware"
    assert recovery["checkpoint"]["step"] == 10
    assert [(refused["step"], "torn write" in refused["reason"]) for refused in recovery["rejected"]] == [(20, True)]
    assert recovery["spares"] == {"slot-1": "slot-4"}


def test_the_crash_is_retried_without_a_spare(reported: list[dict[str, Any]]) -> None:
    recovery = reported[-1]["recoveries"][1]

    assert (recovery["cause"], recovery["checkpoint"]["step"], recovery["spares"]) == ("software", 40, {})


def test_every_phase_has_its_milliseconds(reported: list[dict[str, Any]]) -> None:
    names = ["Detected", "Stopping", "Fencing", "Choosing", "Reserving", "Starting", "Confirming"]

    assert [list(recovery["phases"]) for recovery in reported[-1]["recoveries"]] == [names, names]


def test_the_application_xid_is_seen_and_nothing_is_done(reported: list[dict[str, Any]]) -> None:
    texts = [line["text"] for line in reported[:-1] if line["who"] == "agent"]

    assert any(text.startswith("slot-2 stays in service: Xid 31") for text in texts)
    assert [text for text in texts if "is quarantined" in text] == ["slot-1 is quarantined for 0000:22:00.0/xid-79"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_nothing_behind(number: signal.Signals, code: int, tmp_path: Path) -> None:
    demo = subprocess.Popen([*COMMAND, "--plain"], stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)})
    assert demo.stdout is not None
    next(line for line in demo.stdout if "saved step-000010" in line)
    demo.send_signal(number)
    demo.communicate(timeout=60)

    assert demo.returncode == code
    assert list(tmp_path.iterdir()) == []
    assert processes_below(tmp_path) == []


def test_a_reader_that_goes_away_ends_the_demo_quietly(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*COMMAND, "--plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(tmp_path)},
    )
    assert demo.stdout is not None
    demo.stdout.readline()
    demo.stdout.close()
    assert demo.stderr is not None
    errors = demo.stderr.read()
    demo.stderr.close()

    assert (demo.wait(), errors) == (141, "")
    assert list(tmp_path.iterdir()) == []


def processes_below(folder: Path) -> list[str]:
    """The command lines that name *folder*: every rank's does."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder).encode() in command:
            found.append(command.decode(errors="replace"))
    return found
