"""A recovery at a real API server, watched in a real Chromium by somebody who signs in with a token of the cluster."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from healthd.core.api.model import Phase
from tests.browser import Tab, browsing
from tests.kubernetes.page_viewers import Viewers, page_of
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario
from tests.lab.control_plane import ControlPlane

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("chromium")]


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path / "profile") as open_tab:
        yield await open_tab()


async def test_a_recovery_is_watched_from_the_fault_to_its_end(
    tab: Tab, scenario: Scenario, replicas: Replicas, kubernetes: ControlPlane, tmp_path: Path
) -> None:
    pictures = Path(os.environ.get("HEALTHD_PICTURES") or tmp_path)
    viewers = Viewers(kubernetes, scenario.namespace)
    token = viewers.add("ann")
    viewers.grant_everything("ann")
    (replica,) = await replicas.add(web={"address": "127.0.0.1:0", "access": "token"})
    url = await page_of(replica)
    await scenario.play()
    bad, cell = scenario.node_of(rank=0), "document.querySelector('.grid .cell.in-quarantine')"
    await tab.resize(1280, 1000)
    await tab.open(url)
    await tab.until("document.getElementById('token')")
    await tab.evaluate(
        f"(() => {{ document.getElementById('token').value = '{token}';"
        "document.querySelector('.signin').requestSubmit(); })()"
    )
    await tab.until("document.querySelector('tbody')?.innerText.includes('4/4')")
    await tab.until("document.querySelector('.fine')")
    refused = list(tab.errors)

    scenario.break_gpu(bad)
    await tab.until(f"{cell}?.ariaLabel.startsWith('{bad}: in quarantine')")
    await tab.until("document.querySelector('[aria-label=\"recoveries in progress\"] tbody tr')")
    await tab.picture(pictures / "overview.png")
    await tab.evaluate("document.querySelector('tbody a[href^=\"#/recovery/\"]').click()")
    await tab.until("document.querySelectorAll('.laps li').length > 1")
    await scenario.until_phase(Phase.RECOVERED)
    await tab.until("document.querySelector('main .badge').textContent === 'Recovered'")
    await tab.picture(pictures / "recovered.png", whole=True)
    phases = await tab.evaluate("[...document.querySelectorAll('.laps .badge')].map(each => each.textContent)")
    text, news = await tab.text("main"), await tab.evaluate("document.getElementById('news').textContent")
    await tab.open("about:blank")
    recovery = scenario.recoveries()[-1]

    assert {"401" in error for error in refused} == {True}  # once, or again while the token is typed
    assert phases == [entry.phase.value for entry in recovery.status.timeline]
    assert bad in text
    assert scenario.spares[0] in text
    assert news.startswith("job/llama: Recovered")
    assert tab.errors == refused
