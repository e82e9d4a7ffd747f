"""
What watching does to the speed of a job: `python -m tests.bench.throughput [--watch run|agent] [--rounds N]`.

The demo's trainer runs without rests, and saves now and then. `run`: it runs under `healthd run`. `agent`: each rank is
in control groups as those of a pod (as root), and a process beside it samples them as an agent does. The process of
healthd is stopped (SIGSTOP) and goes on (SIGCONT) by turns, so both kinds of time are of the same processes of the same
job. Each round has three windows in random order: one with healthd, and two without, which show the noise.

Other programs of the machine would be most of what is measured. So once healthd knows the rhythm of the job, ranks and
healthd get the same real-time priority (SCHED_RR, which needs root): they share the processors with each other as
equals, and no other program takes them away.

A window begins with the first step of rank 0 that ends after the switch and `SETTLES`, and ends with the last step
that ended in it. Steps are counted by the trainer itself. The processor time is that of all ranks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import fmean, median
from typing import Any

from healthd.agent.rhythms import RhythmSampler
from healthd.clock import SystemClock
from healthd.probes.pod_processes import PodProcesses
from healthd.probes.usage.pods import PodUsages
from tests.bench._counted_trainer import Count, read_count
from tests.bench._figures import machine
from tests.bench._job_recording import free_port
from tests.bench.idle import children, cpu
from tests.bench.pod_suspects import containers_of, groups

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("_counted_trainer.py")
WARMS_UP = 75.0
"""Seconds before the first window: by then the rhythms are known, and healthd does what it does for hours."""
SETTLES = 0.25
"""Seconds after each switch that belong to no window: a process that goes on first does what it is late with."""
SAVES_EVERY = 5000
"""Steps."""
RESAMPLED = 4000
"""Times, for an interval."""
ON, OFF, OFF_AGAIN = "on", "off", "off again"


def trainer(folder: Path) -> list[str]:
    """The command of a rank."""
    training = ["--steps", "100000000", "--every", str(SAVES_EVERY), "--checkpoint", str(folder / "out")]
    return [sys.executable, str(SCRIPT), str(folder), "--", *training]


@contextmanager
def under_run(folder: Path, ranks: int) -> Iterator[int]:
    """The job under `healthd run`, whose process is returned."""
    own = [sys.executable, "-m", "healthd.cli.main", "run", "--nproc", str(ranks), "--quiet", "--grace", "1s"]
    places = ["--checkpoint", str(folder / "out"), "--state", str(folder / "state"), "--name", "throughput"]
    with subprocess.Popen([*own, *places, "--", *trainer(folder)], env=environment()) as process:
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()


@contextmanager
def beside_an_agent(folder: Path, ranks: int) -> Iterator[int]:
    """The job in the control groups of pods, and the process that samples them, which is returned."""
    with ExitStack() as stack:
        top, port = stack.enter_context(groups()), str(free_port())
        uids = [str(uuid.uuid4()) for _ in range(ranks)]
        for rank, uid in enumerate(uids):
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": str(ranks)}
            enter = "; ".join(f"echo $$ > {path}/cgroup.procs" for path in containers_of(top, uid))
            inside = ["sh", "-c", f'{enter}; exec "$@"', "sh", *trainer(folder)]
            stack.callback(end, subprocess.Popen(inside, env={**environment(), **place}, stderr=subprocess.DEVNULL))
        sampler = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.throughput", "--sample", uids[0]], env=environment()
        )
        stack.callback(end, sampler)
        yield sampler.pid


def sample(own_uid: str) -> None:
    """Sample the pods of this machine as an agent does, until killed."""
    processes, clock = PodProcesses(own_uid=own_uid), SystemClock()
    sampler = RhythmSampler(PodUsages(lambda: processes.groups))
    while True:
        processes.read()
        sampler.read(clock.now())
        time.sleep(sampler.every.total_seconds())


WATCHES = {"run": under_run, "agent": beside_an_agent}


def environment() -> dict[str, str]:
    """Of the trainer."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def end(process: subprocess.Popen[bytes]) -> None:
    """At once."""
    process.kill()
    process.wait()


def tree_of(pid: int) -> Iterator[int]:
    """The process and all that it started."""
    yield pid
    for child in children(pid):
        yield from tree_of(child)


def put_before_others(pids: Iterable[int]) -> None:
    """All threads of these processes."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


class Windows:
    """Takes windows of the job in *folder*, with the process of healthd running or stopped."""

    def __init__(self, folder: Path, ranks: int, pid: int) -> None:
        self._folder = folder
        self._ranks = range(ranks)
        self._pid = pid
        self.healthd_cpu: list[float] = []
        """Of each window with healthd: the part of a core that it used."""

    def take(self, kind: str, seconds: float) -> dict[str, float]:
        """Steps for each second, and for each second of processor time."""
        os.kill(self._pid, signal.SIGCONT if kind == ON else signal.SIGSTOP)
        time.sleep(SETTLES)
        began, used = self._counts(), cpu(self._pid)
        time.sleep(seconds)
        ended, used = self._counts(), cpu(self._pid) - used
        first, last = began[0], ended[0]
        if last.step <= first.step:
            raise SystemExit(f"no step ended within {seconds:g} s: take longer windows")
        if kind == ON:
            self.healthd_cpu.append(used / seconds)
        steps, worked = last.step - first.step, sum(b.cpu - a.cpu for a, b in zip(began, ended, strict=True))
        return {"a second": steps / (last.seconds - first.seconds), "a second of processor time": steps / worked}

    def _counts(self) -> list[Count]:
        return [read_count(self._folder, rank) for rank in self._ranks]


def measured(watch: str, ranks: int, rounds: int, seconds: float, dice: random.Random) -> dict[str, Any]:
    """The ratios of all rounds."""
    with tempfile.TemporaryDirectory(prefix="healthd-throughput-") as scratch:
        folder, found = Path(scratch), list[dict[str, dict[str, float]]]()
        with WATCHES[watch](folder, ranks) as pid:
            time.sleep(WARMS_UP)
            put_before_others(tree_of(os.getpid()))
            windows = Windows(folder, ranks, pid)
            for _ in range(rounds):
                order = dice.sample([ON, OFF, OFF_AGAIN], 3)
                taken = {kind: windows.take(kind, seconds) for kind in order}
                found.append(taken)
            return {**summary(found, dice), "healthd, % of a core": round(100 * fmean(windows.healthd_cpu), 3)}


def summary(found: Sequence[Mapping[str, Mapping[str, float]]], dice: random.Random) -> dict[str, Any]:
    """For both clocks: the speed with healthd beside that without, and that of two windows without it, in percent."""
    figures: dict[str, Any] = {}
    for clock in found[0][ON]:
        on, off, again = ([each[kind][clock] for each in found] for kind in (ON, OFF, OFF_AGAIN))
        figures[f"steps {clock}"] = {
            "without healthd": round(median(off), 2),
            "with healthd, change in %": change([beside(*speeds) for speeds in zip(on, off, again, strict=True)], dice),
            "none, change in %": change([beside(*speeds) for speeds in zip(again, off, strict=True)], dice),
        }
    return figures


def change(logs: Sequence[float], dice: random.Random) -> dict[str, Any]:
    """Of ratios, as logarithms: median and mean in percent, each with its interval of 95 %."""
    figures: dict[str, Any] = {"n": len(logs)}
    by: dict[str, Callable[[Sequence[float]], float]] = {"median": median, "mean": fmean}
    for name, middle in by.items():
        drawn = sorted(middle(dice.choices(logs, k=len(logs))) for _ in range(RESAMPLED))
        ends = drawn[RESAMPLED // 40], drawn[-RESAMPLED // 40]
        figures[name] = round(percent(middle(logs)), 3)
        figures[f"{name}, 95 %"] = [round(percent(each), 3) for each in ends]
    return figures


def beside(speed: float, *others: float) -> float:
    """The logarithm of its ratio to the mean of *others*."""
    return math.log(speed / fmean(others))


def percent(log: float) -> float:
    """More than before."""
    return 100 * (math.exp(log) - 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watch", choices=list(WATCHES), default="run")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--sample", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.sample:
        sample(args.sample)
    figures = measured(args.watch, args.ranks, args.rounds, args.seconds, random.Random(args.seed))
    what = {"watch": args.watch, "ranks": args.ranks, "seconds of a window": args.seconds, "seed": args.seed}
    print(json.dumps({**what, **figures, "machine": machine()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
