"""
Whether the kernel killed a dead rank because memory ran out (OOM kill).

An OOM kill on the machine in the same second proves nothing: the process may belong to another job. So the kernel log
is searched for the killed process. A pid of the rank or of its descendants is proof. When the process was gone before
its parents could be read, the control group of the rank is proof, if the log names it and the time fits. Pids in the
log are those of the initial PID namespace, and paths are those of the initial cgroup namespace: in a container neither
can be compared. In a container, and when the log cannot be read, the counter of the rank's own control group decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.klog import OomKill, parse_oom_kill
from healthd.local.processes.pods import RankExit
from healthd.probes.process_stat import read_stat

PROC = Path("/proc")
SLACK = timedelta(seconds=1)
"""The largest difference between the kernel's timestamps and wall time."""
DYING = timedelta(seconds=10)
"""The longest time between a kill and the end: gigabytes of memory and a GPU driver take time."""
READ_WITHIN = timedelta(milliseconds=250)
"""
The kernel writes its line before the process ends. The reader wakes up at the next tick, and has to parse the line.
"""
KEPT = 256
INITIAL_PIDS = "pid:[4026531836]"
INITIAL_CGROUPS = "cgroup:[4026531835]"
"""The numbers of the initial namespaces are constants of the kernel (`PROC_PID_INIT_INO`, `PROC_CGROUP_INIT_INO`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A process that the kernel log reports as killed. *of* is the rank that it belonged to."""

    kill: OomKill
    at: datetime
    of: str = ""
    is_known: bool = False
    """Its parents could be read. When *of* is empty then, it belonged to no rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A rank that died, and what is known about it."""

    uid: str
    cgroup: str
    """Its control group. Empty when it cannot be compared, or says nothing: all processes are in the root group."""
    began: datetime
    ended: datetime


def victim_of(suspect: Suspect, victims: Iterable[Victim]) -> Victim | None:
    """The kill that explains the death of *suspect*, by pid, otherwise by control group. Pure."""
    near = [victim for victim in victims if suspect.began - SLACK <= victim.at <= suspect.ended + SLACK]
    by_pid = [victim for victim in near if victim.of == suspect.uid]
    by_group = [
        victim
        for victim in near
        if suspect.cgroup
        and victim.kill.cgroup == suspect.cgroup
        and not victim.is_known
        and suspect.ended - victim.at <= DYING
    ]
    return next(iter(by_pid + by_group), None)


def blamed(ending: RankExit, victim: Victim | None) -> RankExit:
    """
    *ending* of a rank that was not asked to stop, with the kill that explains it. *victim* None: the kill is not
    named.
    """
    if ending.exit_code == 0 or ending.reason != "Error":
        return ending
    whom = "a process of its control group" if victim is None or not victim.of else f"process {victim.kill.pid} of it"
    message = f"{ending.message}; the kernel's out-of-memory killer had killed {whom}"
    is_the_rank = ending.signal == 9 or ending.exit_code == 137  # a shell exits with 137 when its child was killed
    return replace(ending, reason="OOMKilled" if is_the_rank else ending.reason, message=message)


@dataclass(slots=True)
class CgroupCounter:
    """How many processes of one control group the kernel killed, and when that number was last seen to grow."""

    path: Path | None
    last: int = 0
    grew_at: datetime | None = None

    def __post_init__(self) -> None:
        self.last = self._read()

    def poll(self, now: datetime) -> None:
        """Read the counter again."""
        count = self._read()
        if count > self.last:
            self.grew_at = now
        self.last = count

    def _read(self) -> int:
        """From `memory.events.local` (cgroup v2) or `memory.oom_control` (v1). 0 when there is no such file."""
        return _kills_in(self.path) if self.path else 0


@dataclass(slots=True)
class OomKills:
    """The OOM kills in the kernel log, for the ranks of this process. *proc* is /proc, except in tests."""

    proc: Path = PROC
    sees_pids: bool = True
    """The pids in the log are the pids of this namespace."""
    cgroup: str = ""
    """The control group of healthd, in which ranks start. Empty when it cannot be compared with the log."""
    counter: CgroupCounter = field(default_factory=lambda: CgroupCounter(None))
    _victims: deque[Victim] = field(default_factory=lambda: deque(maxlen=KEPT))

    @classmethod
    def here(cls, proc: Path = PROC) -> OomKills:
        """For this machine, as this process sees it."""
        group = _memory_group(proc)
        is_initial = _namespace(proc, "cgroup") == INITIAL_CGROUPS
        if is_initial and group == "/":  # the group of all processes that were not put into another one
            group = ""
        return cls(
            proc=proc,
            sees_pids=_namespace(proc, "pid") == INITIAL_PIDS,
            cgroup=group if is_initial else "",
            counter=CgroupCounter(_counter_file(proc, group) if group else None),
        )

    def ingest_records(self, records: Iterable[KernelRecord], ranks: Mapping[int, str]) -> bool:
        """
        Read kernel *records*. *ranks* are the uids of running ranks, by the pids of rank and supervisor.

        Call it at once: the parents of a process can be read only while it dies. True when there was a kill.
        """
        kills = [(record, kill) for record in records if not record.facility and (kill := parse_oom_kill(record.text))]
        for record, kill in kills:
            uid, is_known = self._owner(kill.pid, ranks) if self.sees_pids else ("", False)
            self._victims.append(Victim(kill=kill, at=record.at, of=uid, is_known=is_known))
        return bool(kills)

    def victim(self, suspect: Suspect) -> Victim | None:
        """The kill that explains the death of *suspect*."""
        return victim_of(suspect, self._victims)

    def is_counted(self, suspect: Suspect) -> bool:
        """
        Whether the counter of the ranks' control group indicates a kill, and no line of the log contradicts it.

        When the log can be compared, it names the killed process: then the counter adds nothing.
        """
        near = any(suspect.ended - DYING - SLACK <= victim.at for victim in self._victims)
        if near and (self.sees_pids or self.cgroup):
            return False
        self.counter.poll(suspect.ended)
        grew = self.counter.grew_at
        return grew is not None and max(suspect.began, suspect.ended - DYING) <= grew

    def _owner(self, pid: int, ranks: Mapping[int, str]) -> tuple[str, bool]:
        """The rank that *pid* descends from, and whether that could be read."""
        seen: set[int] = set()
        while pid > 1 and pid not in seen:
            if pid in ranks:
                return ranks[pid], True
            seen.add(pid)
            pid = _parent_of(pid, self.proc)
        return "", pid == 1


def read_oom_kills(proc: Path = PROC) -> int:
    """The number of OOM kills on the machine since boot. 0 when the kernel does not report it."""
    return _kills_in(proc / "vmstat")


def _kills_in(file: Path) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _parent_of(pid: int, proc: Path) -> int:
    """The parent pid. 0 when the process is gone."""
    stat = read_stat(pid, str(proc))
    return stat.parent if stat is not None else 0


def _namespace(proc: Path, kind: str) -> str:
    try:
        return str((proc / "self/ns" / kind).readlink())
    except OSError:
        return ""


def _memory_group(proc: Path) -> str:
    """The path of this process's control group in the memory tree. Empty when it is not known."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    groups = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    return next((path for names, path in groups.items() if "memory" in names.split(",")), groups.get("", ""))


def _counter_file(proc: Path, group: str) -> Path | None:
    """The file with the kernel's count of kills in this control group. None when there is no such file."""
    try:
        mounts = [line.split() for line in (proc / "self/mountinfo").read_text().splitlines()]
    except OSError:
        return None
    for _, _, _, root, place, *rest in mounts:
        kind, options = rest[rest.index("-") + 1], rest[-1].split(",")
        if kind not in ("cgroup", "cgroup2") or not f"{group}/".startswith(f"{root.rstrip('/')}/"):
            continue
        folder = Path(place) / group[len(root.rstrip("/")) :].lstrip("/")
        name = "memory.oom_control" if kind == "cgroup" and "memory" in options else "memory.events.local"
        if (folder / name).is_file():
            return folder / name
    return None
