"""
Hangs of `healthd run`: `python -m tests.bench.hangs [--rounds N] [--healthy SECONDS] [--at-once N]
[--kinds …] [--after LOW HIGH]`.

Each round starts the demo's trainer under `healthd run`, lets one rank hang at a random moment *after* so many seconds,
by default once its rhythm can be known, another rank and another kind each time, and waits for the warning. The clock
starts at the last progress: the last step that rank 0 printed. It stops at the timestamp of the warning in healthd's
log, and once more at that of the line that names a rank, or says that none is named. Stacks are read where py-spy is on
the path. Healthy runs have pauses (an evaluation by one rank, a slow save, late data) and count every warning as false.
The cost is that of sampling eight ranks, by the processor time of the sampler alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from healthd.clock import SystemClock
from healthd.core.config import HangPolicy
from healthd.local.hang.watch import HangWatch
from healthd.local.processes.runner import RunningRank
from tests.bench._figures import machine, spread
from tests.bench._hanging_trainer import HANGS, PAUSES
from tests.fakes import ManualClock

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("_hanging_trainer.py")
LEARNS = (90.0, 95.0)
"""Seconds before a hang: the rhythm is known after a minute, on a busy machine a little later."""
GIVES_UP = 60.0
"""Seconds after the last step, from which on a hang counts as not seen."""


async def one_run(kind: str, after: float, victim: int, ranks: int, pace: float, seconds: float) -> dict[str, Any]:
    """
    Run for *seconds*, or until a hang is located or was not for *seconds*. Returns the warnings, and when they came.
    """
    with tempfile.TemporaryDirectory(prefix="healthd-hangs-") as scratch:
        folder = Path(scratch)
        own = [sys.executable, "-m", "healthd.cli.main", "run", "--nproc", str(ranks), "--quiet", "--grace", "1s"]
        places = ["--checkpoint", str(folder / "out"), "--state", str(folder / "state"), "--name", "hangs"]
        training = ["--steps", "1000000", "--every", "100", "--pace", str(pace), "--checkpoint", str(folder / "out")]
        command = [sys.executable, str(SCRIPT), kind, str(after), str(victim), "--", *training]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (folder / "said").open("w") as said:
            run = await asyncio.create_subprocess_exec(*own, *places, "--", *command, env=environ, stderr=said)
        log, steps = folder / "state" / "logs" / "healthd.log", folder / "state" / "logs" / "attempt-0" / "rank-0.log"
        warnings, located, began, passed = list[dict[str, Any]](), list[dict[str, Any]](), time.monotonic(), 0.0
        try:
            while passed < seconds and run.returncode is None and not (located and kind in HANGS):
                await asyncio.sleep(0.5)
                warnings, located = events(log, "run.hangs"), events(log, "run.hang_located")
                passed = silent_for(steps) if kind in HANGS else time.monotonic() - began
            last = steps.stat().st_mtime
            begun, learned = events(log, "rank.started"), events(log, "run.rhythm_known")
            known = [(round(time_of(each) - time_of(begun[-1])), each["period"]) for each in learned]
        finally:
            run.terminate()
            await run.wait()
        seen = [round(time_of(each) - last, 2) for each in warnings]
        named = {"named": [each["suspects"] for each in located], "located": [time_of(each) - last for each in located]}
        words = {"words": [each["text"] for each in located]}
        what = {"kind": kind, "ranks": ranks, "victim": victim, "pace": pace, "warnings": len(warnings)}
        return {**what, "seen": seen, **named, **words, "known": known, "load": round(os.getloadavg()[0], 1)}


def silent_for(log: Path) -> float:
    """Seconds since something was written. 0: nothing was yet."""
    return SystemClock().now().timestamp() - log.stat().st_mtime if log.exists() else 0.0


def time_of(event: dict[str, Any]) -> float:
    """In seconds since 1970."""
    return datetime.fromisoformat(event["timestamp"]).timestamp()


def events(path: Path, name: str) -> list[dict[str, Any]]:
    """What healthd logged under this name."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [event for line in lines if f'"{name}"' in line and (event := json.loads(line))["event"] == name]


async def hangs(
    rounds: int, at_once: int, seed: int, kinds: Sequence[str], sizes: Sequence[int], after: Sequence[float]
) -> dict[str, Any]:
    """Every kind in turn, each at a moment between the two of *after*."""
    dice, gate = random.Random(seed), asyncio.Semaphore(at_once)

    async def one(number: int) -> dict[str, Any]:
        kind, ranks = kinds[number % len(kinds)], dice.choice(sizes)
        at, pace = dice.uniform(*after), dice.choice([0.1, 0.3, 1.0])
        victim = dice.randrange(ranks)
        async with gate:
            found = await one_run(kind, at, victim, ranks, pace, GIVES_UP)
        print(found, file=sys.stderr, flush=True)
        return found

    found = await asyncio.gather(*(one(number) for number in range(rounds)))
    return {**summary(found), "by kind": {kind: summary([e for e in found if e["kind"] == kind]) for kind in kinds}}


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of injected hangs: how many were seen, how soon, and whether the right rank was named."""
    seen = [each for each in found if each["seen"]]
    right = [each for each in seen if each["named"][:1] == [[each["victim"]]]]
    named = [each for each in seen if each["named"] and each["named"][0]]
    return {
        "hangs": len(found),
        "not seen": len(found) - len(seen),
        "right rank": len(right),
        "wrong rank": len(named) - len(right),
        "no rank": len(seen) - len(named),
        "seen after": spread([each["seen"][0] for each in seen] or [-1]),
        "right rank after": spread([each["located"][0] for each in right] or [-1]),
    }


async def healthy(seconds: float) -> dict[str, Any]:
    """Each kind of pause, at the same time."""
    runs = [one_run(kind, 70 if kind != "data" else 20, 0, 2, 0.3, seconds) for kind in PAUSES]
    found = await asyncio.gather(*runs, one_run("none", 0, 0, 4, 0.1, seconds))
    return {"job hours": round(len(found) * seconds / 3600, 2), "warnings": {f["kind"]: f["warnings"] for f in found}}


def cost(ranks: int = 8, samples: int = 600) -> dict[str, Any]:
    """Of sampling this many ranks, each a process that sleeps and wakes, once a second."""
    program = "import time\nwhile True: sum(range(2000)); time.sleep(0.02)"
    command = ["sh", "-c", f"{sys.executable} -c '{program}'; :"]
    children = [subprocess.Popen(command, start_new_session=True) for _ in range(ranks)]
    clock = ManualClock()
    present = [RunningRank(f"uid-{n}", str(n), 0, child.pid) for n, child in enumerate(children)]

    async def nothing(*_: object) -> None:
        return None

    watch = HangWatch(
        HangPolicy(),
        clock,
        running=lambda: present,
        saved=lambda: 0,
        report=nothing,
        locate=nothing,
        wake=lambda: None,
    )

    async def sample() -> float:
        await watch.cycle(clock.now())
        before = time.process_time()
        for _ in range(samples):
            clock.advance(timedelta(seconds=1))
            await watch.cycle(clock.now())
        return time.process_time() - before

    memory = resident()
    try:
        used = asyncio.run(sample())
    finally:
        for child in children:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    grown = resident() - memory
    return {"ranks": ranks, "percent of a core": round(100 * used / samples, 3), "memory in KB": grown}


def resident() -> int:
    """KB that this process has in memory."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--healthy", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--kinds", nargs="+", default=list(HANGS), choices=list(HANGS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 3, 4, 6, 8], help="of a gang, at random")
    parser.add_argument(
        "--after", nargs=2, type=float, default=LEARNS, metavar="SECONDS", help="from the start to a hang"
    )
    parser.add_argument("--at-once", type=int, default=4, help="runs at the same time")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    args = parser.parse_args(argv)
    figures: dict[str, Any] = {"seed": args.seed, "cost": cost()}
    if args.rounds:
        given = (args.rounds, args.at_once, args.seed, args.kinds, args.ranks, args.after)
        figures["injected"] = asyncio.run(hangs(*given))
    if args.healthy:
        figures["healthy"] = asyncio.run(healthy(args.healthy))
    clock = {"start": "the last step that rank 0 printed", "end": "the timestamp of the warning, or of who is behind"}
    print(json.dumps({"clock": clock, "unit": "s", **figures, "machine": machine()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
