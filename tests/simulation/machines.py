"""
Machines as they are, whatever the cluster believes: processes that write, kubelets that may be dead, kernel logs.

A process is the truth about who can write. A pod object is only what a kubelet last said of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.cluster.port import NotFound
from healthd.core.api import (
    Condition,
    ContainerState,
    ContainerStatus,
    Job,
    Node,
    NodeSystemInfo,
    Pod,
    PodStatus,
    Running,
    Terminated,
)
from healthd.core.api.model import KernelRecord
from healthd.core.recovery.members import attempt_of, index_of, is_terminal
from healthd.gangs.job import LABEL_JOB_NAME
from tests.kernel_log import tags_of
from tests.simulation.ground_truth import GroundTruth
from tests.simulation.step_scheduler import at_once

UNREACHABLE_AFTER = timedelta(seconds=40)
"""A node whose kubelet is silent so long is said to be not Ready."""
PCI = "0000:3b:00.0"


@dataclass
class Process:
    """A rank that runs, or ran, on a machine. *gang* is the name of its Job."""

    uid: str
    name: str
    namespace: str
    gang: str
    index: str
    root: str
    """The uid of that Job: another of the same name may have taken its place."""
    attempt: int
    resumed_at: int
    node: str
    started_at: datetime
    ends_at: datetime | None = None
    exit_code: int = 0
    ended: bool = False

    @property
    def may_write(self) -> bool:
        """It lives."""
        return not self.ended

    @property
    def failed(self) -> bool:
        """It ended, and not with success."""
        return self.ended and self.exit_code != 0


@dataclass
class Machine:
    """One machine. *broken* hardware lets ranks on it stand still; *records* are what its kernel wrote in this boot."""

    name: str
    boots: int = 1
    clock_offset: timedelta = timedelta(0)
    """How far the clock of this machine is ahead; its kernel stamps records with it."""
    kubelet_dead_since: datetime | None = None
    broken: bool = False
    records: list[KernelRecord] = field(default_factory=list)
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def boot_id(self) -> str:
        """A new one for each boot."""
        return f"{self.name}-boot-{self.boots}"

    def write_to_log(self, text: str, at: datetime, facility: int = 0) -> KernelRecord:
        """One more record of the kernel's log, at the true time *at*."""
        record = KernelRecord(
            sequence=len(self.records),
            at=at + self.clock_offset,
            text=text,
            priority=facility * 8 + 3,
            boot_id=self.boot_id,
            tags=tags_of(text),
        )
        self.records.append(record)
        return record

    def set_clock(self, offset: timedelta) -> None:
        """Somebody sets its clock."""
        self.restamp(offset - self.clock_offset)
        self.clock_offset = offset

    def restamp(self, later: timedelta) -> None:
        """The kernel counts seconds since the boot: each life of an agent works out anew when a record was written."""
        self.records = [replace(record, at=record.at + later) for record in self.records]

    def running(self) -> list[Process]:
        """Every process that can still write."""
        return [process for process in self.processes.values() if not process.ended]


class Machines:
    """All machines, and the kubelets on them."""

    def __init__(self, ground_truth: GroundTruth, dice: random.Random) -> None:
        self._truth = ground_truth.seen_by("kubelet")
        self._dice = dice
        self.all: dict[str, Machine] = {}
        self.started: list[Process] = []
        """Every process ever started, in order."""

    def add(self, name: str) -> Machine:
        """A machine under the node *name*."""
        self.all[name] = Machine(name)
        return self.all[name]

    def processes(self, gang: str, root: str = "") -> list[Process]:
        """Every process of *gang* that can still write; of its *root* alone, if given."""
        every = [process for machine in self.all.values() for process in machine.processes.values()]
        found = [process for process in every if not process.ended and process.gang == gang]
        return [process for process in found if process.root == root] if root else found

    def reboot(self, name: str) -> None:
        """The machine goes down and comes up again, with an empty log."""
        machine = self.all[name]
        for process in machine.running():
            process.ended, process.exit_code = True, 137
        machine.boots += 1
        machine.kubelet_dead_since = None
        machine.records = []
        machine.processes = {}

    def work(self, now: datetime) -> None:
        """Let every kubelet look at its pods, and every node report."""
        for machine in self.all.values():
            for process in machine.processes.values():
                if process.ends_at is not None and process.ends_at <= now:
                    process.ended = True
        pods: dict[str, list[Pod]] = {}
        for pod in at_once(self._truth.list(Pod)).items:
            pods.setdefault(pod.spec.node_name, []).append(pod)
        for node in at_once(self._truth.list(Node)).items:
            machine = self.all[node.metadata.name]
            self._report(machine, node, now)
            if machine.kubelet_dead_since is None:
                self._look_after(machine, pods.get(machine.name, []), now)

    def next_end(self) -> datetime | None:
        """When the next process ends by itself."""
        ends = [p.ends_at for machine in self.all.values() for p in machine.running() if p.ends_at is not None]
        return min(ends, default=None)

    def _report(self, machine: Machine, node: Node, now: datetime) -> None:
        """The kubelet's word, or the node controller's when there is none."""
        silent_since = machine.kubelet_dead_since
        if silent_since is not None and now - silent_since < UNREACHABLE_AFTER:
            return
        ready = "True" if silent_since is None else "Unknown"
        boot_id = machine.boot_id if silent_since is None else node.status.node_info.boot_id
        if _said_ready(node) == ready and node.status.node_info.boot_id == boot_id:
            return
        conditions = [c for c in node.status.conditions if c.type != "Ready"]
        conditions.append(Condition(type="Ready", status=ready, last_transition_time=now))
        status = {
            "conditions": msgspec.to_builtins(conditions),
            "nodeInfo": msgspec.to_builtins(NodeSystemInfo(boot_id=boot_id)),
        }
        at_once(self._truth.patch(Node, machine.name, {"status": status}, subresource="status"))

    def _look_after(self, machine: Machine, pods: list[Pod], now: datetime) -> None:
        if machine.processes:
            known = {pod.metadata.uid for pod in pods}
            for process in machine.running():
                if process.uid not in known:
                    process.ended, process.exit_code = True, 137
        for pod in pods:
            self._sync(machine, pod, now)

    def _sync(self, machine: Machine, pod: Pod, now: datetime) -> None:
        process = machine.processes.get(pod.metadata.uid)
        leaving = pod.metadata.deletion_timestamp is not None
        if is_terminal(pod) and (process is None or process.ended):
            if not _says_ended(pod):
                self._say(pod, _ended(process, now))
            elif leaving:
                self._let_go(pod)
            return
        if process is None and pod.status.phase == "Pending" and not leaving:
            process = _process_of(pod, machine, now)
            machine.processes[process.uid] = process
            self.started.append(process)
            self._say(pod, _running(now))
        elif process is None or process.ended:
            self._say(pod, _ended(process, now))
            if leaving:
                self._let_go(pod)
        elif (leaving or is_terminal(pod)) and process.ends_at is None:
            grace = pod.metadata.deletion_grace_period_seconds or 0
            process.ends_at = now + timedelta(seconds=grace * self._dice.random())
            process.exit_code = 143

    def _say(self, pod: Pod, status: PodStatus) -> None:
        at_once(
            self._truth.patch(
                Pod,
                pod.metadata.name,
                {"status": msgspec.to_builtins(status)},
                namespace=pod.metadata.namespace,
                subresource="status",
            )
        )

    def _let_go(self, pod: Pod) -> None:
        if pod.metadata.deletion_grace_period_seconds == 0:
            return  # only finalizers keep it
        try:
            at_once(
                self._truth.delete(
                    Pod,
                    pod.metadata.name,
                    namespace=pod.metadata.namespace,
                    uid=pod.metadata.uid,
                    grace_seconds=0,
                )
            )
        except NotFound:
            return


def _said_ready(node: Node) -> str:
    return next((c.status for c in node.status.conditions if c.type == "Ready"), "")


def _process_of(pod: Pod, machine: Machine, now: datetime) -> Process:
    step = pod.metadata.annotations.get("healthd.dev/resume-step", "-1")
    return Process(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        gang=pod.metadata.labels.get(LABEL_JOB_NAME, ""),
        index=index_of(pod),
        root=root_of(pod),
        attempt=attempt_of(pod),
        resumed_at=int(step),
        node=machine.name,
        started_at=now,
    )


def root_of(pod: Pod) -> str:
    """The uid of the Job that made *pod*."""
    return next((owner.uid for owner in pod.metadata.owner_references if owner.controller), "")


def is_surplus(pod: Pod, job: Job) -> bool:
    """The user made the gang smaller, and *pod* is none of it any more."""
    index = index_of(pod)
    return index.isdecimal() and int(index) >= (job.spec.completions or 1)


def _says_ended(pod: Pod) -> bool:
    """A pod that somebody called Failed before its kubelet saw it says nothing yet; a real kubelet adds the end."""
    states = [status.state for status in pod.status.container_statuses]
    return bool(states) and all(state.terminated is not None for state in states)


def _running(now: datetime) -> PodStatus:
    state = ContainerState(running=Running(started_at=now))
    return PodStatus(
        phase="Running", start_time=now, container_statuses=[ContainerStatus(name="main", ready=True, state=state)]
    )


def _ended(process: Process | None, now: datetime) -> PodStatus:
    """A kubelet that finds no trace of a container says that it ended, with code 137."""
    code = process.exit_code if process else 137
    began, ended = (process.started_at, min(process.ends_at or now, now)) if process else (None, now)
    reason = "Completed" if code == 0 else "Error"
    end = Terminated(exit_code=code, reason=reason, started_at=began, finished_at=ended)
    phase = "Succeeded" if code == 0 else "Failed"
    return PodStatus(
        phase=phase, container_statuses=[ContainerStatus(name="main", state=ContainerState(terminated=end))]
    )


def live(processes: list[Process]) -> Iterator[Any]:
    """Names, for messages."""
    return (f"{p.name}@{p.node}" for p in processes)
