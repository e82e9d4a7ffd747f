"""A gang so large that its recovery is stored packed."""

from __future__ import annotations

import asyncio

import pytest

from healthd.core.api.model import Phase
from healthd.core.api.pod_packs import PACKED_ABOVE
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.stage import Stage
from tests.kubernetes.whole import IS_WHOLE

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(not IS_WHOLE, reason="takes more than two minutes; HEALTHD_WHOLE=1 tells it"),
]

MEMBERS = PACKED_ABOVE + 20


async def test_gang_of_hundreds_is_recovered_though_nobody_can_read_its_pods_by_eye(
    stage: Stage, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(direct=True), stage.play(members=MEMBERS, agents=1))
    bad = stage.nodes[0]

    stage.break_gpu(bad)
    recovery = await stage.until_phase(Phase.RECOVERED, limit=120)

    stored = stage.get(f"recovery/{recovery.metadata.name}")["status"]
    assert "pods" not in stored
    assert len(stored["packed"]) < 50 * MEMBERS
    assert stored.get("openEnds", 0) == 0
    assert {pod.node for pod in recovery.status.pods} >= {bad}
    assert len(recovery.status.pods) == MEMBERS
    assert all(pod.proof for pod in recovery.status.pods)
    assert [len(attempt.ran_on) for attempt in recovery.status.attempts] == [MEMBERS]
    pods = await stage.until_running(1, MEMBERS)
    assert stage.spares[0] in {pod.spec.node_name for pod in pods}
    assert stage.ranks.overlaps == []
