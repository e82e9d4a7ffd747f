"""Kinds of custom objects come and go while the controller runs, and so do its rights to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import AccessReader, Cluster, ClusterError, Forbidden, KindAccess, NotFound
from healthd.controller.cache.cluster_state import ClusterState, GangKey
from healthd.controller.cache.informers import ASK_AGAIN, BETWEEN, Informers
from healthd.core.api import Workload
from healthd.gangs.kinds import ALL
from healthd.telemetry.metrics import Metrics
from tests.builders import a_job
from tests.fakes import ManualClock, counting_uids, settle
from tests.gangs.described import adapter_of, an_object, stored
from tests.gangs.kueue import a_workload

KIND = adapter_of("PyTorchJob").kind
KEY = GangKey("PyTorchJob", "default", "train")


class Served:
    """A cluster that answers requests about some kinds with an error, and counts what it was asked."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.errors: dict[type[Any], ClusterError] = {}
        self.asked: list[type[Any]] = []
        self.access: dict[type[Any], KindAccess] = {}
        self.verbs: dict[type[Any], Sequence[str]] = {}
        self.has_no_reviews = False

    async def access_to(self, kind: type[Any], verbs: Sequence[str]) -> KindAccess:
        self.verbs[kind] = verbs
        if self.has_no_reviews:
            raise Forbidden("no reviews here")
        return self.access.get(kind, KindAccess(is_served=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def list(self, kind: type[Any], **options: Any) -> Any:
        self.asked.append(kind)
        if error := self.errors.get(kind):
            raise error
        return await self._cluster.list(kind, **options)

    async def watch(self, kind: type[Any], **options: Any) -> AsyncIterator[Any]:
        async for event in self._cluster.watch(kind, **options):
            if kind in self.errors:
                return
            yield event


class Watching:
    """Informers of all kinds over such a cluster."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.served = Served(self.cluster)
        self.state = ClusterState(ALL)
        served: Any = self.served
        reached: Cluster = served
        access: AccessReader = served
        self.metrics = Metrics()
        self.informers = Informers(
            reached, self.clock, self.state, ALL, lambda: None, metrics=self.metrics, access=access
        )
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self.informers.run())
        await settle()

    @property
    def forbidden(self) -> set[str]:
        """Kinds that the metrics show as forbidden."""
        samples = [sample for family in self.metrics.registry.collect() for sample in family.samples]
        return {sample.labels["kind"] for sample in samples if sample.name == "healthd_kind_forbidden"}

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self.cluster.close()


@pytest.fixture
async def watching() -> AsyncIterator[Watching]:
    watching = Watching()
    yield watching
    await watching.close()


async def test_a_kind_that_is_absent_is_no_trouble_and_no_word_is_said_of_it(watching: Watching) -> None:
    watching.served.errors[KIND] = NotFound("no such resource")
    with capture_logs() as logged:
        await watching.start()
        trouble = watching.informers.trouble()
        await watching.clock.run_for(4 * ASK_AGAIN)

    assert trouble is None
    assert [entry for entry in logged if entry.get("kind") == "PyTorchJob"] == []
    assert watching.forbidden == set()


@pytest.mark.parametrize(
    "access", [KindAccess(is_served=True, missing=("patch",)), KindAccess(is_served=True), KindAccess(is_served=False)]
)
async def test_a_kind_without_rights_is_no_trouble_and_is_reported_once_where_the_cluster_has_it(
    watching: Watching, access: KindAccess
) -> None:
    watching.served.access[KIND] = access
    if not access.missing:
        watching.served.errors[KIND] = Forbidden("may not list")
    with capture_logs() as logged:
        await watching.start()
        trouble = watching.informers.trouble()
        await watching.clock.run_for(4 * ASK_AGAIN)

    about = [entry for entry in logged if entry.get("kind") == "PyTorchJob"]
    assert trouble is None
    assert [entry["event"] for entry in about] == ["kind.forbidden"] * access.is_served
    assert watching.forbidden == ({"pytorchjobs"} if access.is_served else set())
    assert all("deploy/components/kubeflow-training" in entry["note"] for entry in about)


async def test_every_right_that_a_stop_needs_is_asked_for(watching: Watching) -> None:
    await watching.start()

    assert set(watching.served.verbs[KIND]) == {"get", "list", "watch", "patch"}
    assert set(watching.served.verbs[adapter_of("VolcanoJob").kind]) == {*watching.served.verbs[KIND], "patch/status"}


async def test_a_kind_of_which_another_has_the_name_is_reported_by_its_own(watching: Watching) -> None:
    watching.served.access[adapter_of("VolcanoJob").kind] = KindAccess(is_served=True, missing=("patch/status",))
    with capture_logs() as logged:
        await watching.start()

    (about,) = [entry for entry in logged if entry["event"] == "kind.forbidden"]
    assert (about["kind"], about["missing"], watching.forbidden) == ("VolcanoJob", "patch/status", {"volcanojob"})
    assert "deploy/components/volcano" in about["note"]


async def test_a_kind_is_guarded_once_the_rights_are_there(watching: Watching) -> None:
    watching.served.access[KIND] = KindAccess(is_served=True, missing=("watch", "patch"))
    await stored(watching.cluster, "PyTorchJob")
    await watching.start()
    before = KEY in watching.state.roots

    del watching.served.access[KIND]
    await watching.clock.run_for(2 * ASK_AGAIN)

    assert (before, KEY in watching.state.roots) == (False, True)
    assert watching.forbidden == set()


async def test_a_kind_whose_rights_cannot_be_asked_for_is_tried(watching: Watching) -> None:
    watching.served.has_no_reviews = True
    await stored(watching.cluster, "PyTorchJob")
    await watching.start()

    assert KEY in watching.state.roots


async def test_a_kind_that_appears_later_is_found_without_a_restart(watching: Watching) -> None:
    watching.served.errors[KIND] = NotFound("no such resource")
    await stored(watching.cluster, "PyTorchJob")
    await watching.start()
    assert KEY not in watching.state.roots

    del watching.served.errors[KIND]
    await watching.clock.run_for(2 * ASK_AGAIN)

    assert KEY in watching.state.roots


async def test_absent_kinds_together_cost_one_request_a_minute(watching: Watching) -> None:
    absent = [adapter.kind for kind, adapter in ALL.items() if kind not in ("Job", "StatefulSet", "PodGang")]
    watching.served.errors = dict.fromkeys(absent, NotFound("no such resource"))
    await watching.start()
    watching.served.asked.clear()
    await watching.clock.run_for(timedelta(minutes=30))

    assert len([kind for kind in watching.served.asked if kind in absent]) <= timedelta(minutes=30) / BETWEEN
    assert set(absent) <= set(watching.served.asked)


async def test_a_kind_whose_rights_are_taken_away_is_forgotten_and_reported(watching: Watching) -> None:
    await stored(watching.cluster, "PyTorchJob")
    await watching.start()
    watching.served.errors[KIND] = Forbidden("may not list")
    watching.served.access[KIND] = KindAccess(is_served=True, missing=("get", "list", "watch", "patch"))
    with capture_logs() as logged:
        await watching.cluster.patch(KIND, "train", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
        await watching.clock.run_for(timedelta(minutes=3))

    assert (KEY in watching.state.roots, watching.informers.trouble()) == (False, None)
    assert [entry["event"] for entry in logged if entry.get("kind") == "PyTorchJob"] == ["kind.lost", "kind.forbidden"]
    assert watching.forbidden == {"pytorchjobs"}


async def test_a_kind_that_is_deleted_is_forgotten_and_found_again(watching: Watching) -> None:
    obj = await stored(watching.cluster, "PyTorchJob")
    await watching.start()
    assert KEY in watching.state.roots

    watching.served.errors[KIND] = NotFound("no such resource")
    await watching.cluster.patch(KIND, "train", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    await watching.clock.run_for(timedelta(minutes=3))
    assert (KEY in watching.state.roots, watching.informers.trouble()) == (False, None)

    del watching.served.errors[KIND]
    await watching.clock.run_for(2 * ASK_AGAIN)
    assert watching.state.roots[KEY].ref.uid == obj.metadata.uid


async def test_objects_of_which_nothing_was_asked_are_kept_without_their_content(watching: Watching) -> None:
    await watching.cluster.create(an_object("PyTorchJob", annotations={}, name="foreign"))
    await watching.cluster.create(an_object("PyTorchJob", name="ours"))
    await watching.start()

    foreign, ours = (await watching.informers.list(KIND)).items
    assert (foreign.metadata.name, foreign.spec, bool(ours.spec)) == ("foreign", {}, True)


async def test_a_change_of_its_workload_concerns_the_gang_in_a_queue(watching: Watching) -> None:
    await watching.start()
    job = await watching.cluster.create(a_job(annotations={"healthd.dev/restart": "enabled"}))
    await settle()
    watching.state.dirty_keys.clear()

    await a_workload(watching.cluster, job)
    await settle()

    assert GangKey("Job", "default", "train") in watching.state.dirty_keys
    found = await watching.informers.list(Workload, labels={"kueue.x-k8s.io/job-uid": job.metadata.uid})
    assert [each.metadata.name for each in found.items] == ["job-train"]


async def test_without_rights_to_workloads_the_gangs_in_no_queue_are_guarded(watching: Watching) -> None:
    watching.served.errors[Workload] = Forbidden("workloads are not for you")
    await watching.start()

    await watching.informers.until_synced()

    assert watching.forbidden == {"workloads"}
    assert watching.informers.trouble() is None
