"""
Writes to the pod template of a stopped Job that ran.

Before Kubernetes 1.36 the API server takes them only while `status.startTime` is empty, and a suspend does not empty
it. healthd does then, as Kueue and JobSet do. The start of the Job sets the time anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthd.cluster.port import Cluster, Invalid, Refused
from healthd.core.api import Job, ObjectMeta


async def patch_template(cluster: Cluster, meta: ObjectMeta, patch: Mapping[str, Any]) -> None:
    """
    Apply *patch* to the stopped Job that *meta* was read from, if it did not change since. Raises Conflict, NotFound.

    Raises Invalid where the patch is refused for another reason, or where healthd may not write the status of Jobs (the
    component before-1.36 grants that).
    """
    try:
        await _patch(cluster, meta, patch, meta.resource_version)
    except Invalid as refusal:
        await _patch(cluster, meta, patch, await _remove_start_time(cluster, meta, refusal))


async def _remove_start_time(cluster: Cluster, meta: ObjectMeta, refusal: Invalid) -> str:
    """The resource version of the Job without the time; raises *refusal* where that changes nothing."""
    empty = {"status": {"startTime": None}}
    try:
        version = await _patch(cluster, meta, empty, meta.resource_version, subresource="status")
    except Refused:
        raise refusal from None
    if version == meta.resource_version:
        raise refusal
    return version


async def _patch(
    cluster: Cluster, meta: ObjectMeta, patch: Mapping[str, Any], version: str, *, subresource: str = ""
) -> str:
    job = await cluster.patch(
        Job,
        meta.name,
        patch,
        namespace=meta.namespace,
        subresource=subresource,
        resource_version=version,
        uid=meta.uid,
    )
    return job.metadata.resource_version
