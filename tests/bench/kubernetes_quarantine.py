"""
From a kernel record to a cordon that a watcher sees: `python -m tests.bench.kubernetes_quarantine [--rounds N]`.

Against a real API server, with the machine's own kernel log. `healthd agent` runs as a process, with its opener; so
does the floor, the least that could do it: a loop that reads the log and sends one prepared PATCH over an open
connection. Both take turns, each with a node of its own. The clock starts before the record is written and stops when
a watch of the node has told the cordon. After each round the node is given back: the floor's by hand, healthd's by the
word that it was repaired. Needs root, takes the log's lock.
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
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from healthd.clock import SystemClock
from healthd.cluster.port import Cluster
from healthd.core.objects import ANNOTATION_REPAIRED, Node
from healthd.probes import opener as opener_file
from tests.bench._figures import machine, spread
from tests.bench._lab import a_lab
from tests.builders import a_node
from tests.kernel_log import RealLog, Unwritable, kernel_log
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import connected

PATIENCE = 30.0
PAUSE = (0.2, 0.5)
"""Seconds between rounds, drawn anew each time: the kernel wakes readers at its ticks, and rounds must not march."""
FLOOR = """
import http.client, json, os, re, select, ssl, sys
host, port, authority, token, node, tag = sys.argv[1:]
line = re.compile(b";" + tag.encode())
connection = http.client.HTTPSConnection(host, int(port), context=ssl.create_default_context(cafile=authority))
headers = {"Authorization": "Bearer " + token, "Content-Type": "application/merge-patch+json"}
body = json.dumps({"spec": {"unschedulable": True}})
def send(path, what):
    connection.request("PATCH", path, what, headers)
    connection.getresponse().read()
send("/api/v1/nodes/" + node, json.dumps({"metadata": {"annotations": {"warm": "yes"}}}))
log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
os.lseek(log, 0, os.SEEK_END)
poll = select.poll()
poll.register(log, select.POLLIN)
print("ready", flush=True)
while True:
    poll.poll()
    try:
        while True:
            if line.search(os.read(log, 8192)):
                send("/api/v1/nodes/" + node, body)
    except BlockingIOError:
        pass
"""


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    try:
        with kernel_log() as log, a_lab() as (control_plane, _):
            rounds = asyncio.run(measure(control_plane, log, args.rounds))
    except Unwritable as refusal:
        print(f"cannot measure here: {refusal}", file=sys.stderr)
        return 1
    print(json.dumps(report(rounds), indent=2))
    return 0


async def measure(control_plane: ControlPlane, log: RealLog, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round, of each in turn."""
    seconds: dict[str, list[float]] = {"floor": [], "healthd": []}
    clock = SystemClock()
    async with connected(control_plane) as cluster:
        for name in seconds:  # what stands in the log from before is settled
            await cluster.create(a_node(name, annotations={ANNOTATION_REPAIRED: clock.now().isoformat()}))
        with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
            bus = uuid.uuid4().hex[:4]
            tag = f"floor {bus}: GPU has fallen off the bus"
            running.enter_context(floor(control_plane, tag))
            running.enter_context(healthd(control_plane, Path(folder)))
            await until(cluster, "healthd", lambda node: len(node.status.conditions) > 1)
            for number in range(rounds + 1):
                pci = f"{bus}:{number // 32:02x}:{number % 32:02x}"
                for name, text in (("floor", tag), ("healthd", f"NVRM: Xid (PCI:{pci}): 79, pid=1, off the bus")):
                    took = await one_round(cluster, log, name, text)
                    if number:  # the first opens connections
                        seconds[name].append(took)
                    await give_back(cluster, name, clock)
                    await asyncio.sleep(random.uniform(*PAUSE))
    return seconds


async def one_round(cluster: Cluster, log: RealLog, name: str, text: str) -> float:
    """From before the record is written until the watcher has seen the cordon."""
    async with watching(cluster, name) as cordoned:
        start = time.monotonic()
        log.write(text)
        async with asyncio.timeout(PATIENCE):
            return await cordoned - start


@asynccontextmanager
async def watching(cluster: Cluster, name: str) -> AsyncIterator[asyncio.Task[float]]:
    """A watch that stands; the task ends with the moment at which it told the cordon."""
    stands = asyncio.Event()

    async def watch() -> float:
        fields = {"metadata.name": name}
        since = (await cluster.list(Node, fields=fields)).resource_version
        events: Any = cluster.watch(Node, since=since, fields=fields)
        async with aclosing(events):
            async for event in events:
                stands.set()  # the first is a bookmark: the server has accepted it
                if event.obj is not None and event.obj.spec.unschedulable:
                    return time.monotonic()
        raise AssertionError("the watch ended")

    task = asyncio.create_task(watch())
    await stands.wait()
    yield task
    task.cancel()


async def give_back(cluster: Cluster, name: str, clock: SystemClock) -> None:
    """By hand, or by the word that it was repaired."""
    if name == "floor":
        await cluster.patch(Node, name, {"spec": {"unschedulable": None}})
    else:
        repaired = {"metadata": {"annotations": {ANNOTATION_REPAIRED: clock.now().isoformat()}}}
        await cluster.patch(Node, name, repaired)
    await until(cluster, name, lambda node: not node.spec.unschedulable and not node.spec.taints)


async def until(cluster: Cluster, name: str, holds: Any) -> None:
    """Return when the node is so."""
    fields = {"metadata.name": name}
    async with asyncio.timeout(PATIENCE):
        listed = await cluster.list(Node, fields=fields)
        if holds(listed.items[0]):
            return
        events: Any = cluster.watch(Node, since=listed.resource_version, fields=fields)
        async with aclosing(events):
            async for event in events:
                if event.obj is not None and holds(event.obj):
                    return


@contextmanager
def floor(control_plane: ControlPlane, tag: str) -> Iterator[None]:
    """The least that could do it."""
    where = ["127.0.0.1", str(control_plane.port), str(control_plane.authority), control_plane.token]
    command = [sys.executable, "-c", FLOOR, *where, "floor", tag]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


@contextmanager
def healthd(control_plane: ControlPlane, folder: Path) -> Iterator[None]:
    """The agent and its opener."""
    config = folder / "healthd.yaml"
    config.write_text(f"kernel_log: {{socket: {folder}/s, trust_user_space: true}}\npods: {{cgroups: ''}}\n")
    opener = [sys.executable, "-I", "-S", opener_file.__file__, f"{folder}/s", str(os.geteuid())]
    agent = [sys.executable, "-m", "healthd.cli.main", "agent", "--node", "healthd", "--config", str(config)]
    with (
        subprocess.Popen(opener, stderr=subprocess.DEVNULL) as first,
        subprocess.Popen([*agent, "--kubeconfig", str(control_plane.kubeconfig)], stderr=subprocess.DEVNULL) as second,
    ):
        try:
            yield
        finally:
            second.kill()
            first.kill()


def report(rounds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """With the clock and the machine."""
    figures = {name: spread([1000 * each for each in seconds]) for name, seconds in rounds.items()}
    return {
        "clock": {"start": "before the record is written", "end": "a watch of the node told the cordon"},
        "ms": figures,
        "ratio": {key: round(figures["healthd"][key] / figures["floor"][key], 2) for key in figures["floor"]},
        "goal": "ratio of the medians <= 1.3",
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
