"""
A rank is killed: `healthd run` against `torchrun`, `python -m tests.bench.race --python PYTHON [--rounds N]`.

PYTHON is an interpreter that has torch; without it nothing is measured where this one has none. Both start the same
script (`_race_ddp.py`: DistributedDataParallel over gloo, on the CPU), in turns, in a fresh folder each time, and with
their defaults: `torchrun --standalone --max-restarts 3`, `healthd run` on the machine's own kernel log. Once the
script has saved, one rank is killed with SIGKILL, another one in each round. The clock starts just before the kill. It
stops when a process that was started after it has made its first step. Where that takes longer than a minute and a
half the launcher hangs; such a round counts apart. A start without a fault is measured beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench._figures import machine, spread

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("_race_ddp.py")
HANGS = 90.0
"""Seconds."""
LOOK_EVERY = 0.01
KILL_AT = 25
"""The step: saved twice, and on the way to the third."""
EVENTS = ("begun", "imported", "joined", "step")


class Line(NamedTuple):
    """What a rank wrote."""

    at: float
    pid: int
    rank: int
    what: str


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="", help="an interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    if not args.python and importlib.util.find_spec("torch") is None:
        print("left out: no torch here, name an interpreter that has it with --python", file=sys.stderr)
        return 0
    print(json.dumps(race(args.python or sys.executable, args.rounds, args.ranks), indent=2))
    return 0


def race(python: str, rounds: int, ranks: int) -> dict[str, Any]:
    """The figures of both, in turns."""
    launchers = {"healthd": by_healthd, "torchrun": by_torchrun}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in launchers}
    for number in range(rounds):
        for name in sorted(launchers, reverse=bool(number % 2)):
            found[name].append(one_round(launchers[name], python, ranks, number % ranks))
            print(f"{name} {number + 1}/{rounds}: {found[name][-1]}", file=sys.stderr, flush=True)
    return {
        "clock": {"start": "just before kill -9", "end": "the first step of a process that was started since"},
        "unit": "s",
        "ranks": ranks,
        **{name: figures(taken) for name, taken in found.items()},
        "machine": machine(),
    }


def figures(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """How each of the events is spread, and how often there was none."""
    samples = {name: [taken[name] for taken in rounds if name in taken] for name in (*EVENTS, "cold start")}
    spreads = {f"{name} after": spread(taken) for name, taken in samples.items() if taken}
    return {"hung": len(rounds) - len(samples["step"]), **spreads}


def one_round(launch: Callable[[str, Path, int], list[str]], python: str, ranks: int, victim: int) -> dict[str, float]:
    """
    Seconds from the kill to the first of each event after it, and from the start to the first step before it; without
    those that never came.
    """
    with tempfile.TemporaryDirectory(prefix="healthd-race-") as scratch:
        folder = Path(scratch)
        (folder / "checkpoints").mkdir()
        began = time.monotonic()
        with running(launch(python, folder, ranks), folder):
            old = until(folder, lambda lines: any(line.what == f"step {KILL_AT}" for line in lines))
            if not old:
                return {}
            pids = {line.pid for line in old}
            killed = time.monotonic()
            os.kill(next(line.pid for line in old if line.rank == victim), signal.SIGKILL)
            until(folder, lambda lines: any(is_step(line) and line.pid not in pids for line in lines))
            since = [line for line in journal(folder) if line.pid not in pids]
    firsts = {event: [line.at - killed for line in since if line.what.startswith(event)] for event in EVENTS}
    cold_start = next(line.at for line in old if is_step(line)) - began
    return {**{event: times[0] for event, times in firsts.items() if times}, "cold start": cold_start}


def by_healthd(python: str, folder: Path, ranks: int) -> list[str]:
    """As the README has it."""
    own = [sys.executable, "-m", "healthd.cli.main", "run", "--nproc", str(ranks)]
    places = ["--checkpoint", str(folder / "checkpoints"), "--state", str(folder / "state"), "--name", "race"]
    return [*own, *places, "--", python, str(SCRIPT), str(folder)]


def by_torchrun(python: str, folder: Path, ranks: int) -> list[str]:
    """As its documentation has it for one machine."""
    own = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=3"]
    return [*own, str(SCRIPT), str(folder)]


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[None]:
    """The launcher in a session of its own, and in the end nothing of it."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "output").open("w") as output:
        launcher = subprocess.Popen(command, env=environ, stdout=output, stderr=output, start_new_session=True)
        try:
            yield
        finally:
            launcher.kill()
            launcher.wait()
            for pid in {line.pid for line in journal(folder)}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def until(folder: Path, happens: Callable[[list[Line]], bool]) -> list[Line]:
    """The journal, once that is so; nothing where that takes too long."""
    deadline = time.monotonic() + HANGS
    while not happens(lines := journal(folder)):
        if time.monotonic() > deadline:
            return []
        time.sleep(LOOK_EVERY)
    return lines


def journal(folder: Path) -> list[Line]:
    """What the ranks wrote, as far as the lines are whole."""
    path = folder / "journal"
    text = path.read_text() if path.exists() else ""
    rows = [line.split(" ", 3) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [Line(float(at), int(pid), int(rank), what.strip()) for at, pid, rank, what in rows]


def is_step(line: Line) -> bool:
    """Whether it tells of one."""
    return line.what.startswith("step")


if __name__ == "__main__":
    sys.exit(main())
