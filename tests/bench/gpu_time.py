"""
What the accounts of GPU time cost the controller: `python -m tests.bench.gpu_time`.

A cluster state of 800 gangs of 125 members, each with the account of a gang after a month. All figures are processor
time, of all gangs together: `quiet_ms` what a reconcile of each takes longer with nothing new; `due_ms` where each has
a new step and is stored, without the request, first and then by the process that wrote the accounts; `measure_ms` all
gauges of gangs, first and then with no account changed; `read_ms` reading all roots from their annotations, and what of
that the accounts take. `memory_mb` is what the accounts allocate, with the text of their annotations.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.gpu_time import MOST_ADDED_UP, GpuTimeRecorder, _written
from healthd.core.api import (
    ANNOTATION_GPU_TIME,
    ANNOTATION_PROGRESS,
    ANNOTATION_RESTART,
    Job,
    JobStatus,
    PodStatus,
    Recovery,
)
from healthd.core.api.gpu_time import GangState, GpuTime
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.progress import Progress
from healthd.gangs import ADAPTERS
from healthd.gangs.job import read_job
from healthd.telemetry.metrics import Metrics
from tests.bench._figures import machine, spread
from tests.builders import a_job, a_pod
from tests.core.accounting.test_month import lived
from tests.fakes import START

GANGS, RANKS, TRIES = 800, 125, 10


def main() -> None:
    """Measure, and print one JSON object."""
    print(json.dumps(asyncio.run(_measure())))


async def _measure() -> dict[str, Any]:
    account = _account()
    memory = {"a month of faults": _memory_mb(account), "one fault": _memory_mb(_short(account))}
    cluster_state = _cluster_state(account)
    cluster: Any = _AnswersAll()
    recorder = GpuTimeRecorder(cluster, ADAPTERS, Metrics())

    async def reconcile(views: Sequence[tuple[GangView, list[Recovery]]], minutes: float) -> None:
        for view, recoveries in views:
            await recorder.record(view, recoveries, after(account, minutes))

    views = _views(cluster_state)
    quiet = [await _cpu_ms(lambda: reconcile(views, 1)) for _ in range(TRIES)]
    assert not cluster.patches
    due = []
    for again in (1, 2):  # an account that this process has not written costs a look at every member
        for gang in range(GANGS):
            cluster_state.upsert(_job(gang, account, version=again * 10_000_000 + gang, step=account.step + 1))
        views = _views(cluster_state)
        due.append(round(await _cpu_ms(partial(reconcile, views, 20)), 1))
        for gang in range(GANGS):
            recorder._written[f"uid-{gang}"] = _written(account)
    assert cluster.patches == 2 * GANGS

    async def measure() -> None:
        recorder.measure(cluster_state, after(account, 20))

    first = await _cpu_ms(measure)
    for _ in range(GANGS // MOST_ADDED_UP):
        await measure()
    return {
        "benchmark": "gpu_time",
        "gangs": GANGS,
        "members": RANKS,
        "annotation_bytes": len(msgspec.json.encode(account)),
        "memory_mb": memory,
        "quiet_ms": spread(quiet),
        "due_ms": {"first": due[0], "then": due[1]},
        "measure_ms": {"first": round(first, 1), "then": spread([await _cpu_ms(measure) for _ in range(TRIES)])},
        "read_ms": {"all": round(await _cpu_ms(_read(account)), 1), "without": round(await _cpu_ms(_read(None)), 1)},
        "machine": machine(),
    }


def _views(cluster_state: ClusterState) -> list[tuple[GangView, list[Recovery]]]:
    """What a reconcile of each gang looks at in any case."""
    refs = [root.ref for root in cluster_state.roots.values()]
    return [(cluster_state.view(ref), cluster_state.of_gang(ref)) for ref in refs]


def after(account: GpuTime, minutes: float) -> datetime:
    """So long after the end of the divided time."""
    return datetime.fromtimestamp(account.until / 1000, UTC) + timedelta(minutes=minutes)


def _account() -> GpuTime:
    """Of a gang that runs, after a month."""
    account = lived(0).account
    return msgspec.structs.replace(
        account, state=GangState.RUNNING, run_since=account.until, world=RANKS, full_world=RANKS, stepped=True
    )


def _memory_mb(account: GpuTime) -> float:
    """With the accounts, less that without them."""
    sizes = []
    for each in (account, None):
        gc.collect()
        tracemalloc.start()
        kept = [(job := _job(gang, each), read_job(job)) for gang in range(GANGS)]
        sizes.append(tracemalloc.get_traced_memory()[0] / 2**20)
        tracemalloc.stop()
        del kept
    return round(sizes[0] - sizes[1], 1)


def _short(account: GpuTime) -> GpuTime:
    """With the intervals of one recovery, and nothing before."""
    start = account.recent[-11].until
    return msgspec.structs.replace(account, start=start, since=start, recent=account.recent[-10:], totals={}, owed={})


def _cluster_state(account: GpuTime) -> ClusterState:
    cluster_state = ClusterState(ADAPTERS)
    for gang in range(GANGS):
        cluster_state.upsert(_job(gang, account))
        for rank in range(RANKS):
            labels = {"batch.kubernetes.io/job-name": f"train-{gang}"}
            name, version = f"train-{gang}-{rank}", 1_000_000 + gang * RANKS + rank
            pod = a_pod(name, node=f"node-{rank}", index=rank, labels=labels, status=PodStatus(phase="Running"))
            meta = msgspec.structs.replace(pod.metadata, resource_version=str(version), uid=f"uid-{name}")
            cluster_state.upsert(msgspec.structs.replace(pod, metadata=meta))
    return cluster_state


def _job(gang: int, account: GpuTime | None, *, version: int = 0, step: int = 0) -> Job:
    notes = {ANNOTATION_RESTART: "enabled", "healthd.dev/checkpoint": "/checkpoints"}
    status = JobStatus(active=RANKS, start_time=START)
    seen = Progress(at=START, intervals=[600.0] * 16)
    if account is not None:
        seen = msgspec.structs.replace(seen, step=step or account.step, at=after(account, 10))
        notes[ANNOTATION_GPU_TIME] = msgspec.json.encode(account).decode()
    notes[ANNOTATION_PROGRESS] = msgspec.json.encode(seen).decode()
    job = a_job(f"train-{gang}", ranks=RANKS, annotations=notes, status=status)
    meta = msgspec.structs.replace(job.metadata, resource_version=str(version or 1 + gang), uid=f"uid-{gang}")
    return msgspec.structs.replace(job, metadata=meta)


def _read(account: GpuTime | None) -> Callable[[], Awaitable[None]]:
    jobs = [_job(gang, account) for gang in range(GANGS)]

    async def read() -> None:
        for job in jobs:
            read_job(job)

    return read


async def _cpu_ms(work: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    await work()
    return (time.process_time() - began) * 1000


class _AnswersAll:
    """A cluster that counts patches."""

    def __init__(self) -> None:
        self.patches = 0

    async def patch(self, *_args: Any, **_options: Any) -> None:
        self.patches += 1


if __name__ == "__main__":
    main()
