"""
The process that calls NVML: started, read, killed when it does not answer, and started again, each time after longer.

A process that hangs inside a driver may ignore SIGKILL. It is left behind, and until it is gone no other is started, so
that there is never more than one. Nothing here waits, except `wait`. This module does not parse the output.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Protocol

from healthd.core.backoff import Backoff, no_jitter

_PROGRAM = Path(__file__).with_name("child") / "watch.py"
_PIPE = 1 << 20
"""Bytes of the pipe: several samples of eight GPUs."""
_REAP = 1.0
"""Seconds that a process has to end after its last output, or after a kill."""
_ATTENTIVE = 5.0
"""Seconds. A reader that paused for longer cannot know whether the process was slow, or everything stood still."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often NVML is called, and how long it may take."""

    every: timedelta = timedelta(seconds=10)
    whole: timedelta = timedelta(seconds=60)
    """How often everything is read."""
    deadline: timedelta = timedelta(seconds=10)
    first: timedelta = timedelta(seconds=60)
    """For the first answer: without persistence, the driver initialises every GPU for it."""
    anew: timedelta = timedelta(seconds=60)
    """How often NVML is initialised anew while a GPU is not well: the GPU may have been reset meanwhile."""
    use: timedelta = timedelta(0)
    """How often it is read how much the GPUs are used, at most. 0: never."""


USUAL = Pace()


class Child(Protocol):
    """What this module uses of `subprocess.Popen`."""

    @property
    def stdout(self) -> IO[bytes] | None: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float) -> int: ...


Spawn = Callable[[Pace], Child]
"""Starts a child. Raises OSError."""


def asking(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Spawn:
    """Starts the real child. *environ*: its environment, default this process's. *root*: where /proc and /dev are."""

    def spawn(pace: Pace) -> Child:
        times = (pace.every, pace.whole, max(pace.first, pace.deadline), pace.anew, pace.use)
        # -P: no module of the current directory may replace a real one.
        command = [sys.executable, "-P", str(_PROGRAM), *(str(one.total_seconds()) for one in times), str(root)]
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    return spawn


def _never() -> bool:
    return False


class ChildProcess:
    """At most one process, whatever happens to it. Not safe for threads."""

    def __init__(
        self,
        pace: Pace = USUAL,
        *,
        spawn: Spawn | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self._pace = pace
        self._spawn = spawn or asking()
        self._monotonic = monotonic
        self._backoff = backoff or Backoff(timedelta(seconds=10), timedelta(minutes=5), no_jitter)
        self._child: Child | None = None
        self._abandoned: Child | None = None
        self._first_answer_at: float | None = None
        self._buffer = b""
        self._due = 0.0
        self._start_at = 0.0
        self._rests_until = 0.0
        self._no_rest = _never
        self._answered_at = 0.0
        self.responds: bool | None = None
        """False from a missed deadline until a process answers. None until the first answer or missed deadline."""
        self.trouble = ""
        """Why there is no answer, for a person. Empty while it answers."""

    @property
    def is_running(self) -> bool:
        """A process is running, or hangs and has not been given up yet."""
        return self._child is not None

    def rest(self, time: timedelta, *, unless: Callable[[], bool]) -> None:
        """Start no other process within *time*, unless *unless* returns True."""
        self._rests_until, self._no_rest = self._monotonic() + time.total_seconds(), unless

    def read_answers(self) -> list[bytes]:
        """The answers since the last call, oldest first."""
        now = self._monotonic()
        self._tend(now)
        answers = self._read(self._child) if self._child else []
        self._judge(now, answered=bool(answers))
        self._answered_at = now
        return answers

    def wait(self, seconds: float) -> None:
        """Wait until the process has written something, or *seconds* have passed."""
        if self._child and self._child.stdout:
            with contextlib.suppress(OSError, ValueError):  # closed meanwhile
                select.select([self._child.stdout], [], [], seconds)

    def close(self) -> None:
        """End the process, for example because an open driver prevents a GPU's reset."""
        if self._child:
            self._leave(self._child)
        if self._abandoned:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._abandoned.wait(_REAP)
        self._start_at = self._monotonic()

    def _tend(self, now: float) -> None:
        if self._abandoned and self._abandoned.poll() is not None:
            self._abandoned = None
        if self._child is None and self._abandoned is None and now >= self._start_at and not self._rests(now):
            self._start(now)

    def _rests(self, now: float) -> bool:
        return now < self._rests_until and not self._no_rest()

    def _start(self, now: float) -> None:
        try:
            child = self._spawn(self._pace)
        except OSError as error:
            self.trouble = f"NVML could not be asked: {error}"
            self._start_at = now + self._backoff.next().total_seconds()
            return
        if child.stdout:
            os.set_blocking(child.stdout.fileno(), False)
            with contextlib.suppress(OSError):  # more than this user may have; the usual size works too
                fcntl.fcntl(child.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
        self._child, self._buffer, self._first_answer_at = child, b"", None
        self._answered_at = now
        self._due = now + self._pace.first.total_seconds()

    def _read(self, child: Child) -> list[bytes]:
        """Complete lines. The times at which calls began set deadlines on the way."""
        is_open = self._fill(child)
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._note(line)
        if not is_open:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if status := child.wait(_REAP):
                    self.trouble = f"NVML could not be asked: the process that asks it ended with status {status}"
            self._leave(child)
        return [line for line in lines if line.startswith(b"{")]

    def _fill(self, child: Child) -> bool:
        """Read what is there. False: the output has ended."""
        while child.stdout:
            try:
                received = os.read(child.stdout.fileno(), _PIPE)
            except BlockingIOError:
                return True
            if not received:
                return False
            self._buffer += received
        return False

    def _note(self, line: bytes) -> None:
        pace = self._pace
        if line.startswith(b"{"):
            now = self._monotonic()
            if self._first_answer_at is None:
                self._first_answer_at = now
            elif now - self._first_answer_at >= pace.every.total_seconds():  # it does not end soon after its start
                self._backoff.reset()
            self.responds, self.trouble = True, ""
            self._due = now + (pace.every + pace.deadline).total_seconds()
        else:
            deadline = pace.first if self._first_answer_at is None else pace.deadline
            self._due = float(line) + deadline.total_seconds()

    def _judge(self, now: float, *, answered: bool) -> None:
        """Report that it hangs, when it is late and was read all the while."""
        child, gap = self._child, now - self._answered_at
        if child is None or answered:
            return
        if gap > _ATTENTIVE:
            self._due = max(self._due, now + self._pace.deadline.total_seconds())
        if now > self._due:
            self.responds = False
            self.trouble = "NVML does not answer: the process that asks it hangs, and is given up"
            self._leave(child)

    def _leave(self, child: Child) -> None:
        """End it, but do not wait for long: inside a stuck driver call not even SIGKILL has an effect."""
        child.kill()
        if child.stdout:
            child.stdout.close()
        if child.poll() is None:
            self._abandoned = child
        self._child = None
        self._start_at = self._monotonic() + self._backoff.next().total_seconds()
