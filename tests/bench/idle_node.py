"""
What the agent of a node costs with all its sources, while nothing happens: `python -m tests.bench.idle_node`.

The agent as a DaemonSet runs it (every source, the control groups of 30 pods, the machine's kernel log), on a cluster
in memory, once on a node without any GPU or NIC and once with eight GPUs (a stand-in for the driver's library) and
eight RoCE NICs with every counter that is read (a folder instead of /sys). The clock runs from a minute after the start
for `--seconds`. CPU is the process's own clock, which also counts threads that ended; the child that asks NVML is
counted apart. Nothing asks the agent by HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests.bench._figures import machine
from tests.bench.idle import children, megabytes, switches
from tests.bench.nic_probes import lay_out
from tests.standin.nvml import StandIn, build

SETTLE = 60.0
PODS = 30
AS_SHIPPED = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "PYTHONOPTIMIZE": "2",
    "PYTHONNODEBUGRANGES": "1",
}
"""The environment of deploy/daemonset.yaml, as far as it concerns memory."""


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=SETTLE)
    parser.add_argument("--agent", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.agent:
        asyncio.run(be_an_agent(args.agent))
    with tempfile.TemporaryDirectory() as folder:
        nodes = {"no devices": bare(Path(folder, "bare")), "8 GPUs, 8 NICs": full(Path(folder, "full"))}
        started = {name: start(*node) for name, node in nodes.items()}
        time.sleep(args.settle)
        figures = measure({name: process.pid for name, process in started.items()}, args.seconds)
        for process in started.values():
            process.kill()
            process.wait()
    print(json.dumps({**figures, "seconds": args.seconds, "machine": machine()}, indent=2))
    return 0


def bare(folder: Path) -> tuple[Path, dict[str, str]]:
    """A machine with neither GPU nor NIC, and the environment of its agent."""
    for name in ("class/net", "bus/pci/devices/0000:00:00.0", "class/block", "class/hwmon"):
        (folder / "sys" / name).mkdir(parents=True)
    add_pods(folder)
    return folder, dict(os.environ)


def full(folder: Path) -> tuple[Path, dict[str, str]]:
    """A machine with eight of each."""
    folder.mkdir()
    lay_out(folder / "sys", "Ethernet")
    add_pods(folder)
    driver = StandIn(build(folder / "lib"), folder / "script")
    driver.play("gpus 8")
    return folder, driver.environ


def add_pods(folder: Path) -> None:
    """Their control groups, in version 2: each has a sandbox and a container."""
    root = folder / "sys" / "fs" / "cgroup"
    for _ in range(PODS):
        pod = root / "kubepods" / "burstable" / f"pod{uuid.uuid4()}"
        for place, tasks in ((pod, 5), (pod / "sandbox", 1), (pod / "container", 4)):
            place.mkdir(parents=True)
            (place / "pids.current").write_text(f"{tasks}\n")
    (root / "cgroup.controllers").write_text("pids\n")


def start(folder: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Its agent."""
    command = [sys.executable, "-m", "tests.bench.idle_node", "--agent", str(folder)]
    return subprocess.Popen(command, env={**environ, **AS_SHIPPED}, stderr=subprocess.DEVNULL)


def measure(pids: dict[str, int], seconds: float) -> dict[str, dict[str, float]]:
    """All of them at the same time: each has a clock of its own."""
    began = time.monotonic()
    before = {pid: (cpu(pid), switches(pid)) for pid in pids.values()}
    of_children = {child: cpu(child) for pid in pids.values() for child in children(pid)}
    time.sleep(seconds)
    took = time.monotonic() - began
    return {
        name: {
            "CPU %": round(100 * (cpu(pid) - before[pid][0]) / took, 4),
            "CPU % of children that stay": round(
                sum(100 * (cpu(child) - of_children[child]) / took for child in children(pid) if child in of_children),
                4,
            ),
            "wake-ups/s": round((switches(pid) - before[pid][1]) / took, 2),
            "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
            "PSS MB": megabytes(pid, "Pss"),
            "RSS MB": megabytes(pid, "Rss"),
        }
        for name, pid in pids.items()
    }


def cpu(pid: int) -> float:
    """Seconds on a processor so far, also those of threads that ended."""
    return time.clock_gettime((~pid << 3) | 2)  # its clock: see clock_getcpuclockid(3)


async def be_an_agent(folder: Path) -> None:
    """What the DaemonSet's process does, until it is killed."""
    from healthd.cli.commands.agent import _be_lean

    _be_lean(in_pod=True)
    from healthd.agent.daemon import AgentDaemon
    from healthd.cli.machine.agent_process import this_node
    from healthd.clock import SystemClock
    from healthd.cluster.embedded import EmbeddedCluster
    from healthd.core.api import Node, ObjectMeta
    from healthd.core.config import Config, HttpPolicy, LogFormat, LogLevel, QuarantinePolicy
    from healthd.telemetry.logs import configure

    configure(LogFormat.JSON, LogLevel.INFO, sys.stderr)
    config = Config(
        host_root=str(folder),
        quarantine=QuarantinePolicy(cordon=False),
        http=HttpPolicy(address="", probe_address=""),
    )
    clock = SystemClock()
    with EmbeddedCluster.open(None, clock=clock, new_uid=lambda: str(uuid.uuid4())) as cluster:
        await cluster.create(Node(metadata=ObjectMeta(name="node-1")))
        await AgentDaemon("node-1", config, this_node(config, clock), cluster, clock, jitter=random.random).run()


if __name__ == "__main__":
    sys.exit(main())
