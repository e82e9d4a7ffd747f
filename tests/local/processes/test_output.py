"""Where output goes: whole lines to the terminal, everything to the file, and none waits for another."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from healthd.local.processes.output import (
    BACKLOG,
    CHUNK,
    LONGEST_LINE,
    PATIENCE,
    Follower,
    Prefixer,
    Terminal,
    open_log,
)


@pytest.mark.parametrize(
    ("fed", "shown"),
    [
        ([b"one\ntwo\n"], b"> one\n> two\n"),
        ([b"on", b"e\ntw", b"o\n"], b"> one\n> two\n"),
        ([b"\n\n"], b"> \n> \n"),
        ([b"windows\r\n"], b"> windows\n"),
        ([b"10%\r20%\r", b"30%\n"], b"> 30%\n"),
        ([b"\xff\x00\n"], b"> \xff\x00\n"),
        ([b"no end"], b""),
    ],
)
def test_whole_lines_are_shown_with_their_prefix(fed: list[bytes], shown: bytes) -> None:
    prefixer = Prefixer("> ")

    assert b"".join(map(prefixer.feed, fed)) == shown


def test_a_line_without_an_end_is_shown_when_asked_for() -> None:
    prefixer = Prefixer("> ")
    prefixer.feed(b"10%\r20%")

    assert prefixer.flush() == b"> 20%\n"
    assert prefixer.flush() == b""


def test_a_huge_line_is_shown_in_pieces_and_not_kept() -> None:
    prefixer = Prefixer("> ")
    shown = b"".join(prefixer.feed(b"x" * 1000) for _ in range(1000)) + prefixer.flush()

    assert shown.replace(b"> ", b"").replace(b"\n", b"") == b"x" * 1_000_000
    assert max(map(len, shown.splitlines())) <= LONGEST_LINE + 1000


def a_follower(path: Path, content: bytes = b"", offset: int = 0) -> Follower:
    path.write_bytes(content)
    return Follower(path, "> ", offset)


def test_only_what_came_after_the_start_is_shown(tmp_path: Path) -> None:
    follower = a_follower(tmp_path / "log", b"old\nnew\n", offset=4)

    assert follower.read() == b"> new\n"
    assert follower.read() == b""
    follower.close()


def test_what_a_later_writer_appends_is_not_shown_twice(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = a_follower(path, b"mine\n")
    follower.end()
    with path.open("ab") as file:
        file.write(b"another's\n")

    assert follower.read() + follower.read() == b"> mine\n"
    follower.close()


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    follower = a_follower(tmp_path / "log", b"one\ntwo")
    follower.end()

    assert follower.read() + follower.read() == b"> one\n> two\n"
    follower.close()


def test_a_progress_bar_is_shown_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = a_follower(path)
    shown = []
    with path.open("ab", buffering=0) as file:
        for percent in range(PATIENCE * 2):
            file.write(f"\r{percent}%".encode())
            shown.append(follower.read())

    assert b"".join(shown) == f"> {PATIENCE - 1}%\n> {PATIENCE * 2 - 1}%\n".encode()
    follower.close()


def test_a_backlog_is_skipped_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = a_follower(path, b"x" * 99 + b"\n")
    follower.read()
    line = b"y" * 99 + b"\n"
    with path.open("ab") as file:
        file.write(line * (2 * BACKLOG // len(line)))
    shown = follower.read()

    assert shown.startswith(b"> \xe2\x80\xa6 8.1 MB not shown; all of it is in " + bytes(path) + b"\n")
    assert len(shown) < 2 * CHUNK
    assert follower.read() == b""
    follower.close()


def test_a_follower_rests_only_when_nothing_is_to_be_shown_soon(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = a_follower(path)
    rested = []
    with path.open("ab", buffering=0) as file:
        for written in (b"", b"whole\n", b"", b"10%", b""):
            file.write(written)
            follower.read()
            rested.append(follower.rests)

    assert rested == [True, False, True, False, False]
    follower.close()


def test_a_file_that_was_emptied_is_followed_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = a_follower(path, b"before, and long\n")
    follower.read()
    path.write_bytes(b"after\n")

    assert follower.read() == b"> after\n"
    follower.close()


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "attempt-0" / "rank-0.log"
    for word in (b"one\n", b"two\n"):
        log = open_log(path)
        os.write(log, word)
        os.close(log)

    assert path.read_bytes() == b"one\ntwo\n"


def test_closing_shows_what_is_left(tmp_path: Path) -> None:
    out = io.StringIO()
    terminal = Terminal(out)
    path = tmp_path / "log"
    path.write_bytes("grüße\n".encode() + b"\xff\n" + b"x" * 2 * CHUNK)
    terminal.follow(path, "[rank 0] ", 0)()
    terminal.close(timeout=20)

    assert out.getvalue().startswith("[rank 0] grüße\n[rank 0] \N{REPLACEMENT CHARACTER}\n[rank 0] xxx")
    assert out.getvalue().count("x") == 2 * CHUNK


class StoppedTerminal(io.StringIO):
    """Takes no byte until it is released, as after Ctrl-S."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.released.wait()
        return super().write(text)


def test_a_stopped_terminal_delays_nothing(tmp_path: Path) -> None:
    out = StoppedTerminal()
    terminal = Terminal(out)
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    end = terminal.follow(path, "> ", 0)
    out.asked.wait()
    end()
    terminal.close(timeout=0)

    assert out.getvalue() == ""
    out.released.set()
    terminal.close(timeout=20)
    assert out.getvalue() == "> one\n"


class BrokenTerminal(io.StringIO):
    """Its reader has gone."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        raise BrokenPipeError


def test_a_terminal_that_went_away_is_left_alone(tmp_path: Path) -> None:
    terminal = Terminal(BrokenTerminal())
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    terminal.follow(path, "> ", 0)
    terminal.close(timeout=20)

    assert path.read_bytes() == b"one\n"


def test_a_writer_may_end_after_its_terminal_went_away(tmp_path: Path) -> None:
    out = BrokenTerminal()
    terminal = Terminal(out)
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    end = terminal.follow(path, "> ", 0)
    out.asked.wait()
    terminal.close(timeout=20)
    end()

    assert path.read_bytes() == b"one\n"
