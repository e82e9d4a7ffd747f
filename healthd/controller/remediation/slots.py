"""
The slots of the nodes that are under a rung or a check: Leases with fixed names, as for the quarantine.

The API server refuses the second creation of one, so two controllers, one of them deposed, stay within the limit
together. A slot is owned by the `NodeRemediation`, because a replacement deletes the Node.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from healthd.cluster.port import AlreadyExists, Cluster, Conflict, NotFound
from healthd.controller.remediation.records import owned_by_record, read_record
from healthd.core.api import Lease, LeaseSpec, NodeRemediation, ObjectMeta
from healthd.core.api.names import LABEL_SLOT

REMEDIATION = "remediation"
"""The value of `LABEL_SLOT`."""


async def held_slots(cluster: Cluster, name: str, namespace: str) -> frozenset[str]:
    """The slots that node *name* holds. Raises ClusterError."""
    return frozenset(lease.metadata.name for lease in await _leases(cluster, name, namespace))


async def take_slots(
    cluster: Cluster, record: NodeRemediation, names: tuple[tuple[str, ...], ...], now: datetime
) -> str:
    """
    Hold one of each of *names*. Returns which limit is used up; empty where all are held. After a refusal the node
    holds no slot: one that cannot begin must not use up the budget of others. Raises Conflict where *record* changed
    since it was read, ClusterError.
    """
    held = await _leases_of(cluster, record)
    for limit in names:
        if all(lease.metadata.name not in limit for lease in held):
            lease = await _take_one(cluster, record, limit, now)
            if lease is None:
                await _free(cluster, record, held)
                return _used_up(limit)
            held.append(lease)
    return ""


async def free_slots(cluster: Cluster, record: NodeRemediation) -> None:
    """Delete every slot of the node of *record*. Raises Conflict where that changed since it was read, ClusterError."""
    await _free(cluster, record, await _leases_of(cluster, record))


async def _free(cluster: Cluster, record: NodeRemediation, leases: list[Lease]) -> None:
    """
    Delete *leases*, which were read before. While the record is what it was, no other controller relies on them: it
    frees what a node holds before that node begins anew, and records that it begins.
    """
    if not leases:
        return
    meta = record.metadata
    now = await read_record(cluster, meta.name, meta.namespace)
    if now.metadata.resource_version != meta.resource_version:
        raise Conflict(f"NodeRemediation {meta.name}: it changed since it was read, so its slots stay")
    for lease in leases:
        with suppress(NotFound):
            await cluster.delete(Lease, lease.metadata.name, namespace=meta.namespace, uid=lease.metadata.uid)


async def _leases_of(cluster: Cluster, record: NodeRemediation) -> list[Lease]:
    return await _leases(cluster, record.metadata.name, record.metadata.namespace)


async def _leases(cluster: Cluster, name: str, namespace: str) -> list[Lease]:
    slots = (await cluster.list(Lease, namespace=namespace, labels={LABEL_SLOT: REMEDIATION})).items
    return [lease for lease in slots if lease.spec.holder_identity == name]


def _used_up(limit: tuple[str, ...]) -> str:
    return f"all {len(limit)} slots of {limit[0].rpartition('-')[0]} are taken" if limit else "there is no slot"


async def _take_one(cluster: Cluster, record: NodeRemediation, limit: tuple[str, ...], now: datetime) -> Lease | None:
    """The first free slot of *limit*, or the one that another controller took for the node meanwhile."""
    for slot in limit:
        meta = ObjectMeta(
            name=slot,
            namespace=record.metadata.namespace,
            labels={LABEL_SLOT: REMEDIATION},
            owner_references=[owned_by_record(record)],
        )
        spec = LeaseSpec(holder_identity=record.metadata.name, acquire_time=now)
        with suppress(AlreadyExists):
            return await cluster.create(Lease(metadata=meta, spec=spec))
    return next((lease for lease in await _leases_of(cluster, record) if lease.metadata.name in limit), None)
