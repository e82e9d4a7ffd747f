"""
One rank under its shim, for the event loop: start it, ask it to stop, learn how it ended.

An end is reported only when no process of the rank is left. The shim reports it. When the shim was killed, the scan
for the marks does.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from healthd.core.recovery.faults import ENDED_WITH_HEALTHD, LOST
from healthd.local.checkpoints.writer_lock import passed_on
from healthd.local.processes.marks import kill_marked
from healthd.local.processes.pods import RankExit
from healthd.local.processes.shim import MARK, SHIM_MARK

SHIM = Path(__file__).with_name("shim.py")
NOT_EXECUTABLE = frozenset({errno.EACCES, errno.ENOEXEC, errno.EISDIR})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCommand:
    """What to run: *argv* in *cwd* with exactly *env*, its output appended to the open file *output*."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    output: int


class Rank:
    """A running rank. *on_change* is called when `pid`, `has_left_processes` or `ending` has changed."""

    def __init__(self, uid: str, on_change: Callable[[], None]) -> None:
        self.uid = uid
        self.pid = 0
        """The pid of the command, once it runs."""
        self.ending: RankExit | None = None
        self.stopping = False
        """healthd asked for the end, so a death by signal is expected."""
        self._on_change = on_change
        self._shim: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._watching: asyncio.Task[None] | None = None
        self._exit: tuple[int, int] | None = None
        self._failure: RankExit | None = None

    @property
    def shim_pid(self) -> int:
        """The pid of the shim. 0 for a rank that never had one."""
        return self._shim.pid if self._shim else 0

    @property
    def has_left_processes(self) -> bool:
        """The command has ended with 0, and processes that it started still run. They have their time to finish."""
        return self._exit is not None and self._exit[0] == 0 and self.ending is None and not self.stopping

    def start(self, command: RankCommand, *, linger: timedelta) -> None:
        """
        Start the shim. Later, `pid` or `ending` says whether the command could be run.

        There is no await here: no cancellation can come between the start and the watch.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            arguments = [str(theirs.fileno()), self.uid, str(linger.total_seconds()), command.cwd, *command.argv]
            try:
                shim = _popen(arguments, command, theirs.fileno(), self.uid)
            except (OSError, ValueError) as error:
                ours.close()
                self.fail(str(error))
                return
        self._shim, self._control = shim, ours
        self._watching = asyncio.create_task(self._watch(shim, ours), name=f"rank {self.uid}")

    def fail(self, message: str) -> None:
        """The rank ends before it started."""
        self._end(RankExit(exit_code=127, reason="StartError", message=f"cannot be started: {message}"))

    def ended_with_healthd(self, message: str) -> None:
        """An earlier healthd, which supervised this pod's processes, has ended: end what is left by its mark."""
        ending = self._end_by_mark(message, ENDED_WITH_HEALTHD)
        self._watching = asyncio.create_task(ending, name=f"rank {self.uid}")

    def stop(self, grace: timedelta) -> None:
        """Ask for SIGTERM now and SIGKILL after *grace*; zero: SIGKILL at once. A later call can only shorten it."""
        self.stopping = True
        self.wake()
        if self._control is not None and self.ending is None:
            with contextlib.suppress(OSError):  # the shim has just ended; its end of file reports that
                self._control.send(f"stop {max(0.0, grace.total_seconds())}\n".encode())

    def wake(self) -> None:
        """
        Let the shim go on when it was stopped: `pkill -STOP -f train.py` finds its command line, too. A stopped shim
        sees no end of the rank and obeys no stop. A stopped rank stays stopped.
        """
        if self._shim is not None and self.ending is None:
            self._shim.send_signal(signal.SIGCONT)

    async def wait(self) -> None:
        """Return when the rank has ended."""
        if self._watching is not None:
            await asyncio.shield(self._watching)

    async def _watch(self, shim: subprocess.Popen[bytes], control: socket.socket) -> None:
        """Read the shim's messages to the end, reap it, and report the end."""
        last = ""
        with control:
            async for line in _lines(control):
                last = line
                self._ingest_line(line)
            self._control = None
        await asyncio.to_thread(shim.wait)
        if last == "gone" and self._exit is not None:
            self._end(self._failure or _ending(*self._exit, stopped=self.stopping))
        else:
            await self._end_by_mark("lost its supervisor, which was killed", LOST)

    def _ingest_line(self, line: str) -> None:
        match line.split(" ", 2):
            case ["started", pid]:
                self.pid = int(pid)
                self._on_change()
            case ["failed", number, text]:
                code = 126 if int(number) in NOT_EXECUTABLE else 127
                self._failure = RankExit(exit_code=code, reason="StartError", message=f"cannot be started: {text}")
            case ["exited", code, number]:
                self._exit = int(code), int(number)
                self._on_change()

    async def _end_by_mark(self, message: str, reason: str) -> None:
        found = await kill_marked(self.uid)
        text = f"{message}; its processes that lived on ({found}) were killed" if found else message
        self._end(RankExit(exit_code=137, signal=9, reason=reason, message=f"{text}; no process of it is left"))

    def _end(self, ending: RankExit) -> None:
        self.ending = ending
        self._on_change()


async def _lines(control: socket.socket) -> AsyncIterator[str]:
    """The messages of the shim, until it ends."""
    loop = asyncio.get_running_loop()
    unread = b""
    with contextlib.suppress(ConnectionError):
        while data := await loop.sock_recv(control, 4096):
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")


def _popen(arguments: list[str], command: RankCommand, control: int, uid: str) -> subprocess.Popen[bytes]:
    """Uses -I -S: no site, no user code, no PYTHON* variables. Those are for the rank, not for the shim."""
    env = {name: value for name, value in command.env.items() if name != MARK}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(SHIM), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=command.output,
        stderr=command.output,
        env={**env, SHIM_MARK: uid},
        pass_fds=(control, *passed_on()),
        start_new_session=True,  # Ctrl-C at the terminal is for healthd, which passes on a stop
    )


def _ending(code: int, number: int, *, stopped: bool) -> RankExit:
    if code == 0:
        return RankExit(exit_code=0, reason="Completed", message="exit code 0; no process of it is left")
    how = f"killed by signal {number}" if number else f"exit code {code}"
    when = " after healthd asked it to stop" if stopped else ""
    return RankExit(exit_code=code, signal=number, reason="Error", message=f"{how}{when}; no process of it is left")
