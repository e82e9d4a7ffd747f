"""An admission webhook of the site does not answer, and the API server refuses what it must see first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from healthd.core.api.model import Phase, Verdict
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@contextmanager
def a_dead_webhook(scenario: Scenario, group: str, resource: str, operation: str, *, where: str = "") -> Iterator[None]:
    """For *resource* in the namespace *where*, or of cluster scope, until the block ends."""
    hook = {
        "name": "dead.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/nothing-listens-here"},
        "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": [operation]}],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": where}}} if where else {}),
    }
    kind, name = "ValidatingWebhookConfiguration", f"dead-{resource}"
    manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    scenario.control_plane.apply(json.dumps({**manifest, "webhooks": [hook]}))
    try:
        yield
    finally:
        scenario.control_plane.kubectl("delete", kind, name)


def events(scenario: Scenario, reason: str) -> list[str]:
    """The messages of the Events with this *reason* in the namespace of the gang."""
    shown = json.loads(scenario.kubectl("get", "events", "-o", "json"))["items"]
    return [each["message"] for each in shown if each["reason"] == reason]


async def test_a_gang_that_cannot_be_stopped_says_so_and_is_recovered_afterwards(
    scenario: Scenario, replicas: Replicas
) -> None:
    await replicas.add()
    await scenario.play()
    with a_dead_webhook(scenario, "batch", "jobs", "UPDATE", where=scenario.namespace):
        scenario.break_gpu(scenario.node_of(0))
        await asyncio.to_thread(wait_until, "an Event", lambda: events(scenario, "GangStuck"), limit=60)

    assert 'failed calling webhook "dead.example.com"' in events(scenario, "GangStuck")[0]
    await scenario.until_phase(Phase.RECOVERED)
    await scenario.until_running(1)


async def test_a_fault_on_a_node_that_cannot_be_cordoned_is_published_and_the_node_is_left_afterwards(
    scenario: Scenario, replicas: Replicas
) -> None:
    await replicas.add()
    await scenario.play()
    bad = scenario.node_of(0)
    with a_dead_webhook(scenario, "", "nodes", "UPDATE"):
        scenario.break_gpu(bad)
        await scenario.until("its verdict", lambda: bad in scenario.unhealthy())
        message = scenario._health[bad].status.message

    assert scenario._health[bad].status.verdict is Verdict.UNHEALTHY
    assert "It cannot be taken out of service or given back" in message
    await scenario.until_phase(Phase.RECOVERED)
    assert scenario.node(bad).spec.unschedulable
