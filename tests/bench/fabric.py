"""
What the controller pays to compare the rails of a cluster: `python -m tests.bench.fabric`.

Ten thousand nodes of eight ports with four counters each, once quiet, once with one bad port, and once with half of all
counters busy at random. The clocks are CPU time: `survey_ms` of the whole comparison, which others interrupt after each
250 nodes; `longest_ms` the longest stretch that nobody interrupts; `note_us` of taking one report into the cluster
state, of which `census_mb` is what Python holds for all of them.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from healthd.controller.cluster_state import ClusterState
from healthd.controller.fabric import AT_ONCE
from healthd.core.api import Nic, NodeHealth, NodeHealthStatus, ObjectMeta
from healthd.core.fabric.counter_rates import WATCHED
from healthd.core.fabric.rail_comparison import Survey
from healthd.gangs import ADAPTERS
from tests.bench._figures import machine

NODES, RAILS = 10_000, 8
COUNTERS = WATCHED["roce"][:4]
NOW = datetime(2026, 3, 1, tzinfo=UTC)

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
    print(json.dumps({**figures, "nodes": NODES, "ports": NODES * RAILS, "machine": machine()}, indent=2))


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
