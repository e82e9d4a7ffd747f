"""Which pages are served where."""

from __future__ import annotations

import socket

import aiohttp
import pytest
from structlog.testing import capture_logs

from healthd.core.config import HttpPolicy
from healthd.telemetry.address import AddressError
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.serving import serving

FREE = "127.0.0.1:0"
ALL = {"/metrics": 200, "/healthz": 200, "/readyz": 200}


async def answers(policy: HttpPolicy) -> list[dict[str, int]]:
    """The status of each path, at each address in turn."""
    with capture_logs() as logs:
        async with serving(policy, Metrics(), {}), aiohttp.ClientSession() as session:
            found = []
            for url in [entry["url"] for entry in logs]:
                asked = {path: await session.get(f"{url}{path}") for path in ALL}
                found.append({path: answer.status for path, answer in asked.items()})
    return found


async def test_what_is_not_asked_for_is_not_opened() -> None:
    assert await answers(HttpPolicy()) == []


async def test_the_first_address_has_every_page() -> None:
    assert await answers(HttpPolicy(address=FREE)) == [ALL]


async def test_the_address_of_the_probes_has_no_metrics() -> None:
    policy = HttpPolicy(address=FREE, probe_address=FREE)

    assert await answers(policy) == [ALL, ALL | {"/metrics": 404}]


async def test_one_address_that_cannot_be_closes_the_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        first, second = (f"127.0.0.1:{one.getsockname()[1]}" for one in (free, taken))
        free.close()
        with pytest.raises(AddressError, match="in use"):
            async with serving(HttpPolicy(address=first, probe_address=second), Metrics(), {}):
                pass

        assert await answers(HttpPolicy(address=first)) == [ALL]
