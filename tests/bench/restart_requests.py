"""
What a restart of a large gang costs healthd itself: `python -m tests.bench.restart_requests [--pods N …]`.

One Indexed Job of N pods, one on each node, on a cluster in memory. A node is put in quarantine; the controller, whose
cluster state is fed as by watches, stops the gang, sees its pods end in WAVES parts, starts it, and sees as many parts
of new pods run. After each part it looks once. What is played here (the Job controller, kubelets) is not counted.

For each N: the requests that the controller made, by verb and kind, those a pod, and how many pods its lists answered;
the processor time of all its looks, and of the longest one.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.cache.cluster_state import ClusterState, GangKey
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.reconciler import Reconciler
from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_QUARANTINE,
    ANNOTATION_RESTART,
    ContainerState,
    ContainerStatus,
    Job,
    Node,
    Pod,
    PodStatus,
    Recovery,
    Running,
    Terminated,
)
from healthd.core.api.model import Phase
from healthd.core.config import BreakerPolicy, Config, LogFormat, LogLevel
from healthd.core.node.quarantine import Record
from healthd.gangs import ADAPTERS
from healthd.telemetry.logs import configure
from healthd.telemetry.metrics import Metrics
from tests.bench._figures import machine
from tests.builders import a_job, a_node, a_pod
from tests.fakes import ManualClock
from tests.simulation.memory_store import in_memory
from tests.simulation.training import SeenCheckpoints

WAVES, SPARES, LOOKS = 16, 4, 20
"""LOOKS: at most so many to come from one part to the next."""
RUNNING = ContainerStatus(name="main", ready=True, state=ContainerState(running=Running()))
NAME, KEY = "train", GangKey("Job", "default", "train")
BAD = "node-0"


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=[256, 1024, 2048])
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
    found = [asyncio.run(measure(pods)) for pods in args.pods]
    print(json.dumps({"gangs": found, "waves": WAVES, "machine": machine()}, indent=2))
    return 0


class Counted:
    """A cluster, and what was asked of it."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.asked: Counter[str] = Counter()
        self.pods_listed = 0

    def __getattr__(self, verb: str) -> Any:
        async def ask(what: Any, *args: Any, **kwargs: Any) -> Any:
            kind = what if isinstance(what, type) else type(what)
            self.asked[f"{verb} {kind.__name__}"] += 1
            answer = await getattr(self._cluster, verb)(what, *args, **kwargs)
            if verb == "list" and kind is Pod:
                self.pods_listed += len(answer.items)
            return answer

        return ask


class Stage:
    """The cluster, its controller, and what others do in it."""

    def __init__(self, pods: int) -> None:
        self.pods = pods
        self.clock = ManualClock()
        self.cluster = in_memory(self.clock)
        self.counted = Counted(self.cluster)
        self.state = ClusterState(ADAPTERS)
        self.controller = Reconciler(
            ReconcilerDependencies(
                cluster=self.counted,
                clock=self.clock,
                adapters=ADAPTERS,
                checkpoints=SeenCheckpoints({}),
                metrics=Metrics(),
                informer=self.counted,
            ),
            Config(breaker=BreakerPolicy(unhealthy_share=1.0)),
            cluster_state=self.state,
        )
        self.looks: list[float] = []
        """Seconds of processor time of each."""

    async def look(self) -> None:
        """The controller sees its own writes, and looks at the gang until it has nothing to do at this moment."""
        for kind in (Job, Recovery):
            for each in (await self.cluster.list(kind)).items:
                self.state.upsert(each)
        began = time.process_time()
        self.controller.ready_keys(self.clock.now())
        await self.controller.reconcile(KEY, self.clock.now())
        self.looks.append(time.process_time() - began)
        self.clock.advance(timedelta(seconds=1))

    async def begin(self) -> Job:
        """All pods run, and healthd has looked at them."""
        for number in range(self.pods + SPARES):
            await self.make(a_node(f"node-{number}", spare=number >= self.pods))
        made = await self.cluster.create(a_job(NAME, ranks=self.pods, annotations={ANNOTATION_RESTART: "enabled"}))
        job = await self.says(active=self.pods, startTime=self.clock.now())
        for rank in range(self.pods):
            await self.runs(rank, f"node-{rank}", made, attempt=0)
        await self.look()
        return job

    async def says(self, **status: Any) -> Job:
        """What the Job controller reports."""
        patch = {"status": msgspec.to_builtins(status)}
        job = await self.cluster.patch(Job, NAME, patch, namespace="default", subresource="status")
        self.state.upsert(job)
        return job

    async def runs(self, rank: int, node: str, job: Job, *, attempt: int) -> None:
        """A pod begins."""
        pod = a_pod(
            f"{NAME}-{rank}-of-{attempt}",
            node=node,
            index=rank,
            owner=job,
            labels={"batch.kubernetes.io/job-name": NAME},
            annotations={ANNOTATION_ATTEMPT: str(attempt)},
            status=PodStatus(phase="Running", container_statuses=[RUNNING]),
        )
        await self.make(replace(pod, spec=replace(pod.spec, restart_policy="Never")))

    async def make(self, obj: Node | Pod) -> None:
        """With its status, which no creation writes."""
        made, status = await self.cluster.create(obj), msgspec.to_builtins(obj.status)
        where = {"namespace": made.metadata.namespace} if made.metadata.namespace else {}
        patch = {"status": status}
        self.state.upsert(
            await self.cluster.patch(type(made), made.metadata.name, patch, subresource="status", **where)
        )

    async def ends(self, pod: Pod) -> None:
        """Its kubelet reports the end of its container, and removes it."""
        end = Terminated(exit_code=143, finished_at=self.clock.now())
        status = PodStatus(
            phase="Failed", container_statuses=[ContainerStatus(name="main", state=ContainerState(terminated=end))]
        )
        patch = {"status": msgspec.to_builtins(status)}
        ended = await self.cluster.patch(Pod, pod.metadata.name, patch, namespace="default", subresource="status")
        self.state.upsert(ended)
        await self.cluster.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0)
        self.state.remove(ended, int(ended.metadata.resource_version) + 1)

    async def breaks(self, name: str) -> None:
        """The agent of this node takes it out of service."""
        record = Record(finding="gpu/xid-79", message="it fell off the bus", since=self.clock.now())
        notes = {ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()}
        patch = {"metadata": {"annotations": notes}, "spec": {"unschedulable": True}}
        self.state.upsert(await self.cluster.patch(Node, name, patch))

    async def recovery(self) -> Recovery:
        """The only one."""
        [found] = (await self.cluster.list(Recovery)).items
        return found


async def measure(pods: int) -> dict[str, Any]:
    """One restart."""
    stage = Stage(pods)
    job = await stage.begin()
    stage.counted.asked.clear()
    stage.counted.pods_listed, stage.looks = 0, []
    await stage.breaks(BAD)
    await stage.look()
    suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": stage.clock.now()}
    await stage.says(active=0, startTime=None, conditions=[suspended])
    for wave in waves((await stage.cluster.list(Pod)).items):
        for pod in wave:
            await stage.ends(pod)
        await stage.look()
    for _ in range(LOOKS):
        if await started(stage):
            break
        await stage.look()
    placement = (await stage.recovery()).status.placement
    await stage.says(active=pods, startTime=stage.clock.now(), conditions=[{**suspended, "status": "False"}])
    for wave in waves(sorted(placement.items())):
        for index, node in wave:
            await stage.runs(int(index), node, job, attempt=1)
        await stage.look()
    for _ in range(LOOKS):
        if (await stage.recovery()).status.phase is Phase.RECOVERED:
            break
        stage.clock.advance(timedelta(minutes=1))
        await stage.look()
    else:
        raise AssertionError((await stage.recovery()).status.timeline)
    asked = stage.counted.asked
    return {
        "pods": pods,
        "requests": dict(asked.most_common()),
        "requests a pod": round(asked.total() / pods, 3),
        "pods listed": stage.counted.pods_listed,
        "looks": len(stage.looks),
        "cpu_s": round(sum(stage.looks), 2),
        "longest look_s": round(max(stage.looks), 3),
    }


async def started(stage: Stage) -> bool:
    """Whether the gang was let run again."""
    return not (await stage.cluster.get(Job, NAME, "default")).spec.suspend


def waves(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """*items* in WAVES parts."""
    size = max(1, len(items) // WAVES)
    return (items[begin : begin + size] for begin in range(0, len(items), size))


if __name__ == "__main__":
    sys.exit(main())
