"""
The live page in a real Chromium on this machine, 5,000 nodes and 200 gangs: first paint, weight, delay, scrolling.

Clocks: a load runs from the navigation to the first contentful paint (the frame of the page), to the paint of its head
as the browser times it, to the picture after the one that has the first cells, and to the picture after the last of the
5,000 cells is in the document. A change runs from its write into the cache to the picture after the cell has changed.
Frames are counted while the page scrolls by script for three seconds, and 600 lines of text to compare.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from healthd.clock import SystemClock
from healthd.core.api.model import Verdict
from tests.bench._figures import machine, spread
from tests.bench.page import GANGS, NODES, configure_silent, wall
from tests.browser import Tab, browsing
from tests.controller.web.fleets import FleetOf
from tests.controller.web.pages import ServedPage, a_page

LOADS, CHANGES = 7, 20
MOMENTS = ("first_contentful_paint_ms", "head_painted_ms", "first_cells_drawn_ms", "all_cells_drawn_ms")
DRAWN = f"document.querySelectorAll('.grid .cell').length === {NODES}"
WATCH = f"""(() => {{
    const marked = () => document.querySelector('.levels .level')?.setAttribute('elementtiming', 'head');
    new MutationObserver(marked).observe(document, {{childList: true, subtree: true}});
    new PerformanceObserver(list => window.headAt ??= list.getEntries()[0].startTime)
        .observe({{type: 'element', buffered: true}});
    const after = (holds, name) => {{
        const look = () => holds()
            ? requestAnimationFrame(() => setTimeout(() => window[name] = performance.now()))
            : requestAnimationFrame(look);
        look();
    }};
    after(() => document.querySelector('.grid .cell'), 'cellsAt');
    after(() => {DRAWN}, 'drawnAt');
}})()"""
SCROLL = """new Promise(done => {
    const began = performance.now(); let frames = 0, last = began, worst = 0;
    const step = at => {
        frames++; worst = Math.max(worst, at - last); last = at;
        window.scrollBy(0, 40);
        if (at - began < 3000) requestAnimationFrame(step);
        else done([1000 * frames / (at - began), worst]);
    };
    requestAnimationFrame(step);
})"""


def main() -> None:
    """Measure, and print one JSON object."""
    configure_silent()
    print(json.dumps(asyncio.run(_measure()), indent=2))


async def _measure() -> dict[str, Any]:
    fleet = FleetOf(NODES, GANGS, SystemClock().now())
    with tempfile.TemporaryDirectory() as folder:
        async with browsing(Path(folder) / "profile") as open_tab, a_page(fleet) as page:
            tab = await open_tab()
            await tab.resize(1280, 900)
            await tab.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            loads = [await _load(tab, page) for _ in range(LOADS)]
            weight = sum(tab.received.values()) / LOADS
            delays = [await _change(tab, page, fleet) for _ in range(CHANGES)]
            await tab.until("document.querySelector('.settled')")
            frames, worst = await tab.evaluate(SCROLL)
            await tab.open("about:blank")
            await tab.evaluate("document.body.innerHTML = '<p>text</p>'.repeat(600); 0")
            most, _ = await tab.evaluate(SCROLL)
    return {
        **{name: spread([each[at] for each in loads], 0) for at, name in enumerate(MOMENTS)},
        "page_weight_bytes_mean_of_cold_and_warm": round(weight),
        "change_to_picture_ms": spread(delays, 0),
        "frames_per_second_scrolling": round(frames, 1),
        "longest_frame_ms": round(worst, 1),
        "frames_per_second_scrolling_600_lines_of_text": round(most, 1),
        "machine": machine(),
    }


async def _load(tab: Tab, page: ServedPage) -> list[float]:
    await tab.open("about:blank")
    await tab.call("Page.navigate", url=page.url)
    await tab.until("window.headAt && window.cellsAt && window.drawnAt")
    frame = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    found: list[float] = await tab.evaluate(f"[{frame}, window.headAt, window.cellsAt, window.drawnAt]")
    return found


async def _change(tab: Tab, page: ServedPage, fleet: FleetOf) -> float:
    mark = f"at {wall()}"
    seen = f"""new Promise(done => {{
        const look = () => document.querySelector('.cell[aria-label*="{mark}"]')
            ? requestAnimationFrame(() => setTimeout(() => done(Date.now()))) : requestAnimationFrame(look);
        look();
    }})"""
    waiting = asyncio.create_task(tab.evaluate(seen))
    await asyncio.sleep(0.3)
    began = wall()
    page.change(lambda: fleet.report(fleet.nodes[7], Verdict.DEGRADED, mark))
    at: float = await waiting
    return at - 1000 * began


if __name__ == "__main__":
    main()
