"""`python -m tests.core.remediation --schedules 10000`: many lives; exit 1 and name the seed when one breaks."""

from __future__ import annotations

import argparse
import sys
import time

from tests.core.remediation.lives import live

EVERY = 500
"""Schedules after which it says how far it is."""


def main() -> int:
    """Run schedules until one breaks or all are done."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.remediation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=int, help="this seed alone, with everything that happened")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.schedules) if options.replay is None else [options.replay]
    started, returned, requests = time.perf_counter(), 0, 0
    for count, seed in enumerate(seeds):
        if count and count % EVERY == 0:
            print(f"{count} schedules, {requests} requests, {returned} returns", flush=True)
        outcome = live(seed)
        returned, requests = returned + outcome.returned, requests + outcome.requests
        if options.replay is not None:
            print("\n".join(outcome.log))
        if outcome.broken:
            print(f"seed {seed}: {outcome.broken}")
            return 1
    seconds = time.perf_counter() - started
    print(f"{len(seeds)} schedules from seed {seeds[0]} on, none broken: ", end="")
    print(f"{requests} requests, {returned} returns, {seconds:.1f} s")
    return 0


sys.exit(main())
