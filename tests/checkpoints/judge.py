"""
A process of its own that verifies checkpoints and may not use much: what a hostile file would cost is seen, not felt.

The limits are the kernel's, so a test that uses them needs no clock: too much memory is a MemoryError, too much
processor time or waiting ends the process. Both are reported as a fault.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from healthd.checkpoints.latest import VerifyLevel, latest, verify
from healthd.checkpoints.steps import UNKNOWN_STEP, Candidate
from tests.slowness import slowness

MEMORY = 300 << 20
"""Bytes of address space, of which some 35 MB are Python and what it has loaded."""
SECONDS = 10
"""Of processor time for one answer, on a machine of the usual speed."""
LONGEST = 60
"""Seconds on the clock for one answer: it waits for something that never comes."""
MOST_SLOWNESS = 4
"""A machine that seems slower still was only measured badly."""
FAULT = "fault of healthd"


class Verdict(NamedTuple):
    """What was said of one checkpoint, and what that cost."""

    reason: str
    """Empty when it holds."""
    seconds: float = 0.0
    """Of processor time."""
    peak: int = 0
    """Bytes in memory at the worst moment."""


class Judge:
    """The process; a new one is started when a checkpoint ended the last one."""

    def __init__(self, *, memory: int = MEMORY) -> None:
        self._memory = memory
        self._process: subprocess.Popen[str] | None = None

    def verify(self, path: Path, level: VerifyLevel = VerifyLevel.FULL, beside: Sequence[str] = ()) -> Verdict:
        """The word on the one checkpoint at *path*, or on the files *beside* each other for which that stands."""
        return self._ask({"path": str(path), "level": level, "beside": beside})

    def latest(self, root: Path, level: VerifyLevel = VerifyLevel.FULL) -> Verdict:
        """The word on the newest below *root*: what was refused."""
        return self._ask({"path": str(root), "level": level, "root": True})

    def _ask(self, question: dict[str, object]) -> Verdict:
        if self._process is None:
            command = [sys.executable, "-m", "tests.checkpoints.judge", str(self._memory)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # each more asks for much that is never used
            )
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if answer:
            return Verdict(**json.loads(answer))
        return Verdict(f"a {FAULT}: it ended the process ({self._end()})")

    def _end(self) -> str:
        process, self._process = self._process, None
        if process is None:
            return ""
        with process:  # closes what it waits for
            pass
        return signal.Signals(-process.returncode).name if process.returncode < 0 else f"exit {process.returncode}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


def _answer(question: dict[str, Any]) -> Verdict:
    path, level = Path(question["path"]), VerifyLevel(question["level"])
    if "root" in question:
        return Verdict("; ".join(refused.reason for refused in latest(path, level=level).rejected))
    outcome = verify(Candidate(path=path, step=UNKNOWN_STEP, beside=tuple(question["beside"])), level=level)
    return Verdict(getattr(outcome, "reason", ""))


def _peak() -> int:
    """Bytes since `_limit`."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def _limit(slow: float) -> float:
    """Allow so much from now on, *slow* times as much as usual; the processor time that was used until now."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the worst moment until now
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + 1 + SECONDS * slow), resource.RLIM_INFINITY))
    signal.alarm(int(LONGEST * slow))
    return used


def serve(memory: int) -> None:
    """Answer the questions on standard input, one a line."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    slow = min(slowness(), MOST_SLOWNESS)
    for line in sys.stdin:
        used = _limit(slow)
        verdict = _answer(json.loads(line))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        seconds = usage.ru_utime + usage.ru_stime - used
        print(json.dumps(verdict._replace(seconds=seconds, peak=_peak())._asdict()), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
