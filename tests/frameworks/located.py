"""
Injects hangs into real DistributedDataParallel jobs over gloo and counts how often the right rank is named.

    python -m tests.frameworks.located --runs 4 [--no-stacks] [--no-recorder]

Each run: some ranks, one victim, one kind of hang at one step. When no rank has made a step for two seconds, every
witness is asked once, the vote is held, and the job is looked at again: all its processes must still be there. The
clock of *answered* starts with the first question and ends with the vote.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import os
import random
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import torch.distributed
import torch.nn.parallel  # noqa: F401 - for all ranks

from healthd.core.hang.suspects.evidence import Activity, ProcessEvidence, RankEvidence
from healthd.core.hang.suspects.vote import vote
from healthd.probes.errors import CannotRead
from healthd.probes.hang.flight_recorder import read_flight_recorder
from healthd.probes.hang.processes import read_processes
from healthd.probes.hang.stacks import read_stack

KINDS = ("stop", "loader", "spin", "collective", "deadlock", "file")
SILENT_S = 2.0
STARTED_S = 90.0
ACTIVITY_S = 1.0
SCRIPT = Path(__file__).parent / "trainers" / "hanging.py"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Runs all kinds, and prints a line for each and a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no run begins after that")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 3, 4, 6, 8])
    parser.add_argument("--no-stacks", action="store_true")
    parser.add_argument("--no-recorder", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    right, wrong, answered, harmed, began = defaultdict(list), Counter(), [], 0, time.monotonic()
    for number in range(options.runs):
        for kind in options.kinds:
            if time.monotonic() - began > options.seconds:
                continue
            ranks, at, width = chance.choice(options.ranks), chance.randrange(2, 30), chance.choice([16, 64, 256])
            result = one(kind, ranks, chance.randrange(ranks), at, width, options)
            print(f"{number} {kind} ranks={ranks} at={at} width={width} {result}", flush=True)
            for way, is_right in result["right"].items():
                right[way, kind].append(is_right)
                wrong[way, kind] += bool(result["named"][way]) and not is_right
            answered.append(result["answered"])
            harmed += result["harmed"]
    for (way, kind), each in sorted(right.items()):
        print(f"{way:10} {kind:10} {sum(each)} of {len(each)} right, {wrong[way, kind]} wrong, else none named")
    print(f"answered {min(answered):.2f} to {max(answered):.2f} s, jobs harmed {harmed} of {len(answered)}")


def one(kind: str, ranks: int, victim: int, at: int, width: int, options: argparse.Namespace) -> dict:
    """One job, from its start to its end by SIGKILL."""
    folder = Path(tempfile.mkdtemp(prefix="located-"))
    os.mkfifo(folder / "pipe")
    job = [start(folder, kind, rank, ranks, victim, at, width) for rank in range(ranks)]
    try:
        if kind == "stop":
            steps_until(folder, ranks, at)
            os.kill(job[victim].pid, signal.SIGSTOP)
        silent_since(folder, ranks)
        return judged(folder, job, victim, options)
    finally:
        for process in job:
            process.kill()
        shutil.rmtree(folder)


class Rank:
    """A process of the job, forked from this one, which has imported torch for all of them."""

    def __init__(self, environ: dict[str, str], arguments: list[str]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                for number in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
                os.environ.update(environ)
                sys.argv = arguments
                runpy.run_path(arguments[0], run_name="__main__")
            finally:
                os._exit(1)

    def has_ended(self) -> bool:
        """It is not reaped, so that its number stays its own."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """End it, whatever it is doing."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def start(folder: Path, kind: str, rank: int, ranks: int, victim: int, at: int, width: int) -> Rank:
    environ = {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port(folder)),
        "TORCH_FR_BUFFER_SIZE": "2000",
        "OMP_NUM_THREADS": "1",
    }
    return Rank(environ, [str(SCRIPT), str(folder), kind, str(victim), str(at), str(width)])


def free_port(folder: Path) -> int:
    """The same one for all ranks of the job in *folder*."""
    file = folder / "port"
    if not file.exists():
        with socket.create_server(("127.0.0.1", 0)) as server:
            file.write_text(str(server.getsockname()[1]))
    return int(file.read_text())


def steps(folder: Path, ranks: int) -> list[int]:
    texts = [path.read_text() if (path := folder / f"step_{rank}").exists() else "" for rank in range(ranks)]
    return [int(text) if text else -1 for text in texts]


def steps_until(folder: Path, ranks: int, at: int) -> None:
    until = time.monotonic() + STARTED_S
    while min(steps(folder, ranks)) < at and time.monotonic() < until:
        time.sleep(0.01)


def silent_since(folder: Path, ranks: int) -> None:
    """Return when all ranks have begun and none has made a step for `SILENT_S`."""
    steps_until(folder, ranks, 0)
    last, since = steps(folder, ranks), time.monotonic()
    while time.monotonic() - since < SILENT_S:
        time.sleep(0.02)
        if (now := steps(folder, ranks)) != last:
            last, since = now, time.monotonic()


def judged(folder: Path, job: list[Rank], victim: int, options: argparse.Namespace) -> dict:
    began = time.monotonic()
    (folder / "dump").touch()
    pids = [process.pid for process in job]
    before = {pid: cpu(pid) for pid in pids}
    states = read_processes(pids)
    stacks, troubles = {}, Counter()
    for pid in pids if not options.no_stacks else ():
        try:
            stacks[pid] = read_stack(pid)
        except CannotRead as error:
            troubles[error.why] += 1
    time.sleep(max(0, ACTIVITY_S - (time.monotonic() - began)))
    spent = time.monotonic() - began
    ranks = []
    for rank, pid in enumerate(pids):
        groups = ()
        if not options.no_recorder:
            try:
                groups = read_flight_recorder(str(folder / f"trace_{rank}"))
            except CannotRead as error:
                troubles[error.why] += 1
        activity = Activity(cpu=(cpu(pid) - before[pid]) / spent)
        ranks.append(RankEvidence(rank, process=states[pid], stack=stacks.get(pid), groups=groups, activity=activity))
    ways = {
        "all": ranks,
        "no opt-in": [without(each, groups=()) for each in ranks],
        "no py-spy": [without(each, groups=(), stack=None) for each in ranks],
        "no rights": [without(each, groups=(), stack=None, process=unprivileged(each)) for each in ranks],
        "recorder": [without(each, stack=None, process=None, activity=None) for each in ranks],
        "stacks": [without(each, groups=(), process=None, activity=None) for each in ranks],
    }
    named = {way: [s.rank for s in vote(some).suspects] for way, some in ways.items()}
    answered = time.monotonic() - began
    location = vote(ranks)
    harmed = sum(process.has_ended() for process in job)
    return {
        "right": {way: found == [victim] for way, found in named.items()},
        "named": named,
        "victim": victim,
        "words": [f"{w.source.value}: {w.words}" for s in location.suspects for w in s.witnesses] or location.reason,
        "answered": answered,
        "harmed": int(harmed > 0),
        "cpu": [round(each.activity.cpu, 2) for each in ranks],
        "troubles": dict(troubles),
    }


def without(evidence: RankEvidence, **fields) -> RankEvidence:
    """*evidence* without some witnesses."""
    return msgspec.structs.replace(evidence, **fields)


def unprivileged(evidence: RankEvidence) -> ProcessEvidence:
    """What /proc/PID/stat alone says."""
    return msgspec.structs.replace(evidence.process, syscall="", wchan="")


def cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
