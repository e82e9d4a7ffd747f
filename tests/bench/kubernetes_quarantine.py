"""
From a kernel record to a cordon that a watcher sees: `python -m tests.bench.kubernetes_quarantine [--rounds N]`.

Against a real API server, with the machine's own kernel log. `healthd agent` runs as a process, with its opener; so do
two floors, the least that could do it: a loop that reads the log and sends one prepared PATCH over an open connection,
and one that keeps a budget: before the PATCH it creates a Lease, which fails where another node holds it. Without that
second write there is no exact budget among agents that know nothing of each other. All three take turns, each with a
node of its own. The clock starts before the record is written and stops when a watch of the node has shown the cordon.
After each round the node is given back: the floors' by hand, healthd's by the word that it was repaired. Needs root,
takes the log's lock.
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
from healthd.core.api import ANNOTATION_REPAIRED, Lease, Node
from healthd.probes.klog import opener as opener_file
from tests.bench._figures import machine, spread
from tests.bench._lab import a_lab
from tests.builders import a_node
from tests.kernel_log import RealLog, Unwritable, kernel_log
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import connected

PATIENCE = 30.0
PAUSE = (0.2, 0.5)
"""Seconds between rounds, drawn anew each time: the kernel wakes readers at its ticks, and rounds must not march."""
AS_IN_A_POD = """
set -e
files=/var/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /run
mkdir -p $files
printf %s "$TOKEN" > $files/token
printf healthd > $files/namespace
cp "$AUTHORITY" $files/ca.crt
exec "$@"
"""
"""An agent finds its account there; one that reads a kubeconfig holds 20 MB more."""
FLOOR_NODE, BUDGET_NODE = "floor", "floor-with-budget"
SLOT = "a-slot"
FLOOR = """
import http.client, json, os, re, select, ssl, sys
host, port, authority, token, node, tag, slot = sys.argv[1:]
line = re.compile(b";" + tag.encode())
connection = http.client.HTTPSConnection(host, int(port), context=ssl.create_default_context(cafile=authority))
headers = {"Authorization": "Bearer " + token}
body = json.dumps({"spec": {"unschedulable": True}})
lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": node}}
lease = json.dumps({**lease, "metadata": {"name": slot, "namespace": "kube-system"}})
leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
def send(path, what, method="PATCH", kind="application/merge-patch+json"):
    connection.request(method, path, what, {**headers, "Content-Type": kind})
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
                if slot:
                    send(leases, lease, "POST", "application/json")
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
    seconds: dict[str, list[float]] = {FLOOR_NODE: [], BUDGET_NODE: [], "healthd": []}
    clock = SystemClock()
    async with connected(control_plane) as cluster:
        for name in seconds:  # what stands in the log from before is settled
            await cluster.create(a_node(name, annotations={ANNOTATION_REPAIRED: clock.now().isoformat()}))
        with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
            bus = uuid.uuid4().hex[:4]
            tags = {name: f"{name} {bus}: GPU has fallen off the bus" for name in (FLOOR_NODE, BUDGET_NODE)}
            running.enter_context(floor(control_plane, FLOOR_NODE, tags[FLOOR_NODE], ""))
            running.enter_context(floor(control_plane, BUDGET_NODE, tags[BUDGET_NODE], SLOT))
            running.enter_context(healthd(control_plane, Path(folder)))
            await until(cluster, "healthd", lambda node: len(node.status.conditions) > 1)
            for number in range(rounds + 1):
                pci = f"{bus}:{number // 32:02x}:{number % 32:02x}"
                for name, text in {**tags, "healthd": f"NVRM: Xid (PCI:{pci}): 79, pid=1, off the bus"}.items():
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
    """A watch that stands; the task ends with the moment at which it showed the cordon."""
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
    if name != "healthd":
        await cluster.patch(Node, name, {"spec": {"unschedulable": None}})
        if name == BUDGET_NODE:
            await cluster.delete(Lease, SLOT, namespace="kube-system")
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
def floor(control_plane: ControlPlane, node: str, tag: str, slot: str) -> Iterator[None]:
    """The least that could do it; with *slot*, by a budget."""
    where = ["127.0.0.1", str(control_plane.port), str(control_plane.authority), control_plane.token]
    command = [sys.executable, "-c", FLOOR, *where, node, tag, slot]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


@contextmanager
def healthd(
    control_plane: ControlPlane, folder: Path, *, more: str = "host_root: /nowhere\n", environ: Any = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The agent and its opener; *more* configuration."""
    config = folder / "healthd.yaml"
    config.write_text(f"kernel_log: {{socket: {folder}/s, trust_user_space: true}}\n{more}")
    opener = [sys.executable, "-I", "-S", opener_file.__file__, f"{folder}/s", str(os.geteuid())]
    agent = [sys.executable, "-m", "healthd.cli.main", "agent", "--node", "healthd", "--config", str(config)]
    in_pod = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(control_plane.port),
        "TOKEN": control_plane.token,
        "AUTHORITY": str(control_plane.authority),
    }
    command = ["unshare", "--mount", "sh", "-c", AS_IN_A_POD, "sh", *agent]
    with (
        subprocess.Popen(opener, stderr=subprocess.DEVNULL) as first,
        subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**(environ or os.environ), **in_pod}) as second,
    ):
        try:
            yield second
        finally:
            second.kill()
            first.kill()


def report(rounds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """With the clock and the machine."""
    figures = {name: spread([1000 * each for each in seconds]) for name, seconds in rounds.items()}
    return {
        "clock": {"start": "before the record is written", "end": "a watch of the node showed the cordon"},
        "ms": figures,
        "ratio of the medians": {
            name: round(figures["healthd"]["p50"] / figures[name]["p50"], 2) for name in (FLOOR_NODE, BUDGET_NODE)
        },
        "goal": "<= 1.3 times the floor",
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
