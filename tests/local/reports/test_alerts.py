"""Alerts of one run: what is different on one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.alerts.gangs import Gangs, problem_of
from healthd.core.api import IncidentRecord, TimelineEntry
from healthd.core.api.model import Phase
from healthd.core.config import AlertsPolicy, Config
from healthd.core.recovery.holds import OPEN, UNREADABLE
from healthd.gangs import ADAPTERS
from healthd.local.reports.alerts import PATIENCE, RunAlerts, advice_of, cluster_name
from healthd.local.reports.lines import sentence
from healthd.local.state.folder import runs_dir
from healthd.telemetry.metrics import Metrics
from tests.builders import a_cause, a_node, a_sink_policy
from tests.controller.alerts.sinks import NOT_NOW, FakeSink
from tests.core.gangs import a_recovery_in
from tests.fakes import START, ManualClock, counting_uids, settle

HOLDS = [
    (Phase.DETECTED, "so it was"),
    (Phase.FENCING, "so it was"),
    (Phase.RESERVING, "so it was"),
    (Phase.RESERVING, OPEN),
    (Phase.CHOOSING, "so it was"),
    (Phase.DETECTED, UNREADABLE),
]


class StandInController:
    """A controller that has read nothing yet."""

    def __init__(self) -> None:
        self.cluster_state = ClusterState(ADAPTERS)
        self.has_read = False

    async def sync(self) -> None:
        """Read the state of the run."""
        self.has_read = True


class OneRun:
    """The alerts of a run, with one service."""

    def __init__(self) -> None:
        self.clock, self.sink, self.controller = ManualClock(), FakeSink(), StandInController()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self._version = 0

    def alerts(self) -> RunAlerts:
        """As a start of the run makes them."""
        controller: Any = self.controller
        config = Config(alerts=AlertsPolicy(sinks=(a_sink_policy(self.sink.name),)))
        return RunAlerts("llama", Path("/state"), self.cluster, self.clock, controller, config, [self.sink], Metrics())

    @asynccontextmanager
    async def process(self) -> AsyncIterator[None]:
        """One process of `healthd run`. Time goes on while it ends."""
        sending = self.alerts().sending()
        await sending.__aenter__()
        yield
        ending = asyncio.create_task(sending.__aexit__(None, None, None))
        await self.clock.run_for(2 * PATIENCE)
        await ending

    def show(self, phase: Phase) -> None:
        """The recovery comes to *phase*."""
        self._version += 1
        timeline = [TimelineEntry(phase=phase, at=self.clock.now())]
        ended = self.clock.now() if phase is Phase.RECOVERED else None
        found = a_recovery_in(phase, held_in=Phase.RESERVING, message="no spare", timeline=timeline, ended_at=ended)
        meta: Any = {"resource_version": str(self._version)}
        self.controller.cluster_state.upsert(_with(found, meta))


def _with(recovery: Any, meta: dict[str, Any]) -> Any:
    return replace(recovery, metadata=replace(recovery.metadata, **meta))


async def test_nothing_is_over_before_the_state_of_the_run_was_read() -> None:
    run = OneRun()
    run.controller.has_read = True
    run.show(Phase.HELD)
    async with run.process():
        await run.clock.run_for(timedelta(seconds=1))
    assert [each.resolved for each in run.sink.sent] == [None]

    run.controller = StandInController()  # a new process, which knows nothing
    async with run.process():
        await run.clock.run_for(timedelta(minutes=1))
        assert len(run.sink.sent) == 1
        run.controller.has_read = True
        await run.clock.run_for(timedelta(minutes=1))
    assert run.sink.sent[-1].resolved is not None
    run.cluster.close()


async def test_the_end_waits_a_short_time_for_a_service_and_keeps_what_it_did_not_take() -> None:
    run = OneRun()
    run.controller.has_read = True
    run.sink.answer = lambda _: NOT_NOW
    run.show(Phase.HELD)
    sending = run.alerts().sending()
    await sending.__aenter__()
    await run.clock.run_for(timedelta(seconds=1))
    ending = asyncio.create_task(sending.__aexit__(None, None, None))
    await run.clock.run_for(PATIENCE - timedelta(seconds=1))
    assert not ending.done()
    await run.clock.run_for(timedelta(seconds=2))
    await ending

    (record,) = (await run.cluster.list(IncidentRecord)).items
    assert record.status.deliveries["oncall"].revision == 0
    assert run.sink.closed
    run.cluster.close()


async def test_a_run_that_fails_waits_for_no_service() -> None:
    run = OneRun()
    run.sink.answer = lambda _: NOT_NOW
    sending = run.alerts().sending()
    await sending.__aenter__()
    await settle()
    error = OSError("disk")

    assert not await sending.__aexit__(OSError, error, None), "the error goes on"
    assert run.sink.closed
    run.cluster.close()


@pytest.mark.parametrize(("held_in", "message"), HOLDS)
def test_a_message_speaks_of_one_server(held_in: Phase, message: str) -> None:
    recovery = a_recovery_in(Phase.HELD, held_in=held_in, message=message, causes=[a_cause(node="slot-1", at=START)])
    advice = advice_of("llama", Path("/state"))
    seen = Gangs(nodes={"slot-1": a_node("slot-1")}, health={}, root=lambda _: None, advice=advice)
    (found,) = problem_of(recovery, seen, START, is_newest=True)
    said = " ".join([found.title, found.happened, found.did, found.todo, found.command])

    assert found.title.startswith("run ")
    assert found.namespace == ""
    assert not {"kubectl", "node", "nodes", "pod", "pods"} & set(said.lower().replace("`", " ").split())


def test_the_commands_of_a_message_find_a_run_whose_state_is_elsewhere(tmp_path: Path) -> None:
    at, usual = tmp_path / "st {9}", runs_dir() / "llama"

    assert advice_of("llama", at).ask_gang.format() == f"healthd explain llama --state '{at}'"
    assert advice_of("llama", at).repair.format(node="slot-1") == f"healthd repair slot-1 --state '{at}'"
    assert advice_of("llama", usual).ask_gang == "healthd explain llama"
    assert advice_of("llama", usual).repair.format(node="slot-1") == "healthd repair slot-1 --name llama"


def test_two_runs_of_one_server_and_two_servers_of_one_configuration_share_no_key() -> None:
    names = {
        cluster_name(AlertsPolicy(cluster=cluster), run, host)
        for cluster in ("", "box")
        for run in ("llama", "bert")
        for host in ("gpu-1", "gpu-2")
    }
    assert names == {"gpu-1/llama", "gpu-2/llama", "gpu-1/bert", "gpu-2/bert", "box/llama", "box/bert"}


def test_a_service_that_does_not_answer_has_one_line() -> None:
    event = {"event": "alert.not_sent", "level": "warning", "sink": "chat", "incidents": 1, "error": "answered 503"}

    assert sentence({**event, "failures": 1}) == "chat was not alerted: answered 503; it is tried again"
    assert sentence({**event, "failures": 2}) == ""
