"""
Make a recovery again that somebody deleted before it was over.

Its gang may be stopped, and only its record says which pods must have ended before the gang may start again, and which
spares it has. The cache has the last state of the deleted object. The recovery goes on from there, under its old name:
the marks on the gang and the claims on the spares stay valid, and nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import structlog
from msgspec.structs import replace

from healthd.cluster.port import AlreadyExists, Cluster
from healthd.controller.act import record
from healthd.core.api import ANNOTATION_RESTART, ObjectMeta, Recovery, RecoveryStatus
from healthd.core.api.model import ENDED, Phase
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.rebuilding import is_being_rebuilt

log = structlog.get_logger()

MADE_AGAIN = (
    "Somebody deleted this recovery before it was over. It goes on from where it was; to end it, suspend the gang or "
    f"switch its restarts off ({ANNOTATION_RESTART})."
)


def is_needed(lost: Recovery, root: Root | None, others: Iterable[Recovery]) -> bool:
    """
    Whether the gang of *lost*, freshly read, still needs it. A user ends a recovery by switching restarts off.

    *others* are the recoveries that exist, freshly read: another controller may have opened the next one, which is
    then the only one that may act.
    """
    if any(_has_taken_over(other, lost) for other in others):
        return False
    if is_being_rebuilt(lost.status) and (root is None or root.deleting):
        return True
    if root is None or root.deleting or root.ending is not RootOutcome.NOT_ENDED or not root.options.restart:
        return False
    return root.attempt <= lost.status.attempt


def _has_taken_over(other: Recovery, lost: Recovery) -> bool:
    if other.spec.gang.uid != lost.spec.gang.uid or other.metadata.name == lost.metadata.name:
        return False
    return other.status.phase not in ENDED or other.spec.first_attempt > lost.status.attempt


async def make_again(cluster: Cluster, lost: Recovery, now: datetime) -> Recovery:
    """
    The recovery as it was when it was deleted.

    Two or three writes. What was interrupted between them is completed by the next call, of this controller or another.
    Raises Conflict when another controller is faster, and the other errors of the cluster.
    """
    meta = lost.metadata
    again = ObjectMeta(name=meta.name, namespace=meta.namespace, labels=meta.labels, annotations=meta.annotations)
    try:
        made = await cluster.create(replace(lost, metadata=again, status=RecoveryStatus()))
    except AlreadyExists:
        made = await cluster.get(Recovery, meta.name, meta.namespace)
    if made.status.timeline:
        return made  # another controller was faster
    if lost.status.phase is Phase.STARTING:
        # The definition refuses a start that comes right after the creation: it would pass by the fence.
        made = await _in_phase(cluster, made, Phase.FENCING)
    made = await record(cluster, made, lost.status, now)
    log.warning("recovery.made_again", recovery=meta.name, phase=lost.status.phase, why="somebody deleted it")
    return made


async def _in_phase(cluster: Cluster, made: Recovery, phase: Phase) -> Recovery:
    meta = made.metadata
    return await cluster.patch(
        Recovery,
        meta.name,
        {"status": {"phase": phase}},
        namespace=meta.namespace,
        subresource="status",
        resource_version=meta.resource_version,
        uid=meta.uid,
    )
