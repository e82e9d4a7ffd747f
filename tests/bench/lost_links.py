"""
Who is named when a rank loses its network: `python -m tests.bench.lost_links [--rounds N] [--seed N]`, as root.

Each round starts gangs in which ranks exchange data over TCP in one way (star, ring, tree, mesh), each rank in a
network namespace of its own, as a pod. At a random moment the port of one rank is lost, as that of a cable or a switch.
After a silence the witnesses are asked and the vote is held, on nothing but sockets and processes: py-spy is not asked.
The clock of `cost` is the processor time of the question, in seconds. `--gloo` does the same with real collectives, by
hand, with a Python that has torch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from healthd.clock import SystemClock
from healthd.core.hang.suspects.evidence import RankEvidence
from healthd.core.hang.suspects.vote import vote
from healthd.probes.hang.network import read_networks
from healthd.probes.hang.processes import read_processes
from tests.bench._figures import machine, spread
from tests.bench._pod_networks import LOSSES, PodNetwork, leave_own_network

SCRIPT = Path(__file__).with_name("_linked_trainer.py")
WITH_TORCH = Path(__file__).parents[1] / "frameworks" / "trainers" / "reducing.py"
GLOO = "gloo"
WAYS = ("star", "ring", "tree", "mesh")
SIZES = (3, 4, 6, 8)
SILENCE = 11.0
"""Seconds without a step before the witnesses are asked: a silence is reported after ten at the earliest."""
PATIENCE = 60.0


class Gang:
    """Ranks that exchange data, of which one loses its port."""

    def __init__(self, way: str, ranks: int, dice: random.Random, stack: ExitStack, python: str) -> None:
        self.way, self.ranks, self.victim, self.loss = way, ranks, dice.randrange(ranks), dice.choice(LOSSES)
        self.after = dice.uniform(1.0, 3.0)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="healthd-links-")))
        self._network = PodNetwork(ranks)
        stack.callback(self._network.end)
        self._outputs = [folder / str(rank) for rank in range(ranks)]
        self.pids: list[int] = []
        for rank, path in enumerate(self._outputs):
            ours = [sys.executable, str(SCRIPT), way] if way != GLOO else [python, str(WITH_TORCH)]
            command = [*ours, str(rank), *self._network.addresses]
            with path.open("w") as output:
                process = self._network.start(rank, command, os.environ, output)
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            self.pids.append(process.pid)

    @property
    def has_begun(self) -> bool:
        """Whether every rank has done a step."""
        return all("step" in path.read_text() for path in self._outputs)

    @property
    def silent_for(self) -> float:
        """Seconds since a rank did a step."""
        return SystemClock().now().timestamp() - max(path.stat().st_mtime for path in self._outputs)

    def lose(self) -> None:
        """The port of the victim."""
        self._network.lose(self.victim, self.loss)

    def judged(self) -> dict[str, Any]:
        """Who is named."""
        before = time.process_time()
        processes, networks = read_processes(self.pids), read_networks(self.pids, until=time.monotonic() + 10)
        cost = time.process_time() - before
        location = vote(
            [
                RankEvidence(rank, node=f"node-{rank}", process=processes[pid], network=networks.get(pid))
                for rank, pid in enumerate(self.pids)
            ]
        )
        named = [suspect.rank for suspect in location.suspects]
        words = [f"{each.source}: {each.words}" for suspect in location.suspects for each in suspect.witnesses]
        what = {"way": self.way, "ranks": self.ranks, "victim": self.victim, "loss": self.loss}
        return {**what, "named": named, "words": words or [location.reason], "cost": round(cost, 4)}


def played(ways: Sequence[tuple[str, int]], dice: random.Random, python: str = "") -> list[dict[str, Any]]:
    """One gang of each, at the same time."""
    with ExitStack() as stack:
        gangs = [Gang(way, ranks, dice, stack, python) for way, ranks in ways]
        _wait(lambda: all(gang.has_begun for gang in gangs))
        began = time.monotonic()
        for gang in sorted(gangs, key=lambda gang: gang.after):
            time.sleep(max(0.0, began + gang.after - time.monotonic()))
            gang.lose()
        _wait(lambda: all(gang.silent_for > SILENCE for gang in gangs))
        return [gang.judged() for gang in gangs]


def _wait(good: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not good():
        if time.monotonic() > until:
            raise TimeoutError("the ranks did not do as they should")
        time.sleep(0.1)


def outcome(each: dict[str, Any]) -> str:
    """Right, another, or none, with the right one in the reason or without."""
    if each["named"]:
        return "right" if each["named"] == [each["victim"]] else "wrong"
    return "none, and the pair in the reason" if "is lost (" in each["words"][0] else "none"


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="each has a gang of every way and every size")
    parser.add_argument("--gloo", metavar="PYTHON", default="", help="only gangs of torch over gloo, with this Python")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    args = parser.parse_args()
    leave_own_network()
    dice, found = random.Random(args.seed), list[dict[str, Any]]()
    for _ in range(args.rounds):
        for ranks in SIZES:
            for each in played([*product([GLOO] if args.gloo else WAYS, [ranks])], dice, args.gloo):
                print(each, file=sys.stderr, flush=True)
                found.append(each)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        counts[each["way"]][outcome(each)] += 1
    figures = {way: dict(count) for way, count in counts.items()}
    cost = spread([each["cost"] for each in found])
    print(json.dumps({"seed": args.seed, "outcomes": figures, "cost": cost, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
