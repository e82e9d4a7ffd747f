"""Gangs that failed for good before healthd could stop them, beside the real controller of their kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from healthd.core.api import ANNOTATION_REBUILD
from healthd.core.api.model import Phase
from tests.gangs.recoveries.stage import Stage
from tests.gangs.recoveries.stories import assert_moved
from tests.kubernetes.breakpoints import Breakpoint, Point, When
from tests.kubernetes.replicas import Replica
from tests.lab.kinds.fixtures import of_kinds
from tests.lab.kinds.gangs import KINDS
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ALLOWED = {ANNOTATION_REBUILD: "enabled"}
NEVER = {"restartPolicy": "Never"}
FRAGILE: Mapping[str, Mapping[str, Any]] = {
    "Job": {"backoffLimit": 0},
    "JobSet": {"failurePolicy": None},
    "TFJob": {"tfReplicaSpecs": {"Chief": NEVER, "Worker": NEVER}},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Master": NEVER, "Worker": NEVER}},
}
"""How its user writes a gang that fails for good with its first member."""
LIMIT = 60


async def fails_for_good(stage: Stage) -> str:
    """A GPU is lost and its rank dies of that; the root is failed before healthd has seen anything. The bad node."""
    bad = stage.node_of_other()
    for replica in stage.replicas.all:
        replica.proxy.hold()
    stage.scenario.break_gpu(bad)
    dying = next(pod for pod in stage.scenario.living() if pod.spec.node_name == bad)
    stage.scenario.simulated.end_containers(stage.scenario.namespace, dying.metadata.name, exit_code=134)
    await asyncio.to_thread(wait_until, "the root to have failed", stage.has_failed, limit=LIMIT)
    return bad


def let_go(stage: Stage) -> None:
    for replica in stage.replicas.all:
        replica.proxy.release()


@pytest.mark.parametrize("kind", of_kinds(FRAGILE), indirect=True)
async def test_it_is_made_again_and_resumes_on_the_spare(stage: Stage, kind: str) -> None:
    await stage.play(options=ALLOWED, spec=FRAGILE[kind])
    before = stage.scenario.get(KINDS[kind].deleted)
    bad = await fails_for_good(stage)
    let_go(stage)
    recovery = await stage.until_recovered()
    after = stage.scenario.get(KINDS[kind].deleted)

    assert_moved(stage, bad, recovery)
    assert recovery.status.rebuild is not None
    assert (recovery.status.rebuild.uid, recovery.status.rebuild.made) == (
        before["metadata"]["uid"],
        after["metadata"]["uid"],
    )
    assert after["metadata"]["annotations"]["healthd.dev/rebuilt-from"] == before["metadata"]["uid"]
    assert not stage.has_failed()


@pytest.mark.parametrize("kind", of_kinds(["TFJob"]), indirect=True)
@pytest.mark.parametrize("point", [Point(Phase.STOPPING, When.LEAVING), Point(Phase.FENCING, When.LEAVING)], ids=str)
async def test_a_controller_that_is_killed_in_between_is_continued(stage: Stage, kind: str, point: Point) -> None:
    """Once the old root is deleted; and once the new one is there, and that is not on record."""
    await stage.play(controllers=2, lease="5s", options=ALLOWED, spec=FRAGILE[kind])
    await stage.replicas.leader()
    breakpoint_at = Breakpoint(stage.replicas, stage.scenario.namespace, point, Replica.kill)
    bad = await fails_for_good(stage)
    let_go(stage)
    recovery = await stage.until_recovered()

    assert breakpoint_at.sprung.is_set()
    assert_moved(stage, bad, recovery)


@pytest.mark.parametrize("kind", of_kinds(["TFJob"]), indirect=True)
async def test_without_the_word_of_its_owner_it_stays_and_the_recovery_says_what_to_do(stage: Stage, kind: str) -> None:
    await stage.play(spec=FRAGILE[kind])
    before = stage.scenario.get(KINDS[kind].deleted)
    await fails_for_good(stage)
    let_go(stage)
    recovery = await stage.scenario.until_phase(Phase.GAVE_UP)

    assert "delete it and make it from its manifest: kubectl replace --force" in recovery.status.message
    assert stage.scenario.get(KINDS[kind].deleted)["metadata"]["uid"] == before["metadata"]["uid"]
