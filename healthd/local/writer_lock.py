"""
One writer for a folder of checkpoints: a lock that the kernel holds while the supervisor or one of its ranks lives.

The folder itself is locked (flock), and those above it are locked as shared. So another spelling of the path, a bind
mount, a folder within it and one around it are seen, whatever the run is called and wherever it keeps its state. Beside
it lies a record, `.NAME.healthd-writer`, that says who writes. It is locked as well: on a file system that knows the
locks of other machines, such as NFS, it keeps those out too, and it outlives a folder that is deleted and made again.
Nothing is put into the folder: there are trainers that want an empty one.

Each rank inherits both locks (`passed_on`), for one that outlives its supervisor still writes.
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

log = structlog.get_logger(__name__)

PATIENCE = 20.0
"""Seconds in which the ranks of a supervisor that was killed end, as a rule at once: their shims see to it."""
_NAP = 0.1
_LARGEST_RECORD = 4096
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Never waits, should it be a pipe."""
_passed_on: list[int] = []

Flock = Callable[[int, int], None]


class TwoWriters(Exception):
    """Somebody else writes there; says who, and what to do."""


class _Taken(Exception):
    """A lock is held by somebody else."""

    def __init__(self, why: str, record: Path, locked: Path) -> None:
        super().__init__(why)
        self.why = why
        self.record = record
        """Where it would say who."""
        self.locked = locked


class Writer(msgspec.Struct, frozen=True):
    """What a record says."""

    run: str
    pid: int
    started: int
    """By the kernel's clock, so that a pid that was used again is not taken for it."""
    host: str
    since: str
    folder: str


def passed_on() -> Sequence[int]:
    """The descriptors that a rank inherits, so that the locks last as long as it does."""
    return tuple(_passed_on)


@contextmanager
def sole_writer(
    folder: Path, run: str, *, now: datetime, patience: float = PATIENCE, flock: Flock = fcntl.flock
) -> Iterator[None]:
    """
    Keep every other run from writing to *folder*, which need not be there yet. Raises TwoWriters.

    Where that cannot be done, for want of rights or of locks, a warning says so and the run goes on.
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
        _say_troubles(place, locks)
        if locks.record is not None:
            with contextlib.suppress(OSError):
                _write(locks.record, _myself(run, place, now))
            held.callback(_forget, record_of(place))
        yield


def record_of(place: Path) -> Path:
    """The file that says who writes to the folder *place*, beside it."""
    return place.parent / f".{place.name or 'root'}.healthd-writer"


class _Locks(NamedTuple):
    """What could be locked, and why the rest could not."""

    record: int | None
    is_folder_locked: bool
    troubles: list[str]


def _take_all(place: Path, held: ExitStack, flock: Flock) -> _Locks:
    """Lock all that there is. Raises _Taken."""
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
    """The record beside *place*, locked and of this name; None where there can be none."""
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
                return descriptor  # else its last holder has just removed it


def _open_record(path: Path) -> int:
    try:
        return os.open(path, _READ | os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:  # another user's: enough to see that it is locked
        return os.open(path, _READ)


def _open_folder(place: Path, held: ExitStack) -> int:
    """Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held.callback(_close, descriptor)
    _passed_on.append(descriptor)
    return descriptor


def _lock(descriptor: int, flock: Flock, taken: _Taken, troubles: list[str]) -> bool:
    """Whether it is locked now; else *troubles* say why not. Raises *taken*."""
    try:
        flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise taken from None
    except OSError as error:
        troubles.append(f"{taken.locked} cannot be locked: {error.strerror}")
        return False
    return True


def _share(above: Path, held: ExitStack, flock: Flock) -> None:
    """Keep writers out of a whole folder *above* the own one. Left out are the root and what everybody may write to."""
    try:
        if above == above.parent or above.stat().st_mode & stat.S_ISVTX:
            return
        descriptor = _open_folder(above, held)
    except OSError:  # no right to look into it
        return
    record = record_of(above)
    taken = _Taken(f"a run saves in {above}, which is around it", record, above)
    try:
        flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        if _read(record) is not None:  # others lock folders too, for reasons of their own
            raise taken from None
    except OSError:
        return
    if _is_locked(record, flock):
        raise taken


def _is_locked(record: Path, flock: Flock) -> bool:
    """Whether a run holds *record*; its folder may not have been there when it began."""
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


def _say_troubles(place: Path, locks: _Locks) -> None:
    if not locks.troubles:
        return
    if locks.is_folder_locked:
        note = "a second run on this machine is kept out, one on another machine is not"
    elif locks.record is not None:
        note = "a second run is kept out as long as it names the folder by the same path"
    else:
        note = "nothing keeps a second writer out: start no other job that saves there"
    log.warning("checkpoints.not_locked", folder=str(place), why="; ".join(locks.troubles), note=note)


def _myself(run: str, place: Path, now: datetime) -> Writer:
    pid = os.getpid()
    return Writer(run, pid, _started(pid), socket.gethostname(), f"{now:%Y-%m-%d %H:%M} UTC", str(place))


def _write(record: int, writer: Writer) -> None:
    os.ftruncate(record, 0)
    os.pwrite(record, msgspec.json.encode(writer) + b"\n", 0)


def _read(record: Path) -> Writer | None:
    """None where there is none: anybody may have put something there, and who reads it may be root."""
    try:
        descriptor = os.open(record, _READ)
    except OSError:
        return None
    try:
        writer = msgspec.json.decode(os.read(descriptor, _LARGEST_RECORD), type=Writer)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    finally:
        os.close(descriptor)
    return writer if writer.pid > 1 else None


def _lives(writer: Writer) -> bool:
    """Whether its supervisor is there; of another machine that is believed."""
    return writer.host != socket.gethostname() or (writer.started != 0 and _started(writer.pid) == writer.started)


def _started(pid: int) -> int:
    """When process *pid* began, in ticks since the machine did; 0 when there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _is_held_by_living(taken: _Taken, writer: Writer | None) -> bool:
    """Else it is held by ranks that end, for their supervisor has."""
    if writer is not None:
        return _lives(writer)
    return any(_started(pid) for pid in _lockers(taken.locked))


def _refusal(taken: _Taken, writer: Writer | None) -> str:
    """Who holds it and what to do, which is never a way to a second writer."""
    rule = "Two writers would destroy each other's checkpoints, under any --name"
    other = "A job of its own needs a folder of its own: let its script save elsewhere, and name that with --checkpoint"
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
    """The processes that took a lock of *locked*, as far as the kernel tells here."""
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
