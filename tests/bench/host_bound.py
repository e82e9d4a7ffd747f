"""
How soon a rank is named whose host comes late, by its GPU, and how often others are.

    python -m tests.bench.host_bound [--nodes] [--injected N | --healthy N] [--by PART] [--seed N]

A model of a node with `--gpus` GPUs, one for each rank of a gang; with `--nodes`, of as many nodes, all GPUs of each
doing the same, which agents publish and a controller compares. What a GPU does is made up, NVML's samples of it are
too: twice a second the part of the last second or of the last sixth (each node has one of both) in which a kernel ran,
and in which memory was used. Summing these up, the rhythm, the windows and the comparison are healthd's own, as in an
agent. Steps take 0.3 to 4 s, half of the gangs have variable work, and in half of them GPUs have to wait for their
hosts for up to 30 % of the time, which drifts. In three gangs of four a GPU waits for the others in a kernel, in the
others its rank does so, and the GPU runs none. Every 20 to 60 minutes all evaluate for 20 to 120 s, or rank 0 alone
does; rank 0 saves on its processor for 3 to 20 s; once an hour the data of one rank are late for 20 to 50 s, and those
of all.

In the middle of a run the host of a random rank but rank 0 becomes late in each step by `--by` of the step. The clock
starts there and ends when it is named. `--healthy`: none does, but in half of these gangs a rank has 10 to 20 % less to
do for some minutes.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from healthd.core.api import NodeHealthStatus
from healthd.core.api.health import GpuWork, MemberState
from healthd.core.hang.gpus import GpuRhythms, GpuUse, GpuUses
from healthd.core.hang.work.gpus.gpu_windows import gpu_windows
from healthd.core.hang.work.gpus.host_bound_gpus import HostBoundGpusOfNode
from healthd.core.hang.work.gpus.host_bound_nodes import HostBoundNodes, RankGpus
from healthd.core.node.reporting import write_at
from tests.bench._figures import machine, spread
from tests.fakes import START

BEFORE, AFTER = 2400, 420
"""Seconds before and after a host becomes late."""
WITHIN = 120
SAMPLES = 0.5
SPINS = 0.01
KINDS = "even", "waits for hosts", "uneven"
LATE, NO_LONGER_LATE = "one late", "no longer late"


class Span(NamedTuple):
    """What one GPU did until *end*: a kernel ran, and which part of the time its memory was used."""

    end: float
    runs: bool
    memory: float = 0.0


class Job:
    """What is usual for one gang."""

    def __init__(self, dice: random.Random, gpus: int) -> None:
        self.dice = dice
        self.step = dice.choice((0.3, 0.6, 1.0, 2.0, 4.0))
        self.uneven = dice.choice((0.005, 0.1))
        self.idle = dice.choice((0.01, dice.uniform(0.05, 0.3)))
        self.memory = dice.uniform(0.2, 0.6)
        self.waits_in_kernel = dice.random() < 0.75
        self.drift = [0.0] * gpus
        self.late = [0.0] * gpus
        """Of a step, by rank."""
        self.work = [1.0] * gpus
        self.pauses = sorted(self._pauses(gpus))

    @property
    def kind(self) -> str:
        """One of `KINDS`: the more its steps vary, the less it is slowed down by a rank that is late."""
        return "uneven" if self.uneven > 0.05 else "waits for hosts" if self.idle > 0.05 else "even"

    def _pauses(self, gpus: int) -> Iterator[tuple[float, str, int, float]]:
        """When, what, which rank, and for how long."""
        dice, at = self.dice, 0.0
        kinds = ["evaluation", "first evaluates", "save"]
        every = {kind: dice.uniform(1200, 3600) for kind in kinds}
        for kind in kinds:
            at = dice.uniform(60, every[kind])
            lasts = dice.uniform(3, 20) if kind == "save" else dice.uniform(20, 120)
            while at < BEFORE + AFTER:
                yield at, kind, 0, lasts * dice.uniform(0.9, 1.1)
                at += every[kind]
        yield dice.uniform(0, 3600), LATE, dice.randrange(gpus), dice.uniform(20, 50)
        yield dice.uniform(0, 3600), "all late", 0, dice.uniform(10, 60)

    def spans(self) -> Iterator[list[list[Span]]]:
        """Step after step, or pause: the spans of each GPU in it."""
        at = 0.0
        while True:
            if self.pauses and at >= self.pauses[0][0]:
                _, kind, rank, lasts = self.pauses.pop(0)
                if kind == LATE:
                    self.late[rank] += 0.3
                    self.pauses = sorted([*self.pauses, (at + lasts, NO_LONGER_LATE, rank, 0.0)])
                elif kind == NO_LONGER_LATE:
                    self.late[rank] -= 0.3
                else:
                    at += lasts
                    yield [self._paused(kind, number, at) for number in range(len(self.work))]
                continue
            at, step = self._step(at)
            yield step

    def _paused(self, kind: str, number: int, end: float) -> list[Span]:
        if kind == "all late":
            return [Span(end, runs=False)]
        if kind == "evaluation":
            return [Span(end, runs=True, memory=self.memory)]
        if number == 0:
            return [Span(end, runs=kind != "save", memory=self.memory * (kind != "save"))]
        return [Span(end, runs=self.waits_in_kernel, memory=0.005 * self.waits_in_kernel)]

    def _step(self, at: float) -> tuple[float, list[list[Span]]]:
        dice, keeps = self.dice, 0.999
        self.drift = [keeps * each + dice.gauss(0, 0.0007) for each in self.drift]
        begins, ends = list[float](), list[float]()
        for drift, late, work in zip(self.drift, self.late, self.work, strict=True):
            idle = max(0.0, self.idle + drift + dice.gauss(0, 0.2 * self.idle)) + late
            begins.append(at + idle * self.step)
            ends.append(begins[-1] + self.step * (1 - self.idle) * work * max(0.3, dice.gauss(1, self.uneven)))
        end = max(ends) + 0.01 * self.step
        return end, [
            [Span(begin, runs=False), Span(done, runs=True, memory=self.memory), self._waits(end)]
            for begin, done in zip(begins, ends, strict=True)
        ]

    def _waits(self, end: float) -> Span:
        return Span(end, runs=True, memory=0.005) if self.waits_in_kernel else Span(end, runs=False)


class Gpu:
    """What NVML says of it, summed up."""

    def __init__(self) -> None:
        self.spans: deque[Span] = deque([Span(0.0, runs=False)])
        self.use = GpuUse(0.0, 0.0, 6e10)

    def sample(self, at: float, window: float) -> None:
        while len(self.spans) > 1 and self.spans[1].end < at - window - 1:
            self.spans.popleft()
        runs = memory = 0.0
        for before, span in pairwise(self.spans):
            inside = max(0.0, min(at, span.end) - max(at - window, before.end))
            runs += inside * span.runs
            memory += inside * span.memory
        kernels, used = round(runs / window, 2), round(memory / window, 2)  # whole per cents
        worked = SAMPLES * max(0.0, used - SPINS)
        self.use = GpuUse(self.use.memory + worked, self.use.kernels + SAMPLES * kernels, 6e10)


class Agent:
    """The agent of a node whose GPUs are compared with each other."""

    def __init__(self, dice: random.Random) -> None:
        del dice
        self.rhythms, self.compares, self.known = GpuRhythms(), HostBoundGpusOfNode(), set[Any]()

    def named(self, uses: GpuUses, now: datetime) -> list[str]:
        """The addresses of those that begin to be late."""
        self.rhythms.observe(uses)
        self.compares.observe(self.rhythms.gang, now)
        new = [each for each in self.compares.listed if (each.pci, each.since) not in self.known]
        self.known |= {(each.pci, each.since) for each in new}
        return [each.pci for each in new]


class NodeAgent:
    """The agent of one of several nodes, and what it has written."""

    def __init__(self, dice: random.Random) -> None:
        self.rhythms, self.windows = GpuRhythms(), gpu_windows(timedelta(seconds=dice.uniform(0, 5)))
        self.written = NodeHealthStatus(seen_at=START)
        self.written_at = START - timedelta(seconds=dice.uniform(0, 160))

    def observe(self, uses: GpuUses, now: datetime) -> None:
        self.rhythms.observe(uses)
        rhythm = self.rhythms.published(now, a_pod_is_quiet=False)
        if rhythm is None or rhythm.state is not MemberState.WORKING:
            return
        self.windows.observe(self.rhythms.gang, rhythm.period, now)
        known = replace(self.written, rhythms=[replace(rhythm, gpu_work=self.windows.newest)])
        if write_at(self.written, known, written=self.written_at) <= now:
            self.written, self.written_at = replace(known, seen_at=now), now

    @property
    def published(self) -> GpuWork | None:
        return next((each.gpu_work for each in self.written.rhythms), None)


class Cluster:
    """The agents of nodes, and a controller that compares them each 15 s."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.agents: dict[str, NodeAgent] = {}
        self.nodes: HostBoundNodes | None = None

    def named(self, uses: GpuUses, now: datetime) -> list[str]:
        """The nodes that begin to be late, by the addresses of their GPUs."""
        for pci, use in uses.gpus.items():
            agent = self.agents.setdefault(pci, NodeAgent(self.dice))
            agent.observe(GpuUses(uses.at, {pci: use}), now)
        work = {pci: RankGpus(pci, each.published) for pci, each in self.agents.items() if each.published}
        if round(now.timestamp()) % 15 or len(work) < len(self.agents):
            return []
        if self.nodes is None or not self.nodes.is_of(work):
            self.nodes = HostBoundNodes(work)
        return [each.rank for each in self.nodes.observe(work, now) if each.ended_at is None]


def run(dice: random.Random, gpus: int, by: float, compares: Agent | Cluster) -> dict[str, Any]:
    """One gang: after how many seconds the late rank was named, and how many others were."""
    job, node = Job(dice, gpus), {f"0000:{0x10 + number:02x}:00.0": Gpu() for number in range(gpus)}
    late, named, others = dice.randrange(1, gpus), None, 0
    window = dice.choice((1.0, 1 / 6))
    steps = job.spans()
    less = dice.random() < 0.5 and not by
    for tick in range(round((BEFORE + AFTER) / SAMPLES)):
        at = tick * SAMPLES
        if at == BEFORE:
            job.late[late] += by
            job.work[late] *= dice.uniform(0.8, 0.9) if less else 1.0
        while min(gpu.spans[-1].end for gpu in node.values()) < at:
            for gpu, spans in zip(node.values(), next(steps), strict=True):
                gpu.spans.extend(spans)
        for gpu in node.values():
            gpu.sample(at, window)
        if tick % 2:
            continue
        now = START + timedelta(seconds=at)
        for pci in compares.named(GpuUses(now, {pci: gpu.use for pci, gpu in node.items()}), now):
            if by and at >= BEFORE and [*node].index(pci) == late:
                named = named if named is not None else at - BEFORE
            else:
                others += 1
    return {"named": named, "others": others, "in_kernel": job.waits_in_kernel, "kind": job.kind}


def _named(seconds: list[float | None]) -> dict[str, Any]:
    """Of gangs that wait in a kernel."""
    found, gangs = [each for each in seconds if each is not None], max(1, len(seconds))
    return {
        "gangs": len(seconds),
        "within_two_minutes": round(sum(each <= WITHIN for each in found) / gangs, 3),
        "within_five": round(sum(each <= 300 for each in found) / gangs, 3),
        "seconds": spread(found, 0) if found else None,
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--injected", type=int, default=50)
    parser.add_argument("--healthy", type=int, default=0, help="gangs without a late host, in the place of the others")
    parser.add_argument("--by", type=float, default=0.1)
    parser.add_argument("--nodes", action="store_true", help="compare so many nodes, all GPUs of each alike")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    gangs, by = args.healthy or args.injected, 0.0 if args.healthy else args.by
    runs = list[dict[str, Any]]()
    for number in range(gangs):
        dice = random.Random(f"{args.seed} {number}")
        runs.append(run(dice, args.gpus, by, Cluster(dice) if args.nodes else Agent(dice)))
    figures: dict[str, Any] = {
        "gang_days": round(gangs * (BEFORE + AFTER) / 86400, 2),
        "others": sum(each["others"] for each in runs),
    }
    if by:
        wait = [each for each in runs if each["in_kernel"]]
        figures |= {kind: _named([each["named"] for each in wait if each["kind"] == kind]) for kind in KINDS}
        figures["named_of_the_others"] = sum(each["named"] is not None for each in runs if not each["in_kernel"])
    print(json.dumps({"seed": args.seed, **vars(args), **figures, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
