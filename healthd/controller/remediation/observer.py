"""Read everything that matters to the life of one node, for one decision."""

from __future__ import annotations

from typing import Any

from healthd.clock import Clock
from healthd.cluster.port import Cluster, NotFound
from healthd.controller.remediation.records import read_record
from healthd.controller.remediation.requests import Requests, Subject
from healthd.controller.remediation.slots import held_slots
from healthd.core.api import HardwareHistory, MachineHistory, Node, NodeHealth, NodeManifest, Pod
from healthd.core.api.remediations import NodeRemediationStatus, SpareCheck
from healthd.core.config import Config
from healthd.core.reliability.history import machine_of, object_name
from healthd.core.remediation.limits import remediation_slots
from healthd.core.remediation.node_check import checked_attempt, leftovers_of, plan_of, running_spare_check, seen_of
from healthd.core.remediation.occupants import occupants_of
from healthd.core.remediation.owners import other_remediator
from healthd.core.remediation.person import persons_word, retry_at
from healthd.core.remediation.situation import CheckPlan, NodeSituation, PersonsWord


class Observer:
    """Nothing of what it reads is from a cache: between two decisions others act."""

    def __init__(self, cluster: Cluster, clock: Clock, config: Config, requests: Requests, *, namespace: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._policy = config.remediation
        self._domain_label = config.quarantine.domain_label
        self._requests = requests
        self._namespace = namespace

    async def subject(self, name: str) -> Subject:
        """Node *name* and its record. The record is the older: what is decided on both was intended before."""
        record = await read_record(self._cluster, name, self._namespace)
        node = await self._read(Node, name)
        manifest = await self._read(NodeManifest, name) if node is not None else None
        provider = str(manifest.spec.get("providerID", "")) if manifest is not None else ""
        return Subject(name, node, provider, record)

    async def situation(self, subject: Subject) -> NodeSituation:
        """Everything about *subject*. Raises ClusterError."""
        node, status = subject.node, subject.record.status
        requests = await self._requests.seen(subject)
        asked = {one.attempt for one in requests}
        own = [each.hand for each in status.attempts if each.number in asked or each.outcome is None]
        pods, health = await self._pods(subject.name), await self._health(subject.name)
        history = await self._history(node)
        plan, attempt = plan_of(node, health, history, self._policy), checked_attempt(status)
        now = self._clock.now()
        return NodeSituation(
            name=subject.name,
            status=status,
            node=node,
            health=health,
            history=history,
            occupants=occupants_of(pods),
            hands=await self._requests.hands_for(subject),
            requests=requests,
            other_remediator=other_remediator(node, own) if node is not None else "",
            word=persons_word(node) if node is not None else PersonsWord.NOTHING,
            retry_at=retry_at(node, now) if node is not None else None,
            slot_sets=remediation_slots(node, self._policy, self._domain_label) if node is not None else (),
            slots_held=await held_slots(self._cluster, subject.name, self._namespace),
            policy=self._policy,
            can_check=bool(plan.gpus),
            check_lacks=plan.lacks,
            check_waits_for=plan.waits_for,
            check=seen_of(pods, node, attempt, plan.gpus),
            check_leftovers=leftovers_of(pods, node, attempt, self._spare_check(status, node)),
            now=now,
        )

    async def occupants(self, name: str) -> tuple[str, ...]:
        """The pods that run on node *name*, without those that are part of it. Raises ClusterError."""
        return occupants_of(await self._pods(name))

    async def check_plan(self, subject: Subject) -> CheckPlan:
        """How *subject* would be checked. Raises ClusterError."""
        history = await self._history(subject.node)
        return plan_of(subject.node, await self._health(subject.name), history, self._policy)

    def _spare_check(self, status: NodeRemediationStatus, node: Node | None) -> SpareCheck | None:
        """The check of the node as an idle spare. Where spares are not checked any more, its pod is left over."""
        return running_spare_check(status, node) if self._policy.check_spares_every else None

    async def _pods(self, name: str) -> list[Pod]:
        return (await self._cluster.list(Pod, fields={"spec.nodeName": name})).items

    async def _health(self, name: str) -> NodeHealth | None:
        found: NodeHealth | None = await self._read(NodeHealth, name)
        return found

    async def _history(self, node: Node | None) -> MachineHistory | None:
        if node is None:
            return None
        found = await self._read(HardwareHistory, object_name(machine_of(node)), self._namespace)
        return found.spec if found is not None else None

    async def _read(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        try:
            return await self._cluster.get(kind, name, namespace)
        except NotFound:
            return None
