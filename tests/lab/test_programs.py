"""
A process of the lab ends with the lab, says why it failed, and is never mistaken for another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.programs import (
    LabError,
    Program,
    end_remembered,
    free_port,
    is_abandoned,
    remember,
    running,
    started_at,
    wait_until,
)

_FOR_EVER = ("sleep", "1000")


def a_program(at: Path, *command: str, stays: bool = False) -> Program:
    """Started."""
    program = Program(command[0], command, log=at / "log", stays=stays)
    program.start()
    return program


def test_a_program_that_ends_too_early_shows_its_last_lines(tmp_path: Path) -> None:
    program = a_program(tmp_path, "sh", "-c", "echo no such flag; exit 1")

    with pytest.raises(LabError, match=r"sh ended before ready(?s:.*)no such flag"):
        program.wait_until("ready", lambda: False, limit=10)
    program.stop()


def test_a_wait_has_an_end(tmp_path: Path) -> None:
    program = a_program(tmp_path, *_FOR_EVER)

    with pytest.raises(LabError, match="sleep: not ready within 0 s"):
        program.wait_until("ready", lambda: False, limit=0)
    program.stop()


def test_a_program_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    dying = (
        "import os, pathlib; from tests.lab.programs import Program;"
        f"program = Program('sleep', {_FOR_EVER!r}, log=pathlib.Path({str(tmp_path / 'log')!r}));"
        "program.start(); print(program.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", dying], capture_output=True, text=True, check=False)

    wait_until("ended with its parent", lambda: started_at(int(done.stdout)) is None, limit=10)


def test_what_was_remembered_is_ended(tmp_path: Path) -> None:
    program, state = a_program(tmp_path, *_FOR_EVER), tmp_path / "state.json"
    remember(state, [program], owner=None)

    assert end_remembered(state) == ["sleep"]
    assert program.pid is None


def test_a_process_that_got_the_number_later_is_left_alone(tmp_path: Path) -> None:
    program, state = a_program(tmp_path, *_FOR_EVER), tmp_path / "state.json"
    state.write_text(json.dumps({"owner": None, "programs": {"older": [program.pid, "1"]}}))

    ended = end_remembered(state)

    assert ended == []
    assert program.pid is not None
    program.stop()


def test_what_its_owner_keeps_is_not_removed(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    remember(state, [], owner=os.getpid())

    assert not is_abandoned(state, kept=True)


def test_what_was_started_to_stay_is_removed_only_on_purpose(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    remember(state, [], owner=None)

    assert not is_abandoned(state, kept=False)
    assert is_abandoned(state, kept=True)


def test_a_directory_whose_maker_died_at_once_is_abandoned(tmp_path: Path) -> None:
    gone = a_program(tmp_path, "true")
    pid = gone._process.pid if gone._process else 0
    gone.stop()

    assert is_abandoned(tmp_path / f"{pid}-lab" / "state.json", kept=False)
    assert not is_abandoned(tmp_path / f"{os.getpid()}-lab" / "state.json", kept=False)


def test_what_runs_is_shown_by_name(tmp_path: Path) -> None:
    program, state = a_program(tmp_path, *_FOR_EVER), tmp_path / "state.json"
    remember(state, [program], owner=None)

    assert running(state) == {"sleep": program.pid}
    program.stop()
    assert running(state) == {}


def test_a_port_that_a_lab_chose_is_given_to_no_other_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    monkeypatch.setattr("tests.lab.programs._PORTS", range(taken, taken + 1))
    ask = f"from tests.lab import programs; programs._PORTS = range({taken}, {taken + 1}); programs.free_port()"

    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)

    assert "no free port between" in asked.stderr
    with pytest.raises(LabError, match="no free port between"):
        free_port()
