"""
What the processes below one process have used, from /proc. For ranks that run on this machine, under this user.

The files of a process are kept open: an open file never shows another process that got the same pid later.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from healthd.core.hang.samples import Usage, takes_part
from healthd.probes.process_stat import LONGEST, parse_schedstat, parse_stat
from healthd.probes.usage.main_thread import MainThread

PROC = "/proc"
MOST = 32
"""Processes that are read: a rank with more has them all do the same. Each keeps two files open."""
LIST_EVERY = 10
"""Reads between two lists of the processes. A process that ended, and a tree without any, is listed at once."""
LEADS = 0.2
"""The leading process is the first of the tree that has worked this share of what the busiest of them has. Shells and
launchers before it do less, and loaders after it do not count."""
WAITS = 4
"""Processes whose switches and main threads are counted, the first of the tree: a rank may begin with shells and
wrappers. Those of loaders and helpers show no steps, and cost as much as all else."""
PAGE = 8192
_IO = b"syscr", b"syscw", b"rchar", b"wchar"
_SWITCHES = (b"voluntary_ctxt_switches",)


class Beside(NamedTuple):
    """All below *top*, but the *ranks*, with what is below these, and their *launchers*."""

    top: int
    ranks: frozenset[int]
    launchers: frozenset[int]


class ProcessTree:
    """
    The descendants of process *root*, which itself is counted only *with_root*; and what runs *beside* them for the
    same rank.
    """

    def __init__(self, root: int, proc: str = PROC, *, with_root: bool = False, beside: Beside | None = None) -> None:
        self._root = root
        self._with_root = with_root
        self._beside = beside
        self._proc = proc
        self._processes: dict[int, _Process] = {}
        self._used = Usage()
        self._until_list = 0
        self._leads: _Process | None = None
        """The leading process, since the last read."""

    def look(self, now: float) -> None:
        """
        See what the main thread of the leading process waits for. *now* is in seconds, of any clock that never goes
        back. Many looks a second, at moments that have nothing to do with the steps, show for what part of the time it
        waits for something of its own. Another thread takes them: one that does not return holds up no read.
        """
        leads = self._leads
        if leads is not None and leads.main_thread is not None:
            leads.main_thread.look(now)

    def read(self) -> Usage | None:
        """What they have used since the first read, and those that ended meanwhile. None: there is no process."""
        if self._until_list <= 0 or not self._processes:
            self._list()
        self._until_list -= 1
        grown = [0.0] * (len(Usage._fields) - 1)
        leading = self._leads = self._leading()
        for pid, process in list(self._processes.items()):
            usage = process.read()
            if usage is None:
                self._processes.pop(pid).close()
                self._until_list = 0
                continue
            if process is not leading:
                usage = usage._replace(ran=0.0, starved=0.0, own_waits=0.0, stopped=0.0)
            grown = [sum_ + more for sum_, more in zip(grown, usage[:-1], strict=True)]
        if not self._processes:
            return None
        self._used = Usage._make([*(a + b for a, b in zip(self._used[:-1], grown, strict=True)), self._states()])
        return self._used

    def close(self) -> None:
        """Close every file."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self._leads = None

    def _states(self) -> str:
        """Without those that are stopped, and that the rank works without."""
        busiest = max(process.cpu for process in self._processes.values())
        return "".join(
            process.state
            for process in self._processes.values()
            if process.state != "T" or takes_part(process.cpu, busiest)
        )

    def _leading(self) -> _Process | None:
        """The process that makes the steps, by what each has done so far."""
        most = max((process.worked for process in self._processes.values()), default=0.0)
        return next((each for each in self._processes.values() if each.worked and each.worked >= LEADS * most), None)

    def _list(self) -> None:
        self._until_list = LIST_EVERY
        found = self._pids()
        for pid in self._processes.keys() - set(found):
            self._processes.pop(pid).close()
        for place, pid in enumerate(found):
            if pid not in self._processes and len(self._processes) < MOST:
                with contextlib.suppress(OSError):
                    self._processes[pid] = _Process(f"{self._proc}/{pid}", waits=place < WAITS, is_first=place == 0)

    def _pids(self) -> list[int]:
        """Those of the root first: one of them makes the steps."""
        ranks = self._beside.ranks if self._beside is not None else frozenset[int]()
        own = [*([self._root] if self._with_root else []), *_below(self._root, self._proc, without=ranks)]
        if self._beside is None:
            return own
        top, ranks, launchers = self._beside
        return [*own, *(pid for pid in _below(top, self._proc, without=ranks) if pid not in launchers)]


class _Process:
    """
    One process. *waits*: its switches are counted; *is_first*: so is its network. Raises OSError when it has ended.
    """

    def __init__(self, folder: str, *, waits: bool, is_first: bool) -> None:
        self._folder = folder
        self._stat = _open(f"{folder}/stat")
        self._io = _open_if_allowed(f"{folder}/io")
        self._status = _open_if_allowed(f"{folder}/status") if waits else -1
        self._schedstat = _open_if_allowed(f"{folder}/schedstat") if waits else -1
        self.main_thread = MainThread(folder) if waits else None
        self._stopped = 0
        self.worked = 0.0
        """Seconds that its main thread had a processor or was ready to run, since it began."""
        self._network = f"{folder}/net/dev" if is_first and _has_own_network(folder) else ""
        self._clock = _cpu_clock(int(folder.rpartition("/")[2])) if folder.startswith(f"{PROC}/") else 0
        self.cpu = 0.0
        """Seconds of processor time, since it began."""
        self.state = ""
        self._before: Usage | None = None

    def read(self) -> Usage | None:
        """What it has used since the last read. None: it has ended."""
        try:
            usage = self._read()
        except (OSError, ValueError):
            return None
        if usage is None:
            return None
        before, self._before = self._before, usage
        self.cpu, self.state = usage.cpu, usage.states
        if before is None:
            return Usage(states=usage.states)
        grown = (max(0.0, after - earlier) for earlier, after in zip(before[:-1], usage[:-1], strict=True))
        return Usage._make([*grown, usage.states])

    def close(self) -> None:
        for descriptor in (self._stat, self._io, self._status, self._schedstat):
            if descriptor >= 0:
                os.close(descriptor)
        self._stat = self._io = self._status = self._schedstat = -1
        self.main_thread = None  # a look that has not returned keeps it

    def _cpu(self) -> float:
        """Exact, where /proc has hundredths of a second: a rank that uses little shows no steps by those."""
        return time.clock_gettime(self._clock)

    def _read(self) -> Usage | None:
        stat = parse_stat(os.pread(self._stat, LONGEST, 0))
        if stat is None:
            return None
        reads, writes, read, written = _numbers(self._io, _IO)
        ran, starved = _scheduled(self._schedstat)
        self.worked = ran + starved
        self._stopped += stat.state == "T"
        return Usage(
            cpu=self._cpu() if self._clock else stat.cpu,
            switches=_numbers(self._status, _SWITCHES)[0],
            faults=float(stat.faults),
            calls=reads + writes,
            read=read,
            written=written,
            network=_network_bytes(self._network) if self._network else 0.0,
            ran=ran,
            starved=starved,
            own_waits=self.main_thread.own_waits if self.main_thread is not None else 0.0,
            stopped=float(self._stopped),
            states=stat.state,
        )


def children_of(pid: int, proc: str = PROC) -> list[int]:
    """The children of every thread of *pid*. Empty when it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{proc}/{pid}/task"):  # noqa: PTH208 - the names are wanted, not paths
            with contextlib.suppress(OSError):
                found += map(int, _read_file(f"{proc}/{pid}/task/{thread}/children").split())
    return found


def _below(root: int, proc: str, without: Collection[int] = ()) -> Iterator[int]:
    """The descendants of *root*, those closer to it first, but those in *without* and what is below them."""
    unseen, seen = children_of(root, proc), {*without}
    while unseen:
        pid = unseen.pop(0)
        if pid not in seen:
            seen.add(pid)
            yield pid
            unseen += children_of(pid, proc)


def _cpu_clock(pid: int) -> int:
    """The kernel's clock of the processor time of process *pid*. 0: this kernel has none."""
    clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of a process, as clock_getcpuclockid makes it
    try:
        time.clock_gettime(clock)
    except OSError:
        return 0
    return clock


def _has_own_network(folder: str) -> bool:
    """Whether it is in another network namespace than this process: else all of the machine's bytes would be its."""
    try:
        return os.readlink(f"{folder}/ns/net") != os.readlink("/proc/self/ns/net")  # noqa: PTH115 - words in probes
    except OSError:
        return False


def _network_bytes(path: str) -> float:
    """Bytes received and sent by all interfaces but the loopback."""
    total = 0.0
    with contextlib.suppress(OSError):
        for line in _read_file(path).decode(errors="replace").split("\n")[2:]:
            name, _, counts = line.partition(":")
            fields = counts.split()
            if name.strip() != "lo" and len(fields) > 8:
                total += float(fields[0]) + float(fields[8])
    return total


def _numbers(descriptor: int, names: Sequence[bytes]) -> list[float]:
    """The numbers in the lines `name: number` of an open file. 0: it must not be read, or has no such line."""
    text = b""
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            text = b"\n" + os.pread(descriptor, PAGE, 0)
    return [_number_after(b"\n" + name + b":", text) for name in names]


def _number_after(name: bytes, text: bytes) -> float:
    """Most lines are not wanted, so they are not even split."""
    begin = text.find(name)
    if begin < 0:
        return 0.0
    word = text[begin + len(name) : text.find(b"\n", begin + 1)].strip()
    return float(word) if word.isdigit() else 0.0


def _scheduled(descriptor: int) -> tuple[float, float]:
    """Seconds that a main thread had a processor, and that it waited for one. Zeros where the kernel does not count."""
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            return parse_schedstat(os.pread(descriptor, PAGE, 0)) or (0.0, 0.0)
    return 0.0, 0.0


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _open_if_allowed(path: str) -> int:
    try:
        return _open(path)
    except OSError:
        return -1


def _read_file(path: str) -> bytes:
    descriptor = _open(path)
    try:
        return os.read(descriptor, PAGE)
    finally:
        os.close(descriptor)
