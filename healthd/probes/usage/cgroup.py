"""
What the processes of one control group have used, version 2 or 1. For pods: the numbers are right from inside any
namespace, and no process has to be found.
"""

from __future__ import annotations

from healthd.core.hang.samples import Usage
from healthd.probes.sysfs import KeptOpen, read_text

MOST = 16 * 1024
"""Bytes of one file that are read: `io.stat` has a line for each disk."""
LARGEST = 2.0**64
"""No counter of the kernel is larger."""


class CgroupUsage:
    """
    The group *path* (`/kubepods.slice/…`) below *root*, the mount point of control groups, with all groups below it.

    The kernel keeps no states and no context switches for a group: they stay empty and 0. A file that is missing, as
    its controller is, counts nothing and is not looked for again.
    """

    def __init__(self, root: str, path: str, *, is_v2: bool) -> None:
        self._read = KeptOpen(MOST)
        self._take = self._v2 if is_v2 else self._v1
        self._files = [_file(root, path, tree, name, is_v2=is_v2) for tree, name in (_FILES_V2 if is_v2 else _FILES_V1)]
        self._missing: set[str] = set()

    def read(self) -> Usage | None:
        """What it has used so far. None: it is gone, or its processor time cannot be read."""
        try:
            return self._take(*self._files)
        except (OSError, ValueError):
            self._read.close()
            return None

    def close(self) -> None:
        """Close every file."""
        self._read.close()

    def _v2(self, cpu_stat: str, memory_stat: str, io_stat: str, cpu_pressure: str, io_pressure: str) -> Usage:
        processor = self._read(cpu_stat)
        read, written, calls = _io_v2(self._text(io_stat))
        return Usage(
            cpu=_microseconds(processor),
            faults=_named(self._text(memory_stat), "pgfault"),
            calls=calls,
            read=read,
            written=written,
            system=_named(processor, "system_usec") / 1e6,
            starved=_some(self._text(cpu_pressure)),
            stalled=_some(self._text(io_pressure)),
        )

    def _v1(self, usage: str, in_kernel: str, memory_stat: str, bytes_: str, operations: str) -> Usage:
        """Each controller has its tree."""
        moved, count = self._text(bytes_), self._text(operations)
        return Usage(
            cpu=_number(self._read(usage)) / 1e9,
            faults=_named(self._text(memory_stat), "total_pgfault"),
            calls=_of_devices(count, "Read") + _of_devices(count, "Write"),
            read=_of_devices(moved, "Read"),
            written=_of_devices(moved, "Write"),
            system=_number(self._text(in_kernel) or "0") / 1e9,
        )

    def _text(self, path: str) -> str:
        """Empty where the kernel, or the site, does not have this controller."""
        if path in self._missing:
            return ""
        try:
            return self._read(path)
        except OSError:
            self._missing.add(path)
            return ""


def processor_seconds(root: str, path: str, *, is_v2: bool) -> float | None:
    """The processor time that a group has used so far. None: it is gone, or that cannot be read."""
    try:
        text = read_text(_file(root, path, *(_FILES_V2 if is_v2 else _FILES_V1)[0], is_v2=is_v2))
        return _microseconds(text) if is_v2 else _number(text) / 1e9
    except (OSError, ValueError):
        return None


_FILES_V2 = (("", "cpu.stat"), ("", "memory.stat"), ("", "io.stat"), ("", "cpu.pressure"), ("", "io.pressure"))
_FILES_V1 = (
    ("cpuacct", "cpuacct.usage"),
    ("cpuacct", "cpuacct.usage_sys"),
    ("memory", "memory.stat"),
    ("blkio", "blkio.throttle.io_service_bytes_recursive"),
    ("blkio", "blkio.throttle.io_serviced_recursive"),
)
"""Tree and name. Of version 1 only these count the groups below, too: a pod's processes are all in its containers."""


def _file(root: str, path: str, tree: str, name: str, *, is_v2: bool) -> str:
    folder = root.rstrip("/") if is_v2 else f"{root.rstrip('/')}/{tree}"
    return f"{folder}/{path.strip('/')}/{name}"


def _microseconds(cpu_stat: str) -> float:
    """Seconds. Raises ValueError where there are none: no group is without."""
    if "usage_usec " not in cpu_stat:
        raise ValueError("cpu.stat has no usage_usec")
    return _named(cpu_stat, "usage_usec") / 1e6


def _named(text: str, name: str) -> float:
    """The number after *name* in lines `name number`. 0: there is none. Raises ValueError."""
    if text.startswith(f"{name} "):
        begin = len(name) + 1
    elif (found := text.find(f"\n{name} ")) >= 0:
        begin = found + len(name) + 2
    else:
        return 0.0
    end = text.find("\n", begin)
    return _number(text[begin:] if end < 0 else text[begin:end])


def _some(pressure: str) -> float:
    """Seconds, from the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234` (microseconds)."""
    first, _, total = pressure.partition("\n")[0].partition("total=")
    return _number(total) / 1e6 if first.startswith("some ") and total else 0.0


def _io_v2(text: str) -> tuple[float, float, float]:
    """Bytes read, bytes written, operations, of all devices: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`."""
    sums = dict.fromkeys(("rbytes", "wbytes", "rios", "wios"), 0.0)
    for word in _whole_lines(text).split():
        key, _, value = word.partition("=")
        if key in sums:
            sums[key] += _number(value)
    return sums["rbytes"], sums["wbytes"], sums["rios"] + sums["wios"]


def _of_devices(text: str, kind: str) -> float:
    """The sum of the lines `8:0 Read 4096`."""
    words = (line.split() for line in _whole_lines(text).split("\n"))
    return sum(_number(line[2]) for line in words if len(line) == 3 and line[1] == kind)


def _whole_lines(text: str) -> str:
    """Without the last line where the text was cut off: half of a number is another number."""
    return text if len(text) < MOST - 1 else text.rpartition("\n")[0]


def _number(text: str) -> float:
    """A counter. Raises ValueError for what none can be."""
    number = float(text)
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{text[:32]} is no counter")
    return number
