"""
What an agent with everything to look at costs: `python -m tests.bench.kubernetes_probes [--seconds N] [--rounds N]`.

`healthd agent` as a process, with its opener, against a real API server and the machine's own kernel log. Beneath it
eight GPUs (a stand-in for the driver's library, under the real binding) and eight RoCE NICs with every counter that is
read (a folder instead of /sys). Four things are measured, one after the other:

- CPU and memory of the agent and of its NVML child over N seconds in which nothing happens, from a minute after the
  start; CPU is what the scheduler counted;
- from before a record is written to the kernel log until a watch of the node has shown the cordon;
- the agent's own loop while the driver hangs: the longest answer to /healthz, asked every 20 ms;
- from the first call that hangs until a watch of the node's health has shown the finding.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp

from healthd.clock import SystemClock
from healthd.core.api import ANNOTATION_REPAIRED, NodeHealth
from tests.bench._figures import machine, spread
from tests.bench._lab import a_lab
from tests.bench.idle import children, cpu, megabytes
from tests.bench.kubernetes_quarantine import PAUSE, give_back, healthd, one_round, until
from tests.bench.nic_probes import lay_out
from tests.builders import a_node
from tests.kernel_log import RealLog, Unwritable, kernel_log
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import connected
from tests.standin.nvml import StandIn, build

NODE = "healthd"
WARM = 60.0
HANGS_FOR = 30.0
ASK_EVERY = 0.02
PATIENCE = 90.0


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    try:
        with kernel_log() as log, a_lab() as (control_plane, _), tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(measure(control_plane, log, Path(folder), args.seconds, args.rounds))
    except Unwritable as refusal:
        print(f"cannot measure here: {refusal}", file=sys.stderr)
        return 1
    print(json.dumps({**figures, "machine": machine()}, indent=2))
    return 0


async def measure(
    control_plane: ControlPlane, log: RealLog, folder: Path, seconds: float, rounds: int
) -> dict[str, Any]:
    """One agent's life."""
    driver = StandIn(build(folder / "lib"), folder / "script")
    driver.play("gpus 8")
    lay_out(folder / "sys", "Ethernet")
    more = f"host_root: {folder}\nhttp: {{address: '127.0.0.1:{port_of(folder)}'}}\n"
    async with connected(control_plane) as cluster:
        repaired = {ANNOTATION_REPAIRED: SystemClock().now().isoformat()}
        await cluster.create(a_node(NODE, annotations=repaired))
        with healthd(control_plane, folder, more=more, environ=driver.environ) as agent:
            await until(cluster, NODE, lambda node: len(node.status.conditions) > 1)
            await asyncio.sleep(WARM)
            idle = await at_rest(agent.pid, seconds)
            latency = await latencies(cluster, log, rounds)
            hang = await hanging(cluster, driver, port_of(folder))
            for stuck in children(agent.pid):  # deaf to all but this, as in a driver
                os.kill(stuck, signal.SIGKILL)
    return {"idle": idle, "record to cordon, ms": latency, "driver that hangs": hang}


def port_of(folder: Path) -> int:
    """One that hardly anybody else has."""
    return 20000 + hash(folder.name) % 10000


async def at_rest(agent: int, seconds: float) -> dict[str, Any]:
    """Agent and child while nothing happens."""
    processes = {"agent": agent, **{f"child {at}": child for at, child in enumerate(children(agent))}}
    before = {name: cpu(pid) for name, pid in processes.items()}
    began = time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    return {
        "seconds": round(took, 1),
        "cpu_percent": {name: round(100 * (cpu(pid) - before[name]) / took, 3) for name, pid in processes.items()},
        "pss_mb": {name: megabytes(pid, "Pss") for name, pid in processes.items()},
        "rss_mb": {name: megabytes(pid, "Rss") for name, pid in processes.items()},
    }


async def latencies(cluster: Any, log: RealLog, rounds: int) -> dict[str, float]:
    """Of quarantines with all probes at work."""
    bus = uuid.uuid4().hex[:4]
    took = []
    for number in range(rounds + 1):
        record = f"NVRM: Xid (PCI:{bus}:{number // 32:02x}:{number % 32:02x}): 79, pid=1, off the bus"
        took.append(await one_round(cluster, log, NODE, record))
        await give_back(cluster, NODE, SystemClock())
        await asyncio.sleep(PAUSE[1])
    return spread([1000 * each for each in took[1:]])  # the first opens connections


async def hanging(cluster: Any, driver: StandIn, port: int) -> dict[str, float]:
    """Until the finding, and how late the agent's loop was meanwhile."""
    reported = asyncio.create_task(finding(cluster, "nvml-hangs"))
    driver.play("gpus 8", "hang nvmlDeviceGetTemperature *")
    began = await asyncio.to_thread(hangs, driver)
    answers = await asking(port, HANGS_FOR)
    async with asyncio.timeout(PATIENCE):
        return {"told_after_s": round(await reported - began, 2), "longest_healthz_ms": round(1000 * max(answers), 1)}


def hangs(driver: StandIn) -> float:
    """The moment in which the first call hangs."""
    while not driver.hangs:
        time.sleep(0.01)
    return time.monotonic()


async def finding(cluster: Any, rule: str) -> float:
    """The moment in which the node's health showed it."""
    since = (await cluster.list(NodeHealth)).resource_version
    async with aclosing(cluster.watch(NodeHealth, since=since)) as events:
        async for event in events:
            if event.obj and any(one.rule == rule and one.cleared_at is None for one in event.obj.status.findings):
                return time.monotonic()
    raise AssertionError("the watch ended")


async def asking(port: int, seconds: float) -> Sequence[float]:
    """How long each answer took."""
    took = []
    end = time.monotonic() + seconds
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < end:
            before = time.monotonic()
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                await answer.read()
            took.append(time.monotonic() - before)
            await asyncio.sleep(ASK_EVERY)
    return took


if __name__ == "__main__":
    sys.exit(main())
