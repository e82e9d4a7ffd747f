"""The processes of a writer that saves some steps, one for each rank, and what they tell of it."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

GRACE = 1.5
"""Seconds for which the other ranks outlive one that was killed, at most."""
PATIENCE = 90.0
"""Seconds that a run may take."""


SCRATCH = Path(tempfile.mkdtemp(prefix="interrupted-"))


class OtherValues(Exception):
    """A checkpoint loads, but is not what was saved for its step."""


class Run:
    """One rank's part of one run of a writer."""

    def __init__(self, root: Path, rank: int, ranks: int, steps: tuple[int, ...], port: int, reported: int) -> None:
        self.root = root
        """The folder of the steps, which is there."""
        self.rank = rank
        self.ranks = ranks
        self.steps = steps
        self.port = port
        """Free, for the meeting of the ranks."""
        self._reported = reported
        self._began = 0.0

    def begin(self, step: int) -> None:
        """Called by rank 0 right before it saves *step*."""
        self._began = time.monotonic()
        self._tell(f"begin {step}")

    def end(self, step: int) -> None:
        """Called by rank 0 when *step* is saved, of an asynchronous save the end of that."""
        self._tell(f"end {step} {time.monotonic() - self._began}")

    @contextlib.contextmanager
    def saving(self, step: int) -> Iterator[None]:
        """Around a save."""
        self.begin(step)
        yield
        self.end(step)

    def _tell(self, line: str) -> None:
        if not self.rank:
            os.write(self._reported, f"{line}\n".encode())


@dataclass(frozen=True, kw_only=True)
class Writer:
    """How one framework saves and loads."""

    save: Callable[[Run], None]
    """One rank: saves every step of the run, each with values of its own, and deletes old ones as it does in use."""
    load: Callable[[Path, int], None]
    """Loads a checkpoint, which may stand for several files, and raises OtherValues when it is not that of the step."""
    ranks: int = 1
    steps: tuple[int, ...] = (10, 20, 30)
    packages: tuple[str, ...] = ()
    """What has to be installed; imported once, not in each process."""
    folder: str = ""
    """Where below the root the steps are."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Patterns of the names of files or folders that are renamed into place, relative to the root, each with the
    temporary name; `{name}` and `{parent}` in it stand for those of the path."""


class Gang:
    """The processes of a run, each in a group of its own so that what it starts ends with it."""

    def __init__(self, writer: Writer, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._reader, reported = os.pipe()
        self._unread = b""
        port = free_port()
        runs = [Run(root, rank, writer.ranks, writer.steps, port, reported) for rank in range(writer.ranks)]
        self.pids = [self._start(writer, run) for run in runs]
        os.close(reported)
        self.failed = False

    def _start(self, writer: Writer, run: Run) -> int:
        pid = os.fork()
        if pid:
            return pid
        os.setpgid(0, 0)
        os.close(self._reader)
        signal.alarm(int(PATIENCE))
        log = os.open(_log(run.rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 1
        try:
            writer.save(run)
            note_imports()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def until(self, line: str) -> bool:
        """Wait for this line. False when the run ends without it."""
        return any(reported == line for reported in self.lines())

    def lines(self, within: float = PATIENCE) -> Iterator[str]:
        """What the run tells, until all its processes ended or for so many seconds."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            while b"\n" in self._unread:
                line, _, self._unread = self._unread.partition(b"\n")
                yield line.decode()
            if not select.select([self._reader], [], [], min(0.2, max(0.0, end - time.monotonic())))[0]:
                if self._one_failed():
                    return
                continue
            more = os.read(self._reader, 4096)
            if not more:
                return
            self._unread += more

    def kill(self, *ranks: int) -> None:
        """End all of it at once, or these ranks."""
        for rank in ranks or range(len(self.pids)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pids[rank], signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], signal.SIGKILL)

    def close(self, within: float = 0) -> None:
        """Wait for all, and end what is left after so many seconds."""
        end = time.monotonic() + within
        while time.monotonic() < end and any(self._ended(pid) is None for pid in self.pids):
            time.sleep(0.02)
        self.kill()
        for pid in self.pids:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(pid, 0)
                self.failed |= bool(status)
        os.close(self._reader)

    def _one_failed(self) -> bool:
        """Whether a rank ended with an error, so that a launcher would end the others."""
        return any(self._ended(pid) for pid in self.pids)

    @staticmethod
    def _ended(pid: int) -> int | None:
        """How a process ended; None while it runs."""
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended.si_status if ended else None


def measure(writer: Writer, root: Path) -> dict[int, float]:
    """Seconds that each save takes undisturbed. Raises RuntimeError when the writer fails by itself."""
    gang = Gang(writer, root)
    ends = [line.split() for line in gang.lines() if line.startswith("end")]
    gang.close(GRACE)
    took = {int(step): float(seconds) for _, step, seconds in ends}
    if gang.failed or set(took) != set(writer.steps):
        logs = "".join(_log(rank).read_text()[-3000:] for rank in range(writer.ranks) if _log(rank).exists())
        raise RuntimeError(f"the writer failed undisturbed, after {took}:\n{logs}")
    return took


def fresh(name: str) -> Path:
    """A path below the scratch folder where nothing is."""
    shutil.rmtree(SCRATCH / name, ignore_errors=True)
    return SCRATCH / name


def free_port() -> int:
    """A port of this machine that is free."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def note_imports() -> None:
    (SCRATCH / f"imports-{os.getpid()}").write_text("\n".join(sys.modules))


def import_noted() -> None:
    for noted in SCRATCH.glob("imports-*"):
        for module in noted.read_text().split():
            if module not in sys.modules:
                with contextlib.suppress(Exception):  # some are no modules by that name
                    importlib.import_module(module)
        noted.unlink()


def _log(rank: int) -> Path:
    return SCRATCH / f"rank-{rank}.log"
