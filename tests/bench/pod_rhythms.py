"""
What it costs to sample the pods of a node: `python -m tests.bench.pod_rhythms`, as root.

Makes the groups of `--pods` pods with one container each in the machine's own tree of control groups, and samples
`--sampled` of them. The files are the kernel's. The groups are empty, so what the pods use is made up: the use of a
training job is added to what was read. CPU is that of this process, for `--seconds` samples one after the other, with
the looks at all pods between them: while rhythms are learned, then of pods that work, then of silent ones. In the last
phase they are really sampled once a second for `--awake` seconds, as an agent does it, by a loop and its thread. The
node has `--gpus` GPUs, which work while the pods do: what NVML's child says of them is made up, too.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import time
import tracemalloc
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from healthd.agent.probing import Poll, Prober
from healthd.agent.rhythms import RhythmSampler
from healthd.clock import SystemClock
from healthd.core.backoff import no_jitter
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.core.hang.samples import Stall, Usage
from healthd.probes.pod_processes import CGROUPS, PodProcesses
from healthd.probes.usage.pods import PodUsages
from healthd.telemetry.metrics import Metrics
from tests.bench._figures import machine
from tests.fakes import START

TREES = ("pids", "cpuacct", "memory", "blkio")


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--sampled", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--awake", type=int, default=60)
    args = parser.parse_args()
    with groups(args.pods) as own:
        processes = PodProcesses(own_uid=own)
        processes.read()
        usages = Training(PodUsages(lambda: processes.groups), args.sampled, args.gpus)
        figures = {**look(usages), **sample(usages, args.seconds)}
        usages.works = True
        figures["kilobytes_kept"] = kept(usages)
        figures["awake"] = asyncio.run(stay_awake(usages, args.awake))
    print(
        json.dumps(
            {"pods": args.pods, "sampled": args.sampled, "gpus": args.gpus, **figures, "machine": machine()}, indent=2
        )
    )


class Training:
    """Usages of real groups, to which those of a job are added for the first *count* pods, on so many *gpus*."""

    def __init__(self, real: PodUsages, count: int, gpus: int) -> None:
        self._real = real
        self._count = count
        self._gpus = [f"0000:{number:02x}:00.0" for number in range(gpus)]
        self._dice = random.Random(7)
        self._used = Usage()
        self.works = True

    def processor_times(self) -> dict[str, float]:
        """Seconds."""
        real = self._real.processor_times()
        trained = sorted(real)[: self._count]
        return {uid: seconds + (self._used.cpu if uid in trained else 0.0) for uid, seconds in real.items()}

    def read(self, uids: Collection[str]) -> dict[str, Usage]:
        """Of these pods."""
        return {uid: _sum(real, self._used) for uid, real in self._real.read(uids).items()}

    def stalls(self, uids: Collection[str]) -> dict[str, Stall]:
        """Of these pods."""
        return self._real.stalls(uids)

    def read_gpus(self, now: datetime) -> GpuUses:
        """Each uses its memory for as much as the pods use processors."""
        use = GpuUse(self._used.gpu, self._used.kernels, 60e9)
        return GpuUses(now, dict.fromkeys(self._gpus, use))

    def let_a_second_pass(self) -> None:
        """The job works on, if it works."""
        if self.works:
            share = self._dice.uniform(0.8, 1.2)
            more = Usage(cpu=share, faults=60 * share, calls=5 * share, written=200 * share, system=0.1 * share)
            more = more._replace(gpu=share / 2, kernels=1.0)
            self._used = _sum(self._used, more)


def look(usages: Training) -> dict[str, object]:
    """The processor time of all pods, read once."""
    began = time.process_time()
    for _ in range(20):
        usages.processor_times()
    return {"milliseconds_to_look_at_all_pods": round((time.process_time() - began) / 20 * 1000, 3)}


def sample(usages: Training, seconds: int) -> dict[str, object]:
    """Each phase takes so many samples."""
    sampler, now, figures = RhythmSampler(usages, read_gpus=usages.read_gpus), START, dict[str, object]()
    for phase in ("learning", "working", "silent"):
        usages.works = phase != "silent"
        began, states = time.process_time(), set[str]()
        for _ in range(seconds):
            now += timedelta(seconds=1)
            states = {str(each.state) for each in sampler.read(now)}
            usages.let_a_second_pass()
        used = (time.process_time() - began) / seconds
        figures[phase] = {"percent_of_a_core": round(100 * used, 3), "states": sorted(states)}
    return figures


async def stay_awake(usages: Training, seconds: int) -> dict[str, object]:
    """By the clock."""
    clock, sampler = SystemClock(), RhythmSampler(usages, read_gpus=usages.read_gpus)
    for second in range(120):  # its rhythms are known then
        sampler.read(clock.now() - timedelta(seconds=120 - second))
        usages.let_a_second_pass()
    taken = 0

    def ingest(*_: object) -> None:
        nonlocal taken
        taken += 1
        usages.let_a_second_pass()

    poll = Poll(name="rhythms", every=lambda: sampler.every, read=lambda _: sampler.read(clock.now()), ingest=ingest)
    prober = Prober([], clock, no_jitter, Metrics(), ingest, also=[poll])
    with suppress(TimeoutError):
        began = time.process_time()
        async with asyncio.timeout(seconds):
            await prober.run()
    used = (time.process_time() - began) / seconds
    return {"percent_of_a_core": round(100 * used, 3), "samples": taken}


def kept(usages: Training) -> int:
    """KiB that the sampler keeps after five minutes."""
    gc.collect()
    tracemalloc.start()
    sampler = RhythmSampler(usages)
    for second in range(300):
        sampler.read(START + timedelta(seconds=second))
        usages.let_a_second_pass()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return round(size / 1024)


@contextmanager
def groups(pods: int) -> Iterator[str]:
    """The groups of a kubelet; yields the uid of one pod."""
    is_v2 = (CGROUPS / "cgroup.controllers").exists()
    trees = [CGROUPS] if is_v2 else [CGROUPS / name for name in TREES]
    name, uids = f"healthd-bench-{os.getpid()}", [str(uuid.uuid4()) for _ in range(pods)]
    made: list[Path] = []
    try:
        for tree in trees:
            for folder in _folders(tree / name / "kubepods", uids):
                folder.mkdir()
                made.append(folder)
        yield uids[0]
    finally:
        for folder in reversed(made):
            folder.rmdir()


def _folders(top: Path, uids: list[str]) -> Iterator[Path]:
    yield top.parent
    yield top
    yield top / "burstable"
    for uid in uids:
        yield top / "burstable" / f"pod{uid}"
        yield top / "burstable" / f"pod{uid}" / "main"


def _sum(a: Usage, b: Usage) -> Usage:
    return Usage._make([*(x + y for x, y in zip(a[:-1], b[:-1], strict=True)), ""])


if __name__ == "__main__":
    main()
