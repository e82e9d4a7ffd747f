"""`healthd doctor node/NAME`: what it reads of a cluster, and the hands of a site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from healthd.cli.doctor.node import hands_of, read_plan
from healthd.cli.errors import UserError
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import Namespace, Node, NodeHealth, ObjectMeta
from healthd.core.api.model import RepairAction
from healthd.core.api.remediations import Rung
from healthd.core.remediation.hands.shipped import shipped_hands
from tests.builders import a_node, a_pod
from tests.core.remediation.situations import a_finding, a_quarantined_node
from tests.fakes import ManualClock, counting_uids

OWN = "[{name: own-reset, rung: reset_gpu, verb: patch, body: {metadata: {labels: {reset: wanted}}}, done: Reset}]"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """An empty cluster in memory."""
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as embedded:
        yield embedded


async def reports_a_dead_gpu(cluster: EmbeddedCluster) -> None:
    """The agent of gpu-17 does. A status is written by itself: an API server drops that of a new object."""
    await cluster.create(NodeHealth(metadata=ObjectMeta(name="gpu-17")))
    finding = msgspec.to_builtins(a_finding(action=RepairAction.RESET_GPU))
    await cluster.patch(NodeHealth, "gpu-17", {"status": {"findings": [finding]}}, subresource="status")


async def test_a_node_in_quarantine_is_read_with_its_findings_and_its_pods(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_quarantined_node(uid=""))
    await reports_a_dead_gpu(cluster)
    await cluster.create(a_pod("train-0", namespace="ml", node="gpu-17"))
    await cluster.create(a_pod("elsewhere", namespace="ml", node="gpu-18"))

    plan = await read_plan(cluster, "gpu-17", shipped_hands(), SystemClock())

    assert plan.waits == ("the end of ml/train-0: nothing that runs is killed",)
    assert [step.rung for step in plan.steps] == [Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE, Rung.PERSON]


async def test_a_hand_for_which_the_node_lacks_something_is_not_here(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_node("gpu-17"))

    plan = await read_plan(cluster, "gpu-17", shipped_hands(), SystemClock())

    assert plan.steps == ()
    assert "metal3-power-cycle: the node has no provider 1" in plan.lacking


async def test_healthds_own_hand_is_here_with_its_component_alone(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_quarantined_node(uid=""))
    await cluster.patch(Node, "gpu-17", {"status": {"nodeInfo": {"bootID": "boot-1"}}}, subresource="status")
    await reports_a_dead_gpu(cluster)
    own = [hand for hand in shipped_hands() if hand.name.startswith("healthd-")]

    before = await read_plan(cluster, "gpu-17", own, SystemClock())
    await cluster.create(Namespace(metadata=ObjectMeta(name="healthd-node-hands")))
    after = await read_plan(cluster, "gpu-17", own, SystemClock())

    assert "healthd-gpu-reset: there is no namespace healthd-node-hands" in before.lacking
    assert [step.hand.name for step in after.steps if step.hand] == ["healthd-gpu-reset", "healthd-reboot"]


async def test_a_node_that_is_not_there_is_said_so(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="there is no node 'gpu-18'"):
        await read_plan(cluster, "gpu-18", (), SystemClock())


def test_the_hands_of_the_site_come_first(tmp_path: Path) -> None:
    file = tmp_path / "hands.yaml"
    file.write_text(OWN)

    assert [hand.name for hand in hands_of(file)] == ["own-reset", *(hand.name for hand in shipped_hands())]
    file.write_text(OWN.replace("own-reset", "kured-sentinel"))
    assert len(hands_of(file)) == len(shipped_hands())


@pytest.mark.parametrize("content", ["- [", "[{name: own}]", "[{name: own, rung: person, verb: patch}]"])
def test_a_file_that_is_no_list_of_hands_is_an_error_of_its_author(tmp_path: Path, content: str) -> None:
    file = tmp_path / "hands.yaml"
    file.write_text(content)

    with pytest.raises(UserError, match=r"hands\.yaml: "):
        hands_of(file)
