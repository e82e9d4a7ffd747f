"""A site: a node that breaks, its agent, what repairs it, and controllers that may be killed at any write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Forbidden, NotFound
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.controller.remediation.discovery import type_of
from healthd.controller.remediation.loop import Remediations
from healthd.controller.remediation.requests import Post, Requests
from healthd.core.api import CustomObject, Lease, Node, NodeHealth, NodeRemediation, NodeRemediationStatus, Pod
from healthd.core.api.model import Finding
from healthd.core.api.names import ANNOTATION_REQUEST
from healthd.core.api.remediations import NodePhase, Rung
from healthd.core.config import Config, GiveBack, QuarantinePolicy, RemediationPolicy
from healthd.core.node.quarantine import Record, cordon_patch, read_record, uncordon_patch
from healthd.core.remediation.hands.description import HandDescription
from healthd.core.remediation.hands.shipped import read_hands, shipped_hands
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_node, a_nodehealth, a_pod
from tests.core.remediation.situations import a_finding
from tests.fakes import START, ManualClock, counting_uids

HOME = "healthd-system"
MINUTE = timedelta(minutes=1)
HANDS = """
- name: acme-reboot
  rung: reboot
  verb: create
  api: [site.example.com/v1]
  kind: Reboot
  object: healthd-${node}-${attempt}
  body: {spec: {host: "${node}"}}
  failed: status.phase=Failed
- name: acme-power
  rung: power_cycle
  verb: create
  api: [site.example.com/v1]
  kind: PowerCycle
  object: healthd-${node}-${attempt}
  body: {spec: {host: "${node}"}}
  failed: status.phase=Failed
"""
REBOOT, POWER = (
    type_of("site.example.com/v1", "Reboot", namespaced=False),
    type_of("site.example.com/v1", "PowerCycle", namespaced=False),
)


class Killed(BaseException):
    """kill -9. No `except Exception` stops it."""


class Link:
    """A cluster as one controller reaches it. It dies *before* or after its n-th write, and may lack rights."""

    def __init__(self, cluster: EmbeddedCluster, *, dies_at: int = 0, before: bool = False) -> None:
        self._cluster = cluster
        self.dies_at = dies_at
        self.before = before
        self.writes = 0
        self.forbidden: set[str] = set()
        """Kinds that it may not write."""
        self.refused: list[str] = []
        """The kinds of the writes that were refused for that."""
        self.before_write: Callable[[], Awaitable[None]] | None = None

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)
        return self._written(verb) if name in ("create", "patch", "delete") else verb

    def _written(self, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def write(*args: Any, **options: Any) -> Any:
            kind = args[0].__name__ if isinstance(args[0], type) else type(args[0]).__name__
            if kind in self.forbidden:
                self.refused.append(kind)
                raise Forbidden(f"the controller may not create {kind}")
            if self.before_write is not None:
                await self.before_write()
            self.writes += 1
            if self.writes == self.dies_at and self.before:
                raise Killed
            answer = await verb(*args, **options)
            if self.writes == self.dies_at:
                raise Killed
            return answer

        return write


async def never_called(hand: HandDescription, body: dict[str, Any]) -> None:
    """For hands that are no webhooks."""
    raise AssertionError(f"{hand.name} is called")


class Site:
    """Nodes `gpu-17` and others, all well. *hands* are used in this order."""

    def __init__(self, *hands: str, own: str = HANDS, post: Post = never_called, **policy: Any) -> None:
        self.clock = ManualClock(START + timedelta(hours=1))
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        known = (*read_hands(own), *shipped_hands())
        self.known = {hand.name: hand for hand in known}
        chosen = hands or ("acme-reboot", "acme-power")
        self.config = Config(
            quarantine=QuarantinePolicy(give_back=GiveBack.REPAIRED, domain_label="rack"),
            remediation=RemediationPolicy(**{"at_once": 1, "hands": chosen, **policy}),
        )
        self.post = post
        self.metrics = Metrics()
        self.mends: set[Rung] = set()
        self.state = ClusterState(ADAPTERS)
        self.lead()

    def lead(self, *, dies_at: int = 0, before: bool = False) -> Link:
        """A new controller leads. The one before does nothing any more."""
        self.link = Link(self.cluster, dies_at=dies_at, before=before)
        self.loop = self.loop_over(self.link)
        self.has_loaded = False
        return self.link

    def loop_over(self, cluster: Any) -> Remediations:
        """A controller that reaches *cluster* alone."""

        async def no_image() -> str:
            return "healthd:test"

        hands = [self.known[name] for name in self.config.remediation.hands]
        requests = self.requests = Requests(
            cluster, self.clock, hands=hands, known=self.known.values(), own_image=no_image, post=self.post
        )
        return Remediations(
            cluster, self.clock, self.state, self.config, requests, namespace=HOME, metrics=self.metrics
        )

    async def add(self, name: str = "gpu-17", **labels: str) -> None:
        """A node joins, with its agent."""
        await self.cluster.create(a_node(name, labels=labels))
        await self.cluster.create(a_nodehealth(name))
        await self.boot(name, "boot-1")

    async def comes_anew(self, name: str, machine: str) -> None:
        """Another machine joins under the name of a Node that is gone."""
        await self.cluster.create(a_node(name))
        info = {"nodeInfo": {"bootID": f"boot-of-{machine}", "systemUUID": machine}}
        await self.cluster.patch(Node, name, {"status": info}, subresource="status")

    async def boot(self, name: str, boot: str) -> None:
        """The node boots: kubelet and agent report it."""
        node = await self.cluster.get(Node, name)
        machine = node.status.node_info.system_uuid or f"machine-of-{name}"
        info = {"nodeInfo": {"bootID": boot, "systemUUID": machine}}
        await self.cluster.patch(Node, name, {"status": info}, subresource="status")
        await self.cluster.patch(NodeHealth, name, {"status": {"bootId": boot}}, subresource="status")

    async def breaks(self, name: str = "gpu-17", **fields: Any) -> None:
        """Its agent finds a fault and takes it out of service."""
        finding = a_finding(last_at=self.clock.now(), raised_at=self.clock.now(), **fields)
        await self.report(finding, name=name)
        node = await self.cluster.get(Node, name)
        record = Record(finding=finding.id, message="broken", since=self.clock.now())
        await self.cluster.patch(Node, name, cordon_patch(node, record))

    async def report(self, *findings: Finding, name: str = "gpu-17") -> None:
        """What its agent reports now."""
        wire = msgspec.to_builtins(list(findings))
        await self.cluster.patch(NodeHealth, name, {"status": {"findings": wire}}, subresource="status")

    async def gives_back(self, name: str = "gpu-17") -> None:
        """Its agent ends the quarantine, as after `healthd repair`."""
        await self.report(name=name)
        node = await self.cluster.get(Node, name)
        record = read_record(node)
        assert record is not None
        await self.cluster.patch(Node, name, uncordon_patch(node, record))

    async def note(self, key: str, value: str | None, name: str = "gpu-17") -> None:
        """A person annotates the Node."""
        await self.cluster.patch(Node, name, {"metadata": {"annotations": {key: value}}})

    async def runs(self, pod: str, name: str = "gpu-17") -> None:
        """A pod runs on the node."""
        await self.cluster.create(a_pod(pod, node=name))
        await self.cluster.patch(Pod, pod, {"status": {"phase": "Running"}}, namespace="default", subresource="status")

    async def ends(self, pod: str) -> None:
        """It ended."""
        done = {"status": {"phase": "Failed"}}
        await self.cluster.patch(Pod, pod, done, namespace="default", subresource="status")

    async def asked(self, kind: type[CustomObject] = REBOOT) -> list[str]:
        """The names of the requests of *kind* that are in the cluster."""
        return [each.metadata.name for each in (await self.cluster.list(kind)).items]

    async def does(self, kind: type[CustomObject] = REBOOT, *, phase: str = "Done", reboots: bool = True) -> None:
        """The controller of the site does what is asked of it, or says so."""
        for request in (await self.cluster.list(kind)).items:
            if not request.status:
                name = request.metadata.name
                await self.cluster.patch(kind, name, {"status": {"phase": phase}}, subresource="status")
                if reboots:
                    await self.boot(request.spec["host"], f"boot-after-{name}")

    async def look(self, times: int = 1) -> None:
        """The leader looks, and then *times* - 1 times more, ten seconds apart."""
        for at in range(times):
            if at:
                self.clock.advance(timedelta(seconds=10))
            await read_everything(self.cluster, self.state, ADAPTERS)
            self.has_loaded = self.has_loaded or await self.loop.load()
            await self.loop.look()

    async def after(self, delay: timedelta) -> None:
        """The leader looks after so much time."""
        self.clock.advance(delay)
        await self.look()

    async def status(self, name: str = "gpu-17") -> NodeRemediationStatus:
        """What is on record."""
        with suppress(NotFound):
            return (await self.cluster.get(NodeRemediation, name, HOME)).status
        return NodeRemediationStatus()

    async def phase(self, name: str = "gpu-17") -> NodePhase:
        """The phase on record."""
        return (await self.status(name)).phase

    async def slots(self) -> dict[str, str]:
        """Who holds which slot."""
        leases = (await self.cluster.list(Lease, namespace=HOME)).items
        return {lease.metadata.name: lease.spec.holder_identity for lease in leases}

    async def mark(self, kind: type[Any], name: str) -> str:
        """The mark of an attempt on an object."""
        found = await self.cluster.get(kind, name)
        mark: str = found.metadata.annotations.get(ANNOTATION_REQUEST, "")
        return mark
