"""Each verb of a hand: what it writes, what takes it back, and what it leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from healthd.controller.remediation.discovery import type_of
from healthd.controller.remediation.requests import CannotAsk
from healthd.core.api import Condition, Node, NodeRemediation, ObjectMeta, Taint
from healthd.core.api.names import ANNOTATION_REMEDIATION, ANNOTATION_REQUEST
from healthd.core.api.remediations import NodePhase
from healthd.core.remediation.hands.description import HandDescription
from tests.controller.remediation.site import HANDS, HOME, Site

OWN = f"""{HANDS}
- name: acme-taint
  rung: reboot
  verb: taint
  body: {{key: example.com/reboot, value: wanted, effect: NoSchedule}}
- name: acme-condition
  rung: reboot
  verb: condition
  body: {{type: RebootWanted, status: "True", reason: Healthd}}
- name: acme-annotation
  rung: reboot
  verb: patch
  body: {{metadata: {{annotations: {{example.com/reboot: "yes"}}}}}}
- name: acme-host
  rung: reboot
  verb: patch
  api: [site.example.com/v1]
  kind: Host
  object: ${{label:example.com/host}}
  confirm: {{spec.node: "${{node}}"}}
  body: {{metadata: {{annotations: {{example.com/reboot: "yes"}}}}}}
- name: acme-call
  rung: reboot
  verb: call
  object: https://power.example.com/reboot
  secret: /etc/healthd/power-key
"""
HOST = type_of("site.example.com/v1", "Host", namespaced=False)
MakeSite = Callable[..., Awaitable[Site]]


@pytest.fixture
async def make_site() -> AsyncIterator[MakeSite]:
    made: list[Site] = []

    async def make(hand: str, **options: Any) -> Site:
        site = Site(hand, own=OWN, **options)
        made.append(site)
        await site.add(**{"example.com/host": "host-17"})
        return site

    yield make
    for site in made:
        site.cluster.close()


async def taken_back(site: Site) -> None:
    """A person takes over."""
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(3)


async def test_a_taint_is_set_beside_others_and_only_it_is_taken_back(make_site: MakeSite) -> None:
    site = await make_site("acme-taint")
    await site.cluster.patch(Node, "gpu-17", {"spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}]}})
    await site.breaks()
    await site.look(2)
    node = await site.cluster.get(Node, "gpu-17")

    assert Taint(key="example.com/reboot", value="wanted") in node.spec.taints
    assert (await site.status()).attempts[-1].written_at is not None
    await taken_back(site)
    node = await site.cluster.get(Node, "gpu-17")
    assert [taint.key for taint in node.spec.taints] == ["theirs", "healthd.dev/quarantined"]
    assert ANNOTATION_REQUEST not in node.metadata.annotations


async def test_a_condition_is_set_beside_others_and_taken_back(make_site: MakeSite) -> None:
    site = await make_site("acme-condition")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await site.cluster.patch(Node, "gpu-17", {"status": ready}, subresource="status")
    await site.breaks()
    await site.look(2)

    assert await _conditions(site) == {"Ready": "True", "RebootWanted": "True"}
    assert (await site.status()).attempts[-1].written_at is not None
    await taken_back(site)
    assert await _conditions(site) == {"Ready": "True"}


async def test_a_condition_with_another_status_is_taken_back_by_that(make_site: MakeSite) -> None:
    site = await make_site("node-condition-reboot")
    await site.breaks()
    await site.look(2)
    await taken_back(site)

    assert (await _conditions(site))["RebootWanted"] == "False"


async def test_an_annotation_of_the_node_is_set_and_taken_back(make_site: MakeSite) -> None:
    site = await make_site("acme-annotation")
    await site.breaks()
    await site.look(2)

    assert (await site.cluster.get(Node, "gpu-17")).metadata.annotations["example.com/reboot"] == "yes"
    await taken_back(site)
    assert "example.com/reboot" not in (await site.cluster.get(Node, "gpu-17")).metadata.annotations


async def test_what_the_site_has_written_there_since_stays_when_a_request_is_taken_back(make_site: MakeSite) -> None:
    site = await make_site("acme-annotation")
    await site.breaks()
    await site.look(2)
    await site.note("example.com/reboot", "done")
    await taken_back(site)
    notes = (await site.cluster.get(Node, "gpu-17")).metadata.annotations

    assert notes["example.com/reboot"] == "done"
    assert ANNOTATION_REQUEST not in notes


@pytest.mark.parametrize("node", ["gpu-17", "gpu-99"])
async def test_an_object_is_patched_only_if_it_says_that_it_is_of_the_node(make_site: MakeSite, node: str) -> None:
    site = await make_site("acme-host")
    await site.cluster.create(HOST(metadata=ObjectMeta(name="host-17"), spec={"node": node}))
    await site.breaks()
    await site.look(2)
    notes = (await site.cluster.get(HOST, "host-17")).metadata.annotations

    assert ("example.com/reboot" in notes) is (node == "gpu-17")
    if node == "gpu-99":
        assert "not of this node" in (await site.status()).message
    await taken_back(site)
    assert (await site.cluster.get(HOST, "host-17")).metadata.annotations == {}


async def test_a_webhook_is_called_once_and_its_record_is_the_mark(make_site: MakeSite) -> None:
    calls: list[dict[str, Any]] = []

    async def post(hand: HandDescription, body: dict[str, Any]) -> None:
        calls.append(body)

    site = await make_site("acme-call", post=post)
    await site.breaks()
    await site.look(4)
    number = (await site.status()).attempts[-1].number

    assert [(call["node"], call["rung"], call["attempt"]) for call in calls] == [("gpu-17", "reboot", number)]
    await taken_back(site)
    record = await site.cluster.get(NodeRemediation, "gpu-17", HOME)
    assert (record.status.phase, record.metadata.annotations) == (NodePhase.AWAITING_PERSON, {})


async def test_a_webhook_that_refuses_is_called_again_and_said(make_site: MakeSite) -> None:
    calls: list[str] = []

    async def post(hand: HandDescription, body: dict[str, Any]) -> None:
        calls.append(body["node"])
        raise CannotAsk(f"{hand.name} refused the call: answered 503")

    site = await make_site("acme-call", post=post)
    await site.breaks()
    await site.look(2)
    assert len(calls) == 1
    await site.after(timedelta(minutes=2))

    assert len(calls) == 2
    assert "answered 503" in (await site.status()).message


async def _conditions(site: Site) -> dict[str, str]:
    found: list[Condition] = (await site.cluster.get(Node, "gpu-17")).status.conditions
    return {each.type: each.status for each in found}
