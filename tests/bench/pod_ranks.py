"""
When a slow rank within a pod is named, and what that costs: `python -m tests.bench.pod_ranks`, as root.

Starts one pod, in the machine's own tree of control groups (version 1), whose `--ranks` ranks are the demo's trainer,
and the component `hang-evidence` as a program of its own. The pod is sampled as by an agent, once a second. After
`--after` seconds one rank, other than the first, computes (`--sleeps`: sleeps) for a part `--by` of `--pace` longer in
each step. The clock starts then, and ends when the agent would publish the rank. The bill is the processor time of the
questions: that of the agent's thread, and that of the component, per second from the first answer on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from healthd.agent.pod_witness import AskRankTimes
from healthd.agent.rhythms import RhythmSampler
from healthd.clock import SystemClock
from healthd.core.api.health import PodSlowRank
from healthd.core.hang.work.rank_time import RankTime
from healthd.probes.pod_processes import CGROUPS, PodProcesses
from healthd.probes.usage.pods import PodUsages
from tests.bench._figures import machine
from tests.bench.pod_suspects import containers_of, groups

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("_slow_trainer.py")


class Chosen(PodUsages):
    """What pods use. Each is worth a sample, however little of this machine its ranks get."""

    def processor_times(self) -> dict[str, float]:
        """Of a core each."""
        return dict.fromkeys(super().processor_times(), time.monotonic())


class Asked:
    """Asks the component, and counts what that costs."""

    def __init__(self, path: str) -> None:
        self._ask = AskRankTimes(path)
        self.seconds = 0.0
        self.questions = 0
        self.first_at: float | None = None

    def __call__(self, uids: Collection[str]) -> Mapping[str, Sequence[RankTime]]:
        began = time.thread_time()
        found = self._ask(uids)
        self.seconds += time.thread_time() - began
        self.questions += 1
        if found and self.first_at is None:
            self.first_at = time.monotonic()
        return found


def play(by: float, *, ranks: int, pace: float, after: float, lasts: float, victim: int, how: str) -> dict[str, Any]:
    """One pod, for so many seconds after a rank became slow."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="healthd-pod-ranks-")))
        top, uid = stack.enter_context(groups()), str(uuid.uuid4())
        slow = [str(by), str(after), str(victim), str(pace), how]
        pod = _start(folder, containers_of(top, uid), slow, ranks, pace)
        stack.callback(_end, pod)
        path = str(folder / "socket")
        component = subprocess.Popen(
            [sys.executable, "-m", "healthd.agent.hang_evidence", path, str(os.getuid()), str(CGROUPS)],
            env={**os.environ, "POD_UID": uid},
        )
        stack.callback(component.wait)
        stack.callback(component.terminate)
        return _watched(uid, Asked(path), component.pid, after, lasts) | {"victim": victim}


def _watched(uid: str, asked: Asked, component: int, after: float, lasts: float) -> dict[str, Any]:
    processes, clock = PodProcesses(own_uid=uid), SystemClock()
    processes.read()
    sampler = RhythmSampler(Chosen(lambda: processes.groups), ask_times=asked)
    began, slow, listed = clock.now(), list[tuple[float, PodSlowRank]](), list[PodSlowRank]()
    while (now := clock.now()) - began < timedelta(seconds=after + lasts):
        rhythms = sampler.read(now)
        newest = [each for rhythm in rhythms for each in rhythm.slow_ranks]
        slow += [((now - began).total_seconds() - after, each) for each in newest if each not in listed]
        listed = newest
        time.sleep(1.0 - clock.now().timestamp() % 1.0)
    if asked.first_at is None:
        return {"listed": [], "questions": asked.questions}
    passed = time.monotonic() - asked.first_at
    return {
        "listed": [[round(at, 1), each.rank, round(each.slower, 3), each.ended_at is not None] for at, each in slow],
        "questions": asked.questions,
        "agent, % of a core": round(100 * asked.seconds / passed, 4),
        "component, % of a core": round(100 * _cpu(component) / passed, 4),
    }


def _start(
    folder: Path, containers: Sequence[Path], slow: Sequence[str], ranks: int, pace: float
) -> list[subprocess.Popen[bytes]]:
    out = str(folder / "out")
    training = ["--steps", "1000000", "--every", "1000000", "--pace", str(pace), "--checkpoint", out]
    enter = "; ".join(f"echo $$ > {path}/cgroup.procs" for path in containers)
    inside = ["sh", "-c", f'{enter}; exec "$@"', "sh", sys.executable, str(SCRIPT), *slow, "--", *training]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(random.randrange(20_000, 30_000)), "PYTHONPATH": str(ROOT)}
    started = []
    for rank in range(ranks):
        own = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), **place}
        with (folder / f"rank-{rank}").open("w") as output:
            started.append(subprocess.Popen(inside, env=own, stdout=output, stderr=output, start_new_session=True))
    return started


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _cpu(pid: int) -> float:
    """Of all its threads."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--by", type=float, default=0.2)
    parser.add_argument("--sleeps", action="store_true", help="the slow rank sleeps, and computes no more")
    parser.add_argument("--pace", type=float, default=0.5)
    parser.add_argument("--after", type=float, default=240.0)
    parser.add_argument("--lasts", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    args = parser.parse_args()
    victim = random.Random(args.seed).randrange(1, args.ranks)
    found = play(
        args.by,
        ranks=args.ranks,
        pace=args.pace,
        after=args.after,
        lasts=args.lasts,
        victim=victim,
        how="sleeps" if args.sleeps else "computes",
    )
    print(json.dumps({**vars(args), **found, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
