"""
From a broken GPU to a gang of each kind that runs again: `python -m tests.bench.kubernetes_kinds [KIND …] [--rounds N]`

A gang of four of each kind with its real controller, on simulated nodes. The floor is what a person could do at best:
stop the gang as its user does, wait until no pod of it is there, start it, wait until all run. healthd has to do more
in the same time: judge the record, cordon, record each phase, see every pod end, look for a checkpoint, and claim a
spare. Floor and healthd take turns, with the same gang. `healthd controller` runs as a process of its own with the
shipped rights, the agents as a fleet.

Pods of this machine start and end at once. `--stopping S` and `--starting S` let each take as many seconds, as the pods
of a real job do, and `--leaving S` is how long the object of a pod stays after its containers have ended: a kubelet
unmounts its volumes first. Before each turn the gang runs for `--resting S` seconds: an operator that looks again
seconds after a change would else be caught awake by the one turn, and asleep by the other.

The floor's clock runs from before the first patch, healthd's from before the agent is handed the kernel record; both
stop when a watch has shown that the last new pod is Running.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from healthd.clock import SystemClock
from healthd.cluster.remote import connect
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from healthd.core.api import Pod
from healthd.core.config import LogFormat, LogLevel
from healthd.telemetry.logs import configure
from tests.bench._figures import machine, spread
from tests.bench._lab import DEPLOY, a_lab
from tests.bench.kubernetes_restart import phases
from tests.deploy.accounts import bind_controller
from tests.gangs.recoveries.gangs import PLAYED
from tests.gangs.recoveries.stage import NEXT, Stage
from tests.kubernetes.replicas import replicas_of
from tests.kubernetes.scenario import MEMBERS, a_scenario
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds.fixtures import Controllers
from tests.lab.kinds.gangs import KINDS
from tests.lab.simulated import SimulatedNodes

GOAL = 1.2
STOPPING_TAKES, STARTING_TAKES = "lab.healthd.dev/stopping-takes", "lab.healthd.dev/starting-takes"
LEAVING_TAKES = "lab.healthd.dev/leaving-takes"
"""Annotations of pods: tests/lab/stages.yaml."""
ALL = [kind for kind in PLAYED if KINDS[kind].patched]


def main() -> int:
    """Print one JSON object for each kind, and one for the machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=ALL, metavar="KIND", help=f"of {', '.join(ALL)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stopping", type=float, default=0.0, metavar="S", help="seconds that a pod takes to end")
    parser.add_argument("--starting", type=float, default=0.0, metavar="S", help="seconds until a pod runs")
    parser.add_argument("--leaving", type=float, default=0.0, metavar="S", help="seconds until its object goes then")
    parser.add_argument("--resting", type=float, default=0.0, metavar="S", help="seconds that it runs before each turn")
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(ALL):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())
    with a_lab() as (control_plane, nodes), all_controllers(control_plane) as controllers:
        for file in ("admission-gangs.yaml", "components/volcano/binding.yaml"):
            control_plane.apply(DEPLOY / file)
        token = bind_controller(control_plane)
        for kind in args.kinds:
            controllers.only(KINDS[kind].controllers)
            _know_all_kinds(control_plane)
            try:
                found = asyncio.run(measure(kind, args, control_plane, nodes, token))
            except AssertionError as why:  # such as a kind that does not run again after it was stopped by hand
                found = {"kind": kind, "not measured": str(why)}
            print(json.dumps(found), flush=True)
    pods = {
        "stopping takes": args.stopping,
        "leaving takes": args.leaving,
        "starting takes": args.starting,
        "runs before a turn": args.resting,
    }
    print(json.dumps({"clock": CLOCK, "pods": pods, "goal": f"at most {GOAL} times the floor", "machine": machine()}))
    return 0


CLOCK = {
    "start": "by hand: before the patch that stops the gang; healthd: before the agent is handed the record",
    "end": "a watch showed that the last new pod is Running",
    "unit": "s",
}


@contextmanager
def all_controllers(control_plane: ControlPlane) -> Iterator[Controllers]:
    """Those of one kind at a time; none runs after the block."""
    running = Controllers(control_plane)
    try:
        yield running
    finally:
        running.only(())


def _know_all_kinds(control_plane: ControlPlane) -> None:
    """The garbage collector looks for new kinds when it starts."""
    collector = control_plane.programs["kube-controller-manager"]
    collector.stop()
    collector.start()


async def measure(
    kind: str, args: argparse.Namespace, control_plane: ControlPlane, nodes: SimulatedNodes, token: str
) -> dict[str, Any]:
    """Of one kind: seconds of each round, by hand and by healthd, and of each phase."""
    clock = SystemClock()
    connection = from_kubeconfig(control_plane.kubeconfig, clock=clock)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            connect(connection, clock=clock, jitter=random.random) as cluster,
            a_scenario(cluster, control_plane, nodes) as scenario,
            replicas_of(control_plane, token, Path(folder)) as replicas,
        ):
            stage = Stage(kind, scenario, replicas, Path(folder) / "saved")
            try:
                taken = await _take_turns(stage, args)
                in_phases = phases([each.status.timeline for each in scenario.recoveries()])
                return {**figures(kind, taken), "where the time goes": in_phases}
            except BaseException:
                print(stage.describe(), file=sys.stderr)
                raise


async def _take_turns(stage: Stage, args: argparse.Namespace) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {"by hand": [], "healthd": []}
    pace = {STOPPING_TAKES: args.stopping, LEAVING_TAKES: args.leaving, STARTING_TAKES: args.starting}
    await stage.play(spares=args.rounds, notes={key: f"{seconds}s" for key, seconds in pace.items() if seconds})
    for attempt in range(1, args.rounds + 1):
        await asyncio.sleep(args.resting)
        taken["by hand"].append(await by_hand(stage))
        await asyncio.sleep(args.resting)
        taken["healthd"].append(await by_healthd(stage, attempt))
    return taken


async def by_hand(stage: Stage) -> float:
    """How long one stop and start took."""
    kind, scenario = KINDS[stage.kind], stage.scenario
    path = _path(stage)
    began = time.monotonic()
    await asyncio.to_thread(_patch, stage, path, kind.stop)
    await scenario.until("no pod to be there", lambda: not any(map(scenario.gang.is_member, scenario.pods())))
    await asyncio.to_thread(_patch, stage, path, kind.start)
    await scenario.until("all pods to run", lambda: _all_run(stage))
    return time.monotonic() - began


async def by_healthd(stage: Stage, attempt: int) -> float:
    """How long it took after the fault; then the gang saves a step, and the recovery ends."""
    scenario, step = stage.scenario, NEXT + 200 * attempt
    bad = stage.node_of_other()
    began = time.monotonic()
    scenario.break_gpu(bad)
    await scenario.until_running(attempt)
    took = time.monotonic() - began
    await stage.until_recovered(attempt, step=step)
    return took


def _all_run(stage: Stage) -> bool:
    living: Sequence[Pod] = stage.scenario.living()
    count = MEMBERS + stage.scenario.gang.beside
    return len(living) == count and all(pod.status.phase == "Running" for pod in living)


def _path(stage: Stage) -> str:
    """Of the object that its user patches."""
    kind = KINDS[stage.kind]
    resource, _, name = kind.patched.partition("/")
    plural, _, group = resource.partition(".")
    version = "v1beta1" if group == "kueue.x-k8s.io" else kind.manifests[-1]["apiVersion"].partition("/")[2]
    return f"/apis/{group}/{version}/namespaces/{stage.scenario.namespace}/{plural}/{name}"


def _patch(stage: Stage, path: str, patch: Any) -> None:
    """Without the start of a kubectl, which would make the floor slower."""
    how = "json-patch" if isinstance(patch, list) else "merge-patch"
    stage.scenario.control_plane.api.call("PATCH", path, patch, kind=f"application/{how}+json")


def figures(kind: str, taken: Mapping[str, list[float]]) -> dict[str, Any]:
    """Of one kind."""
    ratio = median(taken["healthd"]) / median(taken["by hand"])
    spreads = {name: spread(seconds) for name, seconds in taken.items()}
    return {"kind": kind, **spreads, "ratio of medians": round(ratio, 2), "rounds": taken}


if __name__ == "__main__":
    sys.exit(main())
