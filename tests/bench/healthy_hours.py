"""
False reports and false restarts of healthy jobs: `python -m tests.bench.healthy_hours [--hours N] [--injected N]`.

Jobs of a model (`_job_model.py`) live for some hours each, as fast as this machine can play them: they train, save,
evaluate, compile, wait for late data and paused file servers, are starved, suspended and restarted. Their samples go
through the code that judges, both that of `healthd run` and that of agents and controller, with restarts allowed.
Every restart is false. A report while all ranks wait for data, for a file server or for members is counted apart: the
job does nothing then. With injected hangs, one rank stops at a random moment of such a life, and the clock runs from
then to the report, in the model's time.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.bench._figures import machine, spread
from tests.bench._job_model import HANGS, Job, Recorded, Sample, Sampler
from tests.bench._job_recording import load, record
from tests.bench._job_shapes import SHAPES
from tests.bench._judges import OfPods, OfRun

HOURS = (2.0, 12.0)
"""Of one life."""
STANDSTILLS = frozenset({"data are late", "the file server pauses", "elastic pause", "stopped"})
"""The job does nothing, and goes on later by itself."""
FEWEST = 60
"""Recorded seconds of training of a gang that is used."""
GIVES_UP = 1800.0
"""Seconds after which a hang counts as not seen."""

MakeJob = Callable[[int], Job]


def maker(recorded: Sequence[Recorded]) -> MakeJob:
    """In turns: a job of the model's middle, one of each shape, and one that is made of what was *recorded*."""
    known = [each for each in recorded if len(each.training) >= FEWEST]
    shapes = list(SHAPES)

    def make(seed: int) -> Job:
        turn, kind = divmod(seed // 10, 3 if known else 2)
        if kind == 0:
            return Job(seed)
        return Job(seed, shape=shapes[turn % len(shapes)]) if kind == 1 else Job(seed, known[turn % len(known)])

    return make


def kind_of(job: Job) -> str:
    """For the figures."""
    return job.shape or ("the middle" if job.recorded is None else "recorded")


def samples_of(job: Job, seconds: float) -> Iterator[Sample]:
    """What a sampler sees of the life of *job*."""
    sampler = Sampler(random.Random(job.seed + 1), job.count)
    for second in job.life(seconds):
        if (sample := sampler.look(second)) is not None:
            yield sample


def one_life(job: Job, hours: float) -> dict[str, list[dict[str, Any]]]:
    """The reports and the restarts of a healthy job, by who judged."""
    dice = random.Random(job.seed + 2)
    run, pods = OfRun(), OfPods(job.count, dice.choice([1, 2, job.count]), dice)
    found: dict[str, list[dict[str, Any]]] = {
        f"{who}, {what}": [] for who in ("run", "pods") for what in ("reports", "restarts")
    }
    began: datetime | None = None
    for sample in samples_of(job, hours * 3600):
        began = began or sample.at
        for name, judge in (("run", run), ("pods", pods)):
            before = len(judge.reports), len(judge.restarts)
            judge.observe(sample)
            at = {
                "job": kind_of(job),
                "seed": job.seed,
                "second": round((sample.at - began).total_seconds()),
                "what": sample.what,
            }
            for silence in judge.reports[before[0] :]:
                silent = round((sample.at - silence.since).total_seconds())
                more = {"silent": silent, "allowed": round(silence.allowed), "is start": silence.is_start}
                found[f"{name}, reports"].append({**at, **more})
            found[f"{name}, restarts"] += [at for _ in judge.restarts[before[1] :]]
    return found


def healthy(hours: float, seed: int, make: MakeJob, seconds: float) -> dict[str, Any]:
    """Lives, one after the other, of so many *hours* in all. None begins after *seconds*."""
    until, lived, gangs, number = time.monotonic() + seconds, 0.0, 0, 0
    found: dict[str, list[dict[str, Any]]] = {}
    by_job = defaultdict[str, float](float)
    while lived < hours and time.monotonic() < until:
        job = make(seed + 10 * number)
        length = min(random.Random(job.seed).uniform(*HOURS), hours - lived)
        for name, each in one_life(job, length).items():
            found.setdefault(name, []).extend(each)
        by_job[kind_of(job)] += length
        lived, gangs, number = lived + length, gangs + 1, number + 1
        print(f"{lived:.0f} h, { ({name: len(each) for name, each in found.items()}) }", file=sys.stderr, flush=True)
    by_kind = {name: round(hours, 1) for name, hours in by_job.items()}
    figures = {k: counted(each, lived) for k, each in found.items()}
    return {"job hours": round(lived, 1), "gangs": gangs, "by job": by_kind, **figures}


def counted(found: Sequence[dict[str, Any]], hours: float) -> dict[str, Any]:
    """How many, in which part of the job's life, and how many an hour there are at most."""
    work = [each for each in found if each["what"] not in STANDSTILLS]
    return {
        "all": len(found),
        "while the job worked": len(work),
        "in a start": sum(each.get("is start", False) for each in found),
        "of which an hour, 95% below": round(at_most(len(work)) / hours, 5),
        "all an hour, 95% below": round(at_most(len(found)) / hours, 5),
        "by what it did": dict(Counter(each["what"] for each in found)),
        "by job": dict(Counter(each["job"] for each in found)),
        "first": work[:20] or found[:20],
    }


def at_most(count: int) -> float:
    """The mean of a Poisson distribution of which *count* or fewer are seen in 5 % of cases. 3.0 where none was."""
    n = count + 1  # Wilson and Hilferty
    return n * float(1 - 1 / (9 * n) + 1.645 / (3 * n**0.5)) ** 3


def injected(count: int, seed: int, make: MakeJob) -> dict[str, Any]:
    """Hangs, each at a random moment of a life."""
    found = [one_hang(make(seed + 10 * number), HANGS[number % len(HANGS)]) for number in range(count)]
    short, long_ = ([each for each in found if (each["period"] <= 2) is is_short] for is_short in (True, False))
    figures = {"periods up to 2 s": delays(short), "longer periods": delays(long_), "late": late(found)}
    return {
        **figures,
        "the node by control groups alone": {w: nodes(found, polls=w == "poll") for w in ("poll", "sleep")},
    }


def nodes(found: Sequence[dict[str, Any]], *, polls: bool) -> dict[str, int]:
    """Of hangs that the controller saw, where ranks that wait poll, or sleep: whether it named the right node."""
    seen = [each for each in found if each["pods"] is not None and each["polls"] is polls]
    return {"seen": len(seen)} | {name: sum(each[name] for each in seen) for name in ("right", "wrong")}


def one_hang(job: Job, kind: str) -> dict[str, Any]:
    """How soon both see it."""
    dice = random.Random(job.seed + 3)
    run, pods = OfRun(), OfPods(job.count, 1, random.Random(job.seed + 2))
    sampler, last = Sampler(random.Random(job.seed + 1), job.count), 3600 * dice.uniform(0.2, 6.0)
    begun: datetime | None = None
    seconds, passed = job.life(2 * last), 0
    seen: dict[str, float | None] = {"run": None, "pods": None}
    what = {"seed": job.seed, "kind": kind, "ranks": job.count, "period": round(job.period, 2), "polls": job.polls}
    while True:
        second = next(seconds)
        passed += 1
        if begun is None and passed > last and second.what == "training":
            begun, seconds = sampler.now, job.hang(kind)
            what |= {"known": run.rhythm.is_known, "learned": run.rhythm.period, "allowed": round(run.rhythm.allowed)}
            run.silence, run.reports, pods.reports = None, [], []
            continue
        if (sample := sampler.look(second)) is None:
            continue
        for name, judge in (("run", run), ("pods", pods)):
            if seen[name] is None:
                judge.observe(sample)
                if begun is not None and judge.reports:
                    seen[name] = round((sample.at - begun).total_seconds(), 1)
        if begun is not None and (None not in seen.values() or sample.at - begun > timedelta(seconds=GIVES_UP)):
            named = [each.member for each in pods.reports[0].suspects] if pods.reports else []
            return {**what, **seen, "right": named == [str(job.victim)], "wrong": named not in ([], [str(job.victim)])}


def delays(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By who judged: how many were seen, after how many seconds and periods."""
    figures: dict[str, Any] = {"hangs": len(found)}
    for name in ("run", "pods"):
        seen = [each for each in found if each[name] is not None]
        figures[name] = {
            "seen": len(seen),
            "seconds": spread([each[name] for each in seen] or [-1]),
            "periods": spread([each[name] / each["period"] for each in seen] or [-1]),
            "within 15 s, or 5 periods and 10 s": sum(each[name] <= limit(each) for each in seen),
        }
    return figures


def limit(hang: dict[str, Any]) -> float:
    """Seconds."""
    return 15.0 if hang["period"] <= 2 else 5 * float(hang["period"]) + 10


def late(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that `healthd run` saw later than that, or not."""
    return [each for each in found if each["run"] is None or each["run"] > limit(each)][:30]


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=20.0, help="job-hours of healthy jobs")
    parser.add_argument("--injected", type=int, default=8, help="hangs")
    parser.add_argument("--record", type=float, default=0.0, metavar="SECONDS", help="record real gangs first, as root")
    parser.add_argument("--recording", type=Path, help="where that is kept; half of the jobs are made of it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further job begins after that")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    args = parser.parse_args(argv)
    figures: dict[str, Any] = {"seed": args.seed}
    if args.record:
        seconds = record(args.recording, args.record, args.seed)
        figures["recorded"] = {"job hours": round(seconds / 3600, 2), "bytes": args.recording.stat().st_size}
    make = maker(load(args.recording) if args.recording else [])
    if args.hours:
        figures["healthy"] = healthy(args.hours, args.seed, make, args.seconds)
    if args.injected:
        figures["injected"] = injected(args.injected, args.seed + 10**7, make)
    print(json.dumps({"unit": "s, of the model", **figures, "machine": machine()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
