"""
What a healthy cluster pays for healthd: `python -m tests.bench.kubernetes_idle [--nodes N …] [--seconds S]`.

For each number of simulated nodes, all full of gang pods (Jobs of 100): requests per second that the API server answers
while nothing happens, without healthd and with it (one agent a node and one controller), by its own count; and the
memory and CPU of `healthd controller`, a process of its own. A request that is a watch counts when it ends, as the API
server does it. Nodes above AGENTS_UP_TO get no agents: this machine would measure its own lack of memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from healthd.core.api import ANNOTATION_RESTART, Job, JobSpec, ObjectMeta, PodSpec, PodTemplate
from healthd.core.config import LogFormat, LogLevel, QuarantinePolicy
from healthd.telemetry.logs import configure
from tests.bench._figures import machine
from tests.bench._lab import a_lab, controller_process
from tests.builders import A_CONTAINER
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import connected, fleet

AGENTS_UP_TO = 1000
GANG = 100
SETTLE = 20.0
_COUNTED = re.compile(r"^apiserver_request_total\{.*\} (\S+)$", re.MULTILINE)


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
    figures = []
    for count in args.nodes:
        with a_lab() as (control_plane, nodes):
            names = nodes.add(count)
            figures.append({"nodes": count, **asyncio.run(measure(control_plane, names, args.seconds))})
    print(json.dumps({"clusters": figures, "seconds": args.seconds, "machine": machine()}, indent=2))
    return 0


async def measure(control_plane: ControlPlane, names: Sequence[str], seconds: float) -> dict[str, Any]:
    """One cluster of one size."""
    async with connected(control_plane) as cluster, contextlib.AsyncExitStack() as stack:
        for number in range(len(names) // GANG):
            await cluster.create(a_gang(f"gang-{number}"))
        await asyncio.to_thread(
            control_plane.kubectl, "wait", "jobs", "--all", f"--for=jsonpath={{.status.ready}}={GANG}", "--timeout=600s"
        )
        await asyncio.sleep(SETTLE)
        alone = await requests_per_second(control_plane, seconds)
        process = stack.enter_context(controller_process(control_plane))
        agents = names[:AGENTS_UP_TO] if len(names) <= AGENTS_UP_TO else []
        await stack.enter_async_context(fleet(cluster, agents, QuarantinePolicy()))
        await asyncio.sleep(SETTLE)
        busy = cpu_seconds(process)
        together = await requests_per_second(control_plane, seconds)
        return {
            "pods": len(names) // GANG * GANG,
            "agents": len(agents),
            "api_requests_per_s": {"without healthd": alone, "with healthd": together},
            "controller": {**memory(process), "cpu_percent": round(100 * (cpu_seconds(process) - busy) / seconds, 2)},
        }


def a_gang(name: str) -> Job:
    """One pod on each of a hundred nodes."""
    return Job(
        metadata=ObjectMeta(name=name, namespace="default", annotations={ANNOTATION_RESTART: "enabled"}),
        spec=JobSpec(
            parallelism=GANG,
            completions=GANG,
            completion_mode="Indexed",
            template=PodTemplate(spec=PodSpec(restart_policy="Never", containers=[A_CONTAINER])),
        ),
    )


async def requests_per_second(control_plane: ControlPlane, seconds: float) -> float:
    """All that the API server answered in that time, whichever client asked."""
    before, start = answered(control_plane), time.monotonic()
    await asyncio.sleep(seconds)
    return round((answered(control_plane) - before) / (time.monotonic() - start), 2)


def answered(control_plane: ControlPlane) -> float:
    """The API server's own count."""
    _, text = control_plane.api.raw("GET", "/metrics")
    return sum(map(float, _COUNTED.findall(text.decode())))


def memory(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """In MB."""
    with open(f"/proc/{process.pid}/smaps_rollup") as rollup:
        kilobytes = {line.split()[0].rstrip(":"): int(line.split()[1]) for line in rollup if line.split()[-1] == "kB"}
    return {"rss_mb": round(kilobytes["Rss"] / 1024, 1), "pss_mb": round(kilobytes["Pss"] / 1024, 1)}


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """User and system time so far."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    sys.exit(main())
