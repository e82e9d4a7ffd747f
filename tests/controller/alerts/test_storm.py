"""Forty nodes fail within seconds, each under a gang of its own: what the real controller decides, and who is paged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from healthd.core.api import ANNOTATION_RESTART, Job, NodeHealth, NodeHealthStatus, ObjectMeta, Pod
from healthd.core.api.incidents import Severity
from healthd.core.api.model import Verdict
from tests.builders import a_finding, a_job, a_node, a_pod
from tests.controller.alerts.sinks import FakeSink
from tests.controller.replicas import Replicas
from tests.fakes import START

GANGS = 40


@pytest.fixture
async def scenario() -> AsyncIterator[Replicas]:
    scenario = Replicas()
    await scenario.set_up()
    for number in range(GANGS):
        await add_gang(scenario, number)
    yield scenario
    await scenario.close()


async def add_gang(scenario: Replicas, number: int) -> None:
    """A running gang of one, on a node of its own, in one of two namespaces."""
    name, space = f"job-{number}", f"team-{number % 2}"
    await scenario.cluster.create(a_node(f"n{number}"))
    job = await scenario.cluster.create(
        a_job(name, namespace=space, ranks=1, annotations={ANNOTATION_RESTART: "enabled"})
    )
    started = {"status": {"active": 1, "startTime": START.isoformat()}}
    await scenario.cluster.patch(Job, name, started, namespace=space, subresource="status")
    labels = {"batch.kubernetes.io/job-name": name}
    pod = a_pod(f"{name}-0", namespace=space, node=f"n{number}", index=0, owner=job, labels=labels)
    await scenario.cluster.create(pod)
    running = {"status": {"phase": "Running"}}
    await scenario.cluster.patch(Pod, pod.metadata.name, running, namespace=space, subresource="status")


async def breaks(scenario: Replicas, number: int) -> None:
    """Its agent finds the node broken; the first two are within the budget."""
    now = scenario.clock.now()
    status = NodeHealthStatus(verdict=Verdict.UNHEALTHY, findings=[a_finding(at=now)], seen_at=now)
    await scenario.cluster.create(NodeHealth(metadata=ObjectMeta(name=f"n{number}")))
    patch = {"status": msgspec.to_builtins(status)}
    await scenario.cluster.patch(NodeHealth, f"n{number}", patch, subresource="status")
    if number < 2:
        await scenario.quarantine(f"n{number}")


@pytest.mark.slow
async def test_forty_nodes_that_fail_together_are_one_page(scenario: Replicas) -> None:
    sink = FakeSink(rate=600)
    await scenario.start("a", sinks=[sink])
    await scenario.until(lambda: scenario.is_led_by("a"))
    for number in range(GANGS):
        await breaks(scenario, number)
        await scenario.clock.run_for(timedelta(seconds=1 if number < 5 else 0.1))
    await scenario.clock.run_for(timedelta(minutes=2))

    pages = [each for each in sink.sent if each.severity is Severity.PAGE]
    assert len({each.key for each in pages}) == 1
    assert (len(pages[-1].nodes), pages[-1].namespace) == (GANGS, "")
    notices = {each.gang for each in sink.sent if each.severity is Severity.NOTICE}
    assert len(notices) == GANGS - 1, "the people of every other gang get a notice"
