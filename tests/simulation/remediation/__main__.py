"""`python -m tests.simulation.remediation --schedules 10000`: many schedules; exit 1 and name the seeds that break."""

from __future__ import annotations

import argparse
import logging
import sys
import time

import structlog

from tests.simulation.remediation.mutants import MUTANTS
from tests.simulation.remediation.simulation import run


def main() -> int:
    """Run schedules until one breaks or all are done."""
    options = _options()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    seeds = [options.replay] if options.replay is not None else range(options.seed, options.seed + options.schedules)
    started, count, broken, requests, returns = time.process_time(), 0, 0, 0, 0
    for seed in seeds:
        outcome = run(seed, MUTANTS.get(options.mutant), keep_log=options.verbose)
        count, requests, returns = count + 1, requests + outcome.requests, returns + outcome.returns
        if options.verbose:
            print("\n".join(outcome.log))
        if outcome.broken:
            broken += 1
            print(f"seed {seed}: {outcome.broken}", flush=True)
            if not options.keep_going:
                break
    seconds = time.process_time() - started
    print(f"{count} schedules from seed {seeds[0]} on, {broken} broken: ", end="")
    print(f"{requests} requests, {returns} returns, {seconds:.1f} s of CPU")
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.remediation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this schedule alone")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="run with this planted bug, which should be found")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first broken schedule")
    parser.add_argument("-v", "--verbose", action="store_true", help="print everything that happened")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
