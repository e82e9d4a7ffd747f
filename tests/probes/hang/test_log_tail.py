"""The last lines of a rank's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from healthd.core.hang.suspects.evidence import LONGEST_LINE, MOST_LOG_LINES
from healthd.probes.errors import CannotRead
from healthd.probes.hang.log_tail import last_lines


def test_the_newest_lines_are_the_last(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"step {number}\n" for number in range(100)))
    assert last_lines(str(tmp_path / "log")) == tuple(f"step {n}" for n in range(100 - MOST_LOG_LINES, 100))


def test_each_state_of_a_progress_bar_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("loading\r 10%\r 20%\n\n")
    assert last_lines(str(tmp_path / "log")) == ("loading", "10%", "20%")


def test_a_log_of_gigabytes_in_one_line_of_escapes_is_short_and_printable(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        os.ftruncate(log.fileno(), 5 << 30)
        log.seek(0, os.SEEK_END)
        log.write(b"\x1b[2J\xff" * 20_000)
    (line,) = last_lines(str(tmp_path / "log"))
    assert len(line) <= LONGEST_LINE
    assert line.isprintable()


@pytest.mark.parametrize("text", ["", "\n\n\r\n"])
def test_an_empty_log_has_no_lines(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    assert last_lines(str(tmp_path / "log")) == ()


def test_a_pipe_in_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(CannotRead, match="not a regular file"):
        last_lines(str(tmp_path / "log"))
