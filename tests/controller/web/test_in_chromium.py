"""The page in a real Chromium: read, used by keyboard, watched while things happen, cut off, attacked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from healthd.clock import SystemClock
from healthd.controller.web.access import Access, KeyAccess
from healthd.core.api.model import Phase, Verdict
from healthd.core.report.listing import gangs, recoveries
from healthd.core.report.listing.ages import age
from tests.browser import Tab, browsing
from tests.controller.web.fleets import FleetOf
from tests.controller.web.pages import ServedPage, a_page, module
from tests.lab.axe import axe_core

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chromium")]

HOSTILE = "<img src=x onerror=document.title='hit'><script>document.title='hit'</script>\u202e&lt;b&gt;"
READY = "document.querySelector('.levels .level')"


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path / "profile") as open_tab:
        yield await open_tab()


@asynccontextmanager
async def watched(tab: Tab, fleet: FleetOf, access: Access | None = None, **source: Any) -> AsyncIterator[ServedPage]:
    """The page over *fleet*, which *tab* leaves before its server closes: a stream that breaks is an error there."""
    async with a_page(fleet, access, **source) as page:
        yield page
        await tab.open("about:blank")


def a_fleet(nodes: int = 130, gangs: int = 4) -> FleetOf:
    return FleetOf(nodes, gangs, SystemClock().now())


async def test_a_recovery_is_watched_from_its_begin_to_its_end(tab: Tab) -> None:
    async with watched(tab, a_fleet()) as page:
        await tab.open(page.url)
        await tab.until(f"{READY} && document.querySelector('.fine')")
        page.change(lambda: page.fleet.break_node("gpu-0000"))
        await tab.until(
            "document.querySelector('.grid .cell.in-quarantine')?.ariaLabel.includes('gpu-0000: in quarantine')"
        )
        page.change(lambda: page.fleet.recover(0, Phase.DETECTED, Phase.STOPPING))
        await tab.until("document.querySelector('tbody')?.innerText.includes('Stopping')")
        await tab.evaluate("location.hash = '#/recovery/team-a/llama-000-1'")
        await tab.until("document.querySelectorAll('.laps li').length === 2")
        page.change(
            lambda: page.fleet.recover(0, Phase.DETECTED, Phase.STOPPING, Phase.FENCING, Phase.HELD, message="no spare")
        )
        await tab.until("document.querySelectorAll('.laps li').length === 4")
        held = await tab.text("main")
        page.change(lambda: page.fleet.recover(0, Phase.DETECTED, Phase.STOPPING, Phase.STARTING, Phase.RECOVERED))
        await tab.until("document.querySelector('main').innerText.includes('Recovered')")
        news = await tab.evaluate("document.getElementById('news').textContent")

    assert "it waits, and goes on by itself when this changes: no spare" in held
    assert "has fallen off the bus" in held
    assert news == "job/llama-000: Recovered"
    assert tab.errors == []


async def test_the_page_says_the_words_of_the_terminal(tab: Tab) -> None:
    fleet = a_fleet()
    fleet.recover(0, Phase.DETECTED, Phase.HELD, message="no spare")
    async with watched(tab, fleet) as page:
        await tab.open(f"{page.url}/#/gangs")
        await tab.until("document.querySelectorAll('tbody tr').length === 4")
        of_gangs = await tab.evaluate("[...document.querySelectorAll('th')].map(each => each.textContent)")
        first = await tab.evaluate("[...document.querySelectorAll('tbody tr:first-child td')].map(e => e.textContent)")
        await tab.evaluate("location.hash = '#/recoveries'")
        await tab.until("document.querySelectorAll('tbody tr').length === 1")
        of_recoveries = await tab.evaluate("[...document.querySelectorAll('th')].map(each => each.textContent)")
        seconds = [0, 7, 59, 60, 133, 599, 600, 3599, 3600, 12_000, 36_000, 86_399, 86_400, 93_600, 1_036_800]
        ages = await tab.evaluate(f"{module('words')}.then(words => {seconds}.map(words.age))")

    assert of_gangs == [column.title for column in gangs.COLUMNS]
    assert of_recoveries == [column.title for column in recoveries.COLUMNS]
    assert first[:4] == ["team-a", "job/llama-000", "held", "32/32"]
    assert first[-1] == "Held: no spare"
    assert ages == [age(each) for each in seconds]


async def test_text_from_the_cluster_is_text(tab: Tab) -> None:
    fleet = a_fleet(4, 1)
    fleet.break_node("gpu-0000", HOSTILE)
    fleet.report("gpu-0001", Verdict.UNHEALTHY, HOSTILE)
    fleet.recover(0, Phase.DETECTED, Phase.HELD, message=HOSTILE)
    async with watched(tab, fleet, name=HOSTILE) as page:
        for place in ("", "nodes", "gangs", "recoveries", "incidents", "node/gpu-0000", "node/gpu-0001",
                      "gang/team-a/job/llama-000", "recovery/team-a/llama-000-1"):  # fmt: skip
            await tab.open(f"{page.url}/#/{place}")
            await tab.until("document.querySelector('main h1') && !document.body.innerText.includes('Loading')")
            assert await tab.evaluate("document.querySelector('main img, main script, main b') === null")
            assert "hit" not in (await tab.evaluate("document.title")).split("–")[0]
        text = await tab.text("main")

    assert "<img src=x onerror" in text
    assert [error for error in tab.errors if "favicon" not in error] == []


async def test_an_address_that_is_hostile_opens_nothing(tab: Tab) -> None:
    async with watched(tab, a_fleet(4, 1)) as page:
        for place in ("gang/%E0%A4%A/x", "constructor", "gang/__proto__/a", "node/%3Cimg%20src%3Dx%3E", "node/",
                      "gang/team-a/job/none"):  # fmt: skip
            await tab.open("about:blank")
            await tab.open(f"{page.url}/#/{place}")
            await tab.until("/No such page|does not exist/.test(document.querySelector('main').innerText)")

    assert [error for error in tab.errors if "404" not in error] == []


async def test_pages_that_were_left_give_their_connection_back(tab: Tab) -> None:
    async with watched(tab, a_fleet(4, 1)) as page:
        for _ in range(8):  # a browser opens six connections to one server
            await tab.open("about:blank")
            await tab.open(f"{page.url}/#/node/gpu-0000")
            await tab.until("document.querySelector('main dl')")

    assert tab.errors == []


async def test_the_keyboard_reaches_everything(tab: Tab) -> None:
    async with watched(tab, a_fleet()) as page:
        await tab.open(f"{page.url}/#/nodes")
        await tab.until("document.querySelectorAll('.cell[href]').length === 130")
        await tab.press("Tab")
        skip = await tab.evaluate("document.activeElement.textContent")
        stops = []
        for _ in range(14):
            await tab.press("Tab")
            stops.append(await tab.evaluate("document.activeElement.className || document.activeElement.textContent"))
            if stops[-1].startswith("cell"):
                break
        await tab.press("ArrowRight")
        await tab.press("ArrowDown")
        moved = await tab.evaluate("document.activeElement.getAttribute('aria-label')")
        await tab.press("Enter")
        await tab.until("location.hash.startsWith('#/node/gpu-')")
        await tab.until("document.activeElement.tagName === 'H1'")

    assert skip == "Skip to the content"
    assert "Gangs" in stops
    assert stops[-1].startswith("cell")
    assert not moved.startswith("gpu-0000")


async def test_a_connection_that_is_lost_is_said_and_comes_back(tab: Tab) -> None:
    fleet = a_fleet(4, 1)
    async with a_page(fleet) as page:
        await tab.open(page.url)
        await tab.until(READY)
        port = int(page.url.rpartition(":")[2])
    await tab.until("document.getElementById('connection').innerText.includes('Not connected')")
    said = await tab.text("#connection")
    async with a_page(fleet, port=port) as page:
        await tab.until("document.getElementById('connection').hidden")

    assert "What you see is as of" in said
    assert "kubectl port-forward" in said


async def test_empty_states_say_what_to_do(tab: Tab) -> None:
    async with watched(tab, a_fleet(0, 0), trouble=lambda: "the cluster has not answered yet") as page:
        await tab.open(page.url)
        await tab.until(READY)
        overview = await tab.text("body")
        await tab.evaluate("location.hash = '#/incidents'")
        await tab.until("document.querySelector('h1').textContent === 'Open incidents'")
        incidents = await tab.text("main")

    assert "kubectl annotate job NAME -n NAMESPACE healthd.dev/restart=enabled" in overview
    assert "May be out of date: the cluster has not answered yet." in overview
    assert "Whether something needs a person is not known now." in overview
    assert "No alert service is configured" in incidents


async def test_a_search_is_in_the_address(tab: Tab) -> None:
    fleet = a_fleet()
    fleet.break_node("gpu-0007")
    async with watched(tab, fleet) as page:
        await tab.open(f"{page.url}/#/nodes?state=in+quarantine")
        await tab.until("document.querySelectorAll('.cell[href]').length === 1")
        await tab.evaluate(
            "(() => { const s = document.getElementById('search'); document.getElementById('state').value = '';"
            "s.value = 'rack-1'; s.dispatchEvent(new Event('input')); })()"
        )
        await tab.until("document.querySelectorAll('.cell[href]').length === 64")
        address = await tab.evaluate("location.hash")

    assert address == "#/nodes?q=rack-1"


async def test_on_a_phone_nothing_is_wider_than_the_window(tab: Tab) -> None:
    fleet = a_fleet()
    fleet.recover(0, Phase.DETECTED, Phase.HELD, message="no spare " * 20)
    fleet.break_node("gpu-0000")
    await tab.resize(360, 740, mobile=True)
    async with watched(tab, fleet) as page:
        for place in ("", "nodes", "gangs", "recoveries", "node/gpu-0000", "recovery/team-a/llama-000-1"):
            await tab.open(f"{page.url}/#/{place}")
            await tab.until("document.querySelector('main h1') && !document.body.innerText.includes('Loading')")
            width = await tab.evaluate("document.documentElement.scrollWidth")
            assert width <= 360, place


async def test_with_the_key_of_a_run_it_opens_and_without_it_asks(tab: Tab) -> None:
    async with watched(tab, a_fleet(4, 1), KeyAccess("secret-key")) as page:
        await tab.open(page.url)
        await tab.until("document.querySelector('#token')")
        asked = await tab.text("main")
        await tab.open(f"{page.url}/#key=secret-key")
        await tab.until(READY)
        address = await tab.evaluate("location.href")

    assert "open the address that healthd printed" in asked
    assert "secret-key" not in address


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_stands_in_the_way_of_a_screen_reader(tab: Tab, scheme: str) -> None:
    axe = axe_core()
    fleet = a_fleet()
    fleet.break_node("gpu-0000")
    fleet.report("gpu-0001", Verdict.UNHEALTHY, "lost a GPU")
    fleet.report("gpu-0002", Verdict.DEGRADED, "a fan is slow")
    fleet.recover(0, Phase.DETECTED, Phase.HELD, message="no spare")
    fleet.recover(1, Phase.DETECTED, Phase.STOPPING, Phase.RECOVERED)
    await tab.prefer(scheme)
    found = {}
    async with watched(tab, fleet) as page:
        for place in ("", "nodes", "gangs", "recoveries", "incidents", "node/gpu-0000", "recovery/team-a/llama-000-1",
                      "gang/team-a/job/llama-000"):  # fmt: skip
            await tab.open("about:blank")
            await tab.open(f"{page.url}/#/{place}")
            await tab.until("document.querySelector('main h1') && !document.body.innerText.includes('Loading')")
            await tab.evaluate(axe)
            report = await tab.evaluate("axe.run().then(done => JSON.stringify(done.violations))")
            found[place] = [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in json.loads(report)]

    assert {place: each for place, each in found.items() if each} == {}


async def test_five_thousand_nodes_are_shown_and_changed(tab: Tab) -> None:
    async with watched(tab, a_fleet(5000, 200)) as page:
        await tab.open(page.url)
        await tab.until("document.querySelectorAll('.grid .cell').length === 5000")
        page.change(lambda: page.fleet.break_node("gpu-4321"))
        await tab.until("document.querySelector('.grid .cell.in-quarantine')?.ariaLabel.startsWith('gpu-4321')")
        weight = sum(tab.received.values())

    assert weight < 200_000
    assert tab.errors == []
