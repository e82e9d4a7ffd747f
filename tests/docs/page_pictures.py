"""The pictures of the live page in docs/, taken in a real Chromium: `python -m tests.docs.page_pictures`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from healthd.clock import SystemClock
from healthd.core.api.model import Phase, Verdict
from tests.browser import Tab, browsing
from tests.controller.web.fleets import FleetOf
from tests.controller.web.pages import a_page

DOCS = Path(__file__).parents[2] / "docs"
WIDE, PHONE = (1120, 1060), (390, 760)
WAITS = "no spare is free: repair gpu-0003, or label a healthy node healthd.dev/spare=true"
READY = "document.querySelector('main h1') && !document.body.innerText.includes('Loading')"


def a_fleet_in_trouble() -> FleetOf:
    """Two hundred nodes, of which some need people."""
    fleet = FleetOf(200, 9, SystemClock().now())
    fleet.break_node("gpu-0003")
    fleet.report("gpu-0077", Verdict.DEGRADED, "PCIe link of 0000:3b:00.0 is narrower than it was")
    fleet.recover(0, Phase.DETECTED, Phase.STOPPING, Phase.FENCING, Phase.CHOOSING, Phase.HELD, message=WAITS,
                  name="gpu-0003")  # fmt: skip
    fleet.recover(4, Phase.DETECTED, Phase.STOPPING, Phase.FENCING, name="gpu-0102")
    return fleet


async def take() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        async with browsing(Path(folder) / "profile") as open_tab, a_page(a_fleet_in_trouble(), name="prod-eu") as page:
            tab = await open_tab()
            await _take(tab, f"{page.url}/#/", "page-overview.png", WIDE, "light")
            await _take(tab, f"{page.url}/#/recovery/team-a/llama-000-1", "page-recovery.png", WIDE, "light")
            await _take(tab, f"{page.url}/#/", "page-phone.png", PHONE, "dark")


async def _take(tab: Tab, url: str, name: str, size: tuple[int, int], scheme: str) -> None:
    await tab.resize(*size, mobile=size == PHONE)
    await tab.prefer(scheme)
    await tab.open("about:blank")
    await tab.open(url)
    await tab.until(READY)
    await tab.picture(DOCS / name)
    print(DOCS / name, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(take())
