"""The server of the page: what it sends, to whom, and what it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from healthd.clock import SystemClock
from healthd.controller.web.access import Admission, Headers, KeyAccess, Namespaces, OpenAccess
from healthd.controller.web.fleet import OLD_AFTER, Fleet, FleetSource
from healthd.controller.web.live import Live
from healthd.controller.web.server import PageSettings, serving_page
from healthd.core.api.model import Phase, Verdict
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.report.listing.gangs import GangState
from healthd.core.report.page.state import EVERYTHING
from tests.controller.web.fleets import CONFIG, FleetOf
from tests.controller.web.pages import ServedPage, Stream, a_page, a_stream
from tests.fakes import START


@pytest.fixture
async def page() -> AsyncIterator[ServedPage]:
    async with a_page(FleetOf(nodes=4, gangs=1)) as served:
        yield served


async def get(url: str, **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and text of an answer."""
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as answer:
        return answer.status, answer.headers, await answer.text()


async def a_file(page: ServedPage, name: str) -> str:
    """The path under which the page names a file."""
    _, _, text = await get(page.url)
    found = re.search(rf'"([^"]*/{re.escape(name)})"', text)
    assert found is not None
    return f"/{found[1]}"


@pytest.mark.parametrize("packed", [True, False])
async def test_a_viewer_gets_everything_and_then_what_changed(page: ServedPage, packed: bool) -> None:
    async with a_stream(page.url, packed=packed) as stream:
        event, everything = await stream.next()
        page.change(lambda: page.fleet.break_node("gpu-0001"))
        _, change = await stream.next()

    assert event == "state"
    assert sorted(everything["nodes"]) == ["gpu-0000", "gpu-0001", "gpu-0002", "gpu-0003"]
    assert list(everything["gangs"]) == ["team-a/job/llama-000"]
    assert list(change["nodes"]) == ["gpu-0001"]
    assert change["nodes"]["gpu-0001"][1] == "in quarantine"


async def test_a_later_viewer_gets_the_present_state(page: ServedPage) -> None:
    async with a_stream(page.url) as first, a_stream(page.url) as second:
        await first.next()
        await second.next()
        page.change(lambda: page.fleet.recover(0, Phase.DETECTED, Phase.HELD, message="no spare"))
        _, change = await first.next()
        async with a_stream(page.url) as late:
            _, everything = await late.next()
            _, since = await late.next()

    assert change["recoveries"]["team-a/llama-000-1"]["row"]["phase"] == "Held"
    assert everything["recoveries"] == {}
    assert since["recoveries"] == change["recoveries"]


async def test_what_did_not_change_is_not_sent(page: ServedPage) -> None:
    async with a_stream(page.url) as stream:
        await stream.next()
        page.change(lambda: page.fleet.report("gpu-0000", Verdict.HEALTHY))
        page.change(lambda: page.fleet.report("gpu-0002", Verdict.DEGRADED, "one of its fans is slow"))
        _, change = await stream.next()

    assert list(change["nodes"]) == ["gpu-0002"]


async def test_each_object_has_a_page_of_its_own(page: ServedPage) -> None:
    page.fleet.break_node("gpu-0000")
    page.fleet.recover(0, Phase.DETECTED, Phase.HELD, message="no spare")
    ask = [
        "gang?namespace=team-a&name=job/llama-000",
        "recovery?namespace=team-a&name=llama-000-1",
        "node?name=gpu-0000",
    ]
    answers = [await get(f"{page.url}/api/{each}") for each in ask]

    assert [status for status, _, _ in answers] == [200, 200, 200]
    assert all("has fallen off the bus" in text for _, _, text in answers)


@pytest.mark.parametrize("path", ["gang?namespace=team-a", "recovery", "node?name=%00", "node?name=../../x&name=y"])
async def test_what_does_not_exist_is_not_found(page: ServedPage, path: str) -> None:
    status, _, text = await get(f"{page.url}/api/{path}")

    assert (status, "does not exist" in text) == (404, True)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:9402", "localhost.evil.example", "", "[::1"])
async def test_a_name_that_points_here_gets_nothing(page: ServedPage, host: str) -> None:
    answers = [
        await get(f"{page.url}{path}", Host=host)
        for path in ("/", await a_file(page, "app.js"), "/api/stream", "/api/node?name=x")
    ]

    assert {status for status, _, _ in answers} <= {400, 421}


async def test_a_page_of_another_site_gets_nothing_and_a_link_from_it_leads_here(page: ServedPage) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    assert (await get(f"{page.url}/api/node?name=gpu-0000", **foreign))[0] == 403
    assert (await get(f"{page.url}/", **link))[0] == 200


async def test_nothing_can_be_changed(page: ServedPage) -> None:
    async with aiohttp.ClientSession() as client:
        for path in ("/", "/api/stream", "/api/node"):
            for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                async with client.request(method, page.url + path) as answer:
                    assert answer.status == 405


async def test_every_answer_forbids_foreign_code_and_sets_no_cookie(page: ServedPage) -> None:
    for path in (
        "/",
        await a_file(page, "app.js"),
        await a_file(page, "style.css"),
        "/api/node?name=gpu-0000",
        "/api/node?name=none",
    ):
        _, headers, _ = await get(page.url + path)

        assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Set-Cookie" not in headers
        assert "Access-Control-Allow-Origin" not in headers


async def test_a_page_that_did_not_change_is_not_sent_again(page: ServedPage) -> None:
    _, headers, _ = await get(page.url)

    assert (await get(page.url, **{"If-None-Match": headers["ETag"]}))[0] == 304


async def test_a_browser_that_has_a_file_does_not_ask_for_it_again_until_a_file_changes(page: ServedPage) -> None:
    named = {name: await a_file(page, name) for name in ("app.js", "stream.js", "style.css", "icon.svg")}
    answers = [await get(page.url + path) for path in named.values()]
    _, of_the_page, _ = await get(page.url)

    assert {status for status, _, _ in answers} == {200}
    assert all("immutable" in headers["Cache-Control"] for _, headers, _ in answers)
    assert of_the_page["Cache-Control"] == "no-cache"


async def test_every_file_that_the_page_names_is_there(page: ServedPage) -> None:
    _, _, text = await get(page.url)
    named = re.findall(r'(?:href|src)="([^"#]+)"', text)
    modules = [path for path in named if path.endswith(".js")]
    sources = [(await get(f"{page.url}/{path}"))[2] for path in modules]
    imported = {name for source in sources for name in re.findall(r'"\./(\w+\.js)"', source)}

    assert {(await get(f"{page.url}/{path}"))[0] for path in named} == {200}
    assert imported <= {path.rpartition("/")[2] for path in modules}


async def test_files_refer_to_nothing_elsewhere(page: ServedPage) -> None:
    _, _, html = await get(f"{page.url}/")
    named = re.findall(r'(?:src|href)="([^"#]+)"', html)
    texts = [await get(f"{page.url}/{name}") for name in named]

    assert {status for status, _, _ in texts} == {200}
    assert not any(re.search(r"https?://(?!www\.w3\.org/2000/svg)", text) for _, _, text in texts)
    assert not any(re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(", text) for _, _, text in texts)


async def test_a_run_shows_itself_only_to_who_has_its_key() -> None:
    async with a_page(FleetOf(nodes=1, gangs=1), KeyAccess("right")) as page:
        node = f"{page.url}/api/node?name=gpu-0000"

        assert (await get(node))[0] == 401
        assert (await get(node, Authorization="Bearer wrong"))[0] == 401
        assert (await get(node, Authorization="Bearer right"))[0] == 200
        assert (await get(f"{page.url}/"))[0] == 200


class ShortAccess:
    """Everything, and for a moment only."""

    async def admit(self, headers: Headers, namespaces: Namespaces) -> Admission:
        return Admission(EVERYTHING, SystemClock().now() + timedelta(milliseconds=200))


async def until_it_ends(stream: Stream) -> AsyncIterator[str]:
    """The names of its events."""
    with suppress(EOFError):
        while True:
            yield (await stream.next())[0]


async def test_a_stream_ends_with_the_answer_that_it_began_with() -> None:
    async with a_page(FleetOf(nodes=1, gangs=1), ShortAccess()) as page, a_stream(page.url) as stream:
        events = [event async for event in until_it_ends(stream)]

    assert set(events) <= {"state", "alive"}
    assert events[0] == "state"


async def test_a_gang_is_shown_with_what_its_other_objects_say_and_the_cluster_state_stays_as_it_was_read() -> None:
    async def has_ended(root: Root) -> Root:
        return dataclasses.replace(root, ending=RootOutcome.COMPLETE)

    fleet = FleetOf(nodes=4, gangs=1)
    async with a_page(fleet, complete=has_ended) as page, a_stream(page.url) as stream:
        _, everything = await stream.next()
        _, _, text = await get(f"{page.url}/api/gang?namespace=team-a&name=job/llama-000")

    (entry,) = everything["gangs"].values()
    assert entry["row"]["state"] == "complete"
    assert "the gang has ended" in text
    assert [root.ending for root in fleet.state.roots.values()] == [RootOutcome.NOT_ENDED]


async def test_a_gang_of_which_other_objects_say_something_is_asked_about_again_each_minute() -> None:
    said = [RootOutcome.COMPLETE]

    async def as_they_say(root: Root) -> Root:
        return dataclasses.replace(root, ending=said[-1])

    state = FleetOf(nodes=4, gangs=1).state
    fleet = Fleet(FleetSource(name="lab", cluster_state=state, config=CONFIG, complete=as_they_say))
    await fleet.refresh(START)
    said.append(RootOutcome.NOT_ENDED)
    await fleet.refresh(START + OLD_AFTER)
    await fleet.refresh(START + OLD_AFTER)

    (entry,) = fleet.state.gangs.values()
    assert entry.row.state is GangState.RUNNING


@pytest.mark.slow
async def test_a_viewer_that_does_not_read_is_dropped() -> None:
    fleet, clock = FleetOf(nodes=500, gangs=1), SystemClock()
    live = Live(FleetSource(name="lab", cluster_state=fleet.state, config=CONFIG), clock)
    settings = PageSettings(access=OpenAccess(), clock=clock, write_within=0.05)
    async with serving_page("127.0.0.1:0", live, settings) as server:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, ("127.0.0.1", server.address.port))
            await loop.sock_sendall(deaf, b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(20):
                was_seen = False
                while live.viewers or not was_seen:
                    was_seen = was_seen or live.viewers > 0
                    for name in fleet.nodes:
                        fleet.report(name, Verdict.DEGRADED, secrets.token_hex(60))
                    live.changed()
                    await asyncio.sleep(0.05)

    assert live.viewers == 0


async def test_a_page_that_closes_ends_its_streams(page: ServedPage) -> None:
    async with a_page(FleetOf(nodes=1, gangs=1)) as other, a_stream(other.url) as stream:
        await stream.next()
        reading = asyncio.create_task(stream.next())
        await asyncio.sleep(0)
    with pytest.raises((EOFError, aiohttp.ClientError)):
        await reading
