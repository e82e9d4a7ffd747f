"""
The machine as a whole: memory, swapping, the clock, and the kernel's own record of its failures.

All of it is in /proc and in one system call, readable by every user, also in containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.probes.host.kernel_clock import is_clock_synchronised
from healthd.probes.sysfs import parse_number, read_lines, read_number

_TAINTS = {"machine_check": 4, "oops": 7, "soft_lockup": 14}
"""Bits of /proc/sys/kernel/tainted, as the kernel's admin guide numbers them."""
_FIRST_LINE = 512
"""Bytes of /proc/stat in which its first line is. The rest is long where processors are many."""
_STOLEN = 7
"""The column of /proc/stat, from 0 on (proc(5)). What follows is part of columns before it."""
CLOCK_EVERY = timedelta(minutes=10)
"""Reading the clock costs a process."""
CLOCK_SOON = timedelta(seconds=20)


class Host:
    """
    All readings are about the node: `host.memory_kb`; `host.corrupted_memory_kb`, taken out of use after uncorrectable
    errors; `host.swapped_pages`, in and out since boot; `host.stolen_percent`, of the time of all processors, that a
    hypervisor gave to others since the last sample; `host.taint_<what>` (`yes` or `no`) since boot.
    """

    source = "host"
    every = timedelta(seconds=10)

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._times: Sequence[int] = ()
        """Of all processors together since boot, in the columns of /proc/stat."""

    def sample(self, now: datetime) -> Sample:
        """Reads four files."""
        readings = [*self._memory(), *self._swapping(), *self._processors(), *self._kernel()]
        return Sample(source=self.source, at=now, readings=readings)

    def _memory(self) -> Iterator[Reading]:
        values = _pairs(f"{self._proc}/meminfo")
        if total := values.get("MemTotal:"):
            yield Reading(NODE, "host.memory_kb", total)
        if (corrupted := values.get("HardwareCorrupted:")) is not None:
            yield Reading(NODE, "host.corrupted_memory_kb", corrupted)

    def _swapping(self) -> Iterator[Reading]:
        values = _pairs(f"{self._proc}/vmstat")
        if "pswpin" in values and "pswpout" in values:
            yield Reading(NODE, "host.swapped_pages", values["pswpin"] + values["pswpout"])

    def _processors(self) -> Iterator[Reading]:
        label, *columns = next(iter(read_lines(f"{self._proc}/stat", _FIRST_LINE)), "").split() or [""]
        times = [number for each in columns[: _STOLEN + 1] if (number := parse_number(each)) is not None]
        before, self._times = self._times, times if label == "cpu" else ()
        if not len(before) == len(self._times) == _STOLEN + 1:
            return
        grown = [max(0, now - then) for now, then in zip(times, before, strict=True)]
        if total := sum(grown):
            yield Reading(NODE, "host.stolen_percent", 100 * grown[_STOLEN] / total)

    def _kernel(self) -> Iterator[Reading]:
        tainted = read_number(f"{self._proc}/sys/kernel/tainted")
        for name, bit in _TAINTS.items() if tainted is not None else ():
            yield Reading(NODE, f"host.taint_{name}", "yes" if (tainted or 0) >> bit & 1 else "no")


class KernelClock:
    """`host.clock`: `synchronised` or `free-running`. No reading where the kernel does not give it to this process."""

    source = "clock"

    def __init__(self, is_synchronised: Callable[[], bool | None] = is_clock_synchronised) -> None:
        self._is_synchronised = is_synchronised
        self._again = CLOCK_SOON
        self.every = CLOCK_EVERY

    def sample(self, now: datetime) -> Sample:
        """
        Starts a small process. One that does not end in time on a busy machine is tried again soon: until then the node
        is unknown. Where no answer comes at all, less and less often.
        """
        answer = self._is_synchronised()
        if answer is None:
            self.every, self._again = self._again, min(2 * self._again, CLOCK_EVERY)
        else:
            self.every, self._again = CLOCK_EVERY, CLOCK_SOON
        word = "synchronised" if answer else "free-running"
        readings = [] if answer is None else [Reading(NODE, "host.clock", word)]
        return Sample(source=self.source, at=now, readings=readings)


def _pairs(path: str) -> dict[str, int]:
    """Lines that begin with a name and a number."""
    parts = (line.split(maxsplit=2) for line in read_lines(path))
    return {part[0]: number for part in parts if len(part) > 1 and (number := parse_number(part[1])) is not None}
