"""A gang of 128 members with eight GPUs each, on 140 nodes with an agent each, loses one GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_RESUME_FROM,
    TAINT_QUARANTINED,
    TAINT_RESERVED,
)
from healthd.core.api.model import Phase
from healthd.core.node.quarantine import read_record
from tests.checkpoints.builders import a_sharded_step, shard_name
from tests.kubernetes.gangs import template
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.sampled import one_in
from tests.kubernetes.scenario import BESIDE, Scenario
from tests.lab.kubernetes import HAS_MUTATING_POLICIES
from tests.lab.simulated import PRODUCT

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MEMBERS, SPARES = 128, 12
BROKEN = ("False", "xid-79")


@pytest.mark.parametrize("which", one_in(2, ["JobSet", "Job"]))
async def test_gang_of_128_resumes_on_a_spare_from_its_last_whole_checkpoint(
    scenario: Scenario, other_stage: Scenario, replicas: Replicas, tmp_path: Path, which: str
) -> None:
    whole = a_sharded_step(tmp_path, 1000)
    os.truncate(a_sharded_step(tmp_path, 1100) / shard_name(3, 4), 100)  # it was being written
    await replicas.add(direct=True, checkpoints={"allowed": [f"{tmp_path} for *"]})
    await scenario.play(
        which, members=MEMBERS, spares=SPARES, notes={ANNOTATION_CHECKPOINT: tmp_path.as_uri()}, budget=2
    )
    other_stage.apply(a_competitor(scenario))
    bad = scenario.node_of(rank=17)

    scenario.break_gpu(bad)
    await scenario.until_phase(Phase.CONFIRMING)
    pods = await scenario.until_running(1, MEMBERS)
    a_sharded_step(tmp_path, 1200)
    recovery = await scenario.until_phase(Phase.RECOVERED)

    await scenario.until(
        "the report, which makes way for the cordons of others", lambda: accelerators(scenario, bad) == BROKEN
    )
    assert_in_quarantine(scenario, bad)
    on = {pod.spec.node_name for pod in pods}
    assert (bad in on, len(on), len(on & set(scenario.spares))) == (False, MEMBERS, 1)
    assert {pod.metadata.annotations[ANNOTATION_RESUME_FROM] for pod in pods} == {str(whole)}
    raw = scenario.get("pods")["items"]
    if HAS_MUTATING_POLICIES:  # else a container has it only where it asks by the downward API
        assert [environment(pod) for pod in raw] == [reported(whole)] * MEMBERS
    assert all(TAINT_RESERVED in [each.get("key") for each in pod["spec"]["tolerations"]] for pod in raw)
    status = scenario.get(f"{scenario.gang.resource}/llama")["status"]
    assert (status.get("failed", 0), status.get("restarts", 0)) == (0, 0)
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert recovery.status.confirmed_step == 1200
    assert scenario.ranks.overlaps == []
    assert len(scenario.ranks.starts) == MEMBERS
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0, 1)}
    assert other_stage.ranks.starts == {}


def a_competitor(scenario: Scenario) -> dict[str, Any]:
    """A pod of somebody else that would fit onto any spare that were free for a moment."""
    spec = template({"nodeSelector": {PRODUCT: scenario.product, BESIDE: "yes"}})["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "competitor"}, "spec": spec}


def assert_in_quarantine(scenario: Scenario, name: str) -> None:
    node = scenario.node(name)
    record = read_record(node)
    assert record is not None
    assert "Xid 79" in record.message
    assert node.spec.unschedulable
    assert TAINT_QUARANTINED in [taint.key for taint in node.spec.taints]


def accelerators(scenario: Scenario, name: str) -> tuple[str, str]:
    """What the node's condition says, and by which rule."""
    said = {each.type: each for each in scenario.node(name).status.conditions}["AcceleratorHealthy"]
    return said.status, said.reason


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """What healthd put into the environment of a pod."""
    env = pod["spec"]["containers"][0].get("env", [])
    return {each["name"]: each["value"] for each in env if each["name"].startswith("HEALTHD_")}


def reported(checkpoint: Path) -> dict[str, str]:
    return {"HEALTHD_ATTEMPT": "1", "HEALTHD_RESUME_FROM": str(checkpoint), "HEALTHD_RESUME_STEP": "1000"}
