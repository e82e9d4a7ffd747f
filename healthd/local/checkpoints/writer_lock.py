"""
One writer for a folder of checkpoints: a lock that the kernel holds while the supervisor or one of its ranks lives.

The folder itself is locked (flock), and its parent folders are locked as shared. So another spelling of the path, a
bind mount, a folder within it and a folder around it are detected, with any run name and any state folder. Beside the
folder lies a record, `.NAME.healthd-writer`, that says who writes. The record is locked, too. On a file system that
knows the locks of other machines, such as NFS, it keeps those machines out, too. It outlives a folder that is deleted
and made again. No file is put into the folder: some trainers want an empty folder.

Each rank inherits both locks (`passed_on`), because a rank that outlives its supervisor still writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from healthd.core.printable import printable
from healthd.probes.process_stat import read_stat

log = structlog.get_logger(__name__)

PATIENCE = 20.0
"""Seconds in which the ranks of a killed supervisor end. As a rule they end at once: their shims kill them."""
_NAP = 0.1
_LARGEST_RECORD = 4096
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Open without waiting, in case it is a pipe."""
_passed_on: list[int] = []

Flock = Callable[[int, int], None]


class TwoWriters(Exception):
    """Another process writes there. The message says which process, and what to do."""


class _Taken(Exception):
    """Another process holds a lock."""

    def __init__(self, why: str, record: Path, locked: Path) -> None:
        super().__init__(why)
        self.why = why
        self.record = record
        """The file that would name that process."""
        self.locked = locked


class LockRecord(msgspec.Struct, frozen=True):
    """The content of a record."""

    run: str
    pid: int
    started: int
    """The start time of *pid* by the kernel's clock, to detect a pid that was reused."""
    host: str
    since: str
    folder: str


def passed_on() -> Sequence[int]:
    """The descriptors that a rank inherits, so that the locks last as long as the rank."""
    return tuple(_passed_on)


@contextmanager
def sole_writer(
    folder: Path, run: str, *, now: datetime, patience: float = PATIENCE, flock: Flock = fcntl.flock
) -> Iterator[None]:
    """
    Keep every other run from writing to *folder*, which does not have to exist yet. Raises TwoWriters.

    When that is not possible, for lack of permissions or of locks, a warning says so and the run continues.
    """
    place = Path(os.path.realpath(folder))
    with ExitStack() as held:
        for left in range(round(patience / _NAP), -1, -1):
            try:
                locks = _take_all(place, held, flock)
            except _Taken as taken:
                held.close()
                writer = _read(taken.record)
                if not left or _is_held_by_living(taken, writer):
                    raise TwoWriters(_refusal(taken, writer)) from None
                threading.Event().wait(_NAP)
            else:
                break
        _log_troubles(place, locks)
        if locks.record is not None:
            with contextlib.suppress(OSError):
                _write(locks.record, _myself(run, place, now))
            held.callback(_forget, record_of(place))
        yield


def refuse_among_checkpoints(state: Path, *, flock: Flock = fcntl.flock) -> None:
    """Raises TwoWriters when a run saves in the folder *state*, or in a folder around it. Nothing is locked."""
    place = Path(os.path.realpath(state))
    for folder in (place, *place.parents):
        record = record_of(folder)
        if _is_locked(record, flock):
            taken = _Taken(f"--state {state} lies in {folder}, where a run saves", record, folder)
            raise TwoWriters(_refusal(taken, _read(record), _OF_A_STATE))


def record_of(place: Path) -> Path:
    """The file beside the folder *place* that says who writes to it."""
    return place.parent / f".{place.name or 'root'}.healthd-writer"


class _Locks(NamedTuple):
    """Which locks are held, and why the others are not."""

    record: int | None
    is_folder_locked: bool
    troubles: list[str]


def _take_all(place: Path, held: ExitStack, flock: Flock) -> _Locks:
    """Lock everything that exists. Raises _Taken."""
    troubles: list[str] = []
    record = _lock_record(place, held, flock, troubles)
    is_folder_locked = False
    if place.is_dir():
        taken = _Taken(f"a run saves in {place} already, or in a folder within it", record_of(place), place)
        try:
            is_folder_locked = _lock(_open_folder(place, held), flock, taken, troubles)
        except OSError as error:
            troubles.append(f"{place} cannot be opened: {error.strerror}")
    for above in place.parents:
        _share(above, held, flock)
    return _Locks(record, is_folder_locked, troubles)


def _lock_record(place: Path, held: ExitStack, flock: Flock, troubles: list[str]) -> int | None:
    """The record beside *place*, locked and still under this name. None when there can be none."""
    path = record_of(place)
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _open_record(path)
        except OSError as error:
            troubles.append(f"{path} cannot be written: {error.strerror}")
            return None
        held.callback(_close, descriptor)
        if not _lock(descriptor, flock, _Taken(f"a run saves in {place} already", path, path), troubles):
            return None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                _passed_on.append(descriptor)
                return descriptor  # else the process that held it before has just removed it


def _open_record(path: Path) -> int:
    try:
        return os.open(path, _READ | os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:  # another user's file: read access is enough to see the lock
        return os.open(path, _READ)


def _open_folder(place: Path, held: ExitStack) -> int:
    """Open *place* and register its descriptor for ranks to inherit. Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held.callback(_close, descriptor)
    _passed_on.append(descriptor)
    return descriptor


def _lock(descriptor: int, flock: Flock, taken: _Taken, troubles: list[str]) -> bool:
    """Whether it is locked now. If not, the reason is added to *troubles*. Raises *taken*."""
    try:
        flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise taken from None
    except OSError as error:
        troubles.append(f"{taken.locked} cannot be locked: {error.strerror}")
        return False
    return True


def _share(above: Path, held: ExitStack, flock: Flock) -> None:
    """
    Keep out writers to a whole folder *above* this one. Not for the root folder, and not for folders that all users
    may write to.
    """
    try:
        if above == above.parent or above.stat().st_mode & stat.S_ISVTX:
            return
        descriptor = _open_folder(above, held)
    except OSError:  # no permission to open it
        return
    record = record_of(above)
    taken = _Taken(f"a run saves in {above}, which is around it", record, above)
    try:
        flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        if _read(record) is not None:  # other programs lock folders, too, for other reasons
            raise taken from None
    except OSError:
        return
    if _is_locked(record, flock):
        raise taken


def _is_locked(record: Path, flock: Flock) -> bool:
    """Whether a run holds *record*. Its folder may not have existed when that run started."""
    try:
        descriptor = os.open(record, _READ)
    except OSError:
        return False
    try:
        flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _close(descriptor: int) -> None:
    with contextlib.suppress(ValueError):
        _passed_on.remove(descriptor)
    os.close(descriptor)


def _forget(record: Path) -> None:
    with contextlib.suppress(OSError):
        record.unlink()


def _log_troubles(place: Path, locks: _Locks) -> None:
    if not locks.troubles:
        return
    if locks.is_folder_locked:
        note = "a second run on this machine is kept out, one on another machine is not"
    elif locks.record is not None:
        note = "a second run is kept out as long as it names the folder by the same path"
    else:
        note = "nothing keeps a second writer out: start no other job that saves there"
    log.warning("checkpoints.not_locked", folder=str(place), why="; ".join(locks.troubles), note=note)


def _myself(run: str, place: Path, now: datetime) -> LockRecord:
    pid = os.getpid()
    return LockRecord(run, pid, _started(pid), socket.gethostname(), f"{now:%Y-%m-%d %H:%M} UTC", str(place))


def _write(record: int, writer: LockRecord) -> None:
    os.ftruncate(record, 0)
    os.pwrite(record, msgspec.json.encode(writer) + b"\n", 0)


def _read(record: Path) -> LockRecord | None:
    """
    The content of *record*. None when it is not valid: any user may have written the file, and the reader may be root.
    """
    try:
        descriptor = os.open(record, _READ)
    except OSError:
        return None
    try:
        writer = msgspec.json.decode(os.read(descriptor, _LARGEST_RECORD), type=LockRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    finally:
        os.close(descriptor)
    return writer if writer.pid > 1 else None


def _lives(writer: LockRecord) -> bool:
    """Whether its supervisor is alive. For another machine it is assumed to be alive."""
    return writer.host != socket.gethostname() or (writer.started != 0 and _started(writer.pid) == writer.started)


def _started(pid: int) -> int:
    """The start time of process *pid*, in ticks since boot. 0 when there is no such process."""
    process = read_stat(pid)
    return process.started if process is not None else 0


def _is_held_by_living(taken: _Taken, writer: LockRecord | None) -> bool:
    """False when only ranks hold it whose supervisor is dead: these ranks end soon."""
    if writer is not None:
        return _lives(writer)
    return any(_started(pid) for pid in _lockers(taken.locked))


class _Advice(NamedTuple):
    """What a refusal says beside who holds the lock."""

    rule: str
    other: str
    """What to do when that process is to go on."""


_OF_A_WRITER = _Advice(
    rule="Two writers would destroy each other's checkpoints, under any --name",
    other="A job of its own needs a folder of its own: let its script save elsewhere, and name that with --checkpoint",
)
_OF_A_STATE = _Advice(
    rule="The checkpoints of a run need a folder for themselves",
    other="Name another folder with --state, or leave it out",
)


def _refusal(taken: _Taken, writer: LockRecord | None, advice: _Advice = _OF_A_WRITER) -> str:
    """Who holds it and what to do. It never suggests a second writer."""
    rule, other = advice
    if writer is None:
        pids = ", ".join(map(str, _lockers(taken.locked))) or "unknown, /proc/locks may say"
        return f"{taken.why} (process {pids}). {rule}. Wait for its end, or stop it. {other}"
    run = f"'{printable(writer.run)}'"
    if _lives(writer):
        where = "" if writer.host == socket.gethostname() else f" on {printable(writer.host)}"
        who = f"run {run}, process {writer.pid}{where}, since {printable(writer.since)}"
        stop = f"kill {writer.pid}" + (" there" if where else "")
        return f"{taken.why} ({who}). {rule}. Wait for its end, or stop it with `{stop}`. {other}"
    pids = " ".join(map(str, _openers(taken.locked))) or "PID"
    return (
        f"{taken.why}: ranks of the run {run} have outlived its healthd (process {writer.pid}) and may still save. "
        f"{rule}. End them first (`kill -9 {pids}`); one that stays is held by a driver or a file system"
    )


def _lockers(locked: Path) -> list[int]:
    """The processes that took a lock of *locked*, as far as the kernel shows them here."""
    try:
        found, lines = locked.stat(), Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    rows = [line.split() for line in lines if " FLOCK " in line]
    pids = {int(row[4]) for row in rows if len(row) > 5 and row[5] == device and row[4].isdecimal()}
    return sorted(pids - {os.getpid()})


def _openers(locked: Path) -> list[int]:
    """The processes of this user that have *locked* open."""
    try:
        wanted = locked.stat()
    except OSError:
        return []
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]
    return sorted(pid for pid in pids if pid != os.getpid() and _has_open(pid, wanted))


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as opened:
        return any(_is_same(entry, wanted) for entry in opened)
    return False


def _is_same(entry: os.DirEntry[str], wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(), wanted)
    except OSError:
        return False
