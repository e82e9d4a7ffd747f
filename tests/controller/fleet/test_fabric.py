"""The look at the rails of the whole cluster: what is shown, and what is reported once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta

import pytest

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.fleet.fabric import EVERY, OVER_AFTER, Rails
from healthd.core.api import Nic, NodeHealth, NodeHealthStatus, ObjectMeta, ObjectReference
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_node
from tests.fakes import ManualClock

LOST, NOTICES = "roce.packet_seq_err", "roce.np_cnp_sent"
QUIET = {LOST: 0, NOTICES: 0}


class Hall:
    """Twenty nodes with one port each, and somebody who compares them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster_state = ClusterState(ADAPTERS)
        self.metrics = Metrics()
        self.reported: list[tuple[str, str, str]] = []
        self.blind = ""
        self._version = 0
        for number in range(20):
            self.cluster_state.upsert(a_node(f"n{number}"))
        rails = Rails(self.clock, self.cluster_state, self.metrics, self._hear, lambda: self.blind)
        self._task = asyncio.create_task(rails.run())

    def _hear(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        del message
        self.reported.append((about.name, kind, reason))

    def report(self, changed: Mapping[str, Mapping[str, int]] | None = None) -> None:
        """All agents publish; those in *changed* something else than nothing."""
        self._version += 1
        for number in range(20):
            growth = {**QUIET, **(changed or {}).get(f"n{number}", {})}
            nic = Nic(pci="0000:5c:00.0", port=1, family="roce", rate_gbps=400, rail=3, growth=growth)
            meta = ObjectMeta(name=f"n{number}", resource_version=str(self._version))
            status = NodeHealthStatus(nics=[nic], seen_at=self.clock.now())
            self.cluster_state.upsert(NodeHealth(metadata=meta, status=status))

    async def pass_time(self, delta: timedelta = EVERY) -> None:
        """Let so much time pass."""
        await self.clock.run_for(delta)

    def shown(self, metric: str) -> float | None:
        """The gauge of rail 3."""
        return self.metrics.registry.get_sample_value(f"healthd_fabric_{metric}", {"rail": "3"})

    async def end(self) -> None:
        """Stop looking."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    hall = Hall()
    yield hall
    await hall.end()


async def test_a_quiet_fabric_is_shown_and_nothing_is_reported(hall: Hall) -> None:
    hall.report()
    await hall.pass_time()

    assert (hall.shown("outliers"), hall.shown("congested")) == (0, 0)
    assert hall.reported == []


async def test_a_port_that_stands_out_is_reported_once_on_its_node(hall: Hall) -> None:
    hall.report({"n7": {LOST: 18}})
    await hall.pass_time(10 * EVERY)

    assert hall.reported == [("n7", "Warning", "PortStandsOut")]
    assert hall.shown("outliers") == 1


async def test_a_port_that_stands_out_by_two_counters_is_one_port(hall: Hall) -> None:
    hall.report({"n7": {LOST: 18, NOTICES: 22}})
    await hall.pass_time()

    assert len(hall.reported) == 1
    assert hall.shown("outliers") == 1


async def test_it_is_over_when_it_was_like_the_others_for_half_an_hour(hall: Hall) -> None:
    hall.report({"n7": {LOST: 18}})
    await hall.pass_time()
    hall.report()
    await hall.pass_time(OVER_AFTER - EVERY)
    before = list(hall.reported)
    await hall.pass_time(EVERY)

    assert len(before) == 1
    assert hall.reported[1:] == [("n7", "Normal", "PortStandsOutOver")]


async def test_a_port_that_stands_out_now_and_then_is_reported_once(hall: Hall) -> None:
    for _ in range(4):
        hall.report({"n7": {LOST: 18}})
        await hall.pass_time()
        hall.report()
        await hall.pass_time(OVER_AFTER / 2)

    assert len(hall.reported) == 1


async def test_congestion_of_a_rail_is_shown_and_reported_on_no_node(hall: Hall) -> None:
    hall.report({f"n{number}": {NOTICES: 22, LOST: 18} for number in range(12)})
    await hall.pass_time()

    assert hall.reported == []
    assert (hall.shown("outliers"), hall.shown("congested")) == (0, 12)


async def test_with_a_stale_cache_nothing_is_reported(hall: Hall) -> None:
    hall.blind = "the watch is gone"
    hall.report({"n7": {LOST: 18}})
    await hall.pass_time()

    assert hall.reported == []
    assert hall.shown("outliers") is None


async def test_a_node_that_left_gets_no_event(hall: Hall) -> None:
    hall.report({"n7": {LOST: 18}})
    hall.cluster_state.remove(a_node("n7"))
    await hall.pass_time()

    assert hall.shown("outliers") == 1
    assert hall.reported == []
