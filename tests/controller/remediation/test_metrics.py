"""The metrics of remediation follow what is on record: what was tried, who is waited for, how long a node was away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from healthd.core.api import Node
from healthd.core.api.names import ANNOTATION_REMEDIATION
from tests.controller.remediation.site import Site
from tests.controller.remediation.test_node_check import a_site, ends, joined


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.add()
    yield site
    site.cluster.close()


def sample(site: Site, name: str, **labels: str) -> float | None:
    return site.metrics.registry.get_sample_value(f"healthd_remediation_{name}", labels)


async def test_a_node_that_passes_its_check_is_counted_with_its_time_out_of_service() -> None:
    site = a_site()
    await joined(site)
    await site.breaks()
    await site.look(2)
    await site.does()
    await site.look(2)
    assert sample(site, "nodes", phase="Checking") == 1
    await ends(site)
    await site.look(2)
    await site.gives_back()
    await site.look(2)
    site.cluster.close()

    assert sample(site, "return_seconds_count", by="check") == 1
    assert sample(site, "return_seconds_sum", by="check") == 30
    assert sample(site, "attempts_total", rung="reboot", hand="acme-reboot", outcome="helped") == 1
    assert sample(site, "nodes", phase="Probation") == 1


async def test_a_node_that_a_person_must_check_is_waited_for_since_then(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.does()
    await site.look(2)
    since = sample(site, "person_since_timestamp_seconds", node="gpu-17")

    assert since == (await site.status()).phase_since.timestamp()  # type: ignore[union-attr]
    await site.gives_back()
    await site.look(2)
    assert sample(site, "person_since_timestamp_seconds", node="gpu-17") is None
    assert sample(site, "return_seconds_count", by="person") == 1
    assert sample(site, "attempts_total", rung="reboot", hand="acme-reboot", outcome="withdrawn") == 1


async def test_a_person_who_decides_is_waited_for(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(2)

    assert sample(site, "nodes", phase="AwaitingPerson") == 1
    assert sample(site, "person_since_timestamp_seconds", node="gpu-17") is not None


async def test_nothing_waits_for_a_person_at_a_node_that_is_gone(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(2)
    await site.cluster.delete(Node, "gpu-17")
    await site.look(2)

    assert sample(site, "nodes", phase="AwaitingPerson") == 0
    assert sample(site, "person_since_timestamp_seconds", node="gpu-17") is None


async def test_a_replaced_node_is_back_as_another_machine() -> None:
    site = Site("acme-replace", own=REPLACES)
    await site.add()
    await site.breaks()
    await site.look(2)
    site.clock.advance(timedelta(minutes=5))
    await site.cluster.delete(Node, "gpu-17")
    await site.comes_anew("gpu-17", "another-machine")
    await site.look(2)
    site.cluster.close()

    assert sample(site, "return_seconds_count", by="replacement") == 1
    assert sample(site, "attempts_total", rung="replace", hand="acme-replace", outcome="helped") == 1


async def test_hands_of_the_site_begin_at_zero(site: Site) -> None:
    site.metrics.know_hands(site.requests.chosen)

    assert sample(site, "attempts_total", rung="reboot", hand="acme-reboot", outcome="failed") == 0
    assert sample(site, "attempts_total", rung="power_cycle", hand="acme-power", outcome="helped") == 0
    assert sample(site, "attempts_total", rung="none", hand="", outcome="helped") == 0


REPLACES = """
- name: acme-replace
  rung: replace
  verb: create
  api: [site.example.com/v1]
  kind: Replacement
  object: healthd-${node}-${attempt}
  body: {spec: {host: "${node}"}}
"""
