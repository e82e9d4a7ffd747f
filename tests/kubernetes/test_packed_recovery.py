"""A gang so large that its recovery is stored packed."""

from __future__ import annotations

import asyncio

import pytest

from healthd.core.api.model import Phase
from healthd.core.api.pod_packs import PACKED_ABOVE
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.sampled import RUNS_ALL
from tests.kubernetes.scenario import Scenario

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(not RUNS_ALL, reason="takes more than two minutes; HEALTHD_ALL_SCENARIOS=1 runs it"),
]

MEMBERS = PACKED_ABOVE + 20


async def test_gang_of_hundreds_is_recovered_though_no_one_can_read_its_pods_by_eye(
    scenario: Scenario, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(direct=True), scenario.play(members=MEMBERS, agents=1))
    bad = scenario.nodes[0]

    scenario.break_gpu(bad)
    recovery = await scenario.until_phase(Phase.RECOVERED, limit=120)

    stored = scenario.get(f"recovery/{recovery.metadata.name}")["status"]
    assert "pods" not in stored
    assert len(stored["packed"]) < 50 * MEMBERS
    assert stored.get("openEnds", 0) == 0
    assert {pod.node for pod in recovery.status.pods} >= {bad}
    assert len(recovery.status.pods) == MEMBERS
    assert all(pod.proof for pod in recovery.status.pods)
    assert [len(attempt.ran_on) for attempt in recovery.status.attempts] == [MEMBERS]
    pods = await scenario.until_running(1, MEMBERS)
    assert scenario.spares[0] in {pod.spec.node_name for pod in pods}
    assert scenario.ranks.overlaps == []
