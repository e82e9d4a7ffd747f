"""The folder of a run's persistent state, and the lock that keeps a second run of the same name out."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class AlreadyRunning(Exception):
    """Another process runs under this name."""


def runs_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """
    The folder with one folder per run: below `$XDG_STATE_HOME`, or `~/.local/state`.

    A relative path is ignored, as the XDG Base Directory Specification asks for: each directory would have other runs.
    """
    base = Path(environment.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "healthd"


def database(state: Path) -> Path:
    """The file of the embedded cluster in *state*."""
    return state / "cluster.db"


def logs_dir(state: Path) -> Path:
    """The folder for the logs of healthd and of the ranks in *state*. `forget` removes it with all that is in it."""
    return state / "logs"


def option_of(name: str, state: Path) -> str:
    """The option by which commands find the run *name* from any directory, for hints to copy."""
    usual = runs_dir() / name
    return f"--name {name}" if state.resolve() == usual.resolve() else f"--state {shlex.quote(str(state.absolute()))}"


def explain_command(name: str, state: Path) -> str:
    """The command that explains the run *name*, to copy."""
    option = option_of(name, state)
    return f"healthd explain {name}" + (f" {option}" if option.startswith("--state") else "")


def forget_command(state: Path) -> str:
    """The command that removes what is in *state*, whatever run it is of, to copy."""
    option = option_of(state.name, state)
    return f"healthd forget {state.name if option.startswith('--name') else option}"


def make_private(state: Path) -> None:
    """
    Make the folder *state*, and close it to all other users: logs and environments of jobs hold secrets.

    Raises PermissionError when another user could have put files there. Raises OSError.
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
    Keep every other run out of *state*. The folder is made if it does not exist. Raises AlreadyRunning, OSError.

    The kernel releases the lock when the process that holds it dies, however it dies.
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
    """The state of the folders before a start."""

    is_empty: bool
    """The state folder was empty or did not exist."""
    absent: Sequence[Path]
    """Folders that the start has to make, each before its parent."""


def before_start(state: Path, checkpoints: Path) -> Before:
    """The state now. A start makes the folder *state*, and the parents of *state* and *checkpoints*."""
    wanted = (state, *state.parents, *checkpoints.resolve().parents)
    return Before(
        is_empty=not state.is_dir() or not any(state.iterdir()),
        absent=[folder for folder in wanted if not folder.exists()],
    )


@contextmanager
def undone(state: Path, before: Before, refusals: tuple[type[Exception], ...]) -> Iterator[None]:
    """Restore the state *before* when the block ends with one of *refusals*. The caller holds the lock of *state*."""
    try:
        yield
    except refusals:
        if before.is_empty:
            with suppress(OSError):
                forget(state)
        for folder in before.absent:
            with suppress(OSError):  # another process has put a file into it since
                folder.rmdir()
        if before.is_empty and state not in before.absent:
            state.mkdir(exist_ok=True)
        raise


def forget(state: Path) -> None:
    """
    Remove the files of a run from *state*. The caller holds its lock. Other files in the folder stay. Raises OSError.

    The database is removed first: without it there is no run, even when the rest could not be removed.
    """
    for path in sorted(state.glob(f"{database(state).name}*")):
        path.unlink(missing_ok=True)
    if logs_dir(state).is_dir():
        shutil.rmtree(logs_dir(state))
    (state / "lock").unlink(missing_ok=True)
    with suppress(OSError):  # it holds other files
        state.rmdir()
