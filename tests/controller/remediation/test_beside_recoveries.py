"""The remediation beside the recoveries of gangs, in the real leader: neither waits for the other but at one point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

from healthd.cluster.port import Cluster, NotFound
from healthd.controller.remediation.requests import Requests
from healthd.core.api import Node, NodeHealth, NodeRemediation, Pod
from healthd.core.api.remediations import NodePhase
from healthd.core.config import Config, GiveBack, QuarantinePolicy, RemediationPolicy
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.recovery.nodes.spares import Claim, claim_patch
from healthd.core.remediation.hands.shipped import read_hands
from tests.builders import a_node, a_nodehealth
from tests.controller.remediation.site import HANDS, HOME, REBOOT, never_called
from tests.controller.replicas import Replicas
from tests.core.remediation.situations import a_finding

READY = {"type": "Ready", "status": "True"}
CONFIG = Config(
    quarantine=QuarantinePolicy(give_back=GiveBack.REPAIRED),
    remediation=RemediationPolicy(at_once=1, hands=("acme-reboot",)),
)


@pytest.fixture
async def scenario() -> AsyncIterator[Replicas]:
    scenario = Replicas()
    await scenario.set_up()
    await scenario.cluster.create(a_nodehealth("node-1"))
    report = {"status": {"findings": [finding_of_node()], "bootId": "boot-1"}}
    await scenario.cluster.patch(NodeHealth, "node-1", report, subresource="status")
    boot = {"status": {"nodeInfo": {"bootID": "boot-1", "systemUUID": "m1"}}}
    await scenario.cluster.patch(Node, "node-1", boot, subresource="status")
    yield scenario
    await scenario.close()


def finding_of_node() -> object:
    return msgspec.to_builtins(msgspec.structs.replace(a_finding(), id="gpu/xid-79", device="gpu"))


async def no_image() -> str:
    return ""


async def never() -> str:
    await asyncio.Event().wait()
    return ""


def by(scenario: Replicas, own_image: Callable[[], Awaitable[str]]) -> Callable[[Cluster], Requests]:
    """Requests by the hands of the site."""
    hands = read_hands(HANDS)
    return lambda cluster: Requests(
        cluster, scenario.clock, hands=hands, known=hands, own_image=own_image, post=never_called
    )


async def phase(scenario: Replicas) -> NodePhase:
    try:
        return (await scenario.cluster.get(NodeRemediation, "node-1", HOME)).status.phase
    except NotFound:
        return NodePhase.IN_SERVICE


async def test_a_gang_is_stopped_although_the_remediation_hangs(scenario: Replicas) -> None:
    await scenario.start("a", requests=by(scenario, never), config=CONFIG)
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)

    (recovery,) = await scenario.recoveries()
    assert recovery.spec.cause.node == "node-1"


async def test_a_node_is_rebooted_only_after_the_member_on_it_has_ended(scenario: Replicas) -> None:
    await scenario.start("a", requests=by(scenario, no_image), config=CONFIG)
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)
    await scenario.clock.run_for(timedelta(minutes=2))

    assert await phase(scenario) is NodePhase.QUARANTINED
    assert (await scenario.cluster.list(REBOOT)).items == []
    await scenario.cluster.delete(Pod, "train-1", namespace="default", grace_seconds=0)
    await scenario.clock.run_for(timedelta(minutes=2))
    assert await phase(scenario) is NodePhase.REMEDIATING
    assert len((await scenario.cluster.list(REBOOT)).items) == 1


async def test_a_standby_goes_on_with_what_the_leader_began(scenario: Replicas) -> None:
    await scenario.cluster.delete(Pod, "train-1", namespace="default", grace_seconds=0)
    await scenario.start("a", requests=by(scenario, no_image), config=CONFIG)
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.start("b", requests=by(scenario, no_image), config=CONFIG)
    await scenario.quarantine("node-1")
    await scenario.clock.run_for(timedelta(minutes=1))
    await scenario.stop("a")
    await scenario.until(lambda: scenario.is_led_by("b"))
    booted = {"status": {"nodeInfo": {"bootID": "boot-2", "systemUUID": "m1"}}}
    await scenario.cluster.patch(Node, "node-1", booted, subresource="status")
    await scenario.clock.run_for(timedelta(minutes=1))

    assert await phase(scenario) is NodePhase.CHECKING
    assert len((await scenario.cluster.list(REBOOT)).items) == 1


async def test_a_controller_without_hands_touches_nothing(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.clock.run_for(timedelta(minutes=2))

    assert (await scenario.cluster.list(NodeRemediation)).items == []


async def test_a_check_of_a_spare_is_ended_within_a_second_of_its_claim(scenario: Replicas) -> None:
    await scenario.cluster.create(a_node("node-9", spare=True, labels={"nvidia.com/gpu.count": "8"}))
    offers = {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}, "conditions": [READY]}
    await scenario.cluster.patch(Node, "node-9", {"status": offers}, subresource="status")
    checks = RemediationPolicy(check_by_pod=True, check_spares_every=timedelta(days=1), check_image="healthd:1")

    async def checked() -> list[str]:
        pods = (await scenario.cluster.list(Pod, namespace=NAMESPACE)).items
        return [pod.spec.node_name for pod in pods if pod.metadata.deletion_timestamp is None]

    async def is_checked() -> bool:
        return await checked() == ["node-9"]

    await scenario.start("a", requests=by(scenario, no_image), config=Config(remediation=checks))
    await scenario.until(is_checked)
    claim = Claim(recovery="train-1", namespace="default", gang="train", gang_uid="uid-train", instead_of="node-1")
    node = await scenario.cluster.get(Node, "node-9")
    await scenario.cluster.patch(Node, "node-9", claim_patch(node, claim))
    await scenario.clock.run_for(timedelta(seconds=1))

    assert await checked() == []
