"""The picture of the page about hangs is the one that healthd draws, and a browser shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import browsing
from tests.docs import hang_picture
from tests.docs.page import ROOT


def test_the_picture_is_the_one_that_the_script_draws() -> None:
    assert hang_picture.FILE.read_text() == hang_picture.picture()
    assert "](hang.svg)" in (ROOT / "docs" / "hangs" / "README.md").read_text()


@pytest.mark.slow
async def test_every_text_of_it_lies_within_the_picture_in_a_browser(tmp_path: Path) -> None:
    async with browsing(tmp_path / "profile") as open_tab:
        tab = await open_tab()
        await tab.resize(1000, 300)
        await tab.open(hang_picture.FILE.as_uri())
        outside = await tab.evaluate(
            "[...document.querySelectorAll('text')].filter(each => { const box = each.getBBox(), "
            "all = document.documentElement.viewBox.baseVal; return box.x < 0 || box.y < 0 || "
            "box.x + box.width > all.width || box.y + box.height > all.height; }).map(each => each.textContent)"
        )

        assert (outside, tab.errors) == ([], [])
