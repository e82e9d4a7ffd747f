"""Where a run keeps what it must not forget, and the lock that keeps two of one name apart."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class AlreadyRunning(Exception):
    """Another process runs under this name."""


def runs_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with a folder for each run: below `$XDG_STATE_HOME`, or `~/.local/state`."""
    base = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "healthd"


def database(state: Path) -> Path:
    """The embedded cluster's file in *state*."""
    return state / "cluster.db"


def make_private(state: Path) -> None:
    """
    Make the folder *state*, and close it to everybody else: logs and environments of jobs hold secrets.

    Raises PermissionError where somebody else could have put something there, OSError.
    """
    state.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        state.mkdir(mode=0o700)
    if state.is_symlink():
        raise PermissionError("it is a link: name the folder itself")
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid():
            raise PermissionError(f"it belongs to user {found.st_uid}, and this is user {os.geteuid()}")
        os.fchmod(folder, 0o700)
        with os.scandir(folder) as inside:
            if found.st_mode & 0o022 and any(inside):
                raise PermissionError("others could fill it, so what is in it may be theirs: empty it, or name another")
    finally:
        os.close(folder)


@contextmanager
def held(state: Path) -> Iterator[None]:
    """
    Keep every other run out of *state*, which is made if need be. Raises AlreadyRunning, OSError.

    The kernel lets go of the lock when its holder dies, however it dies.
    """
    make_private(state)
    lock = os.open(state / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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


class Before(NamedTuple):
    """How it was before a start."""

    is_empty: bool
    """There was nothing in the folder of its state."""
    absent: Sequence[Path]
    """Folders that the start has to make, each before those that it lies in."""


def before_start(state: Path, checkpoints: Path) -> Before:
    """How it is now; a start makes the folder *state*, and those in which *state* and *checkpoints* lie."""
    wanted = (state, *state.parents, *checkpoints.resolve().parents)
    return Before(
        is_empty=not state.is_dir() or not any(state.iterdir()),
        absent=[folder for folder in wanted if not folder.exists()],
    )


@contextmanager
def undone(state: Path, before: Before, refusals: tuple[type[Exception], ...]) -> Iterator[None]:
    """All is as *before* where the block ends with one of *refusals*. The caller holds the lock of *state*."""
    try:
        yield
    except refusals:
        if before.is_empty:
            with suppress(OSError):
                forget(state)
        for folder in before.absent:
            with suppress(OSError):  # somebody has put something into it meanwhile
                folder.rmdir()
        if before.is_empty and state not in before.absent:
            state.mkdir(exist_ok=True)
        raise


def forget(state: Path) -> None:
    """
    Remove what a run keeps in *state*, whose lock the caller holds; other files that lie there stay. Raises OSError.

    The database goes first: without it there is no run, also when the rest could not be removed.
    """
    for path in sorted(state.glob(f"{database(state).name}*")):
        path.unlink(missing_ok=True)
    if (state / "logs").is_dir():
        shutil.rmtree(state / "logs")
    (state / "lock").unlink(missing_ok=True)
    with suppress(OSError):  # something else lies there
        state.rmdir()
