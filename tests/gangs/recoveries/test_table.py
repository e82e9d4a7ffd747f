"""Every kind, with its real controller, in every scenario: the table in docs/gangs.md."""

from __future__ import annotations

import pytest

from tests.gangs.recoveries.stage import Stage
from tests.gangs.recoveries.stories import STORIES
from tests.gangs.recoveries.table import cells

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize(("kind", "story"), cells(), indirect=["kind"])
async def test_a_gang_of_this_kind_in_this_scenario(stage: Stage, story: str) -> None:
    await STORIES[story](stage)
