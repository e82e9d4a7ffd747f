"""
`python -m tests.simulation --schedules 1000 --seed 1`: run many schedules; exit 1 and name the seed when one breaks.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import Pool

import structlog

from tests.simulation import simulation, single_node
from tests.simulation.mutants import MUTANTS, ON_SINGLE_NODE
from tests.simulation.simulation import Outcome, Parts

AT_ONCE = 8
"""Seeds that a process takes together."""


@dataclass(frozen=True, slots=True)
class Play:
    """What is played with each seed. It goes to other processes."""

    single_node: bool
    steps: int | None
    mutant: str
    keep_log: bool

    def __call__(self, seed: int) -> Outcome:
        """One schedule."""
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        mutants, run = (ON_SINGLE_NODE, single_node.run) if self.single_node else (MUTANTS, simulation.run)
        return run(seed, self.steps, mutants[self.mutant] if self.mutant else Parts(), keep_log=self.keep_log)


def main() -> int:
    """Run schedules until one breaks, all are done, or a person ends the run, who still learns how many they were."""
    options = _options()
    seeds = [options.replay] if options.replay is not None else range(options.seed, options.seed + options.schedules)
    play = Play(options.single_node, options.steps, options.mutant or "", options.verbose)
    started = time.perf_counter()
    count = restarts = broken = 0
    with suppress(KeyboardInterrupt), closing(_played(play, seeds, options.jobs)) as outcomes:
        for outcome in outcomes:
            count += 1
            restarts += outcome.restarts
            if options.verbose:
                print("\n".join(outcome.log))
            if outcome.broken:
                broken += 1
                print(f"seed {outcome.seed}: {outcome.broken}", flush=True)
                if not options.keep_going:
                    break
            if options.replay is not None:
                print(f"trace {outcome.trace}")
    seconds, busy = time.perf_counter() - started, time.process_time()
    print(
        f"{count} schedules from seed {seeds[0]} on, {restarts} restarts, {broken} broken, "
        f"{seconds:.1f} s, {count / seconds:.1f} schedules/s, {busy:.1f} s of this process's processor time"
    )
    return 1 if broken else 0


def _played(play: Play, seeds: Iterable[int], jobs: int) -> Generator[Outcome, None, None]:
    """What comes of each seed, in their order however many processes there are."""
    if jobs == 1:
        yield from map(play, seeds)
        return
    with Pool(jobs) as pool:
        yield from pool.imap(play, seeds, AT_ONCE)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--single-node", action="store_true", help="one node over days instead of a cluster over minutes"
    )
    parser.add_argument("--steps", type=int)
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this schedule alone")
    parser.add_argument(
        "--mutant", choices=sorted({*MUTANTS, *ON_SINGLE_NODE}), help="run with this mutant, which should be found"
    )
    parser.add_argument("--jobs", type=int, default=1, help="so many processes at once")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first broken schedule")
    parser.add_argument("-v", "--verbose", action="store_true", help="print everything that happened")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
