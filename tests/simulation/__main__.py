"""
`python -m tests.simulation --schedules 1000 --seed 1`: run many schedules; exit 1 and name the seed when one breaks.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

import structlog

from tests.simulation import bedside, simulation
from tests.simulation.plants import AT_THE_BEDSIDE, PLANTS
from tests.simulation.simulation import Outcome, Parts


def main() -> int:
    """Run schedules until one breaks or all are done."""
    options = _options()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    seeds = [options.replay] if options.replay is not None else range(options.seed, options.seed + options.schedules)
    parts = (AT_THE_BEDSIDE if options.bedside else PLANTS)[options.plant] if options.plant else Parts()
    started = time.perf_counter()
    broken: list[Outcome] = []
    count = restarts = 0
    run = bedside.run if options.bedside else simulation.run
    for seed in seeds:
        outcome = run(seed, options.steps, parts, keep_log=options.verbose)
        count += 1
        restarts += outcome.restarts
        if options.verbose:
            print("\n".join(outcome.log))
        if outcome.broken:
            broken.append(outcome)
            print(f"seed {seed}: {outcome.broken}", flush=True)
            if not options.keep_going:
                break
        if options.replay is not None:
            print(f"trace {outcome.trace}")
    seconds = time.perf_counter() - started
    print(
        f"{count} schedules, {restarts} restarts, {len(broken)} broken, "
        f"{seconds:.1f} s, {count / seconds:.0f} schedules/s"
    )
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bedside", action="store_true", help="one node over days instead of a cluster over minutes")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this schedule alone")
    parser.add_argument(
        "--plant", choices=sorted({*PLANTS, *AT_THE_BEDSIDE}), help="run with this bug in place, which should be found"
    )
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first broken schedule")
    parser.add_argument("-v", "--verbose", action="store_true", help="print everything that happened")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
