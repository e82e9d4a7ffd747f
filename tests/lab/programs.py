"""
Programs of the lab as processes: started, watched, ended, and found again after a crash.

Every wait has a limit, and who gives up shows the end of the program's own log. A process is known by its number and
the moment it started, so one that got the number later is never touched.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_POLL = 0.02
_TAIL = 15
_PORTS = range(20000, 32000)
"""
Below the range from which the kernel takes the ports of outgoing connections: a client that calls again and again
while a server is away could otherwise be given the server's own port, or even be connected to itself.
"""
_claims: list[socket.socket] = []
"""Held until this process ends: between the choice of a port and its use another process would find it free."""
_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-starter")
"""
Starts every process. "End me with my parent" means the thread that started me; this one lives as long as the
process, while the thread of a caller (asyncio.to_thread) may end with its event loop.
"""


_MORE_MEMORY = {"GOGC": "400"}
"""Programs in Go collect garbage less often: an API server needs a seventh less processor time so, and has 0.7 GB."""


class LabError(Exception):
    """Something of the lab did not do what it should; carries the end of the log."""


_IF_PARENT_LIVES = ("sh", "-c", 'test "$PPID" = "$0" && exec "$@"')
"""For the moment between its start and the tie to its parent, who may have died in it. `$0` is the parent's number."""


class Program:
    """One program, its log, and whether it runs."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        stays: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._stays = stays
        self._environment = {**_MORE_MEMORY, **os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process; None when it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it, in a session of its own. Unless it *stays*, the kernel ends it when this process ends."""
        self._process = _STARTER.submit(self._start).result()

    def _start(self) -> subprocess.Popen[bytes]:
        ties = shutil.which("setpriv")
        tied = (
            []
            if self._stays or ties is None
            else [ties, "--pdeathsig", "KILL", "--", *_IF_PARENT_LIVES, str(os.getpid())]
        )
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*tied, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def stop(self, *, grace: float = 0.0) -> None:
        """End it and return when it has ended: with SIGTERM when it is given *grace* seconds, then with SIGKILL."""
        if self._process is None:
            return
        if grace:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self._process.kill()
        self._process.wait()
        self._process = None

    def wait_until(self, what: str, holds: Callable[[], object], *, limit: float) -> None:
        """Return when *holds* answers true. Raises LabError after *limit* seconds or when the program ends."""
        deadline = time.monotonic() + limit
        while not holds():
            if self.pid is None:
                raise LabError(f"{self.name} ended before {what}{self.tail()}")
            if time.monotonic() > deadline:
                raise LabError(f"{self.name}: not {what} within {limit:g} s{self.tail()}")
            time.sleep(_POLL)

    def tail(self) -> str:
        """The end of the log, for an error."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:] if self.log.exists() else []
        return "\n".join([f"; the end of {self.log}:", *lines])


def wait_until(what: str, holds: Callable[[], object], *, limit: float) -> None:
    """Return when *holds* answers true. Raises LabError after *limit* seconds."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            raise LabError(f"not {what} within {limit:g} s")
        time.sleep(_POLL)


def free_port() -> int:
    """A port of 127.0.0.1 that is free, and that no process of a lab gets while this one lives."""
    for port in random.sample(_PORTS, min(200, len(_PORTS))):
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                claim.bind(f"\0healthd-lab-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _claims.append(claim)
        return port
    raise LabError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def started_at(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when there is none, or only its exit status is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return None
    ended = fields[0] == "Z" and threads <= 1  # the first thread may be a zombie while others still hold the ports
    return None if ended else fields[19]


def remember(path: Path, programs: Sequence[Program], *, owner: int | None) -> None:
    """Write down which processes belong together, and who looks after them (None: no process, they stay)."""
    pids = {program.name: program.pid for program in programs if program.pid}
    known = {name: [pid, started_at(pid)] for name, pid in pids.items()}
    state = {"owner": [owner, started_at(owner)] if owner else None, "programs": known}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(path)


def is_abandoned(path: Path, *, kept: bool) -> bool:
    """
    True when no process looks after these programs any more; what was asked to stay is abandoned only with *kept*.

    *path* lies in a directory whose name begins with the number of the process that made it.
    """
    if not path.exists():  # made a moment ago, or its maker died in that moment
        return started_at(int(path.parent.name.partition("-")[0])) is None
    owner = json.loads(path.read_text())["owner"]
    return kept if owner is None else started_at(owner[0]) != owner[1]


def running(path: Path) -> dict[str, int]:
    """The remembered processes that still run: their numbers by name."""
    known: dict[str, tuple[int, str | None]] = json.loads(path.read_text())["programs"]
    return {name: pid for name, (pid, start) in known.items() if start is not None and started_at(pid) == start}


def end_remembered(path: Path) -> list[str]:
    """End the processes that were remembered and still run; answers their names."""
    ending = running(path)
    for pid in ending.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until("ended", lambda: not running(path), limit=10)
    return list(ending)
