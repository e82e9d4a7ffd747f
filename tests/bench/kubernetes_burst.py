"""
A whole data hall fails in one second: `python -m tests.bench.kubernetes_burst [--nodes N] [--budget B …]`.

The agents of N simulated nodes, the shipped code in one process, hear of a fallen-off GPU at the same moment, against a
real API server. The budget must hold exactly, without a leader. The clock starts before the first record is handed
over and stops when a watch of the nodes shows the last cordon that the budget admits. A moment later the cordons are
counted again: there must not be one more.

N agents share two cores with the API server here; on a cluster each has a machine of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from healthd.cluster.port import Cluster
from healthd.core.api import Lease, Node
from healthd.core.config import LogFormat, LogLevel, QuarantinePolicy
from healthd.core.node.quarantine import read_record
from healthd.telemetry.logs import configure
from tests.bench._figures import machine
from tests.bench._lab import a_lab
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import FALLEN_OFF, connected, fleet

PATIENCE = 60.0


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=750)
    parser.add_argument("--budget", type=int, nargs="+", default=[40, 750])
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())  # hundreds are refused, and say so
    bursts = []
    for budget in args.budget:
        with a_lab() as (control_plane, nodes):
            names = nodes.add(args.nodes)
            bursts.append(asyncio.run(burst(control_plane, names, budget)))
    print(json.dumps(report(args.nodes, bursts), indent=2))
    return 0


async def burst(control_plane: ControlPlane, names: Sequence[str], budget: int) -> dict[str, Any]:
    """All agents at once."""
    policy = QuarantinePolicy(budget=budget)
    async with (
        connected(control_plane) as theirs,
        connected(control_plane) as cluster,
        fleet(theirs, names, policy) as members,
    ):
        since = (await cluster.list(Node)).resource_version
        async with asyncio.timeout(PATIENCE):
            watching = asyncio.create_task(cordons(cluster, since, min(budget, len(names))))
            await asyncio.sleep(0.5)  # the watch stands
            start = time.monotonic()
            for member in members.values():
                member.hear(FALLEN_OFF)
            seen = await watching
        await asyncio.sleep(2)  # none may come late
        quarantined = [node for node in (await cluster.list(Node)).items if read_record(node)]
        slots = (await cluster.list(Lease, namespace=policy.namespace)).items
    return {
        "budget": budget,
        "first_cordon_s": round(seen[0] - start, 3),
        "last_cordon_s": round(seen[-1] - start, 3),
        "quarantined": len(quarantined),
        "slots_taken": len(slots),
    }


async def cordons(cluster: Cluster, since: str, count: int) -> list[float]:
    """When a watcher saw each of the first *count* cordons."""
    seen: dict[str, float] = {}
    async with aclosing(cluster.watch(Node, since=since)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.obj is not None and read_record(event.obj):
                seen.setdefault(event.obj.metadata.name, time.monotonic())
                if len(seen) == count:
                    break
    return list(seen.values())


def report(nodes: int, bursts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """With the clock and the machine."""
    return {
        "clock": {
            "start": "before the first of all agents is handed its record",
            "end": "a watch of the nodes showed the last cordon that the budget admits",
        },
        "agents": nodes,
        "bursts": list(bursts),
        "goal": {"budget 40": "< 1.5 s", "budget 750": "< 4 s", "quarantined": "exactly the budget"},
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
