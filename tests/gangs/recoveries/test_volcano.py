"""What Volcano's scheduler makes of a gang that healthd stops and starts: its queue, its group, all members at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gangs.recoveries.stage import Stage
from tests.gangs.recoveries.stories import assert_moved
from tests.lab.kinds.fixtures import of_kinds

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("kind", of_kinds(["VolcanoJob", "Job scheduled by Volcano"]), indirect=True)
async def test_its_group_is_the_same_and_runs_again_with_all_members(stage: Stage) -> None:
    await stage.play()
    before = await until_its_group_runs(stage)
    bad = stage.node_of_other()

    stage.scenario.break_gpu(bad)
    assert_moved(stage, bad, await stage.until_recovered())

    assert await until_its_group_runs(stage) == before
    assert [(spec["minMember"], spec["queue"]) for _, spec in before] == [(4, "default")]


async def until_its_group_runs(stage: Stage) -> list[tuple[str, Any]]:
    """Every group by its uid, once all run."""
    found: list[Any] = []

    def all_run() -> bool:
        found[:] = stage.scenario.get("podgroups.scheduling.volcano.sh")["items"]
        return all(each.get("status", {}).get("phase") == "Running" for each in found)

    await stage.scenario.until("its group to run", all_run)
    return [(each["metadata"]["uid"], each["spec"]) for each in found]
