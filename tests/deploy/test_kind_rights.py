"""Kinds of gangs, and the rights to them, come while the controller runs, at a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from healthd.clock import SystemClock
from healthd.cluster.remote import RemoteCluster
from healthd.controller.cache.cluster_state import ClusterState, GangKey
from healthd.controller.cache.informers import ASK_AGAIN, BETWEEN, Informers
from healthd.gangs.kinds import ALL
from healthd.telemetry.metrics import Metrics
from tests.deploy.accounts import as_holder_of, token_of_controller
from tests.deploy.kinds import KINDS, define, grant, manifest, path_of
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PATIENCE = 30
RAY = [KINDS["RayCluster"], KINDS["RayJob"]]
ONLY_READS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: healthd-controller-ray}
rules: [{apiGroups: [ray.io], resources: [rayclusters, rayjobs], verbs: [get, list]}]
"""
"""Such as somebody wrote by hand: the watch and the patch are missing."""


class Impatient:
    """A clock on which a wait for another turn takes half a second."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def now(self) -> datetime:
        return self._clock.now()

    async def sleep(self, delay: timedelta) -> None:
        await self._clock.sleep(timedelta(seconds=0.5) if delay >= min(ASK_AGAIN, BETWEEN) else delay)


class Watching:
    """What the controller sees of the cluster, with its own token."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self.state, self.metrics = ClusterState(ALL), Metrics()
        self.informers = Informers(
            cluster, Impatient(), self.state, ALL, lambda: None, metrics=self.metrics, access=cluster
        )

    @property
    def forbidden(self) -> set[str]:
        """Kinds that the metrics show as forbidden."""
        samples = [sample for family in self.metrics.registry.collect() for sample in family.samples]
        return {sample.labels["kind"] for sample in samples if sample.name == "healthd_kind_forbidden"}

    async def start(self) -> None:
        """Return when every kind has been asked for."""
        self._running = asyncio.create_task(self.informers.run())
        await asyncio.wait_for(self.informers.until_synced(), PATIENCE)

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


@pytest.fixture
async def watching(installed: ControlPlane) -> AsyncIterator[Watching]:
    async with as_holder_of(installed, token_of_controller(installed)) as cluster:
        watching = Watching(cluster)
        yield watching
        await watching.stop()


async def test_a_kind_and_the_rights_to_it_are_found_without_a_restart(
    installed: ControlPlane, watching: Watching, namespace: str
) -> None:
    with capture_logs() as logged:
        await watching.start()
        absent, trouble = watching.forbidden, watching.informers.trouble()

        await asyncio.to_thread(define, installed, RAY)
        gang = manifest(KINDS["RayJob"], "train")
        await asyncio.to_thread(installed.api.create, path_of(KINDS["RayJob"], namespace), gang)
        await until("missed rights", lambda: watching.forbidden == {"rayclusters", "rayjobs"})

        await asyncio.to_thread(grant, installed, "ray")
        await until("a guarded gang", lambda: GangKey("RayJob", namespace, "train") in watching.state.roots)
        await until("no missed rights", lambda: watching.forbidden == set())

    assert (absent, trouble) == (set(), None)
    said = [(entry["kind"], entry["missing"]) for entry in logged if entry["event"] == "kind.forbidden"]
    first = dict(reversed(said))  # later ones may be of the moment in which the rights come, one after the other
    assert first == dict.fromkeys(("RayCluster", "RayJob"), "get, list, watch, patch")


async def test_half_of_the_rights_are_no_rights(installed: ControlPlane, watching: Watching) -> None:
    define(installed, RAY)
    grant(installed, "ray")
    installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=ONLY_READS)

    with capture_logs() as logged:
        await watching.start()
        await until("missed rights", lambda: watching.forbidden == {"rayclusters", "rayjobs"})

    assert watching.informers.trouble() is None
    assert "watch, patch" in {entry["missing"] for entry in logged if entry["event"] == "kind.forbidden"}


async def until(what: str, condition: Callable[[], bool]) -> None:
    """Wait while the informers go on. Raises LabError."""
    await asyncio.to_thread(wait_until, what, condition, limit=PATIENCE)
