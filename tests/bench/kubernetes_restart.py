"""
From a broken GPU to a gang that runs again: `python -m tests.bench.kubernetes_restart [--pods N] [--rounds N]`.

An Indexed Job of N pods, one on each simulated node, on a real control plane. The floor is what a person could do at
best: `suspend` the Job, wait until no pod of it lives, resume it, wait until all run. healthd has to do more in the
same time: judge the record, cordon, record each phase, see every pod end, look for a checkpoint, and claim a spare.
Floor and healthd take turns, in the same lab, with the same Job. `healthd controller` runs as a process of its own, the
agents as a fleet.

The floor's clock runs from before the first patch, healthd's from before the agent is handed the kernel record; both
stop when a watch has told that the last of N new pods is Running.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from statistics import median
from typing import Any

from healthd.cluster.port import Cluster, EventType
from healthd.core.api import (
    ANNOTATION_RESTART,
    LABEL_SPARE,
    Job,
    Node,
    Pod,
    Recovery,
    TimelineEntry,
)
from healthd.core.config import LogFormat, LogLevel, QuarantinePolicy
from healthd.telemetry.logs import configure
from tests.bench._figures import machine, spread
from tests.bench._lab import DEPLOY, a_lab, controller_process
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import FALLEN_OFF, connected, fleet

PATIENCE = 60.0
SPARES = 8
NAME = "llama"
CONFIG = "breaker:\n  restarts: 1000\nrecovery:\n  confirm_after: 1s\n"
SELECTED = {"batch.kubernetes.io/job-name": NAME}


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
    with a_lab() as (control_plane, nodes):
        control_plane.apply(DEPLOY / "admission-gangs.yaml")
        nodes.add(args.pods)
        control_plane.kubectl(
            "taint", "nodes", *nodes.add(SPARES, labels={LABEL_SPARE: "true"}), f"{LABEL_SPARE}=:NoSchedule"
        )
        with controller_process(control_plane, CONFIG):
            try:
                taken, in_phases = asyncio.run(measure(control_plane, args.pods, args.rounds))
            except BaseException:
                print(control_plane.kubectl("get", "recoveries", "-o", "yaml"), file=sys.stderr)
                print((control_plane.directory / "controller.log").read_text()[-5000:], file=sys.stderr)
                raise
    print(json.dumps(report(args.pods, taken, in_phases), indent=2))
    return 0


async def measure(
    control_plane: ControlPlane, pods: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each round, by hand and by healthd, and of each phase."""
    taken: dict[str, list[float]] = {"by hand": [], "healthd": []}
    stops: list[float] = []
    async with connected(control_plane) as theirs, connected(control_plane) as cluster:
        control_plane.apply(json.dumps(job(pods)))
        await all_running(cluster, pods, set())
        names = [node.metadata.name for node in (await cluster.list(Node)).items]
        async with fleet(theirs, names, QuarantinePolicy(budget=2 * rounds)) as members:
            for _ in range(rounds):
                stop, start_again = await by_hand(cluster, pods)
                taken["by hand"].append(stop + start_again)
                stops.append(stop)
                old = {pod.metadata.uid: pod for pod in await present(cluster)}
                start = time.monotonic()
                victim = next(iter(old.values())).spec.node_name
                members[victim].hear(FALLEN_OFF)
                await all_running(cluster, pods, set(old))
                taken["healthd"].append(time.monotonic() - start)
                await recovered(cluster)
        in_phases = phases([each.status.timeline for each in (await cluster.list(Recovery)).items])
    return taken, {"by hand, until none is left": round(median(stops), 3), **in_phases}


def phases(timelines: Sequence[Sequence[TimelineEntry]]) -> dict[str, float]:
    """Where the time goes: the median of the seconds in each phase."""
    seconds: dict[str, list[float]] = {}
    for timeline in timelines:
        for entry, following in pairwise(timeline):
            seconds.setdefault(entry.phase, []).append((following.at - entry.at).total_seconds())
    return {phase: round(median(each), 3) for phase, each in seconds.items()}


async def by_hand(cluster: Cluster, pods: int) -> tuple[float, float]:
    """How long one stop and start took."""
    old = {pod.metadata.uid for pod in await present(cluster)}
    start = time.monotonic()
    since = (await cluster.list(Pod, namespace="default")).resource_version
    await cluster.patch(Job, NAME, {"spec": {"suspend": True}}, namespace="default")
    await none_left(cluster, since, old)
    stopped = time.monotonic()
    await cluster.patch(Job, NAME, {"spec": {"suspend": False}}, namespace="default")
    await all_running(cluster, pods, old)
    return stopped - start, time.monotonic() - stopped


async def present(cluster: Cluster) -> list[Pod]:
    """The pods of the Job that live."""
    found = (await cluster.list(Pod, namespace="default", labels=SELECTED)).items
    return [pod for pod in found if pod.status.phase in ("Pending", "Running") and not pod.metadata.deletion_timestamp]


async def none_left(cluster: Cluster, since: str, old: set[str]) -> None:
    """Return when each of the *old* pods is gone or has ended."""
    left = set(old)
    async with asyncio.timeout(PATIENCE), aclosing(cluster.watch(Pod, since=since, namespace="default")) as events:  # type: ignore[type-var]
        async for event in events:
            if event.obj is not None and (
                event.type is EventType.DELETED or event.obj.status.phase in ("Succeeded", "Failed")
            ):
                left.discard(event.obj.metadata.uid)
                if not left:
                    return


async def all_running(cluster: Cluster, pods: int, old: set[str]) -> None:
    """Return when *pods* pods run that are none of the *old*."""
    listed = await cluster.list(Pod, namespace="default", labels=SELECTED)
    running = {pod.metadata.uid for pod in listed.items if pod.status.phase == "Running"} - old
    if len(running) >= pods:
        return
    since = listed.resource_version
    async with asyncio.timeout(PATIENCE), aclosing(cluster.watch(Pod, since=since, namespace="default")) as events:  # type: ignore[type-var]
        async for event in events:
            if event.obj is None or event.obj.metadata.uid in old:
                continue
            alive = event.type is not EventType.DELETED and event.obj.status.phase == "Running"
            (running.add if alive else running.discard)(event.obj.metadata.uid)
            if len(running) >= pods:
                return


async def recovered(cluster: Cluster) -> None:
    """Return when no recovery goes on."""
    listed = await cluster.list(Recovery)
    open_ones = {each.metadata.name for each in listed.items if each.status.phase != "Recovered"}
    watching = cluster.watch(Recovery, since=listed.resource_version)
    async with asyncio.timeout(PATIENCE), aclosing(watching) as events:  # type: ignore[type-var]
        while open_ones:
            event = await anext(events)
            if event.obj is not None and event.obj.status.phase == "Recovered":
                open_ones.discard(event.obj.metadata.name)


def job(pods: int) -> Mapping[str, Any]:
    """One pod on each node."""
    container = {
        "name": "main",
        "image": "localhost/none",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME, "namespace": "default", "annotations": {ANNOTATION_RESTART: "enabled"}},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def report(pods: int, taken: Mapping[str, list[float]], in_phases: Mapping[str, float]) -> dict[str, Any]:
    """With the clock and the machine."""
    figures = {name: spread(seconds) for name, seconds in taken.items()}
    return {
        "clock": {
            "start": "by hand: before the patch that suspends; healthd: before the agent is handed the record",
            "end": "a watch told that the last new pod is Running",
            "unit": "s",
        },
        "pods": pods,
        **figures,
        "rounds": taken,
        "where the time goes": in_phases,
        "ratio of medians": round(figures["healthd"]["p50"] / figures["by hand"]["p50"], 2),
        "goal": "at most 1.2 times the floor",
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
