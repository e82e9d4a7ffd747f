"""
One scenario's own corner of the cluster: a namespace, nodes of a product of their own, their agents, and one gang.

What happens there is seen through watches, and every wait is for something seen and has a limit.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from healthd.clock import SystemClock
from healthd.cluster.informer import Change, Informer, Watched
from healthd.cluster.remote import RemoteCluster
from healthd.cluster.store import Key
from healthd.core.api import ANNOTATION_QUARANTINE, LABEL_SPARE, Node, NodeHealth, Pod, Recovery
from healthd.core.api.model import Phase, Verdict
from healthd.core.config import QuarantinePolicy
from healthd.core.recovery.members import attempt_of, will_not_run
from tests.kubernetes.gangs import GANGS, LAUNCHER, Gang, Manifest
from tests.kubernetes.rank_lifetimes import Ranks, rank_of
from tests.lab.api import ApiError
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import FALLEN_OFF, Member, fleet
from tests.lab.programs import LabError, wait_until
from tests.lab.simulated import PRODUCT, SimulatedNodes

LIMIT = 120.0
"""Seconds for any one thing to happen; most take less than two, and the machine may be busy."""
_ACCEPTED_IN = 20
MEMBERS = 4
BESIDE = "lab.healthd.dev/spare"
"""Label of every node that was added as a spare, whatever became of it."""


class Scenario:
    """Drives one gang. `await play(…)` first."""

    def __init__(
        self,
        cluster: RemoteCluster,
        control_plane: ControlPlane,
        nodes: SimulatedNodes,
        namespace: str,
        stack: AsyncExitStack,
        product: str,
    ) -> None:
        self.product = product
        """Of the nodes that this scenario plays on."""
        self.cluster = cluster
        self.control_plane = control_plane
        self.namespace = namespace
        self.simulated = nodes
        self.ranks = Ranks()
        self.agents: dict[str, Member] = {}
        self.gang: Gang = GANGS["Job"]
        self.nodes: list[str] = []
        self.spares: list[str] = []
        self.dead_kubelets: set[str] = set()
        """Nodes where the processes of pods go on whatever the API server says, until `end_processes`."""
        self._stack = stack
        self._changes = asyncio.Event()
        self._pods: dict[Key, Pod] = {}
        self._recoveries: dict[Key, Recovery] = {}
        self._nodes: dict[str, Node] = {}
        self._health: dict[str, NodeHealth] = {}
        self.most_quarantined = 0
        """Nodes that were in quarantine at the same time."""
        self._seen: Informer = Informer(
            cluster,
            SystemClock(),
            [
                Watched(kind=Pod, namespace=namespace),
                Watched(kind=Recovery, namespace=namespace),
                Watched(kind=Node, labels={PRODUCT: product}),
                Watched(kind=NodeHealth),
            ],
        )
        self._seen.listen(self._note)

    async def watch(self) -> None:
        """See what happens, until cancelled."""
        await self._seen.run()

    # Before -----------------------------------------------------------------------------------------------------------

    async def play(
        self,
        which: str | Gang = "Job",
        *,
        members: int = MEMBERS,
        nodes: int | None = None,
        spares: int = 1,
        notes: Mapping[str, str] | None = None,
        budget: int = 1000,
        agents: int | None = None,
    ) -> None:
        """
        Set up nodes with agents (or only the first *agents* of them: hundreds cost this process dear), and a gang of
        a kind, and wait until it runs.
        """
        await self.begin(which, members=members, nodes=nodes, spares=spares, notes=notes, budget=budget, agents=agents)
        await self.until_running(0, members + self.gang.beside)

    async def begin(
        self,
        which: str | Gang = "Job",
        *,
        members: int = MEMBERS,
        nodes: int | None = None,
        spares: int = 1,
        notes: Mapping[str, str] | None = None,
        budget: int = 1000,
        agents: int | None = None,
    ) -> None:
        """The same, without waiting until it runs."""
        self.gang = GANGS[which] if isinstance(which, str) else which
        self.nodes = self.add_nodes(members if nodes is None else nodes)
        self.spares = self.add_spares(spares)
        written = self.gang.write(self.pod_spec, notes or {}, members)
        await asyncio.to_thread(wait_until, "accepted", lambda: self._is_accepted(written), limit=_ACCEPTED_IN)
        await self.give_agents([*self.nodes, *self.spares][:agents], budget=budget)

    def _is_accepted(self, manifests: Sequence[Manifest]) -> bool:
        """False where a webhook has not seen the first of them when it is asked about the next."""
        try:
            self.apply(*manifests)
        except LabError as error:
            if "must be created before" in str(error):
                return False
            raise
        return True

    def add_nodes(self, count: int) -> list[str]:
        """Nodes that only the pods of this scenario run on."""
        return self.simulated.add(count, labels={PRODUCT: self.product}, prefix=self.namespace)

    def add_spares(self, count: int) -> list[str]:
        """The same, held free."""
        labels = {PRODUCT: self.product, LABEL_SPARE: "true", BESIDE: "yes"}
        names = self.simulated.add(count, labels=labels, prefix=f"{self.namespace}-spare")
        if names:
            self.control_plane.kubectl("taint", "nodes", *names, f"{LABEL_SPARE}=:NoSchedule", "--overwrite")
        return names

    async def give_agents(self, nodes: Sequence[str], *, budget: int = 1000) -> None:
        """Each of *nodes* gets the agent that is shipped."""
        members = await self._stack.enter_async_context(fleet(self.cluster, nodes, QuarantinePolicy(budget=budget)))
        self.agents.update(members)
        for node in nodes:
            self._show_processes(node)

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """What keeps a pod on the nodes of this scenario."""
        return {"nodeSelector": {PRODUCT: self.product}}

    def clear(self) -> None:
        """Leave nothing that another scenario could see: its nodes count where shares of all nodes do."""
        self.control_plane.api.delete(f"/api/v1/namespaces/{self.namespace}")
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        nodes = [f"/api/v1/nodes/{name}" for name in self._nodes if self._is_mine(name)]
        health = [f"/apis/healthd.dev/v1alpha1/nodehealths/{name}" for name in self._health if self._is_mine(name)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self._remove, nodes + health))

    def _is_mine(self, node: str) -> bool:
        return node.startswith(f"{self.namespace}-")

    def _remove(self, path: str) -> None:
        with suppress(ApiError):
            self.control_plane.api.delete(path)

    # What is done -----------------------------------------------------------------------------------------------------

    def apply(self, *manifests: Manifest) -> None:
        """As a user does it."""
        items = [{**each, "metadata": {"namespace": self.namespace, **each["metadata"]}} for each in manifests]
        self.control_plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def kubectl(self, *arguments: str) -> str:
        """In the namespace of the scenario."""
        return self.control_plane.kubectl("-n", self.namespace, *arguments)

    def get(self, what: str) -> Any:
        """An object as JSON, such as `job/llama`."""
        return json.loads(self.kubectl("get", what, "-o", "json"))

    def break_gpu(self, node: str) -> None:
        """A GPU of *node* falls off the bus, and its agent reads so in the kernel log."""
        self.agents[node].hear(FALLEN_OFF)

    def kill_kubelet(self, node: str) -> None:
        """Its containers run on, and nothing says what becomes of them."""
        self.dead_kubelets.add(node)
        self.simulated.kill_kubelet(node)

    def end_processes(self, node: str) -> None:
        """The last process of every pod on *node* ends; its agent sees so."""
        self.agents[node].see_processes()

    def repair(self, *nodes: str) -> None:
        """A person says so, as `healthd repair` does."""
        for node in nodes:
            command = [sys.executable, "-m", "healthd.cli.main", "repair", node]
            kubeconfig = f"--kubeconfig={self.control_plane.kubeconfig}"
            subprocess.run([*command, kubeconfig], check=True, capture_output=True)

    def node_of(self, rank: int = 0) -> str:
        """Where a member runs, counted in the order of their ranks."""
        pods = [pod for pod in self.living() if rank_of(pod) != LAUNCHER]
        return sorted(pods, key=rank_of)[rank].spec.node_name

    # What is seen -----------------------------------------------------------------------------------------------------

    def pods(self) -> list[Pod]:
        """All pod objects."""
        return list(self._pods.values())

    def living(self) -> list[Pod]:
        """Members that run, or may yet run."""
        return [pod for pod in self.pods() if self.gang.is_member(pod) and not will_not_run(pod)]

    def running(self, attempt: int) -> list[Pod]:
        """The members of an attempt that run."""
        return [pod for pod in self.living() if pod.status.phase == "Running" and attempt_of(pod) == attempt]

    def recoveries(self) -> list[Recovery]:
        """All of them, the first one first."""
        return sorted(self._recoveries.values(), key=lambda each: each.metadata.name)

    def node(self, name: str) -> Node:
        """A node of this scenario."""
        return self._nodes[name]

    def unhealthy(self) -> set[str]:
        """The nodes of this scenario whose agents say so, having decided what to do about it."""
        return {name for name in self.agents if self._says_unhealthy(name)}

    def _says_unhealthy(self, name: str) -> bool:
        return name in self._health and self._health[name].status.verdict is Verdict.UNHEALTHY

    async def until(self, what: str, holds: Callable[[], object], *, limit: float = LIMIT) -> None:
        """Return when it is seen. Raises AssertionError, with all that is known, after *limit* seconds."""
        try:
            async with asyncio.timeout(limit):
                while not holds():
                    self._changes.clear()
                    await self._changes.wait()
        except TimeoutError:
            raise AssertionError(f"waited {limit:g} s for {what}") from None

    async def until_running(self, attempt: int, count: int | None = None) -> list[Pod]:
        """The members of an attempt, when all of them run and no other lives."""
        count = MEMBERS + self.gang.beside if count is None else count

        def whole() -> bool:
            return len(self.running(attempt)) == len(self.living()) == count

        await self.until(f"{count} members of attempt {attempt} to run", whole)
        return self.running(attempt)

    async def until_phase(self, *phases: Phase, limit: float = LIMIT) -> Recovery:
        """The latest recovery, once it is in one of *phases*."""

        def there() -> bool:
            return any(each.status.phase in phases for each in self.recoveries()[-1:])

        await self.until(f"a recovery to be {' or '.join(phases)}", there, limit=limit)
        return self.recoveries()[-1]

    def describe(self) -> str:
        """All that helps to understand a failure."""
        parts = [
            self._shown("recoveries", "-o", "wide"),
            *(_timeline(each) for each in self.recoveries()),
            self._shown("pods", "-o", "wide"),
            self._shown(self.gang.resource, "-o", "yaml"),
            self._shown("nodes", "-l", f"{PRODUCT}={self.product}", "-o", "wide"),
            *(f"overlap: {each}" for each in self.ranks.overlaps),
            f"starts: {self.ranks.starts}",
        ]
        return "\n\n".join(parts)

    def _shown(self, *what: str) -> str:
        try:
            return self.kubectl("get", *what)
        except LabError as error:
            return str(error)

    def _note(self, change: Change) -> None:
        seen = change.obj
        if isinstance(seen, Pod):
            self._pods[change.key] = seen
            if self.gang.is_member(seen):
                self.ranks.reported(seen)
            self._show_processes(seen.spec.node_name)
        elif isinstance(seen, Recovery):
            self._recoveries[change.key] = seen
        elif isinstance(seen, Node):
            self._nodes[change.key.name] = seen
            marked = sum(ANNOTATION_QUARANTINE in node.metadata.annotations for node in self._nodes.values())
            self.most_quarantined = max(self.most_quarantined, marked)
        elif isinstance(seen, NodeHealth):
            self._health[change.key.name] = seen
        else:
            self._forget(change)
        self._changes.set()

    def _show_processes(self, node: str) -> None:
        """The agent of *node* sees the control groups of the pods that live there."""
        if node in self.agents and node not in self.dead_kubelets:
            self.agents[node].see_processes(*self.ranks.alive_on(node))

    def _forget(self, change: Change) -> None:
        if change.kind is Pod:
            gone = self._pods.pop(change.key, None)
            self.ranks.gone(change.key.name)
            self._show_processes(gone.spec.node_name if gone else "")
        elif change.kind is Recovery:
            self._recoveries.pop(change.key, None)
        elif change.kind is Node:
            self._nodes.pop(change.key.name, None)


def _timeline(recovery: Recovery) -> str:
    rows = [f"  {entry.at:%H:%M:%S.%f} {entry.phase}: {entry.message}" for entry in recovery.status.timeline]
    return "\n".join([recovery.metadata.name, *rows])


@asynccontextmanager
async def a_scenario(
    cluster: RemoteCluster, control_plane: ControlPlane, nodes: SimulatedNodes, *, beside: Scenario | None = None
) -> AsyncIterator[Scenario]:
    """A namespace that goes afterwards with all that is in it; its nodes are like those of *beside*."""
    namespace = await asyncio.to_thread(control_plane.new_namespace, "story")
    async with AsyncExitStack() as stack:
        product = beside.product if beside else namespace
        scenario = Scenario(cluster, control_plane, nodes, namespace, stack, product)
        watching = asyncio.create_task(scenario.watch())
        try:
            await scenario._seen.until_synced()
            yield scenario
        finally:
            await stack.aclose()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await asyncio.to_thread(scenario.clear)
