"""One leader at a time, and always soon another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from healthd.clock import Clock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.leader import Candidacy, Deposed, lead
from healthd.cluster.port import Cluster, Forbidden, Unavailable
from healthd.core.api import Lease
from tests.cluster.link import Link
from tests.fakes import ManualClock, settle

SECOND = timedelta(seconds=1)


class Shifted:
    """A clock of another machine, that goes wrong by *by*."""

    def __init__(self, clock: ManualClock, by: timedelta) -> None:
        self._clock = clock
        self._by = by

    def now(self) -> datetime:
        return self._clock.now() + self._by

    async def sleep(self, delay: timedelta) -> None:
        await self._clock.sleep(delay)


class Process:
    """One candidate: it works until it is asked to `finish`, and remembers when it began and ended."""

    def __init__(self, name: str, cluster: Cluster, clock: Clock) -> None:
        self.name = name
        self.leads = False
        self._finished = asyncio.Event()
        candidacy = Candidacy(identity=name, name="leader", namespace="healthd")
        self.running = asyncio.create_task(lead(cluster, clock, candidacy, self._work))

    async def _work(self) -> str:
        self.leads = True
        try:
            await self._finished.wait()
        finally:
            self.leads = False
        return f"the work of {self.name}"

    def finish(self) -> None:
        self._finished.set()


@asynccontextmanager
async def candidates(*processes: Process) -> AsyncIterator[None]:
    await settle()
    try:
        yield
    finally:
        for process in processes:
            process.running.cancel()
        await settle()
        await asyncio.gather(*(process.running for process in processes), return_exceptions=True)


async def test_one_of_two_leads(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    async with candidates(one, two):
        await clock.run_for(60 * SECOND)

        assert (one.leads, two.leads) == (True, False)


async def test_lease_says_who_leads_and_since_when(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    began = clock.now()
    async with candidates(Process("one", cluster, clock)):
        await clock.run_for(60 * SECOND)
        spec = (await cluster.get(Lease, "leader", "healthd")).spec

    assert (spec.holder_identity, spec.acquire_time, spec.lease_duration_seconds) == ("one", began, 15)
    assert spec.renew_time is not None
    assert spec.renew_time > began + 55 * SECOND


async def test_work_that_ends_is_answered_and_lets_the_other_lead_at_once(
    cluster: EmbeddedCluster, clock: ManualClock
) -> None:
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    async with candidates(one, two):
        one.finish()
        await settle()

        assert await one.running == "the work of one"
        assert two.leads
        assert (await cluster.get(Lease, "leader", "healthd")).spec.lease_transitions == 1


async def test_cancelled_leader_gives_the_lease_back(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    async with candidates(one, two):
        one.running.cancel()
        await settle()

        assert one.running.cancelled()
        assert (one.leads, two.leads) == (False, True)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_leader_that_is_cut_off_ends_before_another_begins(
    cluster: EmbeddedCluster, clock: ManualClock, how: str
) -> None:
    link = Link(cluster)
    one, two = Process("one", link, clock), Process("two", cluster, clock)
    async with candidates(one, two):
        link.hang() if how == "hangs" else link.cut(Unavailable("no route"))
        led = []
        for _ in range(40):
            await clock.run_for(SECOND)
            led.append((one.leads, two.leads))

        assert (True, True) not in led
        assert led[9:14] == [(False, False)] * 5
        assert led[-1] == (False, True)
        assert isinstance(one.running.exception(), Deposed)


async def test_a_renewal_without_an_answer_is_logged_with_its_reason(
    cluster: EmbeddedCluster, clock: ManualClock
) -> None:
    link = Link(cluster)
    with capture_logs() as logs:
        async with candidates(Process("one", link, clock)):
            link.hang()
            await clock.run_for(20 * SECOND)

    missed = [log["error"] for log in logs if log["event"] == "leader.not_renewed"]
    assert missed
    assert all("nothing came within" in error for error in missed)


async def test_short_outage_deposes_no_one(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    link = Link(cluster)
    one = Process("one", link, clock)
    async with candidates(one):
        link.cut(Unavailable("no route"))
        await clock.run_for(7 * SECOND)
        link.mend()
        await clock.run_for(60 * SECOND)

        assert one.leads


async def test_lost_answer_to_a_renewal_deposes_no_leader(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    one = Process("one", cluster, clock)
    async with candidates(one):
        unseen = {"spec": {"renewTime": clock.now() + SECOND}}
        await cluster.patch(Lease, "leader", unseen, namespace="healthd")
        await clock.run_for(60 * SECOND)

        assert one.leads


async def test_leader_ends_when_another_took_its_lease(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    one = Process("one", cluster, clock)
    async with candidates(one):
        await cluster.patch(Lease, "leader", {"spec": {"holderIdentity": "two"}}, namespace="healthd")
        await clock.run_for(3 * SECOND)

        assert not one.leads
        with pytest.raises(Deposed, match="two"):
            await one.running


async def test_leader_ends_when_its_lease_is_deleted(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    one = Process("one", cluster, clock)
    async with candidates(one):
        await cluster.delete(Lease, "leader", namespace="healthd")
        await clock.run_for(3 * SECOND)

        with pytest.raises(Deposed, match="deleted"):
            await one.running


async def test_process_that_stood_still_does_not_go_on_as_leader(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    one = Process("one", cluster, clock)
    async with candidates(one):
        clock.advance(60 * SECOND)
        await settle()

        assert not one.leads


@pytest.mark.parametrize("hours", [-1, 1])
async def test_wrong_clock_of_another_machine_neither_steals_nor_waits(
    cluster: EmbeddedCluster, clock: ManualClock, hours: int
) -> None:
    link = Link(cluster)
    one = Process("one", link, clock)
    await settle()
    two = Process("two", cluster, Shifted(clock, timedelta(hours=hours)))
    async with candidates(one, two):
        await clock.run_for(60 * SECOND)
        while_alive = (one.leads, two.leads)
        link.hang()
        await clock.run_for(16 * SECOND)

        assert while_alive == (True, False)
        assert (one.leads, two.leads) == (False, True)


class TakesNoLease:
    """A cluster in which no one may create a Lease."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, obj: Any, **how: Any) -> Any:
        raise Forbidden("leases is forbidden")


async def test_a_candidate_that_may_not_write_the_lease_says_so_once(
    cluster: EmbeddedCluster, clock: ManualClock
) -> None:
    refusing: Any = TakesNoLease(cluster)
    with capture_logs() as logged:
        async with candidates(Process("one", refusing, clock)):
            await clock.run_for(10 * SECOND)

    said = [(entry["error"], entry["log_level"]) for entry in logged if entry["event"] == "leader.not_elected"]
    assert said == [("leases is forbidden", "warning")]


async def test_standby_waits_for_a_cluster_that_does_not_answer(cluster: EmbeddedCluster, clock: ManualClock) -> None:
    link = Link(cluster)
    link.cut(Unavailable("no route"))
    one = Process("one", link, clock)
    async with candidates(one):
        await clock.run_for(60 * SECOND)
        before = one.leads
        link.mend()
        await clock.run_for(60 * SECOND)

        assert (before, one.leads) == (False, True)


def test_lease_of_the_usual_length_has_the_usual_times() -> None:
    usual = Candidacy(identity="one", name="leader", namespace="healthd")

    lasting = Candidacy.lasting(timedelta(seconds=15), identity="one", name="leader", namespace="healthd")

    assert lasting == usual


def test_leader_with_a_short_lease_ends_its_work_before_another_may_lead() -> None:
    short = Candidacy.lasting(timedelta(seconds=2), identity="one", name="leader", namespace="healthd")

    assert short.renew_every * 2 < short.renew_within < short.lasts
