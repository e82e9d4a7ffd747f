"""The page where it is served: by each replica of the controller, and by a run of its own."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from healthd.cli.commands import demo
from healthd.cli.errors import UserError
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.core.config import Config, WebAccess, WebPolicy
from healthd.gangs import ADAPTERS
from healthd.telemetry.address import AddressError
from tests.controller.replicas import Replicas
from tests.controller.web.pages import a_stream
from tests.simulation.training import SeenCheckpoints


def a_replica(scenario: Replicas, name: str, web: WebPolicy) -> ControllerDaemon:
    cluster: Any = scenario.cluster
    return ControllerDaemon(
        Config(web=web),
        ControllerDependencies(
            identity=name,
            namespace="healthd-system",
            cluster=cluster,
            clock=scenario.clock,
            adapters=ADAPTERS,
            checkpoints=SeenCheckpoints({}),
            jitter=lambda: 0.5,
        ),
    )


def url_in(logs: list[Any]) -> Iterator[str]:
    return (each["url"] for each in logs if each["event"] == "page.serving")


async def test_a_replica_that_does_not_lead_serves_the_page_and_sees_what_the_leader_does() -> None:
    scenario = Replicas()
    await scenario.set_up()
    await scenario.start("leader")
    await scenario.until(lambda: scenario.is_led_by("leader"))
    with capture_logs() as logs:

        async def serves() -> bool:
            return any(url_in(logs))

        standby = a_replica(scenario, "standby", WebPolicy(address="127.0.0.1:0"))
        running = asyncio.create_task(standby.run())
        await scenario.until(serves)
    (url,) = url_in(logs)
    async with a_stream(url) as stream:
        _, everything = await stream.next()
        await scenario.quarantine("node-1")
        await scenario.until(scenario.is_stopped)
        await scenario.clock.run_for(timedelta(seconds=10))
        _, change = await stream.next()
        while "recoveries" not in change:
            _, change = await stream.next()
    standby.stop()
    await running
    await scenario.close()

    assert list(everything["gangs"]) == ["default/job/train"]
    assert [each["row"]["gang"] for each in change["recoveries"].values()] == ["job/train"]


async def test_a_page_that_would_be_open_to_all_stops_the_start() -> None:
    scenario = Replicas()
    await scenario.set_up()
    for web in (WebPolicy(address=":0"), WebPolicy(address=":0", access=WebAccess.PROXY)):
        with pytest.raises(AddressError, match="is open to others"):
            await a_replica(scenario, "a", web).run()
    await scenario.close()


def test_a_demo_whose_page_would_be_open_to_all_is_refused() -> None:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)

    with pytest.raises(UserError, match="open to others"):
        demo.run(parser.parse_args(["--plain", "--web", ":0"]))
