"""
Whether a rank failed because of a full disk: its last output says so, or a file system that it writes to is full.

A full disk is not a fault of the loaded checkpoint, and a restart does not repair it: a person must know.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from healthd.core.printable import printable
from healthd.core.recovery.faults import DISK_FULL
from healthd.local.processes.pods import RankExit

TAIL_BYTES = 16 * 1024
"""Bytes of its output that are searched."""
LONGEST_QUOTE = 200
NEXT_TO_NOTHING = 1 << 20
"""Bytes. No checkpoint and no log fits into less."""
_DISK_FULL = re.compile(
    rf"no space left on device|disk quota exceeded|\bENOSPC\b|\bEDQUOT\b|\[Errno (?:{errno.ENOSPC}|{errno.EDQUOT})\]",
    re.IGNORECASE,
)
WAY_OUT = "make room there, or save elsewhere"


def may_be_for_want_of_room(ending: RankExit) -> bool:
    """Whether a rank ended by itself: a rank that was killed from outside did not fail to write."""
    return ending.reason == "Error" and ending.exit_code != 0 and not ending.signal


def blame_disk(ending: RankExit, words: str, full: Sequence[str]) -> RankExit:
    """*ending* of a rank, with the disk as its cause: its last *words*, and why folders are *full*. Pure."""
    error_line = next((line.strip() for line in reversed(words.splitlines()) if _DISK_FULL.search(line)), "")
    if not full and not error_line:
        return ending
    quoted = f'its last words were "{printable(error_line)[:LONGEST_QUOTE]}"'
    why = "; ".join(full) or quoted
    return replace(ending, reason=DISK_FULL, message=f"the disk is full: {why}: {WAY_OUT}; no process of it is left")


def read_disks(log: Path | None, began_at: int, folders: Iterable[Path]) -> tuple[str, list[str]]:
    """
    The last output of a rank, which is in *log* from *began_at* on, and which of *folders* are full, and why.

    Blocks on the file systems. A file or folder that cannot be read adds nothing.
    """
    return _tail_of(log, began_at) if log else "", [why for folder in folders if (why := why_full(folder))]


def why_full(folder: Path) -> str:
    """Why *folder*, or its nearest existing parent, cannot be written. Empty when it can."""
    place = next((each for each in (folder, *folder.parents) if each.is_dir()), folder)
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
