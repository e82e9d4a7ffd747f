"""One fault, one restart: a GPU is lost under a gang of each kind."""

from __future__ import annotations

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.gangs import GANGS
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("which", GANGS)
async def test_gang_on_a_broken_node_runs_again_on_a_spare(scenario: Scenario, replicas: Replicas, which: str) -> None:
    await replicas.add()
    await scenario.play(which)
    bad = scenario.node_of(rank=0)

    scenario.break_gpu(bad)
    recovery = await scenario.until_phase(Phase.RECOVERED)

    pods = await scenario.until_running(1)
    assert bad not in {pod.spec.node_name for pod in pods}
    assert scenario.spares[0] in {pod.spec.node_name for pod in pods}
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert scenario.ranks.overlaps == []
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0, 1)}
