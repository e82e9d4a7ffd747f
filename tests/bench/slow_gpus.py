"""
How soon a GPU that runs slower is named, and how often one that does not: `python -m tests.bench.slow_gpus`.

A model of gangs of `--nodes` nodes with eight GPUs each, whose pods have all of them. The clocks are made up: GPUs of
one model differ by nature (`--spread`, the standard deviation of their clocks; published: a variation of 8 % in the
mean, of 22 % at most), each drifts with its temperature (1 %, over ten minutes), and differs from second to second
(3 %). Steps take two seconds, with a wait for the others, in which a GPU runs at its highest clock and uses no
memory; every 20 minutes all evaluate for two, and wait for rank 0 for one. Sampling, windows, the moments at which an
agent writes and the comparison are healthd's own. A write takes effect when an agent makes it; the controller compares
each 15 s, at another moment in each gang.

In the middle of a run one GPU of a random rank but rank 0 becomes slower than the median GPU by `--by`, and its
driver gives a `--reason`. The clock starts there and ends when its rank is named. `--healthy`: no GPU becomes slow.
Each other GPU that is named is counted: as slow by nature where its own clock, without drift and noise, is slower than
the median one by what is asked for, and else as false.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from datetime import timedelta
from math import exp, sqrt
from statistics import median
from typing import Any

from msgspec.structs import replace

from healthd.core.api import NodeHealthStatus, PodRhythm
from healthd.core.api.health import GPUS, GpuClocks, MemberState
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.core.hang.work.common_windows import KNOWN_FOR
from healthd.core.hang.work.gpus.gpu_clocks import ClockWindows
from healthd.core.hang.work.gpus.slow_gpus import BY_CHANGE, SlowGpus
from healthd.core.node.reporting import write_at
from tests.bench._figures import machine, spread
from tests.fakes import START

SECOND = timedelta(seconds=1)
HIGHEST, USUAL = 1980.0, 1600.0
EVERY = 15
BEFORE, AFTER = 3600, 600
"""Seconds before and after a GPU becomes slow."""
WITHIN = 120


class Gpu:
    """Its own clock, its drift, and what it has done so far."""

    def __init__(self, dice: random.Random, sd: float) -> None:
        self.own = USUAL * (1 + dice.gauss(0, sd))
        self.drift = dice.gauss(0, 0.01)
        self.limits: tuple[str, ...] = ("power-cap",)
        self.use = GpuUse(0.0, 0.0, 6e10)

    def work(self, dice: random.Random, share: float) -> None:
        """One second, in which it works for *share* of the time."""
        keeps = exp(-1 / 600)
        self.drift = keeps * self.drift + dice.gauss(0, 0.01 * sqrt(1 - keeps**2))
        mhz = min(HIGHEST, self.own * (1 + self.drift + dice.gauss(0, 0.03)))
        memory = share * dice.uniform(0.3, 0.5)
        self.use = GpuUse(self.use.memory + memory, 0.0, 6e10, self.use.cycles + memory * mhz, HIGHEST, self.limits)


class Node:
    """Eight GPUs, and what its agent has written of them."""

    def __init__(self, dice: random.Random, sd: float) -> None:
        self.gpus = {f"gpu-{number}": Gpu(dice, sd) for number in range(8)}
        self.clocks = ClockWindows()
        self.written = NodeHealthStatus(seen_at=START)
        self.written_at = START - timedelta(seconds=dice.uniform(0, 160))
        self.writes = 0

    def second(self, dice: random.Random, second: int, share: float) -> None:
        now = START + second * SECOND
        for gpu in self.gpus.values():
            gpu.work(dice, share)
        self.clocks.observe(GpuUses(now, {name: gpu.use for name, gpu in self.gpus.items()}))
        if second % EVERY:
            return  # a window ends as rarely
        rhythm = PodRhythm(uid=GPUS, state=MemberState.WORKING, period=2, allowed=12, clocks=self.clocks.of())
        known = replace(self.written, rhythms=[rhythm])
        if write_at(self.written, known, written=self.written_at) <= now:
            self.written, self.written_at = replace(known, seen_at=now), now
            self.writes += 1

    @property
    def published(self) -> GpuClocks | None:
        return next((each.clocks for each in self.written.rhythms), None)


def run(dice: random.Random, nodes: int, sd: float, by: float, reason: str = "power-cap") -> dict[str, Any]:
    """One gang: after how many seconds the rank with a GPU that is slower *by* was named, and which others were."""
    gang = [Node(dice, sd) for _ in range(nodes)]
    compares, slow = SlowGpus(), dice.randrange(1, nodes)
    named, others, offset = None, list[bool](), dice.randrange(EVERY)
    for second in range(BEFORE + AFTER):
        if by and second == BEFORE:
            gpu = gang[slow].gpus["gpu-3"]
            gpu.own, gpu.limits = gpu.own * (1 + _by_nature(gpu, gang)) / (1 + by), (reason,)
        for rank, node in enumerate(gang):
            node.second(dice, second, _share(dice, second, rank))
        if second % EVERY != offset:
            continue
        now = START + second * SECOND
        known = {str(rank): node.published for rank, node in enumerate(gang)}
        clocks_now = {rank: each for rank, each in known.items() if each and now - each.end <= KNOWN_FOR}
        for straggler in compares.observe(clocks_now, now):
            if straggler.ended_at is not None:
                continue
            if by and second >= BEFORE and straggler.rank == str(slow):
                named = named if named is not None else second - BEFORE
            else:
                others.append(_by_nature(gang[int(straggler.rank)].gpus[straggler.gpu], gang) >= BY_CHANGE)
    return {
        "named": named,
        "by_nature": sum(others),
        "false": len(others) - sum(others),
        "writes": sum(node.writes for node in gang),
    }


def _by_nature(gpu: Gpu, gang: Sequence[Node]) -> float:
    """How much slower it is than the median GPU."""
    return median(each.own for node in gang for each in node.gpus.values()) / gpu.own - 1


def _share(dice: random.Random, second: int, rank: int) -> float:
    """Of the time in which a GPU of *rank* works."""
    within = second % 1200
    if within >= 1140:  # all wait for rank 0
        return 1.0 if rank == 0 else 0.0
    return dice.uniform(0.5, 0.9)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--injected", type=int, default=100)
    parser.add_argument("--healthy", type=int, default=0, help="gangs without a slow GPU, in the place of the others")
    parser.add_argument("--by", type=float, default=0.1)
    parser.add_argument("--reason", default="power-cap", help="or hw-thermal, a fault")
    parser.add_argument("--spread", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    by = 0.0 if args.healthy else args.by
    gangs = args.healthy or args.injected
    runs = [
        run(random.Random(f"{args.seed} {number}"), args.nodes, args.spread, by, args.reason) for number in range(gangs)
    ]
    days = gangs * args.nodes * (BEFORE + AFTER) / 86400
    found = [each["named"] for each in runs if each["named"] is not None]
    figures: dict[str, Any] = {
        "node_days": round(days, 1),
        "named_that_are_slow_by_nature": sum(each["by_nature"] for each in runs),
        "false": sum(each["false"] for each in runs),
    }
    figures["writes_of_a_node_an_hour"] = round(sum(each["writes"] for each in runs) / days / 24, 1)
    if by:
        figures["named_within_two_minutes"] = round(sum(each <= WITHIN for each in found) / gangs, 3)
        figures["seconds"] = spread(found, 0) if found else None
    print(json.dumps({"seed": args.seed, **vars(args), **figures, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
