"""What others wrote does nothing to the terminal that it is shown on."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout

import pytest
from rich.text import Text

from healthd.cli.errors import UserError
from healthd.cli.main import Command, main
from healthd.cli.terminal.output import console, guarded
from healthd.core.printable import printable

HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\u202e\x7fb\U000e0041"
"""Changes titles, wipes screens, writes over what stands there, turns lines round."""


def test_letters_and_the_ends_of_lines_are_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded():
        print(f"Größe 4 × 8 → gut\n\tx{HOSTILE}")

    said = capsys.readouterr().out
    assert said.startswith("Größe 4 × 8 → gut\n\txa\\u001b]0;title")
    assert all(each.isprintable() for each in said.replace("\n", "").replace("\t", ""))


def test_a_console_escapes_text_and_colours_it_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    with redirect_stdout(stream), guarded():
        console().print(Text(HOSTILE, style="bold"), soft_wrap=True)

    assert "\x1b[1m" in stream.getvalue()
    assert "\\u001b]0;title" in stream.getvalue()
    assert "\x9b" not in stream.getvalue()


def test_what_is_printed_for_programs_stays_json() -> None:
    text = json.dumps({"why": HOSTILE}, ensure_ascii=False)

    assert json.loads(printable(text)) == {"why": HOSTILE}


def test_an_error_is_escaped_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["refuses"], {"refuses": Command("tests.cli.test_terminal", "always")}) == 2

    assert "\x1b" not in capsys.readouterr().err


def add_arguments(parser: object) -> None:
    """Of a command."""


def run(args: object) -> int:
    """Always refuses."""
    raise UserError(HOSTILE)
