"""A spare whose claim the API server refuses, as by a policy for its node pool: the recovery goes on without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from healthd.cluster.port import ClusterError, Forbidden, WebhookFailed
from healthd.core.api import ANNOTATION_CLAIM, Node
from healthd.core.api.model import Phase
from tests.scenarios.scenario import Scenario

DENIED = "admission webhook pools.example.com denied the request: taints of this pool are fixed"


class WithFixedNodes:
    """A cluster that refuses every claim of the *fixed* nodes."""

    def __init__(self, cluster: Any, *fixed: str) -> None:
        self._cluster = cluster
        self.fixed = set(fixed)
        self.error: ClusterError = Forbidden(DENIED)
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **options: Any) -> Any:
        is_claim = (patch.get("metadata", {}).get("annotations") or {}).get(ANNOTATION_CLAIM)
        if kind is Node and name in self.fixed and is_claim:
            self.refused += 1
            raise self.error
        return await self._cluster.patch(kind, name, patch, **options)


def a_scenario(*fixed: str, **shape: Any) -> tuple[Scenario, WithFixedNodes]:
    """A gang whose controller cannot claim the *fixed* nodes."""
    scenario = Scenario(**shape)
    server = WithFixedNodes(scenario.ground_truth.seen_by("controller"), *fixed)
    scenario.add_loop("controller", scenario.new_controller("controller", cluster=server))
    return scenario, server


@pytest.mark.parametrize("error", [Forbidden(DENIED), WebhookFailed("failed calling webhook pools.example.com")])
async def test_another_spare_is_taken(error: ClusterError) -> None:
    scenario, server = a_scenario("node-2", spares=2)
    server.error = error
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")

    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-3"}
    assert server.refused == 1


async def test_of_two_spares_the_one_that_can_be_claimed_is_kept_for_the_gang_until_there_is_another() -> None:
    scenario, server = a_scenario("node-3", spares=2)
    await scenario.run_for(minutes=1)
    scenario.fault("node-0")
    scenario.fault("node-1")

    held = await scenario.run_until(Phase.HELD)
    assert held.status.message.endswith(f"node-3 (the API server refuses its claim: {DENIED})")
    assert ANNOTATION_CLAIM in scenario.node("node-2").metadata.annotations

    server.fixed.clear()
    await scenario.run_until(Phase.RECOVERED)
    assert sorted(scenario.places().values()) == ["node-2", "node-3"]


async def test_where_every_claim_is_refused_the_recovery_is_held_and_asks_less_and_less_often() -> None:
    scenario, server = a_scenario("node-2", spares=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")

    held = await scenario.run_until(Phase.HELD)
    await scenario.run_for(hours=1)

    (recovery,) = scenario.recoveries()
    assert recovery.metadata.resource_version == held.metadata.resource_version
    assert 10 < server.refused < 20
    server.fixed.clear()
    await scenario.run_until(Phase.RECOVERED)
