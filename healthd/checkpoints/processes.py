"""
The processes that read what users wrote: warm ones, each ended when an answer takes too long.

One that hangs inside a file server may be beyond SIGKILL. It is left behind, and until it is gone its place is not
looked at again, so that a store that hangs keeps one process, however often somebody looks. Those with nothing to do
end by themselves. Everything here blocks.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

import msgspec

from healthd.checkpoints.child import MEMORY, MOST_ANSWER
from healthd.checkpoints.report import Inquiry
from healthd.core.checkpoint.verification import Report, read_report

# -P: no module of the directory that we happen to run in may stand in for a real one.
PROGRAM = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
_REAP = 1.0
"""Seconds that a process gets to be gone once it was killed."""


class Ended(OSError):
    """The process ended without an answer: most likely it took more memory than it may."""


class WornOut(Ended):
    """It did so after earlier looks, which may be to blame."""


class Asking:
    """One inquiry, while it is worked on. From another thread it can be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._is_over = False

    def begin(self, process: _Process) -> None:
        """*process* works on it. Raises Ended when nobody wants that any more."""
        with self._lock:
            self._process = process
            if self._is_over:
                raise Ended("nobody waits for the answer any more")

    def answered(self) -> None:
        """The process has other work from now on."""
        with self._lock:
            self._process = None

    @property
    def is_over(self) -> bool:
        """Whether `end` was called."""
        return self._is_over

    def end(self) -> None:
        """Nobody waits for the answer any more."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.kill()


class Processes:
    """
    Answers inquiries, each by a process that has nothing else to do and may take *memory* bytes.

    At most *idle* are kept for the next ones. There are never more of them than inquiries at one time, and `stuck`.
    None outlives the program, one in the middle of an answer no more than an idle one.
    """

    def __init__(
        self,
        idle: int,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        memory: int = MEMORY,
    ) -> None:
        self._most_idle = idle
        self._environment = environment
        self._program = (*program, str(memory))
        self._idle: list[_Process] = []
        self._started: set[_Process] = set()
        weakref.finalize(self, _end_all, self._started)
        self._stuck: dict[str, tuple[str, _Process]] = {}
        self._lock = threading.Lock()

    def ask(self, inquiry: Inquiry, seconds: float, who: str = "", asking: Asking | None = None) -> Report:
        """What there is. *who* wants to know. Raises TimeoutError, Ended and other OSErrors."""
        asking = asking or Asking()
        try:
            return self._ask(self._taken(inquiry.location), inquiry, seconds, who, asking)
        except WornOut:
            if asking.is_over:
                raise
            return self._ask(self._new(), inquiry, seconds, who, asking)

    def stuck(self) -> list[str]:
        """Who asked for each look that cannot be ended, and whose process is still there."""
        with self._lock:
            self._stuck = {where: (who, each) for where, (who, each) in self._stuck.items() if each.runs}
            return [who for who, _ in self._stuck.values()]

    def _ask(self, process: _Process, inquiry: Inquiry, seconds: float, who: str, asking: Asking) -> Report:
        was_used = bool(process.last)
        try:
            asking.begin(process)
            report = process.ask(inquiry, seconds)
        except BaseException as error:
            if not process.end():
                with self._lock:
                    self._stuck[inquiry.location] = who, process
            if was_used and isinstance(error, Ended):
                raise WornOut(str(error)) from error
            raise
        asking.answered()
        self._put_back(process)
        return report

    def _taken(self, location: str) -> _Process:
        """The one that looked there last, and knows what it proved; else the one that has rested longest."""
        with self._lock:
            if location in self._stuck and self._stuck[location][1].runs:
                raise TimeoutError(f"{location} has not answered an earlier look")
            self._stuck.pop(location, None)
            for process in sorted(self._idle, key=lambda each: each.last != location):
                self._idle.remove(process)
                if process.runs:
                    return process
                process.end()
        return self._new()

    def _new(self) -> _Process:
        process = _Process(self._program, self._environment)
        with self._lock:
            self._started.difference_update([each for each in self._started if not each.runs])
            self._started.add(process)
        return process

    def _put_back(self, process: _Process) -> None:
        with self._lock:
            self._idle.append(process)
            oldest = self._idle.pop(0) if len(self._idle) > self._most_idle else None
        if oldest is not None:
            oldest.end()


def _end_all(processes: Collection[_Process]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.end()


class _Process:
    def __init__(self, program: Sequence[str], environment: Mapping[str, str] | None) -> None:
        self.last = ""
        """The location that it was asked about last."""
        self._popen = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )

    @property
    def runs(self) -> bool:
        return self._popen.poll() is None

    def ask(self, inquiry: Inquiry, seconds: float) -> Report:
        self.last = inquiry.location
        assert self._popen.stdin
        with suppress(BrokenPipeError):  # then it says nothing either
            self._popen.stdin.write(msgspec.json.encode(inquiry) + b"\n")
            self._popen.stdin.flush()
        report = read_report(self._line(inquiry.location, monotonic() + seconds, seconds))
        if report is None:
            raise Ended(f"{inquiry.location}: what was found there cannot be written down")
        return report

    def _line(self, location: str, deadline: float, seconds: float) -> bytes:
        assert self._popen.stdout
        said, descriptor = b"", self._popen.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not said.endswith(b"\n") and len(said) <= MOST_ANSWER:
            if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
                raise TimeoutError(f"{location} has not answered within {seconds:.0f} s")
            piece = os.read(descriptor, MOST_ANSWER)
            if not piece:
                with suppress(subprocess.TimeoutExpired):
                    self._popen.wait(_REAP)
                raise Ended(f"{location}: the process that looked at it ended with status {self._popen.returncode}")
            said += piece
        return said

    def kill(self) -> None:
        """Without waiting for its end."""
        self._popen.kill()

    def end(self) -> bool:
        """Whether it is gone."""
        self._popen.kill()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP)
        return not self.runs
