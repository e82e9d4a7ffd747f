"""
Records what real gangs use, second by second: the demo's trainer in several variants, all at once, as root.

Each rank runs below a shell of its own and in control groups as those of a pod, so both views of it are recorded. In
the middle of the recording other programs load the machine. A variant pauses now and then (`_hanging_trainer.PAUSES`);
each second is labelled by what rank 0 last said.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from healthd.core.hang.samples import Rates, Usage, rates
from healthd.probes.pod_processes import CGROUPS
from healthd.probes.usage.cgroup import CgroupUsage
from healthd.probes.usage.process_tree import ProcessTree
from tests.bench._hanging_trainer import PAUSES
from tests.bench._job_model import Rank, Recorded
from tests.bench.pod_suspects import ROOT, SCRIPT, containers_of, groups

TRAINS = "training"
PAUSES_EVERY = 50.0
"""Seconds."""
STARTS = 15
"""Seconds that are left out."""


def load(path: Path) -> list[Recorded]:
    """What `record` wrote."""
    found = json.loads(gzip.decompress(path.read_bytes()))
    return [Recorded(e["kind"], e["pace"], _ranks(e["training"]), _ranks(e["pauses"])) for e in found]


def _ranks(seconds: list[list[list[Any]]]) -> list[list[Rank]]:
    """A recording that is older than a signal shows nothing of it."""
    return [[Rank([*Rates(*used)], [*Rates(*group)], states) for used, group, states in second] for second in seconds]


def record(path: Path, seconds: float, seed: int) -> int:
    """Record so many *seconds*, and return how many seconds of gangs there are."""
    dice, recorded = random.Random(seed), list[dict[str, Any]]()
    with ExitStack() as stack:
        top = stack.enter_context(groups())
        gangs = [_Gang(kind, dice, top) for kind in [*PAUSES, *PAUSES, "none", "none", "none"]]
        for gang in gangs:
            stack.callback(gang.end)
        looks = list(_looks(gangs, seconds, stack))
        for number, gang in enumerate(gangs):
            parts: dict[str, list[Any]] = {TRAINS: [], gang.kind: []}
            for (began, before), (ended, after) in pairwise(looks[STARTS:]):
                if (label := after[number][0]) == before[number][0]:
                    parts[label].append(_second(before[number], after[number], ended - began))
            pauses = [] if gang.kind == "none" else parts[gang.kind]
            recorded.append({"kind": gang.kind, "pace": gang.pace, "training": parts[TRAINS], "pauses": pauses})
    path.write_bytes(gzip.compress(json.dumps(recorded).encode()))
    return sum(len(each["training"]) + len(each["pauses"]) for each in recorded)


Look = tuple[str, list[Usage], list[Usage]]


def _looks(gangs: Sequence[_Gang], seconds: float, stack: ExitStack) -> Iterator[tuple[float, list[Look]]]:
    until, load = time.monotonic() + seconds, list[subprocess.Popen[bytes]]()
    while (left := until - time.monotonic()) > 0:
        if not load and left < seconds * 2 / 3:
            load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
            stack.callback(_kill, load)
        if left < seconds / 3:
            _kill(load)
        yield time.monotonic(), [gang.look() for gang in gangs]
        time.sleep(1.0 - time.monotonic() % 1.0)


def _kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def _second(before: Look, after: Look, seconds: float) -> list[Any]:
    """Of each rank: the rates of its processes, those of its control group, and its states."""
    (_, *earlier), (_, *later) = before, after
    views = [[rates(a, b, seconds) for a, b in zip(*pair, strict=True)] for pair in zip(earlier, later, strict=True)]
    rounded = [[[round(value, 4) for value in each] for each in view] for view in views]
    return [[*rank, used.states] for rank, used in zip(zip(*rounded, strict=True), later[0], strict=True)]


class _Gang:
    """One variant."""

    def __init__(self, kind: str, dice: random.Random, top: Path) -> None:
        self.kind, self.pace = kind, dice.choice([0.1, 0.3, 1.0, 2.5])
        ranks, self._folder = dice.choice([2, 3, 4, 8]), Path(tempfile.mkdtemp(prefix="healthd-recording-"))
        training = ["--steps", "1000000", "--every", "200", "--pace", str(self.pace)]
        command = [sys.executable, str(SCRIPT), kind, str(PAUSES_EVERY), "0", "--", *training]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "PYTHONPATH": str(ROOT)}
        self._processes, self._trees, self._groups = list[subprocess.Popen[bytes]](), [], []
        for rank in range(ranks):
            uid = str(uuid.uuid4())
            enter = "; ".join(f"echo $$ > {folder}/cgroup.procs" for folder in containers_of(top, uid))
            with (self._folder / f"rank-{rank}").open("w") as output:
                process = subprocess.Popen(
                    ["sh", "-c", f'{enter}; "$@"; :', "sh", *command, "--checkpoint", str(self._folder / "out")],
                    env={**os.environ, **place, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            self._processes.append(process)
            self._trees.append(ProcessTree(process.pid))
            self._groups.append(CgroupUsage(str(CGROUPS), f"/{top}/pod{uid}", is_v2=False))

    def look(self) -> Look:
        """What rank 0 does, and what each rank has used."""
        with (self._folder / "rank-0").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            said = file.read().decode(errors="replace")
        pauses = said.rpartition("pause begins")[2].find("pause ends") < 0 and "pause begins" in said
        processes = [tree.read() or Usage() for tree in self._trees]
        return self.kind if pauses else TRAINS, processes, [group.read() or Usage() for group in self._groups]

    def end(self) -> None:
        """All processes of it."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def free_port() -> int:
    """On the loopback."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])
