"""
Whether a rank failed because it could not save: its last output says so, or a folder that it writes to is full or
read-only.

That is no fault of the loaded checkpoint, and a restart does not repair it: a person must know.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from healthd.checkpoints.step_names import final_name, parse_step
from healthd.core.printable import printable
from healthd.core.recovery.faults import DISK_FULL, NOT_WRITABLE
from healthd.local.processes.pods import RankExit
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

TAIL_BYTES = 16 * 1024
"""Bytes of its output that are searched."""
LONGEST_QUOTE = 200
NEXT_TO_NOTHING = 1 << 20
"""Bytes. No checkpoint and no log fits into less."""
START_LIMIT = 2.0
"""Seconds for the look at the disk when a run starts."""


class _Obstacle(NamedTuple):
    """Why nothing can be written, and how output of programs names it."""

    reason: str
    what: str
    way_out: str
    words: re.Pattern[str]
    comes_of_reads: bool = False
    """Whether a checkpoint that cannot be read has the same words."""


_FULL = _Obstacle(
    DISK_FULL,
    "the disk is full",
    "make room there, or save elsewhere",
    re.compile(
        r"no space left on device|disk quota exceeded|\bENOSPC\b|\bEDQUOT\b"
        rf"|\[Errno (?:{errno.ENOSPC}|{errno.EDQUOT})\]",
        re.IGNORECASE,
    ),
)
_SHUT = _Obstacle(
    NOT_WRITABLE,
    "it cannot write",
    "make it writable, or save elsewhere",
    re.compile(rf"read-only file system|\bEROFS\b|\[Errno {errno.EROFS}\]", re.IGNORECASE),
)
_BROKEN = _Obstacle(
    NOT_WRITABLE,
    "it cannot write",
    "repair the disk or its file server, or save elsewhere",
    re.compile(
        rf"input/output error|stale (?:NFS )?file handle|\bEIO\b|\bESTALE\b|\[Errno (?:{errno.EIO}|{errno.ESTALE})\]",
        re.IGNORECASE,
    ),
    comes_of_reads=True,
)
_QUOTED_PATH = re.compile(r"""['"‘`]([^'"‘’`]*/[^'"‘’`]*)['"’]""")


class RankFiles(NamedTuple):
    """What a rank writes, and what it has loaded."""

    folders: tuple[Path, ...] = ()
    """Where it saves. Empty when that is not known."""
    loaded: Path | None = None
    cwd: Path = Path("/")

    def named_in(self, line: str) -> list[Path]:
        """The paths that *line* quotes."""
        return [Path(os.path.normpath(self.cwd / path)) for path in _QUOTED_PATH.findall(line)]

    def is_saved(self, path: Path) -> bool:
        """Whether it is in one of the folders."""
        return any(path.is_relative_to(folder) for folder in self.folders)

    def is_of_another_step(self, path: Path) -> bool:
        """Whether it is of a step in one of the folders that is not the loaded one."""
        below = next((path.relative_to(folder) for folder in self.folders if path.is_relative_to(folder)), Path())
        step = parse_step(final_name(below.parts[0])) if below.parts else None
        return step is not None and (self.loaded is None or step != parse_step(self.loaded.name))


NOT_KNOWN = RankFiles()


class DiskReading(NamedTuple):
    """What the disks and the last output of a rank say of its end."""

    words: str = ""
    """Its last output."""
    shut: tuple[str, ...] = ()
    """Folders that it may not write to, with the reason."""
    full: tuple[str, ...] = ()
    """Folders that are full, with the reason."""


def may_be_for_want_of_room(ending: RankExit) -> bool:
    """Whether a rank ended by itself: a rank that was killed from outside did not fail to write."""
    return ending.reason == "Error" and ending.exit_code != 0 and not ending.signal


def blame_disk(ending: RankExit, reading: DiskReading, files: RankFiles = NOT_KNOWN) -> RankExit:
    """*ending* of a rank, with the disk as its cause where *reading* names one that keeps it from its *files*. Pure."""
    for obstacle, folders in ((_SHUT, reading.shut), (_FULL, reading.full), (_BROKEN, ())):
        error_line = _error_line(obstacle, reading.words, files)
        if folders or error_line:
            why = "; ".join(folders) or f'its last words were "{printable(error_line)[:LONGEST_QUOTE]}"'
            message = f"{obstacle.what}: {why}: {obstacle.way_out}; no process of it is left"
            return replace(ending, reason=obstacle.reason, message=message)
    return ending


def _error_line(obstacle: _Obstacle, words: str, files: RankFiles) -> str:
    """The newest line of *words* that says why nothing can be written; empty where none does."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    said = (line for line in reversed(lines) if obstacle.words.search(line))
    return next((line for line in said if _keeps_from_saving(obstacle, line, files, is_last=line == lines[-1])), "")


def _keeps_from_saving(obstacle: _Obstacle, line: str, files: RankFiles, *, is_last: bool) -> bool:
    """
    Whether an error, which *line* reports, keeps the rank from saving, or has ended it. One with a path elsewhere does
    so only in the last line: a program goes on without a cache, and the checkpoint may be at fault for its end.
    """
    named = files.named_in(line)
    if obstacle.comes_of_reads:
        return any(map(files.is_of_another_step, named))
    return is_last or not (named and files.folders) or any(map(files.is_saved, named))


def read_disks(log: Path | None, began_at: int, folders: Iterable[Path]) -> DiskReading:
    """
    The last output of a rank, which is in *log* from *began_at* on, and which of *folders* take nothing, and why.

    Blocks on the file systems. A file or folder that cannot be read adds nothing.
    """
    places = [_nearest(folder) for folder in folders]
    return DiskReading(
        words=_tail_of(log, began_at) if log else "",
        shut=tuple(why for place in places if (why := _why_shut(place))),
        full=tuple(why for place in places if (why := _why_full(place))),
    )


async def log_unwritable(folder: Path) -> None:
    """
    Warn when nothing can be saved in *folder*: the ranks would fail at their first save, hours later. A file server
    that hangs says nothing here.
    """
    try:
        async with asyncio.timeout(START_LIMIT):
            found = await in_thread(partial(read_disks, None, 0, [folder]), "look at disks")
    except (TimeoutError, OSError):
        return
    if why := [*found.shut, *found.full]:
        log.warning("checkpoints.not_writable", folder=str(folder), why="; ".join(why))


def _nearest(folder: Path) -> Path:
    """*folder*, or its nearest existing parent."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), folder)


def _why_shut(place: Path) -> str:
    """Why this user may not write to *place*. Empty when it may, or when that is not known."""
    try:
        is_read_only = bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except OSError:
        return ""
    if is_read_only:
        return f"{place} is read-only"
    may_write = os.access(place, os.W_OK | os.X_OK, effective_ids=True)
    return "" if may_write else f"this user may not write to {place}"


def _why_full(place: Path) -> str:
    """Why nothing can be added to *place*. Empty when it can."""
    try:
        room = os.statvfs(place)
    except OSError:
        return ""
    blocks = room.f_bfree if os.geteuid() == 0 else room.f_bavail
    if room.f_blocks and blocks * room.f_frsize < NEXT_TO_NOTHING:
        return f"no space is left in {place}"
    return f"no more files can be made in {place}" if room.f_files and not room.f_ffree else ""


def _tail_of(log: Path, began_at: int) -> str:
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, min(began_at, end), end - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
