"""Whole recoveries of every kind, by the real controller of healthd, beside the real controller of the kind."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.clock import SystemClock
from healthd.cluster.port import Cluster
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import Informers
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.ports import CheckpointAnswer
from healthd.controller.reconciler import Reconciler
from healthd.core.api import Pod, Recovery
from healthd.core.api.model import ENDED, Phase
from healthd.core.config import Config, RecoveryPolicy
from healthd.core.node.quarantine import Record
from healthd.core.recovery.gang import Root
from healthd.core.recovery.members import attempt_of, will_not_run
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.gangs.lab import manifests
from tests.gangs.lab.scenario import Scenario
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

KINDS = {
    "Job": [manifests.job()],
    "Job without indexes": [manifests.job(completionMode="NonIndexed")],
    "JobSet": [manifests.jobset(failurePolicy={"maxRestarts": 3})],
    "StatefulSet": [manifests.stateful_set()],
    "StatefulSet with a launcher": [
        manifests.launcher(),
        manifests.stateful_set(notes={"healthd.dev/launcher": "mpirun"}),
    ],
    "PodGang": manifests.plain_pods("rank-0", "rank-1", "rank-2", "rank-3"),
}
POLICY = RecoveryPolicy(
    fault_window=timedelta(0),
    backoff_max=timedelta(milliseconds=100),
    confirm_after=timedelta(seconds=1),
    look_every=timedelta(milliseconds=200),
)
METRICS = Metrics()
CLOCK = SystemClock()


class NoCheckpoints:
    """These gangs save nothing."""

    async def latest(self, root: Root, *_: object, **__: object) -> CheckpointAnswer:
        """None."""
        return CheckpointAnswer(None, [])

    async def newest_step(self, root: Root) -> int | None:
        """None."""
        return None


class Killed(BaseException):
    """The controller was killed."""


class Mortal:
    """The cluster of a controller that lives for one write, and is killed right before the next or right after it."""

    def __init__(self, cluster: Cluster, *, writes: int, with_effect: bool) -> None:
        self._cluster = cluster
        self._left = writes
        self._with_effect = with_effect

    def __getattr__(self, name: str) -> Any:
        """The verbs; those that write are counted."""
        verb = getattr(self._cluster, name)
        if name not in ("create", "patch", "delete"):
            return verb

        async def counted(*args: Any, **kwargs: Any) -> Any:
            if self._left == 0 and not self._with_effect:
                raise Killed
            answer = await verb(*args, **kwargs)
            if self._left == 0:
                raise Killed
            self._left -= 1
            return answer

        return counted


class Replicas:
    """Controllers one after the other, who share what a standby has seen."""

    def __init__(self, scenario: Scenario) -> None:
        self.deaths = 0
        self._theatre = scenario
        self.cluster_state = ClusterState(ADAPTERS)
        self._wake = asyncio.Event()
        self.informers = Informers(scenario.cluster, CLOCK, self.cluster_state, ADAPTERS, self._wake.set)
        self._controller = self.new(scenario.cluster)

    def new(self, cluster: Any) -> Reconciler:
        """One more replica."""
        dependencies = ReconcilerDependencies(
            cluster=cluster,
            clock=CLOCK,
            adapters=ADAPTERS,
            checkpoints=NoCheckpoints(),
            metrics=METRICS,
            informer=self.informers,
        )
        return Reconciler(dependencies, Config(recovery=POLICY), cluster_state=self.cluster_state)

    async def look(self) -> None:
        """One look of a controller that stays alive."""
        await self._controller.reconcile_all(CLOCK.now())

    def kill(self) -> None:
        """The one that lives is killed, and another one takes over, for a while."""
        self.deaths += 1
        self._controller = self.new(Mortal(self._theatre.cluster, writes=1, with_effect=self.deaths % 2 == 0))

    async def look_and_die(self) -> None:
        """Looks until it is killed; each one is killed at its second write, before or after it."""
        try:
            await self._controller.reconcile_all(CLOCK.now())
        except Killed:
            self.kill()


@asynccontextmanager
async def replicas(scenario: Scenario) -> AsyncIterator[Replicas]:
    """Controllers, with everything that there is listed once."""
    started = Replicas(scenario)
    feeding = asyncio.create_task(started.informers.run())
    try:
        await started.informers.until_synced()
        yield started
    finally:
        feeding.cancel()
        with suppress(asyncio.CancelledError):
            await feeding


class Witness:
    """Sees which pods there are, and that no two attempts are alive."""

    def __init__(self, scenario: Scenario) -> None:
        self._theatre = scenario
        self.seen: dict[int, set[str]] = defaultdict(set)

    async def look(self) -> list[Recovery]:
        """All recoveries of the gang, the first one first."""
        pods = (await self._theatre.cluster.list(Pod, namespace=self._theatre.namespace)).items
        for pod in pods:
            self.seen[attempt_of(pod)].add(pod.metadata.uid)
        alive = {attempt_of(pod) for pod in pods if not will_not_run(pod) and pod.status.phase == "Running"}
        assert len(alive) <= 1, f"attempts {alive} are alive together"
        listed = await self._theatre.cluster.list(Recovery, namespace=self._theatre.namespace)
        return sorted(listed.items, key=lambda recovery: recovery.metadata.name)


def older_than_a_second(pod: Pod) -> Callable[[], Awaitable[bool]]:
    """An API server tells times to the second: what happens in the same one has no order."""

    async def is_older() -> bool:
        made = pod.metadata.creation_timestamp
        return made is not None and CLOCK.now() - made > timedelta(seconds=2)

    return is_older


async def until_ended(scenario: Scenario, look: Any) -> tuple[Recovery, Witness]:
    """The one recovery of the gang, once it has ended, and what was seen meanwhile."""
    witness, found = Witness(scenario), list[Recovery]()

    async def ended() -> bool:
        await look()
        found[:] = await witness.look()
        return bool(found) and all(recovery.status.phase in ENDED for recovery in found)

    await scenario.until(ended, "the recovery to end")
    assert len(found) == 1, [recovery.status.message for recovery in found]
    return found[0], witness


async def fail_until_noticed(scenario: Scenario, kind: str) -> None:
    """
    A member of a gang that runs fails, unless healthd has seen one that did. On a busy machine the controller of a
    JobSet may be faster: it restarts the gang by itself, and there is no fault left to see.
    """
    recoveries = await scenario.cluster.list(Recovery, namespace=scenario.namespace)
    running = [pod for pod in await scenario.alive() if pod.status.phase == "Running"]
    if not recoveries.items and len(running) == (await scenario.root(kind)).world:
        scenario.nodes.end_containers(scenario.namespace, running[0].metadata.name, exit_code=1)


@pytest.mark.parametrize("which", KINDS)
async def test_a_controller_that_dies_at_every_write_restarts_a_gang_exactly_once(
    scenario: Scenario, which: str
) -> None:
    kind = which.split()[0]
    scenario.apply(*KINDS[which])
    async with replicas(scenario) as controllers:
        first, *_ = await scenario.until_running(kind)
        await scenario.until(older_than_a_second(first), "a second to pass")
        controllers.kill()

        async def look() -> None:
            await fail_until_noticed(scenario, kind)
            await controllers.look_and_die()

        recovery, witness = await until_ended(scenario, look)

    root = await scenario.root(kind)
    assert recovery.status.phase is Phase.RECOVERED
    assert (root.attempt, root.suspended, root.stopped_by) == (1, False, "")
    assert len(witness.seen[1]) == root.world
    assert controllers.deaths > 5


def break_node(scenario: Scenario, node: str) -> None:
    """An agent takes its node out of service."""
    record = Record(finding="gpu/xid-79", message="GPU has fallen off the bus", since=CLOCK.now())
    note = {"healthd.dev/quarantine": msgspec.json.encode(record).decode()}
    patch = {"metadata": {"annotations": note}, "spec": {"unschedulable": True}}
    scenario.kubectl("patch", "node", node, "-p", json.dumps(patch))


def hold_as_spare(scenario: Scenario, node: str) -> None:
    """An operator keeps a node free for recoveries."""
    scenario.kubectl("label", "node", node, "healthd.dev/spare=true", "--overwrite")
    scenario.kubectl("taint", "node", node, "healthd.dev/spare=:NoSchedule", "--overwrite")


@pytest.fixture
def own_nodes(scenario: Scenario, simulated_nodes: SimulatedNodes, which: str) -> Iterator[list[str]]:
    """A node for each member, and a spare, the last. They go afterwards: broken nodes of many tests are an outage."""
    members = 5 if "launcher" in which else 4
    pool = {"labels": {"pool": scenario.namespace}, "prefix": f"own-{scenario.namespace[-8:]}"}
    added = simulated_nodes.add(members + 1, **pool)  # type: ignore[arg-type]
    hold_as_spare(scenario, added[-1])
    yield added
    simulated_nodes.remove(added)


@pytest.mark.parametrize("which", KINDS)
async def test_a_gang_moves_from_a_broken_node_to_its_spare(
    scenario: Scenario, own_nodes: list[str], which: str
) -> None:
    kind, spare = which.split()[0], own_nodes[-1]
    scenario.apply(*(on_nodes_of(scenario, each) for each in KINDS[which]))
    async with replicas(scenario) as controllers:
        before = await scenario.until_running(kind)
        bad = before[0].spec.node_name
        break_node(scenario, bad)

        recovery, witness = await until_ended(scenario, controllers.look)

    after = await scenario.until_running(kind, attempt=1)
    claim = scenario.get(f"node/{spare}")["metadata"]["annotations"]["healthd.dev/claim"]
    assert (recovery.status.phase, recovery.status.replacements) == (Phase.RECOVERED, {bad: spare})
    assert bad not in {pod.spec.node_name for pod in after}
    assert json.loads(claim)["instead_of" if "instead_of" in claim else "insteadOf"] == bad
    assert len(witness.seen[1]) == (await scenario.root(kind)).world


def on_nodes_of(scenario: Scenario, manifest: dict[str, Any]) -> dict[str, Any]:
    """The same, on the nodes of this test alone, each of which has room for one member."""
    text = json.dumps(manifest)
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    pinned = {"nodeSelector": {"pool": scenario.namespace}}
    container = '{"name": "main", "image": "none"'
    assert container in text
    text = text.replace(container, f'{container}, "resources": {json.dumps(resources)}')
    changed: dict[str, Any] = json.loads(text.replace('"containers":', f'{json.dumps(pinned)[1:-1]}, "containers":'))
    return changed
