"""
What healthd costs while nothing happens: `python -m tests.bench.idle [--seconds N]`.

Two processes, one after the other: an agent alone (agent, listener, the machine's kernel log, a cluster in a file), and
all of `healthd run` with eight ranks that sleep. The clock of the start runs from exec to the log line that says that
the kernel log is open. Then each is left alone; CPU is the scheduler's own count of nanoseconds (schedstat of all
threads), memory is read at the end. The children of `healthd run` (one shim for each rank) are counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench._figures import machine

RANKS = 8
SETTLE = 5.0
"""Seconds after the start in which nothing is measured yet."""


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--agent", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.agent:
        asyncio.run(be_an_agent(args.agent))
    with tempfile.TemporaryDirectory() as folder:
        agent = [sys.executable, "-m", "tests.bench.idle", "--agent", f"{folder}/agent.db"]
        figures = {"agent": measure(agent, args.seconds), "healthd run": measure(whole_run(folder), args.seconds)}
    print(json.dumps({**figures, "ranks": RANKS, "seconds": args.seconds, "machine": machine()}, indent=2))
    return 0


def whole_run(folder: str) -> list[str]:
    """`healthd run` of ranks that do nothing."""
    where = ["--state", f"{folder}/state", "--checkpoint", f"{folder}/checkpoints", "--name", "idle", "--quiet"]
    healthd = [sys.executable, "-m", "healthd.cli.main", "run", "--nproc", str(RANKS), *where]
    return [*healthd, "--", "sleep", "10000"]


async def be_an_agent(store: Path) -> None:
    """What an agent's process is made of, until it is killed."""
    from healthd.agent.agent import Agent
    from healthd.agent.dependencies import AgentDependencies
    from healthd.agent.judge import NodeFacts
    from healthd.agent.listen import Listener
    from healthd.clock import SystemClock
    from healthd.cluster.embedded import EmbeddedCluster
    from healthd.cluster.loop import cycle_on_change
    from healthd.core.api import Node, ObjectMeta
    from healthd.core.config import LogFormat, LogLevel, QuarantinePolicy
    from healthd.probes.klog.kmsg import open_kmsg, read_boot_id
    from healthd.telemetry.logs import configure
    from healthd.telemetry.metrics import Metrics

    configure(LogFormat.JSON, LogLevel.INFO, sys.stderr)
    clock, boot_id, metrics, wake = SystemClock(), read_boot_id(), Metrics(), asyncio.Event()
    with EmbeddedCluster.open(store, clock=clock, new_uid=lambda: str(uuid.uuid4())) as cluster:
        await cluster.create(Node(metadata=ObjectMeta(name="node-1")))
        policy = QuarantinePolicy(cordon=False)
        agent = Agent(
            AgentDependencies(
                node=NodeFacts(name="node-1", boot_id=boot_id),
                cluster=cluster,
                clock=clock,
                metrics=metrics,
                quarantine=policy,
            )
        )
        listener = Listener([agent.state], clock, metrics, wake.set)
        async with asyncio.TaskGroup() as group:
            group.create_task(cycle_on_change(cluster, clock, [Node], agent.cycle, wake))
            group.create_task(listener.ingest_log(open_kmsg(clock=clock, boot_id=boot_id)))


def measure(command: list[str], seconds: float) -> dict[str, float]:
    """Start it, leave it alone, and look at what it took."""
    with started(command) as (process, start):
        time.sleep(SETTLE)
        before = cpu(process.pid)
        time.sleep(seconds)
        used = cpu(process.pid) - before
        helpers = children(process.pid)
        return {
            "start ms, exec to kernel log open": round(1000 * start),
            "RSS MB": megabytes(process.pid, "Rss"),
            "PSS MB": megabytes(process.pid, "Pss"),
            "CPU %": round(100 * used / seconds, 3),
            "wake-ups/s": round(wakeups(process.pid, seconds=1.0), 1),
            "children": len(helpers),
            "PSS of all children MB": round(sum(megabytes(pid, "Pss") for pid in helpers), 1),
        }


@contextmanager
def started(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """The process, and the seconds until it said that the kernel log is open."""
    begun = time.monotonic()
    with (
        tempfile.TemporaryFile() as nothing,
        subprocess.Popen(command, stderr=subprocess.PIPE, stdin=nothing) as process,
    ):
        try:
            for line in process.stderr or []:
                if b"kernel_log." in line:
                    if b"kernel_log.open" not in line:
                        raise SystemExit(f"the kernel log cannot be read here: {line.decode()}")
                    break
            yield process, time.monotonic() - begun
        finally:
            process.kill()


def cpu(pid: int) -> float:
    """Seconds on a processor so far, of all threads."""
    return sum(int(stat.read_text().split()[0]) for stat in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def wakeups(pid: int, *, seconds: float) -> float:
    """How often a second it was put on a processor."""
    before = switches(pid)
    time.sleep(seconds)
    return (switches(pid) - before) / seconds


def switches(pid: int) -> int:
    """Time slices so far, of all threads."""
    return sum(int(stat.read_text().split()[2]) for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def megabytes(pid: int, kind: str) -> float:
    """`Rss` or `Pss` of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
    return round(kilobytes / 1024, 1)


def children(pid: int) -> list[int]:
    """The processes that it started itself."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


if __name__ == "__main__":
    sys.exit(main())
