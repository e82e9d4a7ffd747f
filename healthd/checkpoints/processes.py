"""
The processes that read files written by users. They stay warm, and each is killed when an answer takes too long.

A process that hangs inside a file server may survive SIGKILL. It is left behind, and its location is not checked again
until it is gone. So a store that hangs holds only one process, however often it is checked. Idle processes exit by
themselves. Everything here blocks.
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
from healthd.core.checkpoint.verification import VerificationReport, read_report

# -P: a module in the current directory cannot replace a real one.
PROGRAM = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
_REAP = 1.0
"""Seconds that a killed process gets to be gone."""


class ReaderEnded(OSError):
    """The process ended without an answer: most likely it exceeded its memory limit."""


class WornOut(ReaderEnded):
    """It ended after earlier checks, which may be the cause."""


class Asking:
    """One inquiry in progress. Another thread can end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._is_over = False

    def begin(self, process: _Process) -> None:
        """*process* starts to work on it. Raises Ended when the inquiry was already ended."""
        with self._lock:
            self._process = process
            if self._is_over:
                raise ReaderEnded("the read was cancelled")

    def answered(self) -> None:
        """The process has finished with this inquiry."""
        with self._lock:
            self._process = None

    @property
    def is_over(self) -> bool:
        """Whether `end` was called."""
        return self._is_over

    def end(self) -> None:
        """End it: no caller waits for the answer any more."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.kill()


class Processes:
    """
    Answers inquiries, each by a process without other work that may use *memory* bytes.

    At most *idle* processes are kept for the next inquiries. There are never more processes than concurrent inquiries,
    plus `stuck`. No process outlives the program, whether it is idle or in the middle of an answer.
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

    def ask(self, inquiry: Inquiry, seconds: float, who: str = "", asking: Asking | None = None) -> VerificationReport:
        """The report. *who* is the caller's name. Raises TimeoutError, Ended and other OSErrors."""
        asking = asking or Asking()
        try:
            return self._ask(self._taken(inquiry.location), inquiry, seconds, who, asking)
        except WornOut:
            if asking.is_over:
                raise
            return self._ask(self._new(), inquiry, seconds, who, asking)

    def stuck(self) -> list[str]:
        """The callers of each check that cannot be ended and whose process still exists."""
        with self._lock:
            self._stuck = {where: (who, each) for where, (who, each) in self._stuck.items() if each.runs}
            return [who for who, _ in self._stuck.values()]

    def _ask(self, process: _Process, inquiry: Inquiry, seconds: float, who: str, asking: Asking) -> VerificationReport:
        was_used = bool(process.last)
        try:
            asking.begin(process)
            report = process.ask(inquiry, seconds)
        except BaseException as error:
            if not process.end():
                with self._lock:
                    self._stuck[inquiry.location] = who, process
            if was_used and isinstance(error, ReaderEnded):
                raise WornOut(str(error)) from error
            raise
        asking.answered()
        self._put_back(process)
        return report

    def _taken(self, location: str) -> _Process:
        """
        The process that checked *location* last, and has its proofs. Otherwise the process with the longest idle time.
        """
        with self._lock:
            if location in self._stuck and self._stuck[location][1].runs:
                raise TimeoutError(f"{location} has not answered an earlier read")
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
        """The location of its last inquiry."""
        self._popen = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )

    @property
    def runs(self) -> bool:
        return self._popen.poll() is None

    def ask(self, inquiry: Inquiry, seconds: float) -> VerificationReport:
        self.last = inquiry.location
        assert self._popen.stdin
        with suppress(BrokenPipeError):  # then it gives no answer either
            self._popen.stdin.write(msgspec.json.encode(inquiry) + b"\n")
            self._popen.stdin.flush()
        report = read_report(self._line(inquiry.location, monotonic() + seconds, seconds))
        if report is None:
            raise ReaderEnded(f"{inquiry.location}: what was found there cannot be written down")
        return report

    def _line(self, location: str, deadline: float, seconds: float) -> bytes:
        assert self._popen.stdout
        output, descriptor = b"", self._popen.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not output.endswith(b"\n") and len(output) <= MOST_ANSWER:
            if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
                raise TimeoutError(f"{location} has not answered within {seconds:.0f} s")
            piece = os.read(descriptor, MOST_ANSWER)
            if not piece:
                with suppress(subprocess.TimeoutExpired):
                    self._popen.wait(_REAP)
                raise ReaderEnded(f"{location}: the process that read it ended with status {self._popen.returncode}")
            output += piece
        return output

    def kill(self) -> None:
        """Kill it without waiting for its end."""
        self._popen.kill()

    def end(self) -> bool:
        """Kill it. Whether it is gone."""
        self._popen.kill()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP)
        return not self.runs
