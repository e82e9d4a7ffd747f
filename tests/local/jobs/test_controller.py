"""The Job controller on a cluster: plans become objects, whatever gets in the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Cluster, Conflict, NotFound, Unavailable
from healthd.core.api import ContainerState, ContainerStatus, Job, Node, Pod, Terminated
from healthd.local.jobs.controller import RESYNC, RETRY, JobController
from healthd.local.jobs.plan import BACKOFF
from healthd.local.machine.slots import register, slots_for
from tests.builders import a_job
from tests.fakes import START, ManualClock, counting_uids


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids()) as embedded:
        yield embedded


def a_controller(cluster: Cluster, resync: timedelta = RESYNC) -> JobController:
    numbers = itertools.count()
    return JobController(cluster, new_suffix=lambda: f"x{next(numbers)}", free_port=lambda: 29500, resync=resync)


async def pods_of(cluster: EmbeddedCluster) -> dict[str, str]:
    """Pod name -> node."""
    return {pod.metadata.name: pod.spec.node_name for pod in (await cluster.list(Pod)).items}


async def report(cluster: EmbeddedCluster, phase: str, *names: str) -> None:
    """What the kubelet says of pods; all of them where none is named."""
    for name in names or await pods_of(cluster):
        await cluster.patch(Pod, name, {"status": {"phase": phase}}, namespace="default", subresource="status")


async def test_a_job_gets_its_pods_on_slots(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, [], spares=1), boot_id="boot-1", now=START)
    await cluster.create(a_job())
    await a_controller(cluster).cycle(START)
    job = await cluster.get(Job, "train", "default")

    assert await pods_of(cluster) == {"train-0-x0": "slot-0", "train-1-x1": "slot-1"}
    assert (job.status.active, job.status.start_time) == (2, START)


async def test_a_pod_without_a_slot_says_why_and_gets_one_when_there_is_one(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(1, []), boot_id="boot-1", now=START)
    await cluster.create(a_job())
    controller = a_controller(cluster)
    await controller.cycle(START)
    [condition] = (await cluster.get(Pod, "train-1-x1", "default")).status.conditions
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await controller.cycle(START)

    assert condition.message == "0/1 slots are free: 1 busy"
    assert (await pods_of(cluster))["train-1-x1"] == "slot-1"


async def test_a_second_cycle_writes_nothing(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(1, []), boot_id="boot-1", now=START)
    await cluster.create(a_job(ranks=2))
    controller = a_controller(cluster)
    await controller.cycle(START)
    before = (await cluster.list(Pod)).resource_version
    await controller.cycle(START + timedelta(seconds=1))

    assert (await cluster.list(Pod)).resource_version == before


async def test_suspend_waits_for_the_kubelet_and_resume_starts_new_pods(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await cluster.create(a_job())
    controller = a_controller(cluster)
    await controller.cycle(START)
    await report(cluster, "Running")
    await cluster.patch(Job, "train", {"spec": {"suspend": True}}, namespace="default")
    await controller.cycle(START)
    stopping = await cluster.get(Job, "train", "default")
    await report(cluster, "Failed")
    for name in await pods_of(cluster):
        await cluster.delete(Pod, name, namespace="default", grace_seconds=0)
    await controller.cycle(START)
    stopped = await cluster.get(Job, "train", "default")
    await cluster.patch(Job, "train", {"spec": {"suspend": False}}, namespace="default")
    await controller.cycle(START)

    assert (stopping.status.active, stopping.status.terminating) == (0, 2)
    assert (stopped.status.terminating, stopped.status.failed, stopped.status.start_time) == (0, 0, None)
    assert await pods_of(cluster) == {"train-0-x2": "slot-0", "train-1-x3": "slot-1"}


async def test_a_failed_pod_cannot_vanish_before_it_is_counted(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await cluster.create(a_job(backoff_limit=6))
    controller = a_controller(cluster)
    await controller.cycle(START)
    await report(cluster, "Failed", "train-0-x0")
    await cluster.delete(Pod, "train-0-x0", namespace="default", grace_seconds=0)
    for _ in range(3):
        await controller.cycle(START)

    assert (await cluster.get(Job, "train", "default")).status.failed == 1


async def test_an_index_that_failed_gets_its_pod_when_the_back_off_ends(
    cluster: EmbeddedCluster, clock: ManualClock
) -> None:
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await cluster.create(a_job(backoff_limit=6))
    controller = a_controller(cluster, resync=timedelta(hours=1))
    assert await controller.cycle(clock.now()) == timedelta(hours=1)
    end = ContainerStatus(name="main", state=ContainerState(terminated=Terminated(exit_code=1, finished_at=START)))
    status = {"phase": "Failed", "containerStatuses": msgspec.to_builtins([end])}
    await cluster.patch(Pod, "train-0-x0", {"status": status}, namespace="default", subresource="status")
    clock.advance(await controller.cycle(clock.now()))
    await controller.cycle(clock.now())

    assert clock.now() == START + BACKOFF
    assert sorted(await pods_of(cluster)) == ["train-0-x0", "train-0-x2", "train-1-x1"]


async def test_pods_of_a_deleted_job_are_let_go(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job())
    controller = a_controller(cluster)
    await controller.cycle(START)
    await cluster.delete(Job, "train", namespace="default")
    await controller.cycle(START)

    assert await pods_of(cluster) == {}


async def test_no_pod_of_a_suspended_job_is_bound(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job())
    controller = a_controller(cluster)
    await controller.cycle(START)
    await cluster.patch(Job, "train", {"spec": {"suspend": True}}, namespace="default")
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await controller.cycle(START)

    assert await pods_of(cluster) == {}


class Flaky:
    """A cluster whose writes fail in turn: not at all, before they took effect, or after."""

    def __init__(self, inner: EmbeddedCluster) -> None:
        self._inner = inner
        self._troubles = itertools.cycle(["", "before", "conflict", "after", "", "after"])
        self.get = inner.get
        self.list = inner.list
        self.watch = inner.watch

    async def create(self, obj: Any, **how: Any) -> Any:
        return await self._write(self._inner.create(obj, **how))

    async def patch(self, kind: Any, name: str, patch: Mapping[str, Any], **options: Any) -> Any:
        return await self._write(self._inner.patch(kind, name, patch, **options))

    async def delete(self, kind: Any, name: str, **options: Any) -> None:
        await self._write(self._inner.delete(kind, name, **options))

    async def _write(self, act: Any) -> Any:
        trouble = next(self._troubles)
        if trouble in ("before", "conflict"):
            act.close()
            raise Unavailable("timed out") if trouble == "before" else Conflict("somebody was quicker")
        answer = await act
        if trouble == "after":
            raise Unavailable("timed out")
        return answer


async def test_trouble_delays_a_job_and_doubles_nothing(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(4, []), boot_id="boot-1", now=START)
    await cluster.create(a_job(ranks=4))
    controller = a_controller(Flaky(cluster))
    delays = [await controller.cycle(START) for _ in range(20)]
    job = await cluster.get(Job, "train", "default")

    assert sorted((await pods_of(cluster)).values()) == ["slot-0", "slot-1", "slot-2", "slot-3"]
    assert job.status.active == 4
    assert delays[0] == RETRY < delays[-1]


async def test_trouble_during_a_stop_never_claims_that_it_is_done(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(4, []), boot_id="boot-1", now=START)
    await cluster.create(a_job(ranks=4))
    await a_controller(cluster).cycle(START)
    await report(cluster, "Running")
    await cluster.patch(Job, "train", {"spec": {"suspend": True}}, namespace="default")
    controller = a_controller(Flaky(cluster))
    for _ in range(20):
        await controller.cycle(START)
        status = (await cluster.get(Job, "train", "default")).status
        assert not status.conditions or status.terminating > 0

    assert (status.active, status.terminating) == (0, 4)


async def test_a_node_taken_out_of_service_gets_no_pod(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await cluster.patch(Node, "slot-0", {"spec": {"unschedulable": True}})
    await cluster.create(a_job(ranks=1))
    await a_controller(cluster).cycle(START)

    assert await pods_of(cluster) == {"train-0-x0": "slot-1"}
    with pytest.raises(NotFound):
        await cluster.get(Pod, "train-1-x1", "default")
