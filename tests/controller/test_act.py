"""What the controller does not do because somebody was faster."""

from __future__ import annotations

import pytest

from healthd.cluster.port import Conflict
from healthd.controller.act import perform
from healthd.core.acts import StopGang
from healthd.core.gang import GangView
from healthd.core.model import Phase
from healthd.gangs import ADAPTERS
from tests.scenarios.stage import Stage


async def test_a_gang_that_its_user_set_going_is_not_stopped_by_what_was_decided_before() -> None:
    stage = Stage(ranks=2, spares=0)
    await stage.run_for(minutes=1)
    stage.crash(0)
    before = await stage.run_until(Phase.STOPPING)
    stage.suspend()
    await stage.run_until(Phase.SUPERSEDED)
    stage.resume()

    with pytest.raises(Conflict, match="it is now in Superseded"):
        await perform(
            stage.cluster,
            StopGang(before.metadata.name),
            recovery=before,
            view=GangView(root=stage.root),
            adapter=ADAPTERS["Job"],
        )

    assert not stage.root.suspended
