"""The `NodeRemediation` objects: what is intended for each node, on record before it is done."""

from __future__ import annotations

from healthd.cluster.port import Cluster, ClusterError, NotFound
from healthd.core.api import RESOURCES, NodeRemediation, NodeRemediationStatus, ObjectMeta, OwnerReference
from healthd.core.api.names import ANNOTATION_REQUEST
from healthd.core.patches import diff


class NotKept(ClusterError):
    """The API server dropped a part of the status. To go on would be to act without a record."""


async def read_record(cluster: Cluster, name: str, namespace: str) -> NodeRemediation:
    """The record of node *name*; an empty one, without a uid, where there is none. Raises ClusterError."""
    try:
        return await cluster.get(NodeRemediation, name, namespace)
    except NotFound:
        return NodeRemediation(metadata=ObjectMeta(name=name, namespace=namespace))


async def write_record(cluster: Cluster, record: NodeRemediation, status: NodeRemediationStatus) -> NodeRemediation:
    """
    Write *status*. Raises Conflict when *record* was written since it was read, AlreadyExists when another controller
    has created it, NotKept when the cluster's definition is older.
    """
    if not record.metadata.uid:
        record = await cluster.create(NodeRemediation(metadata=record.metadata))
    meta = record.metadata
    written = await cluster.patch(
        NodeRemediation,
        meta.name,
        {"status": diff(record.status, status)},
        namespace=meta.namespace,
        subresource="status",
        resource_version=meta.resource_version,
        uid=meta.uid,
    )
    if written.status != status:
        dropped = ", ".join(sorted(diff(written.status, status))) or "all of it"
        raise NotKept(
            f"the API server did not keep {dropped} in the status of NodeRemediation {meta.name}: its definition is "
            "older than this healthd; apply deploy/crds.yaml of this version"
        )
    return written


async def mark_called(cluster: Cluster, record: NodeRemediation, number: int | None) -> None:
    """Note that the webhook of attempt *number* was called; None: take the note away. Raises ClusterError."""
    meta = record.metadata
    note = {ANNOTATION_REQUEST: None if number is None else str(number)}
    patch = {"metadata": {"annotations": note}}
    await cluster.patch(NodeRemediation, meta.name, patch, namespace=meta.namespace, uid=meta.uid)


def owned_by_record(record: NodeRemediation) -> OwnerReference:
    """The owner reference that deletes an object together with the record of its node."""
    meta, resource = record.metadata, RESOURCES[NodeRemediation]
    return OwnerReference(api_version=resource.api_version, kind=resource.kind, name=meta.name, uid=meta.uid)
