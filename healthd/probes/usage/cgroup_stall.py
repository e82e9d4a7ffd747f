"""
Why the processes of one control group may do nothing: they wait for a disk or a file system, or they are frozen.

The kernel counts waits for I/O in version 2 alone (`io.pressure`, Documentation/accounting/psi.rst). They are those of
tasks that it waits with in `io_schedule`: for disks, for the pages of a file, for many file servers.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from healthd.core.hang.samples import Stall
from healthd.probes.sysfs import read_word

_SOME = re.compile(r"some avg10=(\d{1,3}(?:\.\d{1,2})?) ", re.ASCII)


def read_stall(root: str, path: str, containers: Collection[str], *, is_v2: bool) -> Stall:
    """
    Of the group *path* below *root*, the mount point of control groups, with the groups of its *containers*, by name.

    What cannot be read is not known, and counts as not frozen.
    """
    group = f"{root.rstrip('/')}/{path.strip('/')}" if is_v2 else f"{root.rstrip('/')}/freezer/{path.strip('/')}"
    folders = [group, *(f"{group}/{name}" for name in sorted(containers))]
    if not is_v2:
        return Stall(frozen=any(read_word(f"{folder}/freezer.state") == "FROZEN" for folder in folders))
    frozen = any("frozen 1" in read_word(f"{folder}/cgroup.events").split("\n") for folder in folders)
    return Stall(_io_wait(read_word(f"{group}/io.pressure")), frozen)


def _io_wait(text: str) -> float | None:
    """From `some avg10=63.21 avg60=… avg300=… total=…`, in percent."""
    found = _SOME.match(text)
    return min(float(found[1]) / 100, 1.0) if found else None
