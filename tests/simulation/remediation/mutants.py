"""
Bugs planted on purpose, to show that each invariant can fail. Each stands between the loop and its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.cluster.port import Listed
from healthd.core.api import Lease, Node, NodeRemediation, Pod
from healthd.core.api.names import ANNOTATION_REMEDIATION
from healthd.core.api.remediations import NodeRemediationStatus
from healthd.core.remediation.check_summary import CheckSummary, fitted
from healthd.core.remediation.node_check import CONTAINER
from tests.simulation.remediation.hands import RUNG_OF
from tests.simulation.remediation.hosts import GPUS
from tests.simulation.remediation.labels import HOLDS, ON, PLUGIN
from tests.simulation.remediation.reading_cluster import ReadingCluster
from tests.simulation.remediation.watching import CHECKS, CLAIM, OTHER, QUARANTINE, SPARE


class _Through:
    """Passes everything on."""

    def __init__(self, cluster: ReadingCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def _with(listed: Listed[Any], items: list[Any]) -> Listed[Any]:
    return Listed(items, listed.resource_version)


class _CountsSlotsAsHeld(_Through):
    """Every slot is held by the node that is looked at."""

    looks_at = ""

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        self.looks_at = name if kind is NodeRemediation else self.looks_at
        return await self._cluster.get(kind, name, namespace)

    async def list(self, kind: type[Any], **where: Any) -> Any:
        listed = await self._cluster.list(kind, **where)
        if kind is not Lease:
            return listed
        mine = [replace(each, spec=replace(each.spec, holder_identity=self.looks_at)) for each in listed.items]
        return _with(listed, mine)


class _OverlooksPods(_Through):
    """Sees no pod but checks."""

    async def list(self, kind: type[Any], **where: Any) -> Any:
        listed = await self._cluster.list(kind, **where)
        if kind is not Pod:
            return listed
        return _with(listed, [pod for pod in listed.items if pod.metadata.namespace == CHECKS])


def _overlooks(key: str) -> type[_Through]:
    class Overlooks(_Through):
        """Sees no annotation of that key on a Node."""

        async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
            found = await self._cluster.get(kind, name, namespace)
            if kind is not Node:
                return found
            notes = {other: note for other, note in found.metadata.annotations.items() if other != key}
            return replace(found, metadata=replace(found.metadata, annotations=notes))

    return Overlooks


class _BelievesEveryCheck(_Through):
    """Takes a check that failed for one that passed."""

    async def list(self, kind: type[Any], **where: Any) -> Any:
        listed = await self._cluster.list(kind, **where)
        return _with(listed, [_passed(pod) for pod in listed.items]) if kind is Pod else listed


def _passed(pod: Pod) -> Pod:
    statuses = pod.status.container_statuses
    end = statuses[0].state.terminated if statuses else None
    if pod.metadata.namespace != CHECKS or end is None:
        return pod
    result = msgspec.json.decode(end.message)
    said = CheckSummary(
        result="pass", boot_id=result["bootId"], expected_gpus=GPUS, gpus=GPUS, passed=["inventory", "gpu-memory"]
    )
    ended = replace(end, exit_code=0, message=fitted(said).decode())
    state = replace(statuses[0].state, terminated=ended)
    status = replace(
        pod.status, phase="Succeeded", container_statuses=[replace(statuses[0], name=CONTAINER, state=state)]
    )
    return replace(pod, status=status)


class _ForgetsAttempts(_Through):
    """Reads a record without the attempts that are over."""

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        found = await self._cluster.get(kind, name, namespace)
        if kind is not NodeRemediation:
            return found
        attempts = [each for each in found.status.attempts if each.outcome is None]
        return replace(found, status=replace(found.status, attempts=attempts))


class _KeepsIntentInMemory(_Through):
    """Never writes a status. It remembers it, and goes on as if it were on record."""

    def __init__(self, cluster: ReadingCluster) -> None:
        super().__init__(cluster)
        self._statuses: dict[str, dict[str, Any]] = {}

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        found = await self._cluster.get(kind, name, namespace)
        return self._remembered(found) if kind is NodeRemediation else found

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        if kind is not NodeRemediation or "status" not in patch:
            return await self._cluster.patch(kind, name, patch, **where)
        changed = {**self._statuses.get(name, {}), **patch["status"]}
        self._statuses[name] = {key: value for key, value in changed.items() if value is not None}
        return self._remembered(await self._cluster.get(kind, name, where["namespace"]))

    def _remembered(self, found: NodeRemediation) -> NodeRemediation:
        known = self._statuses.get(found.metadata.name, {})
        return replace(found, status=msgspec.convert(known, NodeRemediationStatus))


class _LeavesRequests(_Through):
    """Never takes a request back, and believes that it did."""

    async def delete(self, kind: type[Any], name: str, **where: Any) -> None:
        if kind not in RUNG_OF:
            await self._cluster.delete(kind, name, **where)


class _LeavesLabels(_Through):
    """Takes what was created back, and leaves the labels that the Node had for it."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        labels = patch.get("metadata", {}).get("labels", {})
        if kind is Node and labels.get(PLUGIN) == ON:
            kept = {key: value for key, value in labels.items() if key not in (PLUGIN, HOLDS)}
            patch = {**patch, "metadata": {**patch["metadata"], "labels": kept}}
        return await self._cluster.patch(kind, name, patch, **where)


class _ReadsOnce(_Through):
    """Looks at Nodes and records of long ago: what comes right before a request is not seen."""

    def __init__(self, cluster: ReadingCluster) -> None:
        super().__init__(cluster)
        self._known: dict[str, tuple[int, Any]] = {}
        self._reads = 0

    async def list(self, kind: type[Any], **where: Any) -> Any:
        name = (where.get("fields") or {}).get("spec.nodeName")
        if kind is not Pod or name is None:
            return await self._cluster.list(kind, **where)
        self._reads += 1
        at, listed = self._known.get(name, (-100, None))
        if listed is None or self._reads - at > 20:
            listed = await self._cluster.list(kind, **where)
            self._known[name] = self._reads, listed
        return listed


class _EndsQuarantines(_Through):
    """Uncordons a node itself when it declares it repaired."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        notes = patch.get("metadata", {}).get("annotations", {})
        if kind is Node and "healthd.dev/repaired" in notes:
            freed = {"annotations": {**notes, QUARANTINE: None}}
            patch = {**patch, "metadata": {**patch["metadata"], **freed}, "spec": {"unschedulable": None}}
        return await self._cluster.patch(kind, name, patch, **where)


class _TakesEveryNodeForASpare(_Through):
    """Sees every Node as a spare that no recovery has claimed."""

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        found = await self._cluster.get(kind, name, namespace)
        if kind is not Node:
            return found
        notes = {key: note for key, note in found.metadata.annotations.items() if key != CLAIM}
        labels = {**found.metadata.labels, SPARE: "true"}
        return replace(found, metadata=replace(found.metadata, annotations=notes, labels=labels))


class _BelievesOneFailure(_Through):
    """Takes every spare for one that has passed just now, beside what its newest check says."""

    async def list(self, kind: type[Any], **where: Any) -> Any:
        listed = await self._cluster.list(kind, **where)
        return _with(listed, [_confirming(each) for each in listed.items]) if kind is NodeRemediation else listed


def _confirming(record: NodeRemediation) -> NodeRemediation:
    check = record.status.spare_check
    if check is None:
        return record
    return replace(record, status=replace(record.status, spare_check=replace(check, passed_number=2**40)))


MUTANTS: dict[str, Callable[[ReadingCluster], Any]] = {
    "count-every-slot-as-held": _CountsSlotsAsHeld,
    "overlook-pods": _OverlooksPods,
    "overlook-a-word": _overlooks(ANNOTATION_REMEDIATION),
    "overlook-an-owner": _overlooks(OTHER),
    "believe-every-check": _BelievesEveryCheck,
    "forget-attempts": _ForgetsAttempts,
    "keep-intent-in-memory": _KeepsIntentInMemory,
    "leave-requests": _LeavesRequests,
    "leave-labels": _LeavesLabels,
    "read-pods-once": _ReadsOnce,
    "end-quarantines": _EndsQuarantines,
    "take-every-node-for-a-spare": _TakesEveryNodeForASpare,
    "believe-one-failure": _BelievesOneFailure,
}
FOUND_BY = {
    "count-every-slot-as-held": "budget",
    "overlook-pods": "kills",
    "overlook-a-word": "word",
    "overlook-an-owner": "owner",
    "believe-every-check": "unchecked",
    "forget-attempts": "twice",
    "keep-intent-in-memory": "intent",
    "leave-requests": "liveness",
    "leave-labels": "liveness",
    "read-pods-once": "old",
    "end-quarantines": "service",
    "take-every-node-for-a-spare": "spare",
    "believe-one-failure": "spare",
}
"""The invariant that each bug breaks."""
