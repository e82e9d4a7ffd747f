"""Runs programs of others with a deadline: they and all that they started are gone when it has passed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

_REAP = 1.0
"""Seconds that a killed program gets to be gone; inside a stuck driver call not even SIGKILL is heard."""
_LONGEST = 24 * 3600.0
"""Seconds; more than the system's own waiting takes."""
_TAIL = 300
"""Characters of a program's last words that are told."""


Child = subprocess.Popen[bytes]


class Ended(NamedTuple):
    """How a program ended: *status* is None where it was killed for taking too long."""

    status: int | None
    output: str

    @property
    def last_words(self) -> str:
        """The end of what it said, in one line."""
        return " ".join(self.output.split())[-_TAIL:]


def find(name: str, environ: Mapping[str, str]) -> str | None:
    """Where a program is installed; None: nowhere on the PATH."""
    return shutil.which(name, path=environ.get("PATH"))


def run(command: Sequence[str], environ: Mapping[str, str], seconds: float, *, with_errors: bool = True) -> Ended:
    """
    Run *command* to its end. Blocks up to *seconds*, and a second more.

    *with_errors*: what it says on stderr is part of its output. Raises OSError where it cannot be started.
    """
    return finish(start(command, environ, with_errors=with_errors), seconds)


def start(command: Sequence[str], environ: Mapping[str, str], *, with_errors: bool = True) -> Child:
    """Start *command* in a session of its own. Raises OSError."""
    errors = subprocess.STDOUT if with_errors else subprocess.DEVNULL
    return subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )


def finish(child: Child, seconds: float) -> Ended:
    """What it said, once it has ended or its time is up."""
    try:
        output, _ = child.communicate(timeout=min(seconds, _LONGEST))
    except subprocess.TimeoutExpired as late:
        end(child)
        return Ended(None, (late.output or b"").decode(errors="replace"))
    except BaseException:  # Ctrl-C, or a deadline of whoever asked: nothing may go on behind their back
        end(child)
        raise
    return Ended(child.returncode, output.decode(errors="replace"))


def end(child: Child) -> None:
    """Kill it and all that it started, but do not insist."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdout:
        child.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_REAP)
