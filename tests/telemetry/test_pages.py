"""The HTTP contract, asked over a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.core import GaugeMetricFamily

from healthd.telemetry.http import Server, serve
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.pages import ReadyCheck, metrics_pages, probe_pages

SICK: dict[str, str] = {}
"""Reasons that the check `reader` of the fixture's server gives; each test begins with none."""


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    SICK.clear()
    checks: dict[str, ReadyCheck] = {"reader": lambda: SICK.get("reader"), "store": lambda: None}
    async with await serve("127.0.0.1:0", metrics_pages(Metrics()) | probe_pages(checks)) as started:
        yield started


async def ask(url: str, **headers: str) -> tuple[int, str, str]:
    """Status, content type and text of the answer."""
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def ask_json(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.json()


async def test_metrics_are_served_in_the_prometheus_text_format(server: Server) -> None:
    status, kind, text = await ask(f"{server.url}/metrics")

    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert "# HELP healthd_kernel_log_up 1 while the kernel log is being read" in text


@pytest.mark.parametrize("version", ["1.0.0", "nonsense", "9" * 1000])
async def test_metrics_are_served_as_openmetrics_when_asked_for(server: Server, version: str) -> None:
    status, kind, text = await ask(f"{server.url}/metrics", Accept=f"application/openmetrics-text; version={version}")

    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")


async def test_a_flood_of_requests_writes_the_metrics_once() -> None:
    metrics, collected = Metrics(), Counting()
    metrics.registry.register(collected)
    async with await serve("127.0.0.1:0", metrics_pages(metrics)) as server:
        answers = [await ask(f"{server.url}/metrics") for _ in range(5)]

    assert len(set(answers)) == 1
    assert collected.times == 1


class Counting:
    """Something with metrics that counts how often it is asked for them."""

    times = 0

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> list[GaugeMetricFamily]:
        self.times += 1
        return []


async def test_health_is_well_even_when_a_reader_is_dead(server: Server) -> None:
    SICK["reader"] = "dead"

    assert await ask(f"{server.url}/healthz") == (200, "text/plain; charset=utf-8", "ok\n")


async def test_readiness_answers_with_the_reasons_until_they_are_gone(server: Server) -> None:
    SICK["reader"] = "no record read for 90s"
    sick = await ask_json(f"{server.url}/readyz")
    SICK.clear()
    well = await ask_json(f"{server.url}/readyz")

    assert sick == (503, {"ready": False, "reasons": {"reader": "no record read for 90s"}})
    assert well == (200, {"ready": True, "reasons": {}})


async def test_a_check_that_fails_itself_is_not_ready() -> None:
    def broken() -> str | None:
        raise KeyError("clock")

    async with await serve("127.0.0.1:0", probe_pages({"reader": broken})) as server:
        status, body = await ask_json(f"{server.url}/readyz")

    assert (status, body["reasons"]) == (503, {"reader": "the check itself failed: KeyError: 'clock'"})
