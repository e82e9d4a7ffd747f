"""The grid of nodes in a real Chromium, while its cells are made and while nodes come and go."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.core.api import Node
from healthd.core.api.model import Verdict
from tests.browser import Tab, browsing
from tests.builders import a_node
from tests.controller.web.fleets import DOMAIN, FleetOf
from tests.controller.web.pages import ServedPage, a_page, module

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chromium")]

NODES = 1500
"""More than are made at once."""
WHOLE = "document.querySelector('.settled')"
FOCUSED = "document.activeElement.getAttribute('aria-label')"


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path / "profile") as open_tab:
        tab = await open_tab()
        yield tab
        assert tab.errors == []


@pytest.fixture
async def page() -> AsyncIterator[ServedPage]:
    async with a_page(FleetOf(NODES, 4, SystemClock().now())) as page:
        yield page


async def test_every_node_gets_its_cell_in_order_and_the_keyboard_reaches_the_last(tab: Tab, page: ServedPage) -> None:
    await tab.open(f"{page.url}/#/nodes")
    await tab.until(WHOLE)
    names = await tab.evaluate("[...document.querySelectorAll('.cell[href]')].map(each => each.hash.slice(7))")
    await tab.evaluate("document.querySelector('.cell[href]').focus()")
    await tab.press("End")
    last = await tab.evaluate(FOCUSED)
    await tab.open("about:blank")

    assert names == page.fleet.nodes
    assert last.startswith(page.fleet.nodes[-1])


async def test_names_are_in_the_order_of_their_numbers(tab: Tab, page: ServedPage) -> None:
    names = ["", "a", "a-b", "a1", "a1b", "a2", "a10", "a12", "a12-2", "a12-11", "b", "b007", "b07", "b7", "b008"]
    huge = [f"c{'9' * 400}", f"c{'9' * 401}", "rack", "rack-1", "rack-2", "rack-10"]
    await tab.open(page.url)
    given = json.dumps(random.Random(1).sample(names + huge, len(names + huge)))
    found = await tab.evaluate(f"{module('words')}.then(({{ byName }}) => {given}.sort(byName))")
    await tab.open("about:blank")

    assert found == names + huge


async def test_a_change_that_comes_before_the_cell_is_made_is_not_lost(tab: Tab, page: ServedPage) -> None:
    await tab.open(page.url)
    await tab.until(WHOLE)
    await tab.evaluate(f"{module('grid')}.then(({{ grid }}) => window.grid = grid)")
    await tab.evaluate(f"{module('stream')}.then(({{ model }}) => window.model = model)")
    label = await tab.evaluate("""(async () => {
        const made = grid();
        made.show(() => true);
        const before = made.element.querySelectorAll('.cell').length;
        const [name, [domain]] = Object.entries(model.nodes).at(-1);
        model.nodes[name] = [domain, 'unhealthy', '', 'lost a GPU'];
        made.update({ [name]: model.nodes[name] });
        while (made.element.querySelectorAll('.cell').length < Object.keys(model.nodes).length)
            await new Promise(done => setTimeout(done));
        const last = [...made.element.querySelectorAll('.cell')].at(-1);
        return [before, last.ariaLabel, made.element.lastElementChild.querySelector('h3').textContent];
    })()""")
    await tab.open("about:blank")

    made_at_once, last, count = label
    assert made_at_once < NODES
    assert last.endswith(": unhealthy, lost a GPU")
    assert "1 unhealthy" in count


async def test_a_node_that_joins_takes_nothing_from_who_is_in_the_grid(tab: Tab, page: ServedPage) -> None:
    fleet, at = page.fleet, "gpu-0070"
    await tab.open(f"{page.url}/#/nodes")
    await tab.until(WHOLE)
    await tab.evaluate(f"document.querySelector('.cell[href$=\"{at}\"]').focus()")
    for name, rack in (("gpu-0071a", "rack-1"), ("gpu-9999", "rack-99")):
        page.change(partial(fleet.upsert, a_node(name, labels={DOMAIN: rack})))
        await tab.until(f"document.querySelector('.cell[href$=\"{name}\"]')")
        assert (await tab.evaluate(FOCUSED)).startswith(at)
    page.change(partial(fleet.report, at, Verdict.DEGRADED, "a fan is slow"))
    await tab.until(f"{FOCUSED} === '{at}: degraded, a fan is slow'")
    moved = fleet.state.get(Node, ("", "gpu-0002"))  # type: ignore[arg-type]
    assert moved is not None
    moved.metadata.labels[DOMAIN] = "rack-1"
    page.change(partial(fleet.upsert, moved))
    await tab.until(
        "document.querySelector('.cell[href$=\"gpu-0002\"]').closest('section').innerText.includes('rack-1')"
    )
    titles = await tab.evaluate("[...document.querySelectorAll('h3')].map(each => each.textContent)")
    await tab.open("about:blank")

    assert titles[0].startswith("rack-0 63 healthy")
    assert titles[1] == "rack-1 1 unknown, 1 degraded, 64 healthy"
    assert titles[-1].startswith("rack-99 ")


async def test_a_search_that_is_cleared_shows_all_again(tab: Tab, page: ServedPage) -> None:
    await tab.open(f"{page.url}/#/nodes?q=gpu-0001")
    await tab.until("document.querySelectorAll('.cell[href]').length === 1")
    await tab.evaluate(
        "(() => { const search = document.getElementById('search');"
        "search.value = ''; search.dispatchEvent(new Event('input')); })()"
    )
    await tab.until(f"document.querySelectorAll('.cell[href]').length === {NODES}")
    stops = await tab.evaluate("document.querySelectorAll('.cell[tabindex=\"0\"]').length")
    await tab.open("about:blank")

    assert stops == 1
