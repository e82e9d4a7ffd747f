"""`healthd demo --web`, watched in a real Chromium while a GPU is lost."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.browser import browsing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chromium")]


async def test_the_recoveries_of_the_demo_are_seen_as_they_happen(tmp_path: Path) -> None:
    async with browsing(tmp_path / "profile") as open_tab:
        tab = await open_tab()
        command = [sys.executable, "-m", "healthd.cli.main", "demo", "--plain", "--web"]
        demo = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert demo.stdout is not None
        async for line in demo.stdout:
            if found := re.search(rb"live page: (\S+)", line):
                break
        rest = asyncio.create_task(demo.stdout.read())
        await tab.open(found.group(1).decode() if found else "about:blank")
        await tab.until("document.querySelector('.grid .cell.in-quarantine')")
        await tab.until("/Stopping|Fencing|Choosing|Starting|Confirming/.test(document.body.innerText)")
        await tab.evaluate("location.hash = '#/recoveries'")
        await tab.until("/Recovered/.test(document.querySelector('tbody').innerText)")
        await rest
        code = await demo.wait()
        slot = await tab.text("tbody")
        await tab.until("document.getElementById('connection').innerText.includes('Not connected')")

    assert code == 0
    assert "slot-1" in slot
    assert [error for error in tab.errors if "ERR_" not in error] == []
