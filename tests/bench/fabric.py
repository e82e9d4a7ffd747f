"""
What the controller pays to compare the rails of a cluster: `python -m tests.bench.fabric`.

Ten thousand nodes of eight ports with four counters each, once quiet, once with one bad port, and once with half of all
counters busy at random. The clocks are CPU time: `survey_ms` of the whole comparison, which others interrupt after each
250 nodes; `longest_ms` the longest stretch without an interruption; `note_us` of taking one report into the cluster
state, of which `census_mb` is what Python holds for all of them.

Beside that, what it pays to compare the hardware of nodes with their peers, 5,000 nodes and again 10,000: `first_ms` of
the first comparison, `pass_ms` of one in which nothing changed, `changed_ms` of one after a tenth of all nodes and
reports changed.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.fleet.fabric import AT_ONCE
from healthd.controller.fleet.peers import Peers
from healthd.core.api import Device, Nic, Node, NodeHealth, NodeHealthStatus, ObjectMeta, Shape
from healthd.core.api.model import Verdict
from healthd.core.fabric.counter_rates import WATCHED
from healthd.core.fabric.rail_comparison import Survey
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.bench._figures import machine
from tests.fakes import ManualClock

NODES, RAILS = 10_000, 8
COUNTERS = WATCHED["roce"][:4]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
NO_CLUSTER: Any = None
"""Nothing is written."""

Powers = Callable[[int, int], int]


def main() -> None:
    """Print one JSON object."""
    draw = random.Random(1)
    fabrics: Mapping[str, Powers] = {
        "quiet": lambda *_: 0,
        "one_bad_port": lambda node, rail: 18 if (node, rail) == (7, 3) else 0,
        "half_busy": lambda *_: draw.choice((0, 0, 0, 14, 15, 20)),
    }
    figures = {name: measure(powers) for name, powers in fabrics.items()}
    peers = {f"peers_of_{count}": measure_peers(count) for count in (5_000, NODES)}
    print(json.dumps({**figures, **peers, "nodes": NODES, "ports": NODES * RAILS, "machine": machine()}, indent=2))


def measure(powers: Powers) -> dict[str, float]:
    """One cluster, from the reports of its agents."""
    cluster_state, note_us, size = take_in([report(node, powers) for node in range(NODES)])
    survey, spans = Survey(), []
    began = time.process_time()
    for number, (name, health) in enumerate(cluster_state.health.items(), start=1):
        survey.enter(name, health, NOW)
        if number % AT_ONCE == 0:
            spans.append(time.process_time() - began)
            began = time.process_time()
    found = survey.compare()
    spans.append(time.process_time() - began)
    return {
        "survey_ms": round(1e3 * sum(spans), 1),
        "longest_ms": round(1e3 * max(spans), 1),
        "note_us": round(note_us, 1),
        "census_mb": round(size / 1e6, 1),
        "outliers": len(found.outliers),
        "congested": len(found.congested),
    }


def measure_peers(count: int) -> dict[str, float]:
    """The comparison of *count* nodes with their peers, in eight instance types; one of them has seven GPUs."""
    cluster_state = ClusterState(ADAPTERS)
    enter_peers(cluster_state, range(count), version=1)
    peers = Peers(NO_CLUSTER, ManualClock(NOW), cluster_state, Metrics())
    spans, short = [], 0
    for version in (2, 3, 4):
        if version == 4:
            enter_peers(cluster_state, range(0, count, 10), version)
        began = time.process_time()
        short = len(asyncio.run(peers.compare()))
        spans.append(round(1e3 * (time.process_time() - began), 1))
    first, unchanged, changed = spans
    return {"first_ms": first, "pass_ms": unchanged, "changed_ms": changed, "short": short}


def enter_peers(cluster_state: ClusterState, numbers: Iterable[int], version: int) -> None:
    """Nodes and what their agents publish."""
    rates = {f"ib 0000:{16 + rail:02x}:00.0 port 1": 400.0 for rail in range(RAILS)}
    for number in numbers:
        meta = ObjectMeta(name=f"node-{number:05}", uid=f"uid-{number}", resource_version=str(version))
        labels = {"node.kubernetes.io/instance-type": f"type-{number % 8}"}
        cluster_state.upsert(Node(metadata=msgspec.structs.replace(meta, labels=labels)))
        best = Shape(gpus=7 if number == 7 else 8, rdma_devices=8, memory_kb=2_113_000_000 + number, rates=rates)
        gpus = [Device(pci=f"0000:{index:02x}:00.0", name="NVIDIA H100 80GB HBM3") for index in range(8)]
        status = NodeHealthStatus(best=best, inventory=gpus, seen_at=NOW, verdict=Verdict.HEALTHY)
        cluster_state.upsert(NodeHealth(metadata=meta, status=status))


def take_in(reports: list[bytes]) -> tuple[ClusterState, float, float]:
    """The cluster state, the time for each report, and the bytes for all of them."""
    decoder, cluster_state, spent = msgspec.json.Decoder(NodeHealth), ClusterState(ADAPTERS), 0.0
    for one in map(decoder.decode, reports):
        began = time.process_time()
        cluster_state.upsert(one)
        spent += time.process_time() - began
    tracemalloc.start()
    weighed = ClusterState(ADAPTERS)
    for one in map(decoder.decode, reports):
        weighed.upsert(one)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return cluster_state, 1e6 * spent / len(reports), size


def report(node: int, powers: Powers) -> bytes:
    """What one agent publishes."""
    nics = [
        Nic(
            pci=f"0000:{16 + rail:02x}:00.0",
            port=1,
            device=f"mlx5_{rail}",
            family="roce",
            netdev=f"eth{rail}",
            rate_gbps=400,
            firmware="28.39.1002",
            rail=rail,
            gpu=f"0000:{16 + rail:02x}:01.0",
            growth={counter: powers(node, rail) for counter in COUNTERS},
        )
        for rail in range(RAILS)
    ]
    meta = ObjectMeta(name=f"node-{node:05}", uid=f"uid-{node}", resource_version=str(node + 1))
    return msgspec.json.encode(NodeHealth(metadata=meta, status=NodeHealthStatus(nics=nics, seen_at=NOW)))


if __name__ == "__main__":
    main()
