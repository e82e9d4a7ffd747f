"""The page of one object in a real Chromium, while other things happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.core.api.model import Verdict
from tests.browser import browsing
from tests.controller.web.fleets import FleetOf
from tests.controller.web.pages import a_page, module

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chromium")]


async def test_the_page_of_what_does_not_exist_asks_once_and_not_at_every_change(tmp_path: Path) -> None:
    fleet = FleetOf(4, 1, SystemClock().now())
    async with browsing(tmp_path / "profile") as open_tab, a_page(fleet) as page:
        tab = await open_tab()
        await tab.open(f"{page.url}/#/recovery/team-a/none")
        await tab.until("document.querySelector('main').innerText.includes('it does not exist any more')")
        await tab.evaluate(f"{module('stream')}.then(({{ model }}) => window.cellOf = (name) => model.nodes[name][3])")
        for number in range(3):
            text = f"change {number}"
            page.change(lambda text=text: fleet.report("gpu-0001", Verdict.DEGRADED, text))  # type: ignore[misc]
            await tab.until(f"window.cellOf('gpu-0001') === '{text}'")
        await tab.open("about:blank")

    assert ["404" in error for error in tab.errors] == [True]
