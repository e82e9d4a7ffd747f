"""
The kubelet of this machine: pods that are bound to its slots become processes, and the ends of processes become
proofs.

It acts on what it reads from the cluster, never on its memory alone: after a crash, the next cycle ends the processes
of the earlier healthd. The status of a pod says that it ended only when no process of it is left. So a reader of that
status may start the next attempt.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO, assert_never

import structlog

from healthd.clock import Clock
from healthd.cluster.loop import cycle_on_change
from healthd.cluster.port import Cluster, ClusterError, Conflict, NotFound
from healthd.core.api import Node, Pod, PodStatus
from healthd.core.api.model import KernelRecord
from healthd.core.patches import diff
from healthd.core.printable import printable
from healthd.core.recovery.members import attempt_of, index_of, is_terminal
from healthd.local.environment import gpus_env, gpus_of_gang, inherited, own_env, threads_env, world_of
from healthd.local.processes.disk import (
    NOT_KNOWN,
    DiskReading,
    RankFiles,
    blame_disk,
    may_be_for_want_of_room,
    read_disks,
)
from healthd.local.processes.marks import find_processes
from healthd.local.processes.oom import READ_WITHIN, OomKills, Suspect, blamed, read_oom_kills
from healthd.local.processes.output import Terminal, open_log
from healthd.local.processes.pods import (
    Act,
    EndLost,
    RankExit,
    RankView,
    Remove,
    Start,
    StopRank,
    Wait,
    WriteStatus,
    begun,
    decide_pod,
)
from healthd.local.processes.shim import descendants
from healthd.local.processes.supervise import Rank, RankCommand
from healthd.local.processes.work import Work, processor_time
from healthd.local.reports.once import Once
from healthd.probes.usage.process_tree import Beside
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

TERMINAL_PATIENCE = 1.0
"""Seconds that healthd waits at its end for a terminal that does not read."""
RESYNC = timedelta(seconds=1)
"""Between cycles while nothing happens. It is also the precision of `last_output`."""
LAST_POLLS = 3
"""Cycles at a shutdown: to report an end, to complete a deletion, and to try once more."""
STUCK_AFTER = timedelta(seconds=10)
"""After this time, a process that survives SIGKILL is stuck in a driver or on a dead file system."""
LEFT_AFTER = timedelta(seconds=2)
"""Processes that a rank started end a moment after it, as a rule."""
MOST_PIDS = 8
DISK_READ_LIMIT = 2.0
"""Seconds. The longest check of the disks. healthd does not report the end of the rank before it is over."""
WITH_HEALTHD = "lost its supervisor when healthd was restarted"


@dataclass(slots=True)
class _Member:
    """The processes of a pod: its rank, its slot, and the last seen size of its output."""

    rank: Rank
    node: str
    index: str = ""
    attempt: int = 0
    log_path: Path | None = None
    log_began_at: int = 0
    """The size of its log in bytes before its start."""
    log_size: int = 0
    last_output: datetime | None = None
    work: Work | None = None
    end_output: Callable[[], None] | None = None
    began: datetime | None = None
    oom_kills: int = 0
    """The OOM kills of the whole machine when it started."""
    ended: datetime | None = None
    """When its end was first seen."""
    ending: RankExit | None = None
    """Its end as reported. It is judged once."""
    files: RankFiles = NOT_KNOWN
    disk: asyncio.Task[DiskReading] | None = None
    """The check of its last output and of the disks that it writes to."""
    linger: timedelta = timedelta(0)
    """The time that processes which it leaves behind have to finish."""
    left_since: datetime | None = None
    """Since when its command has ended with 0, and such processes run."""
    said_what_is_left: bool = False
    killed_at: datetime | None = None
    is_stuck: bool = False


class RunningRank(NamedTuple):
    """A member whose command runs: its pod's uid, its rank, its attempt, and the process below which it runs."""

    uid: str
    rank: str
    attempt: int
    shim: int
    pid: int = 0
    """The process of its command."""
    node: str = ""
    """Its slot."""
    log: str = ""
    """The file of its output."""
    is_launched: bool = False
    """A launcher, which is *shim* then, started it: *pid* and what is below that belong to it, and what is *beside*."""
    beside: Beside | None = None

    @property
    def name(self) -> str:
        """Its rank, by which its samples are kept, or what it has in its place."""
        return self.rank or self.uid


class ProcessRunner:
    """
    Runs the pods of every slot. It also knows when they last showed a sign of life, for the controller's `Activity`.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        log_dir: Path,
        environ: Mapping[str, str],
        terminal: TextIO | None = None,
        saves_in: Path | None = None,
    ) -> None:
        """*saves_in*: where ranks save. Of a rank that fails while nothing can be written there, that is the reason."""
        self._cluster = cluster
        self._clock = clock
        self._log_dir = log_dir
        self._environ = inherited(environ)
        self._terminal = Terminal(terminal) if terminal is not None else None
        self._members: dict[str, _Member] = {}
        self._begun: set[str] = set()
        self._gpus: dict[str, list[str] | None] = {}
        self._wake = asyncio.Event()
        self._closing = False
        self._trouble = Once()
        self._one_cycle = asyncio.Lock()
        self._oom = OomKills.here()
        self._written = (*([saves_in] if saves_in else []), log_dir)
        self._saved = (*self._written, *(folder.resolve() for folder in self._written))  # ranks may name either path

    async def run(self) -> None:
        """Keep the processes equal to the pods until cancelled. Call `shutdown` afterwards."""
        await cycle_on_change(self._cluster, self._clock, [Pod], self.cycle, self._wake)

    async def cycle(self, now: datetime) -> timedelta:
        """Check every pod, and do the next action for each. Returns the longest time until the next cycle."""
        async with self._one_cycle:  # two cycles at once would start a pod twice
            await self._poll_all(now)
        return RESYNC

    async def shutdown(self, grace: timedelta) -> None:
        """Stop every rank, wait until no process is left, and report it. No process is started after this call."""
        self._closing = True
        for member in self._members.values():
            member.rank.stop(grace)
        await asyncio.gather(*(member.rank.wait() for member in self._members.values()))
        for _ in range(LAST_POLLS):
            await self.cycle(self._clock.now())
        if self._terminal is not None:
            await asyncio.to_thread(self._terminal.close, TERMINAL_PATIENCE)

    def ingest_records(self, records: Sequence[KernelRecord]) -> None:
        """Read kernel *records*: the kernel may have killed a rank because memory ran out."""
        ranks = {pid: uid for uid, one in self._members.items() for pid in (one.rank.pid, one.rank.shim_pid) if pid}
        if self._oom.ingest_records(records, ranks):
            self._wake.set()

    def last_output(self, uid: str) -> datetime | None:
        """When the output of pod *uid* was last seen to grow. Its start counts as output."""
        member = self._members.get(uid)
        return member.last_output if member is not None else None

    def last(self, pods: Sequence[Pod]) -> datetime | None:
        """When any of *pods* last wrote output. None when none of them runs here."""
        seen = (self.last_output(pod.metadata.uid) for pod in pods)
        return max((at for at in seen if at is not None), default=None)

    def last_work(self, pods: Sequence[Pod]) -> datetime | None:
        """When any of *pods* was last seen to use processor time. None when none of them was started here."""
        members = (self._members.get(pod.metadata.uid) for pod in pods)
        return max((member.work.last for member in members if member and member.work), default=None)

    def running(self) -> list[RunningRank]:
        """The ranks of the newest attempt that run. None of them while one is asked to stop, or is not there yet."""
        members = {uid: member for uid, member in self._members.items() if member.began is not None}
        newest = max((member.attempt for member in members.values()), default=0)
        present = {uid: member for uid, member in members.items() if member.attempt == newest}
        present = {uid: member for uid, member in present.items() if member.rank.ending is None}
        if any(member.rank.stopping or not member.rank.pid for member in present.values()):
            return []
        return [_running_rank(uid, member) for uid, member in present.items()]

    async def _poll_all(self, now: datetime) -> None:
        listed = (await self._cluster.list(Pod)).items
        bound = {pod.metadata.uid: pod for pod in listed if pod.spec.node_name}
        for member in self._members.values():
            member.rank.wake()
        self._forget_or_stop_all_but(bound, now)
        self._gpus = await self._gpus_of_new(listed)
        for pod in bound.values():
            try:
                await self._act(pod, self._decide(pod, now), now)
                self._trouble.over(pod.metadata.uid)
            except (Conflict, NotFound):  # it changed since the list; the next cycle reads it again
                self._wake.set()
            except ClusterError as error:
                if self._trouble.is_new(pod.metadata.uid, str(error)):
                    log.warning(
                        "pod.write_failed", pod=pod.metadata.name, error=str(error), note="tried until it works"
                    )
        self._observe_output(now)
        self._observe_left_processes(now)
        self._oom.counter.poll(now)

    def _decide(self, pod: Pod, now: datetime) -> Act:
        uid = pod.metadata.uid
        member = self._members.get(uid)
        view = self._view(member, now) if member is not None else None
        may_start = self._is_free(pod.spec.node_name) and self._gpus.get(uid) is not None
        return decide_pod(pod, view, may_start=may_start, begun_here=uid in self._begun, now=now)

    def _view(self, member: _Member, now: datetime) -> RankView:
        ending = self._ending(member, now)
        return RankView(pid=member.rank.pid, ending=ending, ended_at=member.ended)

    async def _gpus_of_new(self, pods: Sequence[Pod]) -> dict[str, list[str] | None]:
        """For each pod that was not started: the GPUs that it will see. None while they are not known."""
        new = [pod for pod in pods if pod.metadata.uid not in self._members and not is_terminal(pod)]
        nodes = {node.metadata.name: node for node in (await self._cluster.list(Node)).items} if new else {}
        return {pod.metadata.uid: gpus_of_gang(pod, pods, nodes) for pod in new}

    def _is_free(self, node: str) -> bool:
        """No process of another pod is left on the slot, even when that pod's object is gone."""
        busy = any(member.node == node and member.rank.ending is None for member in self._members.values())
        return not busy and not self._closing

    def _ending(self, member: _Member, now: datetime) -> RankExit | None:
        """How the rank ended. None also while the kernel may still report an OOM kill."""
        if member.ending is None and member.rank.ending is not None:
            member.ended = member.ended or now
            judged = self._judged(member, member.rank.ending, member.began or now, member.ended, now)
            member.ending = judged and self._with_disk(member, judged)
        return member.ending

    def _with_disk(self, member: _Member, ending: RankExit) -> RankExit | None:
        """*ending*, with a disk as its cause when that took nothing more. None while the disks are checked."""
        if member.rank.stopping or self._closing or not may_be_for_want_of_room(ending):
            return ending
        if member.disk is None:
            member.disk = asyncio.create_task(self._read_disks(member), name="look at disks")
        return blame_disk(ending, member.disk.result(), member.files) if member.disk.done() else None

    async def _read_disks(self, member: _Member) -> DiskReading:
        """Check the disks, with a timeout: healthd does not wait for a file server that hangs."""
        poll = partial(read_disks, member.log_path, member.log_began_at, self._written)
        try:
            async with asyncio.timeout(DISK_READ_LIMIT):
                return await in_thread(poll, "look at disks")
        except (TimeoutError, OSError):
            return DiskReading()
        finally:
            self._wake.set()

    def _judged(
        self, member: _Member, ending: RankExit, began: datetime, ended: datetime, now: datetime
    ) -> RankExit | None:
        if member.rank.stopping or ending.exit_code == 0:
            return ending
        suspect = Suspect(uid=member.rank.uid, cgroup=self._oom.cgroup, began=began, ended=ended)
        victim = self._oom.victim(suspect)
        if victim is not None and (victim.of or ending.signal == signal.SIGKILL):
            return blamed(ending, victim)
        if ending.signal != signal.SIGKILL or read_oom_kills() == member.oom_kills:
            return ending
        if timedelta(0) <= now - ended < READ_WITHIN and not self._closing:
            asyncio.get_running_loop().call_later(READ_WITHIN.total_seconds(), self._wake.set)
            return None
        return blamed(ending, None) if self._oom.is_counted(suspect) else ending

    async def _act(self, pod: Pod, act: Act, now: datetime) -> None:
        match act:
            case Start():
                await self._start(pod, now)
            case StopRank(grace=grace):
                _stop(self._members[pod.metadata.uid], grace, now)
            case EndLost():
                self._end_lost(pod)
            case WriteStatus(status=status):
                await self._report(pod, status)
            case Remove():
                meta = pod.metadata
                await self._cluster.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)
            case Wait():
                pass
            case _:
                assert_never(act)

    async def _start(self, pod: Pod, now: datetime) -> None:
        """
        Start the pod. The intent is written first, so a crash between the two leaves no process without a record.
        """
        uid = pod.metadata.uid
        self._begun.add(uid)
        await self._report(pod, begun(pod, now))
        threads = threads_env(self._environ, world_of(pod))
        env = {**self._environ, **threads, **own_env(pod), **gpus_env(self._gpus.get(uid) or [])}
        member = _Member(Rank(uid, self._wake.set), pod.spec.node_name, last_output=now, work=Work(now))
        member.began, member.oom_kills = now, read_oom_kills()
        member.index, member.attempt = index_of(pod), attempt_of(pod)
        self._members[uid] = member
        try:
            output = self._open_output(pod, member)
        except OSError as error:
            member.rank.fail(f"its log cannot be written: {error}")
            return
        try:
            container = pod.spec.containers[0]
            argv = [*container.command, *container.args]
            cwd = container.working_dir or str(Path.cwd())
            loaded = Path(env["HEALTHD_RESUME_FROM"]) if "HEALTHD_RESUME_FROM" in env else None
            member.files = RankFiles(self._saved, loaded, Path(cwd))
            member.linger = timedelta(seconds=pod.spec.termination_grace_period_seconds)
            member.rank.start(RankCommand(argv=argv, env=env, cwd=cwd, output=output), linger=member.linger)
        finally:
            os.close(output)
        log.info("rank.started", pod=pod.metadata.name, node=pod.spec.node_name, log=str(member.log_path))

    def _open_output(self, pod: Pod, member: _Member) -> int:
        name = index_of(pod) or pod.metadata.name
        member.log_path = self._log_dir / f"attempt-{attempt_of(pod)}" / f"rank-{name}.log"
        output = open_log(member.log_path)
        member.log_began_at = member.log_size = os.fstat(output).st_size
        if self._terminal is not None:
            member.end_output = self._terminal.follow(member.log_path, f"[rank {name}] ", member.log_size)
        return output

    def _end_lost(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._members[uid] = _Member(Rank(uid, self._wake.set), pod.spec.node_name)
        self._members[uid].rank.ended_with_healthd(WITH_HEALTHD)
        log.info("rank.lost", pod=pod.metadata.name, uid=uid)

    def _forget_or_stop_all_but(self, bound: Mapping[str, Pod], now: datetime) -> None:
        """Stop the processes of a pod whose object was deleted by force, without healthd: it must have none."""
        for uid in [uid for uid in self._members if uid not in bound]:
            member = self._members[uid]
            if member.rank.ending is None:
                _stop(member, timedelta(0), now)
            else:
                _end_output(self._members.pop(uid))
                self._begun.discard(uid)

    def _observe_output(self, now: datetime) -> None:
        for member in self._members.values():
            if member.log_path is None:
                continue
            size = _size(member.log_path)
            if size != member.log_size:
                member.log_size, member.last_output = size, now
            if member.work is not None and member.rank.ending is None:
                member.work.poll(now, partial(processor_time, member.rank.shim_pid))
            if member.rank.ending is not None:
                _end_output(member)

    def _observe_left_processes(self, now: datetime) -> None:
        """Log once what a rank leaves behind: the run waits for it, and kills it in the end."""
        for member in self._members.values():
            if member.said_what_is_left or not member.rank.has_left_processes:
                continue
            member.left_since = member.left_since or now
            pids = sorted(descendants(member.rank.shim_pid)) if now - member.left_since >= LEFT_AFTER else []
            if pids:
                member.said_what_is_left = True
                log.info("rank.left_processes", rank=member.index, pids=pids, text=_what_is_left(member, pids))

    async def _report(self, pod: Pod, status: PodStatus) -> None:
        change = diff(pod.status, status)
        if not change:
            return
        meta = pod.metadata
        await self._cluster.patch(
            Pod,
            meta.name,
            {"status": change},
            namespace=meta.namespace,
            subresource="status",
            uid=meta.uid,
            resource_version=meta.resource_version,
        )


def _running_rank(uid: str, member: _Member) -> RunningRank:
    log_path = str(member.log_path) if member.log_path is not None else ""
    rank = member.rank
    return RunningRank(uid, member.index, member.attempt, rank.shim_pid, rank.pid, member.node, log_path)


def _stop(member: _Member, grace: timedelta, now: datetime) -> None:
    """Stop the rank. Log once when SIGKILL does not end it."""
    member.rank.stop(grace)
    if grace > timedelta(0) or member.rank.ending is not None:
        return
    member.killed_at = member.killed_at or now
    if now - member.killed_at >= STUCK_AFTER and not member.is_stuck:
        member.is_stuck = True
        log.warning(
            "rank.stuck",
            uid=member.rank.uid,
            node=member.node,
            pids=find_processes(member.rank.uid),
            note="SIGKILL does not end it: a driver or a file system holds it. Its gang waits for the proof of its end",
        )


def _what_is_left(member: _Member, pids: Sequence[int]) -> str:
    one = len(pids) == 1
    some = "a process that it started still runs" if one else f"{len(pids)} processes that it started still run"
    numbers = ", ".join(map(str, pids[:MOST_PIDS])) + (", …" if len(pids) > MOST_PIDS else "")
    end = f"{'it is' if one else 'they are'} killed after {member.linger.total_seconds():.0f} s (--grace)"
    return f"rank {printable(member.index)} has ended with exit code 0, and {some} ({numbers}): {end}"


def _end_output(member: _Member) -> None:
    if member.end_output is not None:
        member.end_output()
        member.end_output = None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
