"""
From a broken GPU to a repaired node in service: `python -m tests.bench.kubernetes_remediation [--nodes N] [--apart S]`.

Against a real API server, with `healthd controller` as a process of its own and the shipped agents in this one. What
repairs nodes is a hand of the benchmark: an annotation, on which it gives the Node another boot id and starts its agent
anew. The kubelet is the benchmark's, too: the pod of a check ends, and has passed. So the figure is healthd's own
share: the reboot and the check take `--reboot` and `--check` seconds, by default none.

The clock of a node starts before its agent is handed the kernel record, and stops when a watch shows that its
quarantine is gone and that it is schedulable. Faults come *S* seconds apart; 0 is a burst. `at_once` is N: no node
waits for the slot of another. One node goes first, and is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import pairwise
from statistics import median
from typing import Any

from healthd.clock import SystemClock
from healthd.cluster.port import Cluster, NotFound
from healthd.core.api import ANNOTATION_QUARANTINE, ANNOTATION_REPAIRED, Node, Pod
from healthd.core.config import GiveBack, LogFormat, LogLevel, QuarantinePolicy
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.remediation.check_summary import CheckSummary, fitted
from healthd.core.remediation.node_check import CONTAINER
from healthd.telemetry.logs import configure
from tests.bench._figures import machine, spread
from tests.bench._lab import a_lab, controller_process
from tests.builders import a_node
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import FALLEN_OFF, Member, connected

PATIENCE = 300.0
GPUS = 8
ASKED = "example.com/reboot"
HANDS = f"""
- name: bench-reboot
  rung: reboot
  verb: patch
  body: {{metadata: {{annotations: {{{ASKED}: "${{attempt}}"}}}}}}
"""
FAULT, OUT, REQUESTED, BOOTED = "fault", "out of service", "reboot asked for", "booted"
CHECKED, PASSED, DECLARED, BACK = "pod of the check", "it passed", "declared repaired", "back in service"
MOMENTS = (FAULT, OUT, REQUESTED, BOOTED, CHECKED, PASSED, DECLARED, BACK)
CONFIG = """
quarantine: {{budget: {count}, give_back: repaired}}
remediation:
  at_once: {count}
  hands: [bench-reboot]
  hands_file: {hands}
  check_by_pod: true
  check_image: localhost/none
"""


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--apart", type=float, default=1.0)
    parser.add_argument("--reboot", type=float, default=0.0)
    parser.add_argument("--check", type=float, default=0.0)
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
    with a_lab() as (control_plane, _):
        control_plane.kubectl("create", "namespace", NAMESPACE)
        hands = control_plane.directory / "hands.yaml"
        hands.write_text(HANDS)
        with controller_process(control_plane, CONFIG.format(count=args.nodes + 1, hands=hands)):
            try:
                taken, steps = asyncio.run(measure(control_plane, args))
            except BaseException:
                print(control_plane.kubectl("get", "noderemediations", "-A", "-o", "wide"), file=sys.stderr)
                print((control_plane.directory / "controller.log").read_text()[-5000:], file=sys.stderr)
                raise
    print(json.dumps(report(args, taken, steps), indent=2))
    return 0


class Site:
    """The nodes: their agents, their kubelets, and what reboots them."""

    def __init__(self, cluster: Cluster, tasks: asyncio.TaskGroup, names: Sequence[str], args: argparse.Namespace):
        self._cluster = cluster
        self._tasks = tasks
        self._args = args
        self._boots: dict[str, int] = defaultdict(int)
        self._asked: set[str] = set()
        self._began: set[str] = set()
        self._agents: dict[str, asyncio.Task[None]] = {}
        self.members: dict[str, Member] = {}
        self.returned = {name: asyncio.Event() for name in names}
        self.out = {name: asyncio.Event() for name in names}
        self.moments: dict[str, dict[str, float]] = {name: {} for name in names}
        """By node: when each of `MOMENTS` was first seen, by the monotonic clock."""

    async def join(self, name: str) -> None:
        """A node joins, with its agent."""
        await self._cluster.create(a_node(name, labels={"nvidia.com/gpu.count": str(GPUS)}))
        await self.boot(name)
        await self.members[name].ready.wait()

    async def boot(self, name: str) -> None:
        """It comes up in another boot, with another agent."""
        if name in self._agents:
            self._agents[name].cancel()
        self._boots[name] += 1
        boot = f"{name}-boot-{self._boots[name]}"
        status = {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"bootID": boot, "systemUUID": f"machine-of-{name}"},
            "capacity": {"nvidia.com/gpu": str(GPUS)},
            "allocatable": {"nvidia.com/gpu": str(GPUS)},
        }
        await self._cluster.patch(Node, name, {"status": status}, subresource="status")
        policy = QuarantinePolicy(budget=self._args.nodes + 1, give_back=GiveBack.REPAIRED)
        member = self.members[name] = Member(name, self._cluster, SystemClock(), policy, boot=boot)
        self._agents[name] = self._tasks.create_task(member.run())

    async def follow_nodes(self) -> None:
        """Reboot the nodes for which that is asked, and note which are back."""
        listed = await self._cluster.list(Node)
        async with aclosing(self._cluster.watch(Node, since=listed.resource_version)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.obj is not None and event.obj.metadata.name in self.returned:
                    self._see(event.obj)

    def _see(self, node: Node) -> None:
        name, notes = node.metadata.name, node.metadata.annotations
        if ANNOTATION_REPAIRED in notes:
            self._note(name, DECLARED)
        if ANNOTATION_QUARANTINE in notes:
            self._note(name, OUT)
            self.out[name].set()
        elif self.out[name].is_set() and not node.spec.unschedulable:
            self._note(name, BACK)
            self.returned[name].set()
        if (asked := notes.get(ASKED)) and f"{name} {asked}" not in self._asked:
            self._note(name, REQUESTED)
            self._asked.add(f"{name} {asked}")
            self._tasks.create_task(self._reboot(name))

    def _note(self, name: str, moment: str) -> None:
        self.moments[name].setdefault(moment, time.monotonic())

    async def _reboot(self, name: str) -> None:
        await asyncio.sleep(self._args.reboot)
        await self.boot(name)
        self._note(name, BOOTED)

    async def follow_checks(self) -> None:
        """Start and end the checks, and let go of those that are deleted."""
        listed = await self._cluster.list(Pod, namespace=NAMESPACE)
        watching = self._cluster.watch(Pod, since=listed.resource_version, namespace=NAMESPACE)
        async with aclosing(watching) as events:  # type: ignore[type-var]
            async for event in events:
                pod = event.obj
                if pod is not None and pod.metadata.deletion_timestamp is not None:
                    self._tasks.create_task(self._let_go(pod))
                elif pod is not None and pod.metadata.uid not in self._began:
                    self._began.add(pod.metadata.uid)
                    self._note(pod.spec.node_name, CHECKED)
                    self._tasks.create_task(self._check(pod))

    async def _check(self, pod: Pod) -> None:
        await asyncio.sleep(self._args.check)
        name = pod.spec.node_name
        summary = CheckSummary(
            result="pass",
            boot_id=f"{name}-boot-{self._boots[name]}",
            expected_gpus=GPUS,
            gpus=GPUS,
            passed=["inventory", "gpu-memory"],
        )
        now = SystemClock().now().isoformat()
        end = {"exitCode": 0, "message": fitted(summary).decode(), "startedAt": now, "finishedAt": now}
        container = {"name": CONTAINER, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": end}}]}
        with suppress(NotFound):
            await self._cluster.patch(
                Pod, pod.metadata.name, {"status": status}, namespace=NAMESPACE, subresource="status"
            )
            self._note(name, PASSED)

    async def _let_go(self, pod: Pod) -> None:
        with suppress(NotFound):
            await self._cluster.delete(Pod, pod.metadata.name, namespace=NAMESPACE, grace_seconds=0)

    async def breaks(self, name: str) -> float:
        """Seconds until it is back."""
        self._note(name, FAULT)
        self.members[name].hear(FALLEN_OFF)
        await self.returned[name].wait()
        return self.moments[name][BACK] - self.moments[name][FAULT]


async def measure(control_plane: ControlPlane, args: argparse.Namespace) -> tuple[list[float], dict[str, float]]:
    """Seconds of each node, and the median of those in each phase."""
    names = [f"gpu-{at}" for at in range(args.nodes + 1)]
    async with connected(control_plane) as cluster, asyncio.timeout(PATIENCE * 2), asyncio.TaskGroup() as tasks:
        site = Site(cluster, tasks, names, args)
        for name in names:
            await site.join(name)
        following = [tasks.create_task(site.follow_nodes()), tasks.create_task(site.follow_checks())]
        await asyncio.sleep(1)
        await site.breaks(names[0])
        taken = await asyncio.gather(*(_later(site, name, at * args.apart) for at, name in enumerate(names[1:])))
        steps = phases(site.moments[name] for name in names[1:])
        for task in (*following, *site._agents.values()):
            task.cancel()
    return taken, steps


async def _later(site: Site, name: str, delay: float) -> float:
    await asyncio.sleep(delay)
    return await site.breaks(name)


def phases(seen: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Where the time goes: medians of the seconds between two of the moments of each node."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for times in seen:
        for before, after in pairwise(MOMENTS):
            seconds[f"{before} → {after}"].append(times[after] - times[before])
    return {what: round(median(each), 2) for what, each in seconds.items()}


def report(args: argparse.Namespace, taken: list[float], steps: dict[str, float]) -> dict[str, Any]:
    """With the clock and the machine."""
    return {
        "clock": {
            "start": "before the agent of the node is handed the kernel record",
            "end": "a watch shows that the quarantine is gone and the node schedulable",
            "unit": "s",
        },
        "nodes": args.nodes,
        "seconds between faults": args.apart,
        "seconds of a reboot": args.reboot,
        "seconds of a check": args.check,
        "back in service": spread(taken),
        "where the time goes, medians": steps,
        "all": [round(each, 2) for each in taken],
        "goal": "p50 at most 60 s, p99 at most 80 s",
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
