"""
One gang of a described kind on an embedded cluster in memory, with an operator that makes its pods by its description.

The operator is no real one (`tests/gangs/recoveries` has those): it makes what the object asks for, deletes it when it
is stopped, and says so. Every pod gets a node of its own and runs at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import count
from typing import Any

import msgspec

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.reconciler import Reconciler
from healthd.core.api import (
    FINALIZER_FENCE,
    CustomObject,
    Node,
    NodeHealth,
    NodeHealthStatus,
    OwnerReference,
    Pod,
    Recovery,
)
from healthd.core.api.model import Verdict
from healthd.core.config import BreakerPolicy, Config, RecoveryPolicy
from healthd.core.node.quarantine import Record, cordon_patch, uncordon_patch
from healthd.core.recovery.gang import Root
from healthd.core.recovery.members import is_terminal
from healthd.gangs.parts import read_parts
from healthd.gangs.paths import parse_path, value_at
from tests.builders import a_node, a_nodehealth, a_pod
from tests.fakes import START, ManualClock, counting_uids
from tests.gangs.described import adapter_of, an_object, conditions, says_stopped
from tests.scenarios.scenario import METRICS, reading_at_once
from tests.simulation.step_scheduler import at_once
from tests.simulation.training import SAVES_EVERY, SeenCheckpoints, Store

MEMBERS = 4
HEALTHY = NodeHealthStatus(verdict=Verdict.HEALTHY, boot_id="boot-1", seen_at=START)
"""What every agent has reported: no scenario lasts until that is old."""
_SUFFIX = {"RayJob": "-raycluster-8xk2p"}
"""What follows the name of the root in the label of its pods."""


class OperatedGang:
    """A gang of *kind*; *spec* is merged into the usual one, *options* are further annotations. A node a member."""

    def __init__(
        self, kind: str, *, spec: Mapping[str, Any], options: Mapping[str, str], policy: RecoveryPolicy
    ) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids(), history=1)
        self.kind, self._adapter = kind, adapter_of(kind)
        self.store, self._names = Store(), count()
        self._saved_at, self._step = self.clock.now(), 0
        for number in range(MEMBERS):
            for seen in (a_node(f"node-{number}"), a_nodehealth(f"node-{number}", status=HEALTHY)):
                at_once(self.cluster.create(seen))
                status = {"status": msgspec.to_builtins(seen.status)}
                self._patch(type(seen), seen.metadata.name, status, subresource="status")
        notes = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "/checkpoints/train", **options}
        at_once(self.cluster.create(an_object(kind, spec=spec, annotations=notes)))
        self._config = Config(recovery=policy, breaker=BreakerPolicy(unhealthy_share=1))
        self.restart_controller()

    # What happens -----------------------------------------------------------------------------------------------------

    async def run_for(self, *, minutes: float) -> None:
        """Let time pass, by the second."""
        for _ in range(int(minutes * 60)):
            for _ in range(20):
                before = self._version()
                await self._operate()
                self._train()
                await self._controller(self.clock.now())
                if self._version() == before:
                    break
            self.clock.advance(timedelta(seconds=1))

    def restart_controller(self) -> None:
        """The controller dies, and another one takes its place."""
        dependencies = ReconcilerDependencies(
            cluster=self.cluster,
            clock=self.clock,
            adapters={self.kind: self._adapter},
            checkpoints=SeenCheckpoints({"train": self.store}),
            metrics=METRICS,
        )
        self._controller = reading_at_once(Reconciler(dependencies, self._config))

    def break_node(self, name: str) -> None:
        """Its agent takes it out of service."""
        record = Record(finding="gpu/xid-79", message="GPU has fallen off the bus", since=self.clock.now())
        self._patch(Node, name, cordon_patch(at_once(self.cluster.get(Node, name)), record))
        self._record = record

    def repair_node(self, name: str) -> None:
        """Its agent gives it back."""
        self._patch(Node, name, uncordon_patch(at_once(self.cluster.get(Node, name)), self._record))

    # What there is ----------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Root:
        """As healthd reads it."""
        return self._adapter.read_any(self._object())

    def recoveries(self) -> list[Recovery]:
        """All of them, oldest first."""
        return sorted(at_once(self.cluster.list(Recovery)).items, key=lambda each: each.spec.first_attempt)

    def nodes(self) -> set[str]:
        """Where members live."""
        return {pod.spec.node_name for pod in self._living()}

    # The operator and the program -------------------------------------------------------------------------------------

    async def _operate(self) -> None:
        """Make what the object asks for, or end everything and say so."""
        obj = self._object()
        if self._adapter.read_any(obj).suspended:
            for pod in self._living():
                self._end(pod)
            self._report(says_stopped(self.kind))
            return
        self._report(conditions("Running", Suspended="False", RayClusterSuspended="False"))
        living = {pod.metadata.labels["seat"] for pod in self._living()}
        for seat, labels, notes in self._wanted(obj):
            if seat not in living:
                self._make(obj, seat, labels, notes)

    def _wanted(self, obj: CustomObject) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
        """Each pod: a name of its own, its labels, and the annotations of its template."""
        description = self._adapter.description
        named = {description.name_label: f"train{_SUFFIX.get(self.kind, '')}"}
        for place, part in enumerate(read_parts(description, {"spec": obj.spec}, 1)):
            template = value_at(part.written, parse_path("template.metadata.annotations"))
            for number in range(part.members):
                labels = dict(named)
                if part.numbered:
                    labels[description.index_labels[0]] = f"{number}"
                    labels |= {description.part_label: part.numbered.name} if description.part_label else {}
                yield f"{place}-{number}", labels, dict(template or {})

    def _make(self, obj: CustomObject, seat: str, labels: dict[str, str], notes: dict[str, str]) -> None:
        free = [node for node in at_once(self.cluster.list(Node)).items if not node.spec.unschedulable]
        node = next((each.metadata.name for each in free if each.metadata.name not in self.nodes()), "")
        if not node:
            return
        owner = (self._adapter.description.owners or (self.kind,))[0]
        named = labels[self._adapter.description.name_label]
        pod = a_pod(
            f"train-{next(self._names)}",
            node=node,
            labels={**labels, "seat": seat},
            annotations=notes,
            owner_references=[OwnerReference(kind=owner, name=named, uid=obj.metadata.uid, controller=True)],
            finalizers=[FINALIZER_FENCE],
        )
        at_once(self.cluster.create(pod))
        self._patch(Pod, pod.metadata.name, {"status": {"phase": "Running"}}, subresource="status")

    def _end(self, pod: Pod) -> None:
        """As its kubelet reports it."""
        ended = {"exitCode": 143, "finishedAt": self.clock.now().isoformat()}
        states = [{"name": "main", "state": {"terminated": ended}}]
        self._patch(
            Pod, pod.metadata.name, {"status": {"phase": "Failed", "containerStatuses": states}}, subresource="status"
        )
        at_once(self.cluster.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0))

    def _train(self) -> None:
        """While all members live on good nodes, a step is saved now and then."""
        bad = {node.metadata.name for node in at_once(self.cluster.list(Node)).items if node.spec.unschedulable}
        if len(self._living()) < self.root.world or self.nodes() & bad:
            self._saved_at = self.clock.now()
        elif self.clock.now() - self._saved_at >= SAVES_EVERY:
            self._saved_at, self._step = self.clock.now(), self._step + 1
            self.store.save("train", self._step, whole=True)

    def _living(self) -> list[Pod]:
        return [pod for pod in at_once(self.cluster.list(Pod)).items if not is_terminal(pod)]

    def _object(self) -> CustomObject:
        found: CustomObject = at_once(self.cluster.get(self._adapter.kind, "train", "default"))
        return found

    def _report(self, status: Mapping[str, Any]) -> None:
        if "conditions" in status:
            since = {"lastTransitionTime": START.isoformat()}
            status = {**status, "conditions": [{**each, **since} for each in status["conditions"]]}
        if any(self._object().status.get(key) != value for key, value in status.items()):
            self._patch(self._adapter.kind, "train", {"status": status}, subresource="status")

    def _patch(self, kind: Any, name: str, patch: Any, **how: Any) -> None:
        namespace = {} if kind in (Node, NodeHealth) else {"namespace": "default"}
        at_once(self.cluster.patch(kind, name, patch, **namespace, **how))

    def _version(self) -> str:
        return at_once(self.cluster.list(Pod)).resource_version
