"""
Records what the ranks of a real job use: `python -m tests.core.hang.record OUT [--seconds N] -- COMMAND`.

Two ranks of COMMAND run for N seconds. Then rank 1 gets SIGSTOP, and half a minute more is recorded. OUT is JSON: the
second of the stop, and for each second and rank the growth of each counter, with the states.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

from healthd.core.hang.samples import Usage
from healthd.probes.usage.process_tree import ProcessTree, children_of

AFTER = 30


def main() -> None:
    """Record one job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    own = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    line = f"{shlex.join(args.command)} >/dev/null; :"  # the shell stands where the shim does
    ranks = [
        subprocess.Popen(["sh", "-c", line], env={**os.environ, **own, "RANK": rank}, start_new_session=True)
        for rank in ("0", "1")
    ]
    try:
        args.out.write_text(json.dumps({"stopped_after": args.seconds, "samples": record(ranks, args.seconds)}))
    finally:
        for rank in ranks:
            os.killpg(rank.pid, signal.SIGKILL)


def record(ranks: list[subprocess.Popen[bytes]], seconds: int) -> list[list[list[float | str]]]:
    """For each second, of each rank: the growth of its counters, and its states."""
    trees = [ProcessTree(rank.pid) for rank in ranks]
    before = [tree.read() or Usage() for tree in trees]
    samples: list[list[list[float | str]]] = []
    for second in range(seconds + AFTER):
        time.sleep(1)
        if second == seconds:
            os.kill(children_of(ranks[1].pid)[0], signal.SIGSTOP)
        now = [tree.read() or last for tree, last in zip(trees, before, strict=True)]
        samples.append([[*_growth(a, b), b.states] for a, b in zip(before, now, strict=True)])
        before = now
    return samples


def _growth(before: Usage, after: Usage) -> list[float | str]:
    return [round(b - a, 2) for a, b in zip(before[:-1], after[:-1], strict=True)]


if __name__ == "__main__":
    main()
