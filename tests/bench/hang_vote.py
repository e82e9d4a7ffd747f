"""
How often the vote names the right rank of simulated gangs, and what it costs.

    python -m tests.bench.hang_vote --runs 50 --sizes 128 1024 4096 [--seed N]

Each run stops one rank, or all ranks of one node, at a random place of a program over tensor-parallel and data-parallel
groups (`tests/core/hang/gangs.py`). The clock is processor time of the vote alone.
"""

from __future__ import annotations

import argparse
import random
import time

from healthd.core.api.recoveries import MOST_SUSPECTS
from healthd.core.hang.suspects.evidence import Source
from healthd.core.hang.suspects.vote import vote
from tests.core.hang.gangs import GPUS_A_NODE, Shape, stopped_gang


def main() -> None:
    """A line for each size, kind and source."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 512, 1024, 4096])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    for size in options.sizes:
        for source in (Source.RECORDER, Source.RAS):
            for whole_node in (False, True):
                print(_line(size, source, whole_node, options.runs, random.Random(options.seed)), flush=True)


def _line(size: int, source: Source, whole_node: bool, runs: int, chance: random.Random) -> str:
    right, costs = 0, []
    for _ in range(runs):
        first = chance.randrange(size // GPUS_A_NODE) * GPUS_A_NODE if whole_node else chance.randrange(size)
        culprits = list(range(first, first + (GPUS_A_NODE if whole_node else 1)))
        ranks = stopped_gang(Shape(size), culprits, chance.randrange(10**9), source=source)
        began = time.process_time()
        location = vote(ranks)
        costs.append(time.process_time() - began)
        right += [suspect.rank for suspect in location.suspects] == culprits[:MOST_SUSPECTS]
    kind = "a node" if whole_node else "a rank"
    return f"{size:5} ranks, {kind}, {source}: {right} of {runs} right, {1000 * max(costs):.0f} ms at most"


if __name__ == "__main__":
    main()
