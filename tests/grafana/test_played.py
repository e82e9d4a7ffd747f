"""Causes that are played to real controllers: what they serve makes the right alerts fire, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import timedelta

import pytest

from healthd.core.api import Job, Pod
from tests.controller.replicas import Replicas
from tests.fakes import START, settle
from tests.grafana.promtool import Promtool, rules

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MINUTE = timedelta(minutes=1)
PAGES = [rule["alert"] for rule in rules() if rule["labels"]["severity"] == "page"]
AGENTS = {"HealthdManyAgentsDown"}
"""There are no agents on this stage."""


class Scrapes:
    """What Prometheus would have of the controllers of a stage, a scrape a minute."""

    def __init__(self, stage: Replicas) -> None:
        self._stage = stage
        self._taken: list[dict[str, float]] = []

    async def take(self, minutes: int) -> None:
        """Let time go by."""
        for _ in range(minutes):
            self._taken.append(self._scrape())
            await self._stage.clock.run_for(MINUTE)

    def series(self) -> Mapping[str, str]:
        """In promtool's notation. A series that a scrape does not have is stale from then on."""
        names = dict.fromkeys(name for taken in self._taken for name in taken)
        return {name: " ".join(_value(taken.get(name)) for taken in self._taken) for name in names}

    def _scrape(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for replica, daemon in self._stage.daemons.items():
            is_up = replica in self._stage.running
            found[f'up{{job="healthd-controller",instance="{replica}"}}'] = is_up
            families = daemon.metrics.registry.collect() if is_up else ()
            for sample in (sample for family in families for sample in family.samples):
                if sample.name.startswith("healthd_") and "_seconds_bucket" not in sample.name:
                    labels = {**sample.labels, "instance": replica, "job": "healthd-controller"}
                    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
                    since = START.timestamp() if sample.name.endswith("_timestamp_seconds") else 0.0
                    found[f"{sample.name}{{{text}}}"] = sample.value - since
        return found


def _value(value: float | None) -> str:
    return "stale" if value is None else f"{value:g}" if value == int(value) else repr(value)


@pytest.fixture
async def stage() -> AsyncIterator[Replicas]:
    stage = Replicas(history=100)  # each tenth write, such as of the Lease, is a sign of life on every watch
    await stage.set_up()
    yield stage
    await stage.close()


def pages(promtool: Promtool, scrapes: Scrapes, of: int, expected: Mapping[str, Collection[int]]) -> dict[str, str]:
    """The alerts that page in other minutes than *expected*, with what promtool says."""
    wrong = {
        name: promtool.fires(name, scrapes.series(), in_minutes=expected.get(name, ()), of=of)
        for name in PAGES
        if name not in AGENTS
    }
    return {name: why for name, why in wrong.items() if why}


async def test_a_change_of_the_leader_pages_no_one(stage: Replicas, promtool: Promtool) -> None:
    await stage.start("a")
    await stage.start("b")
    await stage.until(lambda: stage.is_led_by("a"))
    scrapes = Scrapes(stage)
    await scrapes.take(4)
    await stage.stop("a")
    await scrapes.take(4)

    assert pages(promtool, scrapes, 8, {}) == {}


async def test_controllers_that_ended_page_within_two_minutes(stage: Replicas, promtool: Promtool) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    scrapes = Scrapes(stage)
    await scrapes.take(3)
    await stage.stop("a")
    await scrapes.take(3)

    assert pages(promtool, scrapes, 6, {"HealthdControllerAbsent": range(4, 6)}) == {}


async def test_a_controller_without_an_api_server_pages_for_want_of_a_leader(
    stage: Replicas, promtool: Promtool
) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    scrapes = Scrapes(stage)
    await scrapes.take(3)
    stage.links["a"].cut = True
    await scrapes.take(5)

    assert pages(promtool, scrapes, 8, {"HealthdNoLeader": range(6, 8)}) == {}


async def test_a_gang_whose_old_pods_may_still_write_pages_also_after_a_change_of_the_leader(
    stage: Replicas, promtool: Promtool
) -> None:
    await stage.start("a")
    await stage.start("b")
    await stage.until(lambda: stage.is_led_by("a"))
    await stage.quarantine("node-1")
    await stage.until(stage.is_stopped)
    for rank in range(2):
        await stage.cluster.delete(Pod, f"train-{rank}", namespace="default", grace_seconds=0)
    suspended = {"status": {"active": 0, "conditions": [{"type": "Suspended", "status": "True"}]}}
    await stage.cluster.patch(Job, "train", suspended, namespace="default", subresource="status")
    await settle()
    scrapes = Scrapes(stage)
    await scrapes.take(8)
    await stage.stop("a")
    await scrapes.take(4)

    assert pages(promtool, scrapes, 12, {"HealthdGangHeld": range(6, 12)}) == {}


async def test_watches_that_are_silent_page_and_are_the_only_page(promtool: Promtool) -> None:
    stage = Replicas()  # on which a watch says nothing in quiet times
    await stage.set_up()
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    scrapes = Scrapes(stage)
    await scrapes.take(8)
    await stage.close()

    assert pages(promtool, scrapes, 8, {"HealthdCacheStale": range(4, 8)}) == {}
