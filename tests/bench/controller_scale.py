"""
What a controller pays for the size of a cluster: `python -m tests.bench.controller_scale`.

A cluster state of 10,000 nodes and 100,000 pods in 800 gangs, made in memory. The clocks: `load_s` from the first
object to the last; `quiet_cycle_ms` one round in which none is due, sweep included; `event_us` one change of a pod,
from the object to its gang being due; `attend_ms` the look at one gang with nothing to do; `all_gangs_s` such a look at
each; `metrics_page_ms` all gauges and the text of `/metrics`. Memory is what the process has more than before,
resident.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from prometheus_client import generate_latest

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.metrics import measure_agents, measure_world
from healthd.controller.reconciler import Reconciler
from healthd.core.api import ANNOTATION_GPU_TIME, ANNOTATION_RESTART, Job, JobStatus, Node, Pod, PodStatus
from healthd.core.api.gpu_time import GangState, GpuTime
from healthd.core.api.save_stats import Concern
from healthd.core.config import Config
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import GangSaves, Metrics
from tests.bench._figures import machine, spread
from tests.builders import a_job, a_node, a_pod
from tests.fakes import START, ManualClock
from tests.simulation.training import SeenCheckpoints

Obj = TypeVar("Obj", Node, Job, Pod)

NODES, GANGS, RANKS = 10_000, 800, 125
TRIES = 50
_BEGAN = int(START.timestamp() * 1000)
ACCOUNT = GpuTime(
    since=_BEGAN,
    start=_BEGAN,
    state=GangState.RUNNING,
    run_since=_BEGAN,
    world=RANKS,
    full_world=RANKS,
    gpus=RANKS,
)
"""Of a gang that runs, so that there is nothing to write."""


def main() -> None:
    """Measure, and print one JSON object."""
    print(json.dumps(asyncio.run(_measure())))


async def _measure() -> dict[str, Any]:
    before = _resident_mb()
    cluster_state = ClusterState(ADAPTERS)
    began = time.perf_counter()
    for obj in _world():
        cluster_state.upsert(obj)
    load = time.perf_counter() - began
    gc.collect()
    clock = ManualClock()
    dependencies = ReconcilerDependencies(
        cluster=_NoRequests(),
        clock=clock,
        adapters=ADAPTERS,
        checkpoints=SeenCheckpoints({}),
        metrics=Metrics(),
        informer=_NoRequests(),
    )
    controller = Reconciler(dependencies, Config(), cluster_state=cluster_state)
    began = time.perf_counter()
    for key in controller.ready_keys(clock.now()):
        await controller.reconcile(key, clock.now())
    everybody = time.perf_counter() - began
    return {
        "benchmark": "controller_scale",
        "nodes": NODES,
        "pods": GANGS * RANKS,
        "gangs": GANGS,
        "load_s": round(load, 2),
        "memory_mb": round(_resident_mb() - before),
        "machine": machine(),
        "all_gangs_s": round(everybody, 2),
        "attend_ms": round(everybody / GANGS * 1000, 2),
        "quiet_cycle_ms": spread([await _quiet_cycle(controller, clock) for _ in range(TRIES)]),
        **_metrics_page(cluster_state),
        "event_us": spread([_event(controller, cluster_state, clock, number) for number in range(TRIES)]),
    }


def _metrics_page(cluster_state: ClusterState) -> dict[str, Any]:
    """What one scrape costs where every gang saves, and no page is cached."""
    metrics = Metrics()
    began = time.perf_counter()
    measure_world(metrics, cluster_state)
    measure_agents(metrics, cluster_state, START)
    metrics.show_saves(
        GangSaves(root.ref.namespace, root.ref.name, START, timedelta(minutes=5), timedelta(minutes=1), list(Concern))
        for root in cluster_state.roots.values()
    )
    page = generate_latest(metrics.registry)
    took = time.perf_counter() - began
    return {"metrics_page_ms": round(took * 1000), "metrics_page_kb": round(len(page) / 1024)}


async def _quiet_cycle(controller: Reconciler, clock: ManualClock) -> float:
    began = time.perf_counter()
    controller.ready_keys(clock.now())
    await controller.collect_garbage(clock.now())
    controller.next_wakeup(clock.now())
    return (time.perf_counter() - began) * 1000


def _event(controller: Reconciler, cluster_state: ClusterState, clock: ManualClock, number: int) -> float:
    """A pod of some gang changes."""
    pod = _pod(number, 0, version=10_000_000 + number)
    began = time.perf_counter()
    cluster_state.upsert(pod)
    controller.ready_keys(clock.now())
    return (time.perf_counter() - began) * 1_000_000


def _world() -> Iterator[Node | Job | Pod]:
    for number in range(NODES):
        labels = {"nvidia.com/gpu.product": "H100", "topology.kubernetes.io/zone": f"zone-{number % 8}"}
        yield _stored(a_node(f"node-{number:05d}", labels=labels), number + 1)
    for gang in range(GANGS):
        yield _job(gang)
        yield from (_pod(gang, rank, version=1_000_000 + gang * RANKS + rank) for rank in range(RANKS))


def _job(gang: int) -> Job:
    job = a_job(
        f"train-{gang}",
        ranks=RANKS,
        annotations={ANNOTATION_RESTART: "enabled", ANNOTATION_GPU_TIME: msgspec.json.encode(ACCOUNT).decode()},
        status=JobStatus(active=RANKS, start_time=START),
    )
    return _stored(job, 100_000 + gang)


def _pod(gang: int, rank: int, *, version: int) -> Pod:
    node = f"node-{(gang * RANKS + rank) % NODES:05d}"
    labels = {"batch.kubernetes.io/job-name": f"train-{gang}"}
    return _stored(
        a_pod(f"train-{gang}-{rank}", node=node, index=rank, labels=labels, status=PodStatus(phase="Running")), version
    )


def _stored(obj: Obj, version: int) -> Obj:
    meta = msgspec.structs.replace(
        obj.metadata, resource_version=str(version), uid=f"uid-{type(obj).__name__}-{obj.metadata.name}"
    )
    return msgspec.structs.replace(obj, metadata=meta)


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class _NoRequests:
    """A cluster that must not be asked: nothing is to be done."""

    def __getattr__(self, verb: str) -> Any:
        raise AssertionError(f"{verb} was asked for, though there is nothing to do")


if __name__ == "__main__":
    main()
