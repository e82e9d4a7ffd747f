"""One process at a time opens a store: if two made it in a new file at once, one of them would fail."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 5.0
"""Seconds. A store is opened in a few milliseconds."""
_NAP = 0.01
_FLAGS = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Busy(Exception):
    """Another process opens the store, and does not finish. The message says what to do."""


@contextmanager
def alone(store: Path, patience: float = PATIENCE) -> Iterator[None]:
    """
    Keep other processes from opening the file *store* while the block runs. Raises Busy, OSError.

    The lock is a file of its own, which is removed afterwards. The folder of the store would not do: other locks are
    held on folders for as long as a run lasts, such as those on all parents of a folder of checkpoints.
    """
    path = store.with_name(f"{store.name}.opening")
    lock = None
    try:
        lock = _locked(path, patience)
    except OSError:
        if not store.exists():
            raise
        # There is no room for another file. The store is there already, and may at least be read.
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):
                path.unlink()
            os.close(lock)


def _locked(path: Path, patience: float) -> int:
    """A descriptor of *path*, locked and still under this name. Raises Busy, OSError."""
    for left in range(round(patience / _NAP), -1, -1):
        lock = os.open(path, _FLAGS, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:
            os.close(lock)
            raise
        os.close(lock)  # another process holds it, or held it before and has just removed it
        if left:
            threading.Event().wait(_NAP)
    raise Busy(f"another process has been opening it for {patience:g} s; `fuser {path}` names it: end it")
