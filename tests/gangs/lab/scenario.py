"""One gang with its real controller: what its user, its nodes and healthd do to it, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from healthd.clock import SystemClock
from healthd.cluster.port import Cluster, Conflict, NotFound
from healthd.core.api import ChosenCheckpoint, Pod, Recovery
from healthd.core.recovery.gang import Root, StartHint
from healthd.core.recovery.members import attempt_of, will_not_run
from healthd.gangs import ADAPTERS
from tests.gangs.roots import roots_of
from tests.lab.control_plane import ControlPlane
from tests.lab.simulated import SimulatedNodes

LONG = timedelta(minutes=2)
"""Bounds every wait. Most last tens of milliseconds; a back-off of the Job controller lasts ten seconds."""
_PAUSE = timedelta(milliseconds=50)


class Scenario:
    """Drives one gang in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str, control_plane: ControlPlane, nodes: SimulatedNodes) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.nodes = nodes
        self._control_plane = control_plane
        self._clock = SystemClock()

    # The user ---------------------------------------------------------------------------------------------------

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """What a user writes, applied."""
        for manifest in manifests:
            self.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(manifest))

    def kubectl(self, *arguments: str, input: str = "") -> str:  # noqa: A002 - subprocess calls it so, too
        """As the user does, in the namespace."""
        return self._control_plane.kubectl("-n", self.namespace, *arguments, input=input)

    def get(self, what: str) -> Any:
        """An object as JSON, `job/train`."""
        return json.loads(self.kubectl("get", what, "-o", "json"))

    # healthd ----------------------------------------------------------------------------------------------------

    async def root(self, kind: str, name: str = "train") -> Root:
        """The root as it stands."""
        found = [root for root in await roots_of(ADAPTERS[kind], self.cluster) if self._is_mine(root, name)]
        assert len(found) == 1, f"{len(found)} roots of kind {kind} are called {name}"
        return found[0]

    async def stop(self, kind: str, recovery: str = "train-1") -> Root:
        """Stop the gang, again where somebody else wrote to its root; returns when healthd takes it for stopped."""
        await self._act(kind, lambda root: ADAPTERS[kind].stop(self.cluster, root, recovery))
        return await self.until_stopped(kind)

    async def start(self, kind: str, attempt: int = 1, checkpoint: ChosenCheckpoint | None = None) -> None:
        """Start the gang, with a hint."""
        hint = StartHint(recovery="train-1", attempt=attempt, checkpoint=checkpoint or ChosenCheckpoint(), placement={})
        await self._act(kind, lambda root: ADAPTERS[kind].start(self.cluster, root, hint))

    async def discover(self, kind: str) -> None:
        """What a controller does with members of a gang that has no root yet."""
        await ADAPTERS[kind].discover(self.cluster, self.namespace, "train", await self.pods())

    async def maintain(self, kind: str) -> None:
        """What a controller does at every look; the faster one has done it."""
        with suppress(Conflict, NotFound):
            await ADAPTERS[kind].maintain(self.cluster, await self.root(kind), await self.pods())

    async def until_stopped(self, kind: str) -> Root:
        """As a recovery waits: no member runs, and the root's own controller says that it makes no more."""

        async def stopped() -> bool:
            await self.maintain(kind)
            return (await self.root(kind)).stopped and not await self.alive()

        await self.until(stopped, "the gang to stop")
        return await self.root(kind)

    async def until_running(self, kind: str, attempt: int = 0) -> list[Pod]:
        """All members of this attempt, once they run."""
        running: list[Pod] = []

        async def whole() -> bool:
            await self.discover(kind)
            await self.maintain(kind)
            root = await self.root(kind)
            running[:] = [p for p in await self.alive() if p.status.phase == "Running" and attempt_of(p) == attempt]
            return len(running) == root.world

        await self.until(whole, f"all members of attempt {attempt} to run")
        return running

    # What there is ----------------------------------------------------------------------------------------------

    async def pods(self) -> list[Pod]:
        """All pod objects."""
        return (await self.cluster.list(Pod, namespace=self.namespace)).items

    async def alive(self) -> list[Pod]:
        """Those that run or may yet run."""
        return [pod for pod in await self.pods() if not will_not_run(pod)]

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something holds."""
        end = self._clock.now() + LONG
        while not await holds():
            if self._clock.now() > end:
                raise AssertionError(f"waited {LONG} for {what}: {await self._what_there_is()}")
            await self._clock.sleep(_PAUSE)

    async def _what_there_is(self) -> str:
        """The gang and its recoveries, for the reader of a failure."""
        recoveries = (await self.cluster.list(Recovery, namespace=self.namespace)).items
        said = [f"{each.metadata.name} {each.status.phase}: {each.status.message}" for each in recoveries]
        pods = [f"{pod.metadata.name} {pod.status.phase} of attempt {attempt_of(pod)}" for pod in await self.pods()]
        return "; ".join([*(said or ["no recovery"]), *(pods or ["no pod"])])

    def _is_mine(self, root: Root, name: str) -> bool:
        return (root.ref.namespace, root.ref.name) == (self.namespace, name)

    async def _act(self, kind: str, act: Callable[[Root], Awaitable[None]]) -> None:
        async def done() -> bool:
            try:
                await act(await self.root(kind))
            except Conflict:
                return False
            return True

        await self.until(done, "an act without a conflict")
