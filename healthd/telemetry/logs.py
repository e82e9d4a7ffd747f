"""
Set up logging: JSON lines for a service, readable lines on a terminal.

An event is a name and fields (`log.warning("kernel records lost", count=3)`), never a sentence with values in it, so
that it can be searched. All lines go through the standard library's handler: a log line never ends the program.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from healthd.clock import Clock, SystemClock
from healthd.core.config import LogFormat, LogLevel, format_duration

log = structlog.get_logger(__name__)

_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


class _Handler(logging.StreamHandler[TextIO]):
    """
    A class of our own, so that a second `configure` replaces only our handlers and no others.

    A stream that takes no lines, because its disk is full or its reader is gone, fails nothing. Of the *file* that is
    said once, on the other stream.
    """

    def __init__(self, stream: TextIO, *, is_file: bool) -> None:
        super().__init__(stream)
        self._is_file = is_file
        self._has_failed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of an event; an event with an empty line writes nothing."""
        try:
            line = self.format(record)
        except Exception:  # like the standard library: a log line never ends the program
            self.handleError(record)
            return
        if line:
            self._write(line, record)

    def _write(self, line: str, record: logging.LogRecord) -> None:
        try:
            self.stream.write(line + self.terminator)
            self.flush()
        except OSError as error:
            self._lacks_lines(error)
        except Exception:
            self.handleError(record)

    def _lacks_lines(self, error: OSError) -> None:
        is_first, self._has_failed = not self._has_failed, True
        if is_first and self._is_file:
            log.warning("log.lacks_lines", error=error.strerror)


Render = Callable[[Mapping[str, Any]], str]
"""Makes the line of an event; an empty string: no line."""


def configure(
    format: LogFormat,  # noqa: A002 - the word in the file
    level: LogLevel,
    stream: TextIO,
    clock: Clock | None = None,
    *,
    render: Render | None = None,
    file: TextIO | None = None,
) -> None:
    """
    Send every event of *level* and above, also those of libraries, to *stream*, with *clock*'s time.

    With *render*, the stream gets the lines from *render* instead. A *file* also gets all events, as JSON.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        _Stamp(clock or SystemClock()),
        _plain_values,
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    renderers = _renderers(format, stream) if render is None else [structlog.processors.format_exc_info, _by(render)]
    outlets = {stream: renderers} | ({file: _JSON} if file is not None else {})
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(old)
    for outlet, last in outlets.items():
        handler = _Handler(outlet, is_file=outlet is file)
        handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=shared,
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
            )
        )
        root.addHandler(handler)
    root.setLevel(_LEVELS[level])


def _by(render: Render) -> Processor:
    return lambda _logger, _method, event: render(event)


def _renderers(format: LogFormat, stream: TextIO) -> list[Processor]:  # noqa: A002 - as in `configure`
    terminal = stream.isatty()
    if format is LogFormat.JSON or (format is LogFormat.AUTO and not terminal):
        return _JSON
    return [
        structlog.dev.ConsoleRenderer(
            colors=terminal and not os.environ.get("NO_COLOR"),
            exception_formatter=structlog.dev.plain_traceback,
            repr_native_str=True,  # control characters in a kernel message must not reach the terminal
        )
    ]


class _Stamp:
    """Adds the time of *clock*, in UTC with milliseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["timestamp"] = self._clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event


def _plain_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {key: _plain(value) for key, value in event.items()}


def _plain(value: object) -> object:
    """Enums, times and durations in the same spelling as everywhere else."""
    match value:
        case StrEnum():
            return value.value
        case datetime():
            return value.isoformat()
        case timedelta():
            return format_duration(value)
        case _:
            return value


def _in_order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Time, level and name first: a person looks for these in a line."""
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return first | {key: value for key, value in event.items() if key not in first}


def _to_json(event: Mapping[str, object], **_: object) -> str:
    return json.dumps(event, default=_jsonable)


def _jsonable(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, enc_hook=str)
    return str(_plain(value))


_JSON: list[Processor] = [
    structlog.processors.format_exc_info,
    _in_order,
    structlog.processors.JSONRenderer(_to_json),
]
