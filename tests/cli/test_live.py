"""The picture of `healthd run --live`."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from rich.console import Console

from healthd.cli.runs.live import Happened, frame, last_lines

STATUS = ["run llama is running, at step 20", "  restarts     0", "  slot-0       rank 0, running"]


def drawn(width: int, height: int, happened: list[str]) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=False)
    console.print(frame(STATUS, happened, ["step 19", "step 20"], width=width, height=height))
    return out.getvalue().splitlines()


def test_it_has_how_the_run_stands_what_happened_and_what_rank_0_says() -> None:
    picture = "\n".join(drawn(80, 24, ["[healthd] a restart"]))

    for words in (*STATUS, "[healthd] a restart", "step 20"):
        assert words in picture


@pytest.mark.parametrize(("width", "height"), [(76, 21), (200, 60)])
def test_it_fits_the_terminal_and_shows_the_newest(width: int, height: int) -> None:
    picture = drawn(width, height, [f"line {number}" for number in range(300)])

    assert len(picture) == height
    assert max(map(len, picture)) == width
    assert any("line 299" in line for line in picture)


def test_what_a_rank_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in "".join(drawn(80, 24, ["\x1b[2J"]))


def test_the_newest_attempt_is_shown(tmp_path: Path) -> None:
    for attempt, text in (("2", "old\n"), ("10", "loading\n10 %\r50 %\r90 %\n")):
        (tmp_path / "logs" / f"attempt-{attempt}").mkdir(parents=True)
        (tmp_path / "logs" / f"attempt-{attempt}" / "rank-0.log").write_text(text)

    assert last_lines(tmp_path) == ["loading", "90 %"]
    assert last_lines(tmp_path / "nothing") == []


def test_what_healthd_says_is_kept_for_the_picture() -> None:
    happened = Happened()
    happened.write("one\ntwo\n")

    assert list(happened.lines) == ["one", "two"]


def test_the_end_is_kept_whole_for_below_the_picture() -> None:
    happened = Happened()
    log = logging.Handler()
    log.addFilter(happened)
    for event in ("run.restarted", "run.completed", "run.summary"):
        record = logging.LogRecord("healthd", logging.INFO, "", 0, {"event": event}, None, None)
        assert log.filter(record)
        happened.write(f"{event} and much more {'.' * 300}\n")

    assert [text.split()[0] for text in happened.end] == ["run.completed", "run.summary"]
    assert all(len(text) > 300 for text in happened.end)
