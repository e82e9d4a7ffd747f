"""
Whether a gang restarts later because its broken node is repaired.

`python -m tests.bench.kubernetes_restart_beside_repair [--pods N] [--rounds N] [--beside N]`

The gang, the fault and the agents of `tests.bench.kubernetes_restart`, on a real control plane. Two controllers take
turns: one as it is shipped, one with `remediation` switched on, whose hand is an annotation on which the benchmark
reboots the node. A turn with repair counts only if the reboot was asked for. The order of a pair alternates.
After each turn a person declares the node repaired, so the next one begins with none that is out of service.

The clock runs from before the agent is handed the kernel record until a watch shows that the last of N new pods runs.
`--beside N`: so many further nodes without pods break in the same moment, in both turns.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from statistics import median
from typing import Any

from healthd.clock import SystemClock
from healthd.cluster.port import Cluster
from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    LABEL_SPARE,
    Lease,
    Node,
    Recovery,
    TimelineEntry,
)
from healthd.core.config import GiveBack, LogFormat, LogLevel, QuarantinePolicy
from healthd.telemetry.logs import configure
from tests.bench._figures import machine, spread
from tests.bench._lab import DEPLOY, NAMESPACE, a_lab, controller_process
from tests.bench.kubernetes_restart import Gang, all_running, phases, present, recovered
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import FALLEN_OFF, Member, connected, fleet

PATIENCE = 60.0
ASKED = "example.com/reboot"
HANDS = f"""
- name: bench-reboot
  rung: reboot
  verb: patch
  body: {{metadata: {{annotations: {{{ASKED}: "${{attempt}}"}}}}}}
"""
OFF = """
breaker: {restarts: 1000, unhealthy_share: 1}
recovery: {confirm_after: 1s}
quarantine: {budget: 1000, give_back: repaired}
"""
ON = OFF + "remediation: {at_once: 1000, attempts_per_week: 32, hands: [bench-reboot], hands_file: HANDS_FILE}\n"
WITHOUT, WITH = "without repair", "with repair"


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--beside", type=int, default=0)
    args = parser.parse_args()
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
    with a_lab() as (control_plane, nodes):
        control_plane.apply(DEPLOY / "admission-gangs.yaml")
        nodes.add(args.pods)
        spare = {LABEL_SPARE: "true"}
        spares = nodes.add(2 * args.rounds + 2, labels=spare, prefix="spare")
        control_plane.kubectl("taint", "nodes", *spares, f"{LABEL_SPARE}=:NoSchedule")
        idle = nodes.add(2 * args.rounds * args.beside, prefix="idle")
        if idle:
            control_plane.kubectl("taint", "nodes", *idle, "example.com/idle=:NoSchedule")
        (control_plane.directory / "hands.yaml").write_text(HANDS)
        try:
            taken, in_phases = asyncio.run(measure(control_plane, idle, args))
        except BaseException:
            print(control_plane.kubectl("get", "recoveries,noderemediations", "-A", "-o", "wide"), file=sys.stderr)
            print((control_plane.directory / "controller.log").read_text()[-5000:], file=sys.stderr)
            raise
    print(json.dumps(report(args, taken, in_phases), indent=2))
    return 0


async def measure(
    control_plane: ControlPlane, idle: list[str], args: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, dict[str, float]]]:
    """Seconds of each round of each kind, and the medians of the phases of their recoveries."""
    taken: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    timelines: dict[str, list[Sequence[TimelineEntry]]] = {WITHOUT: [], WITH: []}
    configs = {WITHOUT: OFF, WITH: ON.replace("HANDS_FILE", str(control_plane.directory / "hands.yaml"))}
    async with connected(control_plane) as theirs, connected(control_plane) as cluster:
        gang = Gang(cluster=cluster, pods=args.pods)
        control_plane.apply(json.dumps(gang.manifest()))
        await all_running(gang, set())
        names = [node.metadata.name for node in (await cluster.list(Node)).items]
        policy = QuarantinePolicy(budget=1000, give_back=GiveBack.REPAIRED)
        async with fleet(theirs, names, policy) as members:
            for number in range(args.rounds):
                for kind in sorted(configs, reverse=bool(number % 2)):
                    beside, idle = idle[: args.beside], idle[args.beside :]
                    with controller_process(control_plane, configs[kind]):
                        await led(cluster)
                        taken[kind].append(await restarted(gang, members, beside, repairs=kind is WITH))
                    newest = max((await cluster.list(Recovery)).items, key=lambda each: each.spec.first_attempt)
                    timelines[kind].append(newest.status.timeline)
                    print(f"round {number}, {kind}: {taken[kind][-1]:.2f} s", file=sys.stderr, flush=True)
    return taken, {kind: phases(each) for kind, each in timelines.items()}


async def led(cluster: Cluster) -> None:
    """Return when a controller leads, and has had the time to look at every gang."""
    await until(cluster, Lease, "healthd-controller", lambda lease: bool(lease.spec.holder_identity), NAMESPACE)
    await asyncio.sleep(2)


async def until(
    cluster: Cluster, kind: type[Any], name: str, holds: Callable[[Any], bool], namespace: str = ""
) -> None:
    """Return when *holds* of the object *name*."""
    listed = await cluster.list(kind, namespace=namespace or None)
    if any(each.metadata.name == name and holds(each) for each in listed.items):
        return
    watching = cluster.watch(kind, since=listed.resource_version, namespace=namespace or None)
    async with asyncio.timeout(PATIENCE), aclosing(watching) as events:  # type: ignore[type-var]
        async for event in events:
            if event.obj is not None and event.obj.metadata.name == name and holds(event.obj):
                return


async def restarted(gang: Gang, members: dict[str, Member], beside: Sequence[str], *, repairs: bool) -> float:
    """Seconds from the fault of one node of the gang until all its pods run again."""
    old = {pod.metadata.uid: pod for pod in await present(gang)}
    victim = next(iter(old.values())).spec.node_name
    start = time.monotonic()
    for name in (victim, *beside):
        members[name].hear(FALLEN_OFF)
    await all_running(gang, set(old))
    seconds = time.monotonic() - start
    await recovered(gang)
    if repairs:
        await asked_for_reboot(gang.cluster, victim)
    for name in (victim, *beside):
        await put_right(gang.cluster, name)
    return seconds


async def put_right(cluster: Cluster, name: str) -> None:
    """A person says that node *name* was repaired. Return when its agent has given it back."""
    said = {"metadata": {"annotations": {ANNOTATION_REPAIRED: SystemClock().now().isoformat()}}}
    await cluster.patch(Node, name, said)
    await until(cluster, Node, name, lambda node: ANNOTATION_QUARANTINE not in node.metadata.annotations)


async def asked_for_reboot(cluster: Cluster, name: str) -> None:
    """Return when the reboot of node *name* was asked for; do it."""
    await until(cluster, Node, name, lambda node: ASKED in node.metadata.annotations)
    await cluster.patch(Node, name, {"status": {"nodeInfo": {"bootID": f"{name}-again"}}}, subresource="status")


def report(
    args: argparse.Namespace, taken: dict[str, list[float]], in_phases: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """With the clock and the machine."""
    ratios = [after / before for before, after in zip(taken[WITHOUT], taken[WITH], strict=True)]
    return {
        "clock": {
            "start": "before the agent is handed the kernel record",
            "end": "a watch showed that the last new pod is Running",
            "unit": "s",
        },
        "pods": args.pods,
        "nodes that break beside it": args.beside,
        **{kind: spread(seconds, 3) for kind, seconds in taken.items()},
        "ratio of medians": round(median(taken[WITH]) / median(taken[WITHOUT]), 3),
        "median of the ratios of pairs": round(median(ratios), 3),
        "goal": "at most 1.05",
        "where the time goes, medians": in_phases,
        "all": {kind: [round(each, 2) for each in seconds] for kind, seconds in taken.items()},
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
