"""The HTTP contract, asked over a real connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from healthd.telemetry.address import AddressError
from healthd.telemetry.http import ReadyCheck, Server, serve
from healthd.telemetry.metrics import Metrics

SICK: dict[str, str] = {}
"""Reasons that the check `reader` of the fixture's server gives; each test begins with none."""


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    SICK.clear()
    checks: dict[str, ReadyCheck] = {"reader": lambda: SICK.get("reader"), "store": lambda: None}
    async with await serve("127.0.0.1:0", Metrics(), checks) as started:
        yield started


async def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, content type and text of the answer."""
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def ask_json(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.json()


async def test_metrics_are_served_in_the_prometheus_text_format(server: Server) -> None:
    status, kind, text = await ask(f"{server.url}/metrics")

    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert "# HELP healthd_kernel_log_up 1 while the kernel log is being read" in text


async def test_metrics_are_served_as_openmetrics_when_asked_for(server: Server) -> None:
    status, kind, text = await ask(f"{server.url}/metrics", Accept="application/openmetrics-text; version=1.0.0")

    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")


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

    async with await serve("127.0.0.1:0", Metrics(), {"reader": broken}) as server:
        status, body = await ask_json(f"{server.url}/readyz")

    assert (status, body["reasons"]) == (503, {"reader": "the check itself failed: KeyError: 'clock'"})


async def test_it_takes_no_orders(server: Server) -> None:
    assert [(await ask(f"{server.url}/metrics", method))[0] for method in ("POST", "PUT", "DELETE")] == [405, 405, 405]
    assert (await ask(f"{server.url}/elsewhere"))[0] == 404


async def test_port_0_takes_a_free_port_and_says_which(server: Server) -> None:
    assert server.address.port > 0
    assert server.url == f"http://127.0.0.1:{server.address.port}"


@pytest.mark.parametrize("address", [":0", "localhost:0"])
async def test_every_way_to_write_an_address_listens(address: str) -> None:
    async with await serve(address, Metrics(), {}) as server:
        assert (await ask(f"{server.url}/healthz"))[0] == 200


async def test_closing_frees_the_port_though_a_client_keeps_its_connection() -> None:
    first = await serve("127.0.0.1:0", Metrics(), {})
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{first.url}/healthz") as answer:
            await answer.text()
        async with asyncio.timeout(10):
            await first.close()
            await first.close()

    async with await serve(str(first.address), Metrics(), {}) as second:
        assert second.address == first.address


async def test_a_port_in_use_is_named(server: Server) -> None:
    with pytest.raises(AddressError, match=rf"cannot listen on 127\.0\.0\.1:{server.address.port}: the port is in use"):
        await serve(str(server.address), Metrics(), {})


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("9400", "is not an address"),
        ("192.0.2.1:0", "this machine has no such address"),
        ("no.invalid:1", "no such host"),
    ],
)
async def test_an_address_that_cannot_be_is_refused(address: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        await serve(address, Metrics(), {})


async def test_ipv6_addresses_work_where_the_machine_has_them() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    async with await serve("[::1]:0", Metrics(), {}) as server:
        assert (await ask(f"{server.url}/healthz"))[0] == 200
