"""The log: one JSON object a line for a service, readable for people, and harmless whatever is logged."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from healthd.core.api.model import KernelRecord, Verdict
from healthd.core.config import LogFormat, LogLevel
from healthd.local.reports.lines import Lines
from healthd.telemetry import logs

NOON = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


class Noon:
    """A clock that stands."""

    def now(self) -> datetime:
        return NOON

    async def sleep(self, delay: timedelta) -> None:
        raise AssertionError("the log does not wait")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


Configure = Callable[..., None]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """`logs.configure` at noon; what it changed is changed back."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level

    def at_noon(
        stream: io.StringIO,
        format: LogFormat = LogFormat.AUTO,  # noqa: A002 - the word in the file
        level: LogLevel = LogLevel.INFO,
        **more: Any,
    ) -> None:
        logs.configure(format, level, stream, Noon(), **more)

    yield at_noon
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def logged(configure: Configure) -> Callable[[], list[dict[str, Any]]]:
    """The events logged so far, as a service would have written them."""
    stream = io.StringIO()
    configure(stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_service_logs_one_json_object_a_line_with_time_level_and_event_first(configure: Configure) -> None:
    stream = io.StringIO()
    configure(stream)
    structlog.get_logger("agent").warning("kernel records lost", count=3)

    assert stream.getvalue() == (
        '{"timestamp": "2026-01-01T12:00:00.250Z", "level": "warning", "event": "kernel records lost", '
        '"count": 3, "logger": "agent"}\n'
    )


def test_a_terminal_gets_lines_for_people(configure: Configure) -> None:
    terminal = Terminal()
    configure(terminal)
    structlog.get_logger("agent").info("node quarantined", node="n1")

    assert "node quarantined" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")


@pytest.mark.parametrize(("stream", "format"), [(Terminal(), LogFormat.JSON), (io.StringIO(), LogFormat.CONSOLE)])
def test_the_format_may_be_forced(configure: Configure, stream: io.StringIO, format: LogFormat) -> None:  # noqa: A002 - the word in the file
    configure(stream, format)
    structlog.get_logger().info("here")

    assert stream.getvalue().startswith("{") is (format is LogFormat.JSON)
    assert "\x1b" not in stream.getvalue()


def test_events_below_the_level_are_not_written(configure: Configure) -> None:
    stream = io.StringIO()
    configure(stream, level=LogLevel.WARNING)
    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet too")

    assert stream.getvalue() == ""


def test_libraries_that_use_the_standard_logging_come_out_alike(logged: Callable[[], list[dict[str, Any]]]) -> None:
    logging.getLogger("aiohttp.server").error("Error handling %s", "request")

    assert logged() == [
        {
            "timestamp": "2026-01-01T12:00:00.250Z",
            "level": "error",
            "event": "Error handling request",
            "logger": "aiohttp.server",
        }
    ]


def test_values_are_spelled_as_everywhere_else(logged: Callable[[], list[dict[str, Any]]]) -> None:
    record = KernelRecord(sequence=7, at=NOON, text="x")
    structlog.get_logger().info(
        "all kinds", verdict=Verdict.HEALTHY, at=NOON, took=timedelta(seconds=90), path=Path("/ckpt"), record=record
    )

    (event,) = logged()
    assert (event["verdict"], event["at"], event["took"]) == ("healthy", "2026-01-01T12:00:00.250000+00:00", "1m30s")
    assert (event["path"], event["record"]["sequence"]) == ("/ckpt", 7)


def test_an_exception_is_one_line_with_its_traceback_inside(logged: Callable[[], list[dict[str, Any]]]) -> None:
    try:
        raise ValueError("torn write")
    except ValueError:
        structlog.get_logger().exception("cycle failed")

    (event,) = logged()
    assert event["exception"].splitlines()[-1] == "ValueError: torn write"


def test_hostile_text_breaks_neither_the_line_nor_the_terminal(configure: Configure) -> None:
    hostile = "a\nb\x1b[2Jc\udcff"
    service, terminal = io.StringIO(), Terminal()
    configure(service)
    structlog.get_logger().info("said", text=hostile)
    configure(terminal, LogFormat.CONSOLE)
    structlog.get_logger().info("said", text=hostile)

    assert json.loads(service.getvalue())["text"] == hostile
    assert service.getvalue().count("\n") == 1
    assert terminal.getvalue().count("\n") == 1
    assert "\x1b[2J" not in terminal.getvalue()


def test_configuring_again_replaces_the_stream(configure: Configure) -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(first)
    configure(second)
    structlog.get_logger().info("once")

    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)


def test_lines_of_its_own_replace_the_log_and_a_file_keeps_all_of_it(configure: Configure) -> None:
    terminal, file = io.StringIO(), io.StringIO()
    configure(terminal, render=lambda event: "hello" if event["event"] == "y" else "", file=file)
    structlog.get_logger().info("x")
    structlog.get_logger().info("y", step=3)

    assert terminal.getvalue() == "hello\n"
    assert [json.loads(line)["event"] for line in file.getvalue().splitlines()] == ["x", "y"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_below_the_file_is_one_line_on_the_terminal(
    configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO()
    file = Path("/dev/full").open("w")  # noqa: SIM115 - what it did not take cannot be flushed
    configure(terminal, render=Lines(), file=file)
    for step in range(3):
        structlog.get_logger().warning("y", step=step)
    configure(io.StringIO())
    with suppress(OSError):
        file.close()

    assert [line.split(" ", 2)[2] for line in terminal.getvalue().splitlines()] == [
        "warning: y step=0",
        "warning: healthd.log cannot be written, and will lack lines: No space left on device; the run goes on",
        "warning: y step=1",
        "warning: y step=2",
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_terminal_that_takes_no_lines_fails_nothing(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    terminal = Path("/dev/full").open("w")  # noqa: SIM115 - as above
    configure(terminal, file=file)
    structlog.get_logger().warning("y")
    configure(io.StringIO())
    with suppress(OSError):
        terminal.close()

    assert [json.loads(line)["event"] for line in file.getvalue().splitlines()] == ["y"]
    assert capsys.readouterr().err == ""
