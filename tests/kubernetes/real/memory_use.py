"""What processes weigh, where other pods of the same machine have the same files open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_MAPPING = (
    r"^[0-9a-f]+-[0-9a-f]+ \S+ (?P<offset>\S+) \S+ \d+ *(?P<file>[^\n]*)\n"
    r".*?^Rss: +(?P<rss>\d+) kB.*?^Anonymous: +(?P<anonymous>\d+) kB"
)
"""In /proc/…/smaps."""


def weight(*pids: int) -> float:
    """
    MB of memory that processes keep, each page of a file counted once.

    This is their PSS on a machine where no other program has the same files open, as other pods of healthd have here.
    """
    own = 0
    of_files: dict[str, int] = {}
    for pid in pids:
        for where, rss, anonymous in mappings(pid):
            own += anonymous
            of_files[where] = max(of_files.get(where, 0), rss - anonymous)
    return (own + sum(of_files.values())) / 1024


def mappings(pid: int) -> Iterator[tuple[str, int, int]]:
    """Of each mapping of a process: the place in a file that it shows, and its kilobytes: all, and those of no file."""
    smaps = Path(f"/proc/{pid}/smaps").read_text()
    for found in re.finditer(_MAPPING, smaps, re.MULTILINE | re.DOTALL):
        yield f"{found['file']} {found['offset']}", int(found["rss"]), int(found["anonymous"])
