"""
From a broken GPU to a gang that runs again: `python -m tests.bench.kubernetes_restart [--pods N] [--rounds N]`.

An Indexed Job of N pods (with `--jobset` a JobSet of such a Job), one on each simulated node, on a real control plane.
The floor is what a person could do at best: `suspend` it, wait until no pod of it lives, resume it, wait until all run.
healthd has to do more in the same time: judge the record, cordon, record each phase, see every pod end, look for a
checkpoint, and claim a spare. Floor and healthd take turns, in the same lab, with the same gang. `healthd controller`
runs as a process of its own, the agents as a fleet; of more than 256 nodes only the first 32 have one, because this
process could not play thousands.

What healthd costs beside that: processor time and memory of the controller, and the requests that the API server
answered from the fault to the last pod that runs, by its own count, beside those of the floor. The agents are in that
count.

The floor's clock runs from before the first patch, healthd's from before the agent is handed the kernel record; both
stop when a watch has shown that the last of N new pods is Running.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from healthd.cluster.port import Cluster, EventType
from healthd.core.api import (
    ANNOTATION_RESTART,
    LABEL_SPARE,
    Job,
    JobSet,
    Node,
    Pod,
    Recovery,
    TimelineEntry,
)
from healthd.core.config import LogFormat, LogLevel, QuarantinePolicy
from healthd.telemetry.logs import configure
from tests.bench._figures import machine, spread
from tests.bench._lab import DEPLOY, a_lab, controller_process
from tests.bench.kubernetes_idle import answered, cpu_seconds
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import FALLEN_OFF, connected, fleet
from tests.lab.jobset import start_jobset

PATIENCE = 60.0
PATIENCE_PER_POD = 0.2
SPARES = 8
NAME = "llama"
CONFIG = "breaker:\n  restarts: 1000\nrecovery:\n  confirm_after: 1s\n"
METADATA = {"name": NAME, "namespace": "default", "annotations": {ANNOTATION_RESTART: "enabled"}}
MANY, WITH_AGENT = 256, 32
"""Above so many nodes only the first ones have an agent."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """One gang, as a benchmark stops, starts and sees it."""

    cluster: Cluster
    pods: int
    is_jobset: bool = False

    @property
    def kind(self) -> type[Job | JobSet]:
        """What is suspended."""
        return JobSet if self.is_jobset else Job

    @property
    def selected(self) -> Mapping[str, str]:
        """Labels of its pods."""
        return {"jobset.sigs.k8s.io/jobset-name" if self.is_jobset else "batch.kubernetes.io/job-name": NAME}

    @property
    def patience(self) -> float:
        """Seconds within which all its pods start or end."""
        return PATIENCE + self.pods * PATIENCE_PER_POD

    def manifest(self) -> Mapping[str, Any]:
        """As its user writes it."""
        return jobset(self.pods) if self.is_jobset else job(self.pods)


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobset", action="store_true", help="a JobSet instead of a Job")
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
    with a_lab() as (control_plane, nodes):
        control_plane.apply(DEPLOY / "admission-gangs.yaml")
        if args.jobset:
            start_jobset(control_plane)
        nodes.add(args.pods)
        control_plane.kubectl(
            "taint", "nodes", *nodes.add(SPARES, labels={LABEL_SPARE: "true"}), f"{LABEL_SPARE}=:NoSchedule"
        )
        with controller_process(control_plane, CONFIG) as process:
            try:
                found = asyncio.run(measure(control_plane, process, args))
            except BaseException:
                print(control_plane.kubectl("get", "recoveries", "-o", "yaml"), file=sys.stderr)
                print((control_plane.directory / "controller.log").read_text()[-5000:], file=sys.stderr)
                raise
    print(json.dumps(report(args, found), indent=2))
    return 0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All rounds."""

    taken: Mapping[str, list[float]]
    """Seconds of each round, by hand and by healthd."""
    requests: Mapping[str, list[float]]
    """Answers of the API server in each round."""
    cpu: Sequence[float]
    """Seconds of the controller in each of healthd's rounds."""
    memory_mb: Mapping[str, int]
    """Of the controller: before the first round, and the most that it had."""
    in_phases: Mapping[str, float]


async def measure(control_plane: ControlPlane, process: subprocess.Popen[bytes], args: argparse.Namespace) -> Measured:
    """Floor and healthd in turns."""
    taken: dict[str, list[float]] = {"by hand": [], "healthd": []}
    requests: dict[str, list[float]] = {"by hand": [], "healthd": []}
    stops: list[float] = []
    cpu: list[float] = []
    async with connected(control_plane) as theirs, connected(control_plane) as cluster:
        gang = Gang(cluster=cluster, pods=args.pods, is_jobset=args.jobset)
        control_plane.apply(json.dumps(gang.manifest()))
        await all_running(gang, set())
        names = sorted(node.metadata.name for node in (await cluster.list(Node)).items)
        played = names[: WITH_AGENT if len(names) > MANY else None]
        async with fleet(theirs, played, QuarantinePolicy(budget=2 * args.rounds)) as members:
            at_rest = memory_mb(process, "VmRSS")
            for _ in range(args.rounds):
                before = await asyncio.to_thread(answered, control_plane)
                stop, start_again = await by_hand(gang)
                taken["by hand"].append(stop + start_again)
                stops.append(stop)
                after = await asyncio.to_thread(answered, control_plane)
                requests["by hand"].append(after - before)
                old = {pod.metadata.uid: pod for pod in await present(gang)}
                victim = next(pod.spec.node_name for pod in old.values() if pod.spec.node_name in members)
                before, busy = await asyncio.to_thread(answered, control_plane), cpu_seconds(process)
                start = time.monotonic()
                members[victim].hear(FALLEN_OFF)
                await all_running(gang, set(old))
                taken["healthd"].append(time.monotonic() - start)
                cpu.append(cpu_seconds(process) - busy)
                requests["healthd"].append(await asyncio.to_thread(answered, control_plane) - before)
                await recovered(gang)
        in_phases = phases([each.status.timeline for each in (await cluster.list(Recovery)).items])
    return Measured(
        taken=taken,
        requests=requests,
        cpu=cpu,
        memory_mb={"before": at_rest, "peak": memory_mb(process, "VmHWM")},
        in_phases={"by hand, until none is left": round(median(stops), 3), **in_phases},
    )


def memory_mb(process: subprocess.Popen[bytes], what: str) -> int:
    """A line of its status, such as VmRSS."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    return int(status[what].split()[0]) // 1024


def phases(timelines: Sequence[Sequence[TimelineEntry]]) -> dict[str, float]:
    """Where the time goes: the median of the seconds in each phase."""
    seconds: dict[str, list[float]] = {}
    for timeline in timelines:
        for entry, following in pairwise(timeline):
            seconds.setdefault(entry.phase, []).append((following.at - entry.at).total_seconds())
    return {phase: round(median(each), 3) for phase, each in seconds.items()}


async def by_hand(gang: Gang) -> tuple[float, float]:
    """How long one stop and start took."""
    old = {pod.metadata.uid for pod in await present(gang)}
    start = time.monotonic()
    since = (await gang.cluster.list(Pod, namespace="default")).resource_version
    await suspend(gang, True)
    await none_left(gang, since, old)
    stopped = time.monotonic()
    await suspend(gang, False)
    await all_running(gang, old)
    return stopped - start, time.monotonic() - stopped


async def suspend(gang: Gang, is_suspended: bool) -> None:
    """As its user does it."""
    await gang.cluster.patch(gang.kind, NAME, {"spec": {"suspend": is_suspended}}, namespace="default")


async def present(gang: Gang) -> list[Pod]:
    """Its pods that live."""
    found = (await gang.cluster.list(Pod, namespace="default", labels=gang.selected)).items
    return [pod for pod in found if pod.status.phase in ("Pending", "Running") and not pod.metadata.deletion_timestamp]


async def none_left(gang: Gang, since: str, old: set[str]) -> None:
    """Return when each of the *old* pods is gone or has ended."""
    left, watching = set(old), gang.cluster.watch(Pod, since=since, namespace="default")
    async with asyncio.timeout(gang.patience), aclosing(watching) as events:  # type: ignore[type-var]
        async for event in events:
            if event.obj is not None and (
                event.type is EventType.DELETED or event.obj.status.phase in ("Succeeded", "Failed")
            ):
                left.discard(event.obj.metadata.uid)
                if not left:
                    return


async def all_running(gang: Gang, old: set[str]) -> None:
    """Return when as many pods run as the gang has, none of them one of the *old*."""
    listed = await gang.cluster.list(Pod, namespace="default", labels=gang.selected)
    running = {pod.metadata.uid for pod in listed.items if pod.status.phase == "Running"} - old
    if len(running) >= gang.pods:
        return
    watching = gang.cluster.watch(Pod, since=listed.resource_version, namespace="default")
    async with asyncio.timeout(gang.patience), aclosing(watching) as events:  # type: ignore[type-var]
        async for event in events:
            if event.obj is None or event.obj.metadata.uid in old:
                continue
            alive = event.type is not EventType.DELETED and event.obj.status.phase == "Running"
            (running.add if alive else running.discard)(event.obj.metadata.uid)
            if len(running) >= gang.pods:
                return


async def recovered(gang: Gang) -> None:
    """Return when no recovery goes on."""
    listed = await gang.cluster.list(Recovery)
    open_ones = {each.metadata.name for each in listed.items if each.status.phase != "Recovered"}
    watching = gang.cluster.watch(Recovery, since=listed.resource_version)
    async with asyncio.timeout(gang.patience), aclosing(watching) as events:  # type: ignore[type-var]
        while open_ones:
            event = await anext(events)
            if event.obj is not None and event.obj.status.phase == "Recovered":
                open_ones.discard(event.obj.metadata.name)


def job(pods: int) -> Mapping[str, Any]:
    """One pod on each node."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": METADATA, "spec": indexed(pods)}


def jobset(pods: int) -> Mapping[str, Any]:
    """The same as the only Job of a JobSet."""
    spec = {"replicatedJobs": [{"name": "w", "template": {"spec": indexed(pods)}}]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": METADATA, "spec": spec}


def indexed(pods: int) -> Mapping[str, Any]:
    """The spec of an Indexed Job."""
    container = {"name": "main", "image": "localhost/none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }


def report(args: argparse.Namespace, found: Measured) -> dict[str, Any]:
    """With the clock and the machine."""
    figures = {name: spread(seconds) for name, seconds in found.taken.items()}
    more = median(found.requests["healthd"]) - median(found.requests["by hand"])
    return {
        "clock": {
            "start": "by hand: before the patch that suspends; healthd: before the agent is handed the record",
            "end": "a watch showed that the last new pod is Running",
            "unit": "s",
        },
        "kind": "JobSet" if args.jobset else "Job",
        "pods": args.pods,
        **figures,
        "rounds": found.taken,
        "where the time goes": found.in_phases,
        "ratio of medians": round(figures["healthd"]["p50"] / figures["by hand"]["p50"], 2),
        "goal": "at most 1.2 times the floor",
        "answers of the API server": {**found.requests, "more with healthd, a pod": round(more / args.pods, 2)},
        "controller": {"cpu_s": [round(each, 2) for each in found.cpu], "memory_mb": found.memory_mb},
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
