"""
Who is named of a gang that hangs, by what its agents publish: `python -m tests.bench.pod_suspects`, as root.

Each round starts a gang of the demo's trainer for every kind of hang, each rank in control groups and in a network as
those of a pod, and samples all of them as an agent does. One rank of each gang hangs at a random moment, or loses the
port of its network (`port`). When all ranks of a gang are quiet, the vote is held twice: over control groups alone, and
over what the component `hang-evidence` says, too. Stacks are read where py-spy is on the path. The clock of `seen`
starts at the last step that a rank printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from healthd.agent.hang_evidence import Witness
from healthd.clock import SystemClock
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.hang.pods import CHOOSE_EVERY, PodRhythms
from healthd.core.hang.suspects.pod_evidence import pod_evidence
from healthd.core.hang.suspects.vote import vote
from healthd.probes.pod_processes import CGROUPS, PodProcesses
from healthd.probes.usage.pods import PodUsages
from tests.bench._figures import machine, spread
from tests.bench._hanging_trainer import HANGS
from tests.bench._pod_networks import LOSSES, PodNetwork, leave_own_network
from tests.bench.pod_rhythms import TREES

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("_hanging_trainer.py")
LEARNS = 90.0
"""Seconds before a hang."""
PACES = (0.1, 0.3)
"""Seconds between two steps. With a second a rank uses so little that no agent would sample its pod."""
LOST_PORT = "port"
"""The kind of hang that is done to a rank from outside."""
GIVES_UP = 200.0
"""Seconds after the start, from which on a hang counts as not seen."""


class Gang:
    """Ranks that train, and one that hangs after a while."""

    def __init__(self, kind: str, ranks: int, dice: random.Random, groups: Path) -> None:
        self.kind, self.victim = kind, dice.randrange(ranks)
        self.uids = [str(uuid.uuid4()) for _ in range(ranks)]
        self._folder = Path(tempfile.mkdtemp(prefix="healthd-suspects-"))
        self._network, self._loss = PodNetwork(ranks), dice.choice(LOSSES)
        after, place = LEARNS + dice.uniform(0, 5), {"MASTER_ADDR": self._network.addresses[0], "MASTER_PORT": "29500"}
        self._loses_at = time.monotonic() + after
        training = ["--steps", "1000000", "--every", "1000000", "--pace", str(dice.choice(PACES))]
        command = [sys.executable, str(SCRIPT), kind, str(after), str(self.victim), "--", *training]
        self._processes = []
        for rank, uid in enumerate(self.uids):
            own = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), **place, "PYTHONPATH": str(ROOT)}
            enter = "; ".join(f"echo $$ > {path}/cgroup.procs" for path in containers_of(groups, uid))
            inside = ["sh", "-c", f'{enter}; exec "$@"', "sh", *command, "--checkpoint", str(self._folder / "out")]
            with (self._folder / f"rank-{rank}").open("w") as output:
                self._processes.append(self._network.start(rank, inside, {**os.environ, **own}, output))

    def lose_port(self) -> None:
        """Of the victim, when it is time for that, and once."""
        if self.kind == LOST_PORT and time.monotonic() > self._loses_at:
            self._loses_at = math.inf
            self._network.lose(self.victim, self._loss)

    @property
    def last_step(self) -> float:
        """When a rank printed last, in seconds since 1970."""
        return max(path.stat().st_mtime for path in self._folder.glob("rank-*"))

    def end(self) -> None:
        """With what they started: a process that is left keeps its control group busy."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._network.end()


def played(kinds: Sequence[str], ranks: int, dice: random.Random) -> Iterator[dict[str, Any]]:
    """One gang of each kind, on one node."""
    with ExitStack() as stack:
        top = stack.enter_context(groups())
        gangs = [Gang(kind, ranks, dice, top) for kind in kinds]
        for gang in gangs:
            stack.callback(gang.end)
        processes, clock, rhythms = PodProcesses(own_uid=gangs[0].uids[0]), SystemClock(), PodRhythms()
        processes.read()
        witness = Witness(processes)
        usages, uids = PodUsages(lambda: processes.groups), [uid for gang in gangs for uid in gang.uids]
        began = clock.now()
        rhythms.choose(dict.fromkeys(uids, 0.0), began - CHOOSE_EVERY)
        rhythms.choose(dict.fromkeys(uids, 100.0), began)  # however busy this machine is
        while gangs and clock.now() - began < timedelta(seconds=GIVES_UP):
            for gang in gangs:
                gang.lose_port()
            rhythms.observe(usages.read(rhythms.sampled), clock.now())
            if quiet := rhythms.to_look_at:
                rhythms.look_at(usages.stalls(quiet), witness.processes(quiet))
            known = {each.uid: each for each in rhythms.published()}
            for gang in [gang for gang in gangs if _is_quiet(gang, known)]:
                gangs.remove(gang)
                yield _judged(gang, [known[uid] for uid in gang.uids], clock.now().timestamp())
            time.sleep(1.0 - clock.now().timestamp() % 1.0)
        for gang in gangs:
            states = [str(known[uid].state) if uid in known else "not known" for uid in gang.uids]
            yield {"kind": gang.kind, "victim": gang.victim, "seen": None, "states": states}


def _is_quiet(gang: Gang, known: Mapping[str, PodRhythm]) -> bool:
    quiet = {MemberState.SILENT, MemberState.WAITING}
    return all(uid in known and known[uid].state in quiet for uid in gang.uids)


def _judged(gang: Gang, rhythms: Sequence[PodRhythm], now: float) -> dict[str, Any]:
    seen = [pod_evidence(each, rank, "", "") for rank, each in enumerate(rhythms)]
    bare = [
        pod_evidence(replace(each, activity=each.activity and replace(each.activity, process=None)), rank, "", "")
        for rank, each in enumerate(rhythms)
    ]
    located, by_groups = (vote([each for each in all_ if each is not None]) for all_ in (seen, bare))
    return {
        "kind": gang.kind,
        "victim": gang.victim,
        "seen": round(now - gang.last_step, 1),
        "named": [suspect.rank for suspect in located.suspects],
        "witnesses": [suspect.strength for suspect in located.suspects],
        "words": [f"{each.source}: {each.words}" for suspect in located.suspects for each in suspect.witnesses]
        or [located.reason],
        "named by control groups": [suspect.rank for suspect in by_groups.suspects],
    }


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By kind: of how many hangs the right rank was named, another, or none."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        for way in ("named", "named by control groups"):
            counts[f"{each['kind']}, {way}"][_outcome(each, way)] += 1
    seen = [each["seen"] for each in found if each["seen"] is not None]
    return {
        "outcomes": {name: dict(count) for name, count in sorted(counts.items())},
        "seen after": spread(seen or [-1]),
    }


def _outcome(each: Mapping[str, Any], way: str) -> str:
    if each["seen"] is None:
        return "rhythm not known" if "not known" in each["states"] else "not seen"
    return "right" if each[way] == [each["victim"]] else "wrong" if each[way] else "none"


def containers_of(top: Path, uid: str) -> list[Path]:
    """The group of the one container of a pod, in each tree; made."""
    found = []
    for tree in TREES:
        folder = CGROUPS / tree / top / f"pod{uid}" / "main"
        folder.mkdir(parents=True)
        found.append(folder)
    return found


@contextmanager
def groups() -> Iterator[Path]:
    """The folder of a kubelet, below each tree. Control groups of version 1."""
    top = Path(f"healthd-bench-{os.getpid()}/kubepods")
    try:
        yield top
    finally:
        time.sleep(0.5)  # the kernel takes a moment to empty the groups of what was killed
        for tree in TREES:
            for folder, _, _ in os.walk(CGROUPS / tree / top.parent, topdown=False):
                Path(folder).rmdir()


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--kinds", nargs="*", default=[*HANGS, LOST_PORT])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    args = parser.parse_args()
    leave_own_network()
    dice, found = random.Random(args.seed), list[dict[str, Any]]()
    for _ in range(args.rounds):
        for each in played(args.kinds, args.ranks, dice):
            print(each, file=sys.stderr, flush=True)
            found.append(each)
    print(json.dumps({"seed": args.seed, "ranks": args.ranks, **summary(found), "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
