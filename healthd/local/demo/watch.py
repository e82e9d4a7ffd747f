"""
Feeds the scene: it watches the cluster and reads the log of the trainer. It changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from healthd.clock import Clock
from healthd.cluster.loop import cycle_on_change
from healthd.cluster.port import Cluster
from healthd.core.api import Node, NodeHealth, Pod, Recovery
from healthd.local.demo.scene import ClusterSnapshot, Scene
from healthd.local.demo.script import DemoFolders

POLL_EVERY = timedelta(milliseconds=20)
"""Between two polls of the log: files have to be polled, and a step takes longer than this."""


async def read_cluster(cluster: Cluster) -> ClusterSnapshot:
    """A snapshot of all data that the demo shows. Raises ClusterError."""
    recoveries = (await cluster.list(Recovery)).items
    return ClusterSnapshot(
        nodes={node.metadata.name: node for node in (await cluster.list(Node)).items},
        health={known.metadata.name: known for known in (await cluster.list(NodeHealth)).items},
        pods=tuple((await cluster.list(Pod)).items),
        recoveries=tuple(sorted(recoveries, key=lambda recovery: recovery.spec.first_attempt)),
    )


async def watch_cluster(cluster: Cluster, clock: Clock, scene: Scene) -> None:
    """Keep the scene's snapshot current, until cancelled."""

    async def see(_: datetime) -> timedelta:
        scene.see(await read_cluster(cluster))
        return timedelta(seconds=1)

    await cycle_on_change(cluster, clock, [Node, NodeHealth, Pod, Recovery], see, asyncio.Event())


async def follow_training(place: DemoFolders, clock: Clock, scene: Scene) -> None:
    """Pass every line of rank 0 of every attempt to the scene, until cancelled."""
    log = TrainerLog(place.log_of_rank_0)

    def ingest_line() -> None:
        for attempt, line in log.read():
            scene.ingest_line(attempt, line, clock.now())

    try:
        while True:
            ingest_line()
            await clock.sleep(POLL_EVERY)
    finally:
        ingest_line()  # its last lines


class TrainerLog:
    """The logs of rank 0, one per attempt, read line by line as they grow."""

    def __init__(self, path_of: Callable[[int], Path]) -> None:
        self._path_of = path_of
        self._attempt = 0
        self._read = 0
        """Bytes of the current attempt's log that were read."""

    def read(self) -> Iterator[tuple[int, str]]:
        """All complete new lines, with their attempt."""
        while True:
            yield from ((self._attempt, line) for line in self._lines())
            if not self._path_of(self._attempt + 1).exists():
                return
            yield from ((self._attempt, line) for line in self._lines())  # the last lines of this attempt
            self._attempt, self._read = self._attempt + 1, 0

    def _lines(self) -> list[str]:
        try:
            with self._path_of(self._attempt).open("rb") as file:
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(whole) + 1 if whole else 0
        return whole.decode(errors="replace").splitlines()
