"""Runs third-party programs with a deadline. After it, they and all that they started are gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

_REAP = 1.0
"""Seconds that a killed program has to end. Inside a stuck driver call not even SIGKILL has an effect."""
_LONGEST = 24 * 3600.0
"""Seconds. The upper limit: more may be too much for the system's own wait functions."""
_TAIL = 300
"""Characters of the end of a program's output that are reported."""


Child = subprocess.Popen[bytes]
_RUNNING: set[Child] = set()
"""Those that were started here and have not been seen to end."""


class ProgramResult(NamedTuple):
    """How a program ended. *status* is None where it was killed for taking too long."""

    status: int | None
    output: str

    @property
    def last_line(self) -> str:
        """The end of its output, in one line."""
        return " ".join(self.output.split())[-_TAIL:]


def find(name: str, environ: Mapping[str, str]) -> str | None:
    """Where a program is installed. None: nowhere on the PATH."""
    return shutil.which(name, path=environ.get("PATH"))


def run(
    command: Sequence[str], environ: Mapping[str, str], seconds: float, *, with_errors: bool = True
) -> ProgramResult:
    """
    Run *command* to its end. Blocks up to *seconds*, and one second more.

    *with_errors*: its stderr is part of its output. Raises OSError where it cannot be started.
    """
    return finish(start(command, environ, with_errors=with_errors), seconds)


def start(command: Sequence[str], environ: Mapping[str, str], *, with_errors: bool = True) -> Child:
    """Start *command* in a session of its own. Raises OSError."""
    errors = subprocess.STDOUT if with_errors else subprocess.DEVNULL
    with _signals_later():
        child = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        _RUNNING.add(child)
    return child


def finish(child: Child, seconds: float) -> ProgramResult:
    """Its output, once it has ended or its time is up."""
    try:
        output, _ = child.communicate(timeout=min(seconds, _LONGEST))
    except subprocess.TimeoutExpired as late:
        end(child)
        return ProgramResult(None, (late.output or b"").decode(errors="replace"))
    except BaseException:  # Ctrl-C, or the caller's deadline: nothing may run on in the background
        end(child)
        raise
    _RUNNING.discard(child)
    return ProgramResult(child.returncode, output.decode(errors="replace"))


def end(child: Child) -> None:
    """Kill it and all that it started, but do not wait for long."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdout:
        child.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_REAP)
    _RUNNING.discard(child)


@contextmanager
def none_left() -> Iterator[None]:
    """When the block ends, so does all that was started in it, whatever moment a signal that ended it came in."""
    before = set(_RUNNING)
    try:
        yield
    finally:
        for child in _RUNNING - before:
            end(child)


@contextmanager
def _signals_later() -> Iterator[None]:
    """
    A handler that raises would do so after the process has begun and before anything knows it. It would run on, for
    ever where it hangs in a driver.
    """
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread alone
        yield
        return
    came: list[int] = []
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in known.items() if handler is not None}  # None: it is no Python
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for missed in came:
        signal.raise_signal(missed)
