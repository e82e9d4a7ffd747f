"""
What the live page costs the controller, and how soon a change is seen: 5,000 nodes, 200 gangs, 100 viewers.

The viewers are in a process of their own. Each second one node changes, as in a storm, and one hundred report that they
live, which changes nothing on the page.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from healthd.clock import SystemClock
from healthd.core.api.model import Verdict
from healthd.telemetry.logs import configure
from tests.bench._figures import machine
from tests.controller.web.fleets import FleetOf
from tests.controller.web.pages import Stream, a_page, a_stream

NODES, GANGS, VIEWERS, SECONDS = 5000, 200, 100, 30
HEARTBEATS = 100
"""Reports each second that change nothing."""


def main() -> None:
    """Measure, and print one JSON object."""
    configure_silent()
    here, there = multiprocessing.get_context("spawn").Pipe()
    viewers = multiprocessing.get_context("spawn").Process(target=watch, args=(there,))
    viewers.start()
    print(json.dumps(asyncio.run(_measure(here))))
    viewers.join()


def configure_silent() -> None:
    """No log lines among the figures."""
    from healthd.core.config import LogFormat, LogLevel

    configure(LogFormat.JSON, LogLevel.ERROR, sys.stderr)


async def _measure(viewers: Connection) -> dict[str, Any]:
    fleet = FleetOf(NODES, GANGS, SystemClock().now())
    async with a_page(fleet) as page:
        alone = await _load(page, fleet, None)
        before = _resident()
        viewers.send(page.url)
        await asyncio.to_thread(viewers.recv)
        watched = await _load(page, fleet, viewers)
        grown = _resident() - before
        viewers.send(None)
        seen = await asyncio.to_thread(viewers.recv)
    delays = sorted(1000 * each for each in seen["delays"])
    return {
        "machine": machine(),
        "what": f"{NODES} nodes, {GANGS} gangs, {VIEWERS} viewers; a change and {HEARTBEATS} heartbeats a second",
        "cpu_share_without_viewers": round(alone, 4),
        "cpu_share_with_viewers": round(watched, 4),
        "cpu_share_of_the_page": round(watched - alone, 4),
        "resident_grown_mib": round(grown / 2**20, 1),
        "snapshot_wire_bytes": seen["snapshot"],
        "change_to_viewer_ms_median": round(delays[len(delays) // 2], 1),
        "change_to_viewer_ms_max": round(delays[-1], 1),
        "changes_seen": len(delays),
        "clock": "CPU of the server's process over the time; from the change in the cache to its line in a viewer",
    }


async def _load(page: Any, fleet: FleetOf, viewers: Connection | None) -> float:
    began, used = time.monotonic(), time.process_time()
    for second in range(SECONDS):
        for number in range(HEARTBEATS):
            node = fleet.nodes[(second * HEARTBEATS + number) % NODES]
            page.change(partial(fleet.report, node, Verdict.HEALTHY))
            await asyncio.sleep(0.9 / HEARTBEATS)
        if viewers is not None:
            page.change(partial(fleet.report, fleet.nodes[-1], Verdict.DEGRADED, f"at {wall()}"))
        await asyncio.sleep(max(0.0, began + second + 1 - time.monotonic()))
    return (time.process_time() - used) / (time.monotonic() - began)


def wall() -> float:
    """A clock that both processes read."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def watch(pipe: Connection) -> None:
    """The process of the viewers."""
    configure_silent()
    asyncio.run(_watch(pipe))


async def _watch(pipe: Connection) -> None:
    url, delays, sizes = pipe.recv(), list[float](), list[int]()
    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(_view(url, ready, delays, sizes)) for _ in range(VIEWERS)]
    for _ in tasks:
        await ready.acquire()
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    pipe.send({"delays": delays, "snapshot": max(sizes)})


async def _view(url: str, ready: asyncio.Semaphore, delays: list[float], sizes: list[int]) -> None:
    async with a_stream(url) as stream:
        await stream.next()
        sizes.append(stream.wire_bytes)
        ready.release()
        while True:
            await _note(stream, delays)


async def _note(stream: Stream, delays: list[float]) -> None:
    _, body = await stream.next()
    reasons = [cell[3] for cell in body.get("nodes", {}).values()]
    delays.extend(wall() - float(reason[3:]) for reason in reasons if reason.startswith("at "))


if __name__ == "__main__":
    main()
