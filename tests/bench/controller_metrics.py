"""
What one scrape of a leading controller costs: `python -m tests.bench.controller_metrics [--quarantined N]`.

The worst page that a cluster of this size can have: all nodes in quarantine and without a live agent; gangs in two
namespaces, of which a third is on hold, a third is being recovered and a third was given up, with everything wrong with
their saving; eleven alert services. `world_ms`: all gauges are set from the cluster state, wall time. `scrape_ms`: from
the connect to the last byte of `/metrics`, over HTTP, of another process, each time of a page that is written anew;
`scrape_cpu_ms` is what that process needs of a core for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from msgspec.structs import replace

from healthd.alerts.sink import Answer
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.metrics import measure_agents, measure_world
from healthd.core.api import ANNOTATION_RESTART, Job, Node, RecoveryStatus
from healthd.core.api.incidents import Severity
from healthd.core.api.model import Phase
from healthd.core.api.save_stats import Concern
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.gangs import ADAPTERS
from healthd.telemetry.http import serve
from healthd.telemetry.metrics import GangSaves, Metrics
from healthd.telemetry.pages import METRICS_LAST, metrics_pages
from tests.bench._figures import machine, peak_memory, spread
from tests.builders import a_job, a_node, a_recovery, gang_ref
from tests.fakes import START

TRIES = 10
OPENMETRICS = {"Accept": "application/openmetrics-text"}
"""As Prometheus asks."""


def main() -> None:
    """Measure, and print one JSON object; with `--serve` be the controller."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=1000)
    parser.add_argument("--quarantined", type=int, default=None, help="nodes (default: all)")
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(_serve(args))
    else:
        print(json.dumps(_measure(args), indent=2))


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    server_of = [sys.executable, "-m", "tests.bench.controller_metrics", "--serve", *sys.argv[1:]]
    with subprocess.Popen(server_of, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        served = json.loads(server.stdout.readline())
        scrapes = [_scrape(served["port"], server.pid) for _ in range(TRIES)]
        server.terminate()
    page = scrapes[-1].page.decode()
    return {
        "benchmark": "controller_metrics",
        "nodes": args.nodes,
        "gangs": args.gangs,
        "quarantined": args.nodes if args.quarantined is None else args.quarantined,
        "series": sum(not line.startswith("#") for line in page.splitlines()),
        "page_mb": round(len(page) / 1e6, 2),
        "scrape_ms": spread([each.wall_ms for each in scrapes], digits=0),
        "scrape_cpu_ms": spread([each.cpu_ms for each in scrapes], digits=0),
        "world_ms": served["world_ms"],
        "peak_mb": served["peak_mb"],
        "machine": machine(),
    }


class _Scrape(NamedTuple):
    wall_ms: float
    cpu_ms: float
    page: bytes


def _scrape(port: int, server: int) -> _Scrape:
    """One scrape of a page that is not cached any more."""
    time.sleep(1.5 * METRICS_LAST)
    began, before = time.perf_counter(), _cpu_ms(server)
    with urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers=OPENMETRICS)) as answer:
        page = answer.read()
    return _Scrape((time.perf_counter() - began) * 1e3, _cpu_ms(server) - before, page)


def _cpu_ms(process: int) -> float:
    """Processor time of all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _serve(args: argparse.Namespace) -> None:
    state, metrics = ClusterState(ADAPTERS), Metrics()
    for obj in _world(args.nodes, args.gangs, args.nodes if args.quarantined is None else args.quarantined):
        state.upsert(obj)
    began = time.perf_counter()
    measure_world(metrics, state)
    measure_agents(metrics, state, START)
    took = (time.perf_counter() - began) * 1e3
    _show_the_rest(metrics, state)
    async with await serve("127.0.0.1:0", metrics_pages(metrics)) as server:
        served = {"port": server.address.port, "world_ms": round(took), "peak_mb": peak_memory()}
        print(json.dumps(served), flush=True)
        await asyncio.Event().wait()


def _show_the_rest(metrics: Metrics, state: ClusterState) -> None:
    """What other loops of a leader set."""
    roots = [root.ref for root in state.roots.values()]
    metrics.show_saves(
        GangSaves(ref.namespace, ref.name, START, timedelta(minutes=5), timedelta(minutes=1), list(Concern))
        for ref in roots
    )
    for ref in roots[::3]:
        metrics.gang_gave_up.labels(ref.namespace, ref.name).set(START.timestamp())
    metrics.start_alerts_at_zero((f"service-{number}" for number in range(11)), Answer, Severity)


def _world(nodes: int, gangs: int, quarantined: int) -> Iterator[Any]:
    for number in range(nodes):
        yield _a_node(number, is_quarantined=number < quarantined)
    for number in range(gangs):
        job = a_job(f"job-{number}", namespace=f"team-{number % 2}", annotations={ANNOTATION_RESTART: "enabled"})
        job = _stamped(job, number)
        yield job
        if number % 3:
            yield _recovery(job, number)


def _a_node(number: int, *, is_quarantined: bool) -> Node:
    node = a_node(f"gpu-node-{number:05}")
    patch = cordon_patch(node, Record(finding="0000:3b:00.0/xid-79", message="off the bus", since=START))
    notes = patch["metadata"]["annotations"] if is_quarantined else {}
    stamped: Node = _stamped(a_node(f"gpu-node-{number:05}", annotations=notes), number)
    return stamped


def _recovery(job: Job, number: int) -> Any:
    held = number % 3 == 1
    status = RecoveryStatus(
        phase=Phase.HELD if held else Phase.STARTING, held_in=Phase.RESERVING if held else None, phase_since=START
    )
    recovery = a_recovery(f"{job.metadata.name}-1", namespace=job.metadata.namespace, gang=job, status=status)
    assert recovery.spec.gang == gang_ref(job)
    return _stamped(recovery, number)


def _stamped(obj: Any, number: int) -> Any:
    """With what the API server adds."""
    name = obj.metadata.name
    meta = replace(obj.metadata, uid=f"{type(obj).__name__}-{name}", resource_version=str(number + 1))
    return replace(obj, metadata=meta)


if __name__ == "__main__":
    main()
