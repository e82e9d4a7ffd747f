"""
Stragglers in a model of gangs: `python -m tests.bench.stragglers [--nodes N] [--days N] [--injected N] [--seed N]
[--between LOW HIGH] [--ranks N] [--after SECONDS]`.

Healthy: each node has one gang of eight ranks for so many days, and every report is false. Injected: one rank of a
gang becomes slow after half an hour, or is slow from its start. The clock starts when it becomes slow, and ends with
the end of the window in which it is named. It stands while rank 0 evaluates or saves alone: no rank is slow then. Both
are in the model's time. The model is `_straggler_model.py`.

`--pods` takes the same gangs as pods of one rank, each on a node of its own: their agents publish now and then, as the
real ones decide it, and when the controller asks, but for `--unasked`. The clock ends with the comparison by the
controller. Those that are slow from the start are not seen then.

`--real SECONDS` starts the demo's trainer under `healthd run` instead, with one rank that becomes slow after two
minutes: it computes for longer, or `--sleeps`. The clock starts then, and ends at the timestamp of the warning in
healthd's log.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from healthd.core.hang.straggler import Straggler
from healthd.core.reliability.distributions import regularised_gamma
from tests.bench._figures import machine, spread
from tests.bench._straggler_model import A_DAY, RANKS, Gang, PodGang, Slow, reported
from tests.bench.hangs import events, time_of

SCRIPT = Path(__file__).with_name("_slow_trainer.py")
REAL_AFTER = 120.0
"""Seconds after the start of the ranks."""
HEALTHY = 1800.0
"""Seconds before a rank becomes slow, where nothing else is said."""
AFTER = 600.0
"""Seconds in which it may be named."""
LIMITS = (120.0, 180.0, 300.0, 600.0)
"""Seconds within which it is named: the figures."""
SIZES = (0.05, 0.07, 0.1, 0.15, 0.25)
STEPS = (0.6, 1.7, 5.0)
"""Seconds: gangs whose steps take as long at most, or more than the one before, are counted apart."""
WAITS = (0.03, 0.05, float("inf"))
"""The same by how much slower the gang gets: other ranks are late now and then, too."""
RUN, PODS, UNASKED = "run", "pods", "pods whose agents are not asked"
KINDS = {RUN: ("another rank", "rank 0", "from the start"), PODS: ("another rank", "rank 0", "uses more")}
"""Which rank becomes slow after half an hour, or that one other than 0 has been slow from the start. One that only uses
more from then on, as a pod with a server of metrics does, is no straggler: it should not be named."""


class Setting(NamedTuple):
    """What all gangs of a figure have in common. They become slow *after* so many seconds."""

    seed: int
    drift: float
    world: str
    ranks: int = RANKS
    after: float = HEALTHY

    def gang(self, number: int) -> Gang:
        """Another one for each number, and the same one again for the same number."""
        return Gang(self.seed + number, self.drift, ranks=self.ranks)


def false_reports(nodes: int, days: float, of: Setting, seconds: float) -> dict[str, Any]:
    """Reports of healthy gangs, one on each node. Ends early after *seconds*."""
    until, done, writes, asked, false = time.monotonic() + seconds, 0, 0, 0, list[dict[str, Any]]()
    for number in range(nodes):
        if time.monotonic() > until:
            break
        seen = _seen(of.gang(number), days * A_DAY, None, number, of.world)
        false += [
            {"seed": of.seed + number, "hours": round(at / 3600, 2), "rank": each.rank, "slower": round(each.slower, 3)}
            for at, each in seen.reports
        ]
        done, writes, asked = done + 1, writes + seen.writes, asked + seen.asked
    gang_days = done * days
    node_days = gang_days if of.world == RUN else gang_days * of.ranks
    per = 1000 / node_days if node_days else 0.0
    least, most = poisson_interval(len(false))
    return {
        "gang days": round(gang_days, 1),
        "node days": round(node_days, 1),
        "false reports": len(false),
        "a day and 1,000 nodes": round(per * len(false), 3),
        "95% between": [round(per * least, 3), round(per * most, 3)],
        "of rank 0": sum(each["rank"] == "0" for each in false),
        "writes of a node in an hour": round(writes / (24 * node_days), 1) if node_days else None,
        "asked of a node in an hour": round(asked / (24 * node_days), 1) if node_days else None,
        "first": false[:20],
    }


def injected(count: int, between: tuple[float, float], of: Setting, kind: str) -> dict[str, Any]:
    """How soon a rank is named that is slow by a part of a step *between* these two. *kind* is one of `KINDS`."""
    dice, named, wrong, sizes = random.Random(of.seed), list[float](), 0, list[float]()
    drawn = random.Random(of.seed + 1)
    by_steps: dict[float, list[float]] = {most: [] for most in STEPS}
    by_waits: dict[float, list[float]] = {most: [] for most in WAITS}
    for number in range(count):
        gang = of.gang(number)
        begin = 0.0 if kind == "from the start" else of.after / gang.window + dice.random()
        by = drawn.uniform(*between)
        slow = Slow(0 if kind == "rank 0" else dice.randrange(1, of.ranks), by, begin, beside=kind == "uses more")
        period, waits = gang.period, of.gang(number).slower(slow)
        found = _seen(gang, begin * gang.window + AFTER, slow, number, of.world).reports
        begun = begin * gang.window
        hits = [(at, each) for at, each in found if each.rank == str(slow.rank) and at > begun]
        right = [at - begun - sum(gang.paused[int(begin) : round(at / gang.window)]) for at, _ in hits]
        wrong += any(each.rank != str(slow.rank) for _, each in found)
        named += right[:1]
        first = min(right, default=float("inf"))
        by_steps[next(most for most in STEPS if period <= most)].append(first)
        by_waits[next(most for most in WAITS if waits <= most)].append(first)
        sizes += [each.slower for _, each in hits[:1]]
    return {
        "slower by": between[0] if between[0] == between[1] else between,
        "kind": kind,
        "runs": count,
        "named": len(named),
        **{f"within {limit / 60:.0f} min": round(sum(each <= limit for each in named) / count, 4) for limit in LIMITS},
        "by seconds of a step": {f"up to {most}": _shares(times) for most, times in by_steps.items()},
        "by how much slower the gang is": {f"up to {most}": _shares(times) for most, times in by_waits.items()},
        "another rank named": wrong,
        "seconds": spread(named or [-1]),
        "said to be slower by": spread(sizes or [-1]),
    }


def _shares(times: Sequence[float]) -> dict[str, float]:
    """Of runs, those that are named in time."""
    within = {f"within {limit / 60:.0f} min": sum(each <= limit for each in times) for limit in (120.0, 300.0)}
    return {"runs": len(times), **{name: round(count / max(1, len(times)), 4) for name, count in within.items()}}


def poisson_interval(count: int) -> tuple[float, float]:
    """The means between which *count* events are no surprise, with 95 % confidence."""

    def quantile(shape: int, chance: float) -> float:
        low, high = 0.0, 10.0 * shape + 20.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if regularised_gamma(shape, middle) >= chance else (middle, high)
        return high

    side = 0.025 if count else 0.05  # of none there is only an upper limit
    return quantile(count, side) if count else 0.0, quantile(count + 1, 1 - side)


class _Seen(NamedTuple):
    """Of one gang: what is reported, with seconds after its start, and what agents did."""

    reports: Sequence[tuple[float, Straggler]]
    writes: int = 0
    asked: int = 0


def _seen(gang: Gang, seconds: float, slow: Slow | None, seed: int, world: str) -> _Seen:
    windows = round(seconds / gang.window)
    if world == RUN:
        return _Seen(reported(gang, windows, slow))
    published = PodGang(gang, seed, asks=world == PODS)
    return _Seen(published.reported(windows, slow), published.writes, published.asked)


def real(by: float, seconds: float, ranks: int, pace: float, seed: int, how: str) -> dict[str, Any]:
    """One run of the demo's trainer with one rank that is slow *by* of a step of *pace* seconds."""
    victim = random.Random(seed).randrange(1, ranks)
    with tempfile.TemporaryDirectory(prefix="healthd-stragglers-") as scratch:
        folder, log = Path(scratch), Path(scratch) / "state" / "logs" / "healthd.log"
        own = [sys.executable, "-m", "healthd.cli.main", "run", "--nproc", str(ranks), "--quiet", "--grace", "1s"]
        places = ["--checkpoint", str(folder / "out"), "--state", str(folder / "state"), "--name", "stragglers"]
        slow = [str(SCRIPT), str(by), str(REAL_AFTER), str(victim), str(pace), how]
        training = ["--steps", "1000000", "--every", "1000", "--pace", str(pace), "--checkpoint", str(folder / "out")]
        run = subprocess.Popen([*own, *places, "--", sys.executable, *slow, "--", *training])
        try:
            time.sleep(seconds)
            began = time_of(events(log, "rank.started")[-1]) + REAL_AFTER
            found = [(round(time_of(each) - began, 1), each["text"]) for each in events(log, "run.straggler")]
        finally:
            run.terminate()
            run.wait()
    return {"slower by": by, "how": how, "ranks": ranks, "pace": pace, "victim": victim, "warnings": found}


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--injected", type=int, default=100, help="runs for each size")
    parser.add_argument("--between", type=float, nargs=2, metavar="PART", help="sizes are drawn between these two")
    parser.add_argument(
        "--drift", type=float, default=0.01, help="standard deviation of a rank's slow drift, of a step"
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further node begins after that")
    parser.add_argument("--pods", action="store_true", help="as pods on Kubernetes, each on a node of its own")
    parser.add_argument("--unasked", action="store_true", help="and agents are not asked, as older ones are not")
    parser.add_argument("--real", type=float, default=0.0, metavar="SECONDS", help="a real run instead of the model")
    parser.add_argument(
        "--sleeps", action="store_true", help="the slow rank of a real run sleeps, and computes no more"
    )
    parser.add_argument("--by", type=float, default=0.2, help="how much slower, in a real run")
    parser.add_argument("--ranks", type=int, help="of a gang: 8, and in a real run 4")
    parser.add_argument("--after", type=float, default=HEALTHY, help="seconds before a rank of the model is slow")
    parser.add_argument("--pace", type=float, default=0.5, help="seconds between two steps of a real run")
    args = parser.parse_args(argv)
    if args.real:
        how = "sleeps" if args.sleeps else "computes"
        seen = real(args.by, args.real, args.ranks or 4, args.pace, args.seed, how)
        print(json.dumps({"unit": "s", "seed": args.seed, **seen, "machine": machine()}, indent=2))
        return 0
    world = UNASKED if args.unasked else PODS if args.pods else RUN
    of = Setting(args.seed, args.drift, world, args.ranks or RANKS, args.after)
    kinds = KINDS[RUN if world == RUN else PODS]
    sizes = [args.between] if args.between else [(by, by) for by in SIZES]
    which = [(between, kind) for kind in kinds for between in sizes] if args.injected else []
    found = [injected(args.injected, between, of, kind) for between, kind in which]
    healthy = false_reports(args.nodes, args.days, of._replace(seed=args.seed + 10**6), args.seconds)
    figures = {"of": of._asdict(), "healthy": healthy, "injected": found}
    print(json.dumps({"unit": "s, of the model", **figures, "machine": machine()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
