"""
Idle spares that are checked now and then: in half of the worlds. What they draw is drawn apart, so that the other
worlds are what they were.

A spare may have a fault that only a check under load shows, and the image of the check may be broken, so that every
check fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.remediation.requests import Requests
from healthd.controller.remediation.spare_checks import SpareChecks
from healthd.core.api import LABEL_SPARE, Node, Pod, Taint
from healthd.core.api.remediations import Rung
from healthd.core.config import Config
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.recovery.nodes.spares import return_patch
from healthd.core.remediation.hands.description import HandDescription
from healthd.gangs import ADAPTERS
from tests.simulation.remediation.hands import all_hands
from tests.simulation.simulation import METRICS, SkewedClock
from tests.simulation.step_scheduler import Actor, at_once

if TYPE_CHECKING:
    from tests.simulation.remediation.simulation import RemediationSimulation

HOME = "healthd-system"


class IdleSpares:
    """The spares of one world, and the loops that check them."""

    def __init__(self, sim: RemediationSimulation, seed: int) -> None:
        self._sim = sim
        self._dice = random.Random(f"{seed} spares")
        self.are_checked = self._dice.random() < 0.5
        self.names: set[str] = set()

    def configured(self, config: Config) -> Config:
        """*config*, with the check of spares."""
        if not self.are_checked:
            return config
        every = timedelta(hours=self._dice.choice((1, 4)))
        return replace(config, remediation=replace(config.remediation, check_by_pod=True, check_spares_every=every))

    def more_nodes(self, first: int) -> list[str]:
        """The names of nodes that join as spares, of which the first has this number."""
        if self.are_checked:
            self.names = {f"node-{first + at}" for at in range(self._dice.choice((1, 2, 3)))}
        return sorted(self.names)

    def labels_of(self, name: str) -> dict[str, str]:
        """What says that it is a spare."""
        return {LABEL_SPARE: "true"} if name in self.names else {}

    def taints_of(self, name: str) -> list[Taint]:
        """What keeps others off it."""
        return [Taint(key=LABEL_SPARE)] if name in self.names else []

    def loops(self, controllers: list[str]) -> list[Actor]:
        """One loop beside each of *controllers*, in a task of its own."""
        return [self._loop(f"{name}-spares") for name in controllers] if self.are_checked else []

    def strike(self) -> bool:
        """Something happens to a spare, now and then. False: not now."""
        if not self.are_checked or self._dice.random() < 0.5:
            return False
        sim, name = self._sim, self._dice.choice(sorted(self._sim.hosts.all))
        blow = self._dice.choice((self._breaks_silently, self._breaks_image, self._changes_pool, self._changes_pool))
        sim.note(f"* {blow.__name__} {name}")
        if name not in sim.lost:
            blow(name)
        return True

    def _breaks_silently(self, name: str) -> None:
        """It has a fault that only a check shows."""
        self._sim.hosts.all[name].needs = self._dice.choice((Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE))

    def _breaks_image(self, _: str) -> None:
        """The image of the check is broken, or works again."""
        self._sim.hosts.is_image_broken = not self._sim.hosts.is_image_broken

    def _changes_pool(self, name: str) -> None:
        """A person takes a node out of the pool, or puts it in: most of the time one that is being checked."""
        checked = [pod.spec.node_name for pod in at_once(self._sim.ground_truth.list(Pod, namespace=NAMESPACE)).items]
        name = checked[0] if checked and checked[0] not in self._sim.lost else name
        node = at_once(self._sim.ground_truth.get(Node, name))
        patch: dict[str, Any] = {"metadata": {"labels": {LABEL_SPARE: None}}}
        if LABEL_SPARE not in node.metadata.labels and name in self.names:
            patch = return_patch(node)
        at_once(self._sim.ground_truth.patch(Node, name, patch))

    def _loop(self, name: str) -> Actor:
        sim = self._sim
        view, cluster = sim.reach(name)

        async def no_image() -> str:
            return ""

        def live() -> Callable[[], Coroutine[Any, Any, Any]]:
            clock = SkewedClock(sim.clock, sim.clocks.get(name, timedelta(0)))
            known = all_hands()
            requests = Requests(cluster, clock, hands=[], known=known.values(), own_image=no_image, post=_never)
            state, loaded = ClusterState(ADAPTERS), False
            loop = SpareChecks(cluster, clock, state, sim.config, requests, namespace=HOME, metrics=METRICS)

            async def sample() -> None:
                nonlocal loaded
                missed, calls = sim.watch.missed[name], sim.watch.readers[name].calls
                sim.feed(state, view, with_recoveries=True)
                loaded = loaded or await loop.load()
                if loaded:
                    await loop.look()
                if sim.watch.missed[name] == missed:
                    sim.watch.after_spares(name, calls)

            return sample

        return Actor(name, live)


async def _never(hand: HandDescription, body: dict[str, Any]) -> None:
    raise AssertionError("a check of a spare calls no webhook")
