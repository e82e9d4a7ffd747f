"""
How long a kernel record takes to become a quarantine: `python -m tests.bench.quarantine [--rounds N]`.

An XID 79 is written into the machine's own kernel log; the reader, the listener and the agent that ship make a cordon
of it in a cluster that is a file on the disk. The clock starts just before the record is written and stops when the
write of the cordon has returned, which is when it is on the disk. After each round the node is said to be repaired,
and the next one begins a moment after it is back in service. Needs root, takes the log's lock.

Most of the time is the kernel's: it wakes the readers of its log at its next timer tick, every 4 ms with HZ=250.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.agent.listen import Listener
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.loop import cycle_on_change
from healthd.core.api import ANNOTATION_REPAIRED, TAINT_QUARANTINED, Node, ObjectMeta, Slim
from healthd.core.config import LogFormat, LogLevel, QuarantinePolicy
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.klog.kmsg import Kmsg, open_kmsg, read_boot_id
from healthd.telemetry.logs import configure
from healthd.telemetry.metrics import Metrics
from tests.bench._figures import machine, spread
from tests.kernel_log import RealLog, Unwritable, kernel_log

T = TypeVar("T", bound=Slim)
NODE = "node-1"
BUS = f"{uuid.uuid4().hex[:4]}:3b:00"
"""A GPU that no record in the log speaks of yet."""
XID = f"NVRM: Xid (PCI:{BUS}): 79, pid=1, GPU has fallen off the bus."
PATIENCE = 10.0
"""Seconds after which a round has failed."""


@dataclass
class Round:
    """When what happened, in seconds of `time.monotonic`."""

    written: float = 0.0
    read: float = 0.0
    """The event loop has it."""
    committed: float = 0.0


@dataclass
class Stopwatch:
    """Notes the times of the present round."""

    clock: SystemClock
    now: Round = field(default_factory=Round)
    quarantined: asyncio.Event = field(default_factory=asyncio.Event)
    returned: asyncio.Event = field(default_factory=asyncio.Event)


class WatchedLog:
    """The real kernel log; notes when one of our records reaches the event loop."""

    def __init__(self, kmsg: Kmsg, log: RealLog, watch: Stopwatch) -> None:
        self._kmsg, self._log, self._watch = kmsg, log, watch
        self.boot_id, self.source = kmsg.boot_id, kmsg.source

    def ask(self) -> int:
        """As the kernel log."""
        return self._kmsg.ask()

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """As the kernel log."""
        async with aclosing(self._kmsg.batches()) as batches:
            async for batch in batches:
                if any(map(self._log.wrote, batch.records)):
                    self._watch.now.read = time.monotonic()
                yield batch


class WatchedCluster(EmbeddedCluster):
    """The embedded cluster; notes when the node was cordoned or given back."""

    stopwatch: Stopwatch

    async def patch(self, kind: type[T], name: str, patch: Mapping[str, Any], **options: str) -> T:
        """As the embedded cluster."""
        patched = await super().patch(kind, name, patch, **options)
        if isinstance(patched, Node) and "taints" in patch.get("spec", {}):
            self.stopwatch.now.committed = time.monotonic()
            tainted = any(taint.key == TAINT_QUARANTINED for taint in patched.spec.taints)
            (self.stopwatch.quarantined if tainted else self.stopwatch.returned).set()
        return patched


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument(
        "--folder", type=Path, help="where the cluster's file is made (the default: for temporary files)"
    )
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, sys.stderr)
    try:
        with kernel_log() as log, tempfile.TemporaryDirectory(dir=args.folder) as folder:
            rounds = asyncio.run(measure(log, Path(folder) / "cluster.db", args.rounds))
    except Unwritable as refusal:
        print(refusal, file=sys.stderr)
        return 2
    print(json.dumps(report(rounds), indent=2))
    return 0


async def measure(log: RealLog, path: Path, count: int) -> list[Round]:
    """*count* rounds, and one before them to warm up."""
    clock, boot_id = SystemClock(), read_boot_id()
    watch = Stopwatch(clock)
    with WatchedCluster.open(path, clock=clock, new_uid=lambda: str(uuid.uuid4())) as cluster:
        cluster.stopwatch = watch
        await cluster.create(Node(metadata=ObjectMeta(name=NODE)))
        policy, wake = QuarantinePolicy(), asyncio.Event()
        agent = Agent(
            AgentDependencies(
                node=NodeFacts(name=NODE, boot_id=boot_id, owns=f"{BUS}.0".__eq__, trust_user_space=True),
                cluster=cluster,
                clock=clock,
                metrics=Metrics(),
                quarantine=policy,
            )
        )
        listener = Listener([agent.state], clock, Metrics(), wake.set)
        kmsg = open_kmsg(clock=clock, boot_id=boot_id, trust_user_space=True)
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(cycle_on_change(cluster, clock, [Node], agent.cycle, wake)),
                group.create_task(listener.ingest_log(WatchedLog(kmsg, log, watch))),
            ]
            rounds = [await one_round(log, cluster, watch) for _ in range(count + 1)]
            for loop in loops:
                loop.cancel()
        return rounds[1:]


async def one_round(log: RealLog, cluster: EmbeddedCluster, watch: Stopwatch) -> Round:
    """From a healthy node to a quarantined one, and back; begun at any moment between two ticks of the kernel's."""
    await asyncio.sleep(random.uniform(0.01, 0.03))
    watch.now = this = Round(written=time.monotonic())
    log.write(XID)
    async with asyncio.timeout(PATIENCE):
        await watch.quarantined.wait()
    watch.now = Round()
    repaired = {"metadata": {"annotations": {ANNOTATION_REPAIRED: watch.clock.now().isoformat()}}}
    await cluster.patch(Node, NODE, repaired)
    async with asyncio.timeout(PATIENCE):
        await watch.returned.wait()
    watch.quarantined.clear()
    watch.returned.clear()
    return this


def report(rounds: list[Round]) -> dict[str, Any]:
    """In milliseconds."""
    spans = {
        "record to committed": [r.committed - r.written for r in rounds],
        "record to event loop": [r.read - r.written for r in rounds],
        "event loop to committed": [r.committed - r.read for r in rounds],
    }
    return {
        "clock": {
            "start": "just before the write() of the record to /dev/kmsg",
            "end": "the cordon's write to the cluster returned (SQLite, synchronous=FULL, WAL)",
            "unit": "ms",
        },
        "spans": {name: spread([1000 * span for span in taken]) for name, taken in spans.items()},
        "goal": {"p50": 6.0, "p99": 30.0},
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
