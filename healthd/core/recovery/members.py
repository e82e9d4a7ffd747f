"""The members of a gang: which pods they are, what identifies each of them, and whether it will run again."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import ANNOTATION_ATTEMPT, LABEL_GANG, Pod
from healthd.core.recovery.gang import INDEX_KEYS, GangView, Root
from healthd.core.untrusted import number_or

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
LONGEST_INDEX = 320
"""Characters. An index is stored with every pod of a recovery; a JobSet's has a name and two numbers."""
LONGEST_GRACE = 10 * 365 * 86_400
"""Seconds. A longer grace period cannot be subtracted from every timestamp."""
LABEL_OWN_RESTART = "jobset.sigs.k8s.io/restart-attempt"
"""On a pod: the restart count of its root's own controller when it created the pod. Other kinds have no such label."""


def attempt_of(pod: Pod) -> int:
    """The attempt that a pod belongs to; 0 for pods that started before healthd knew the gang."""
    return number_or(pod.metadata.annotations.get(ANNOTATION_ATTEMPT, ""), 0)


def index_of(pod: Pod, root: Root | None = None) -> str:
    """The index that identifies a pod among the members of its gang *root*; empty when it has none."""
    meta = pod.metadata
    if root is not None and root.index_labels:
        index = "-".join(meta.labels.get(key, "").lower() for key in root.index_labels)
        return index if all(meta.labels.get(key) for key in root.index_labels) and len(index) <= LONGEST_INDEX else ""
    for keys in INDEX_KEYS:
        marks = []
        for key in keys:
            mark = meta.annotations.get(key) or meta.labels.get(key)
            if not mark:
                break
            marks.append(mark)
        else:
            index = "-".join(marks)
            return index if len(index) <= LONGEST_INDEX else ""
    return meta.name if is_plain_member(pod) else ""


def deletion_asked_at(pod: Pod) -> datetime | None:
    """When its deletion was requested: the deletion timestamp minus the grace period. The tenant sets the grace."""
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return None
    grace = min(max(meta.deletion_grace_period_seconds or 0, 0), LONGEST_GRACE)
    return meta.deletion_timestamp - timedelta(seconds=grace)


def still_asked_at(before: Pod | None, after: Pod) -> Pod:
    """
    *after*, being deleted since the time that its earlier state *before* has.

    The last delete of a pod, that of its kubelet, has no grace period, and an API server sets the deletion timestamp to
    the present with it. A pod that was deleted before its gang was started, and that is gone only now, would look like
    one that somebody takes from the gang that runs.
    """
    if before is None or before.metadata.uid != after.metadata.uid:
        return after
    first, last = deletion_asked_at(before), deletion_asked_at(after)
    if first is None or last is None or first >= last:
        return after
    kept = msgspec.structs.replace(
        after.metadata,
        deletion_timestamp=before.metadata.deletion_timestamp,
        deletion_grace_period_seconds=before.metadata.deletion_grace_period_seconds,
    )
    return msgspec.structs.replace(after, metadata=kept)


def is_plain_member(pod: Pod) -> bool:
    """It belongs to a gang only by its label: no controller creates it again or depends on its name."""
    return LABEL_GANG in pod.metadata.labels and not any(owner.controller for owner in pod.metadata.owner_references)


def is_terminal(pod: Pod) -> bool:
    """Its containers have ended and will not start again."""
    return pod.status.phase in TERMINAL_PHASES


def will_not_run(pod: Pod) -> bool:
    """
    It has ended, or it was deleted before it got a node.

    The API server binds no pod that is being deleted, so no kubelet will ever report the end of such a pod.
    """
    return is_terminal(pod) or (not pod.spec.node_name and pod.metadata.deletion_timestamp is not None)


def members(view: GangView) -> tuple[Pod, ...]:
    """The pods of the root's present attempt."""
    if view.root is None:
        return ()
    attempt, own_restarts = view.root.attempt, view.root.own_restarts
    present = [pod for pod in view.pods if attempt_of(pod) == attempt]
    return tuple(pod for pod in present if _restart_of(pod) >= own_restarts) if own_restarts else tuple(present)


def with_seats(pods: Collection[Pod], root: Root) -> list[Pod]:
    """The *pods* that the gang still has a place for: a gang that its user made smaller leaves pods behind."""
    seats = {"", *root.seats} if pods else set()
    return [pod for pod in pods if len(seats) == 1 or index_of(pod, root) in seats]


def _restart_of(pod: Pod) -> int:
    """The number of the restart, by the root's own controller, that created the pod."""
    return number_or(pod.metadata.labels.get(LABEL_OWN_RESTART, ""), 0)
