"""Where a run keeps what it must not forget, and the lock that keeps two of one name apart."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class AlreadyRunning(Exception):
    """Another process runs under this name."""


def runs_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with a folder for each run: below `$XDG_STATE_HOME`, or `~/.local/state`."""
    base = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "healthd"


def database(state: Path) -> Path:
    """The embedded cluster's file in *state*."""
    return state / "cluster.db"


@contextmanager
def held(state: Path) -> Iterator[None]:
    """
    Keep every other run out of *state*, which is made if need be. Raises AlreadyRunning, OSError.

    The kernel lets go of the lock when its holder dies, however it dies.
    """
    state.mkdir(parents=True, exist_ok=True)
    lock = os.open(state / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            raise AlreadyRunning(
                f"a run that keeps its state in {state} is under way (process {holder or 'unknown'})"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)
