"""
Perform what a recovery decided. Every write has a precondition: a write of a deposed or late controller fails with
Conflict and does no harm. The next reconcile then decides again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, assert_never

import structlog

from healthd.cluster.nodes import patch_node
from healthd.cluster.port import Cluster, ClusterError, Conflict, NotFound
from healthd.controller.rebuilds import Rebuilds
from healthd.core.api import (
    FINALIZER_FENCE,
    FINALIZER_JOB,
    HINT_CURRENT,
    LABEL_HINT,
    LABEL_STOPS,
    Node,
    Pod,
    Recovery,
    RecoveryStatus,
    stored,
)
from healthd.core.api.pod_packs import TooManyPods
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.patches import changes
from healthd.core.recovery.actions import (
    Action,
    ClaimSpare,
    MakeRoot,
    ReleasePods,
    RemovePods,
    RemoveRoot,
    StartGang,
    StopGang,
)
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.nodes import spares
from healthd.core.recovery.nodes.spares import KeepSpare, ReturnSpare, SettleSpare, SpareStep
from healthd.core.recovery.recovery_status import dressed, label_value
from healthd.gangs.adapter import GangAdapter

log = structlog.get_logger()

FENCED = "Fenced"
"""Reason on a pod that healthd sets to Failed: its end is proven, and its kubelet is silent."""


class TooLarge(ClusterError):
    """The status does not fit into one object. Nothing was written."""


class NotKept(ClusterError):
    """The API server dropped a part of the recorded status. To go on would be to act without a record."""


async def record(cluster: Cluster, recovery: Recovery, status: RecoveryStatus, now: datetime) -> Recovery:
    """
    Write the new *status*, and what follows from it.

    Raises Conflict when *recovery* was written since it was read, NotKept when the cluster's Recovery CRD is older,
    TooLarge when the gang has more pods than one object can hold.
    """
    try:
        wanted = stored(dressed(recovery, status, now))
    except TooManyPods as error:
        raise TooLarge(
            f"Recovery {recovery.metadata.name} cannot be recorded: {error}; delete its failed pods"
        ) from error
    patch = changes(stored(recovery.status), wanted)
    if "packed" in wanted:
        patch |= dict.fromkeys(("pods", "placement"))  # an older healthd may have written them
    written = await cluster.patch(
        Recovery,
        recovery.metadata.name,
        {"status": patch},
        namespace=recovery.metadata.namespace,
        subresource="status",
        resource_version=recovery.metadata.resource_version,
        uid=recovery.metadata.uid,
    )
    if dropped := changes(stored(written.status), wanted):
        raise NotKept(
            f"the API server did not keep {', '.join(sorted(dropped))} in the status of {written.metadata.name}: "
            "its definition of Recovery is older than this healthd; apply deploy/crds.yaml of this version"
        )
    return written


async def perform(
    cluster: Cluster,
    action: Action,
    *,
    recovery: Recovery,
    view: GangView,
    adapter: GangAdapter[Any],
    rebuilds: Rebuilds,
) -> Node | None:
    """Do one action on the gang of *view*, whose root exists. Returns the changed node. Raises ClusterError."""
    root = view.root
    if root is None:
        raise NotFound(f"{recovery.spec.gang.kind} {recovery.spec.gang.name} is gone")
    if isinstance(action, StopGang):
        await _announce_stop(cluster, recovery, root)
    else:
        await _expect_unchanged(cluster, recovery)
    match action:
        case StopGang(name):
            await adapter.stop(cluster, root, name)
        case ReleasePods(names):
            for pod in _named(view, names):
                await release_pod(cluster, pod)
        case RemovePods(names):
            for pod in _named(view, names):
                await _remove_pod(cluster, pod)
        case ClaimSpare(spare, instead_of):
            instead_of = spares.origin(instead_of, view.nodes, root.ref.uid)
            claimed = await _claim(cluster, view.nodes[spare], recovery, instead_of)
            await _end_checks(cluster, view.checks.get(spare, ()))
            return claimed
        case StartGang(hint):
            await adapter.start(cluster, root, hint)
        case RemoveRoot():
            await rebuilds.remove(root, recovery)
        case MakeRoot():
            await rebuilds.make(recovery)
        case _:
            assert_never(action)
    return None


def _named(view: GangView, names: Collection[str]) -> list[Pod]:
    wanted = frozenset(names)
    return [pod for pod in view.pods if pod.metadata.name in wanted]


async def _expect_unchanged(cluster: Cluster, recovery: Recovery) -> None:
    """
    Raise Conflict when *recovery* was written since it was read.

    The root was read after the recovery. Without this check, a controller that was paused in between could act on a
    gang as the old recovery said, after the user has started or stopped that gang.
    """
    meta = recovery.metadata
    now = await cluster.get(Recovery, meta.name, meta.namespace)
    if now.metadata.resource_version != meta.resource_version:
        raise Conflict(f"recovery {meta.name} has been changed: it is now in {now.status.phase}")


async def _announce_stop(cluster: Cluster, recovery: Recovery, root: Root) -> None:
    """
    Write to *recovery* that this *root* is about to be stopped. Raises Conflict when it was written since it was read.

    Another controller may have read an earlier state of the root, such as suspended by its user, and be about to end
    the recovery for that. Its write then fails with Conflict. Otherwise the gang would stay stopped by a recovery that
    is over.
    """
    version = label_value(root.resource_version)
    if recovery.metadata.labels.get(LABEL_STOPS) == version:
        await _expect_unchanged(cluster, recovery)
    else:
        await _label(cluster, recovery, LABEL_STOPS, version)


async def point_hint(cluster: Cluster, recovery: Recovery, others: Iterable[Recovery]) -> Recovery:
    """
    Let new pods of the gang carry the hint of *recovery*, and of none of the *others*. Raises Conflict.

    This happens while the gang is stopped, so no pod is created between the writes.
    """
    for other in others:
        if other.metadata.name != recovery.metadata.name:
            await take_hint_away(cluster, other)
    if recovery.metadata.labels.get(LABEL_HINT) == HINT_CURRENT:
        return recovery
    return await _label(cluster, recovery, LABEL_HINT, HINT_CURRENT)


async def take_hint_away(cluster: Cluster, recovery: Recovery) -> Recovery:
    """Remove the label, so that no new pod carries the hint of *recovery*. Raises Conflict, NotFound."""
    return await _label(cluster, recovery, LABEL_HINT, None) if LABEL_HINT in recovery.metadata.labels else recovery


async def _label(cluster: Cluster, recovery: Recovery, label: str, value: str | None) -> Recovery:
    return await cluster.patch(
        Recovery,
        recovery.metadata.name,
        {"metadata": {"labels": {label: value}}},
        namespace=recovery.metadata.namespace,
        resource_version=recovery.metadata.resource_version,
        uid=recovery.metadata.uid,
    )


async def release_pod(cluster: Cluster, pod: Pod) -> None:
    """Remove healthd's finalizer from *pod*. A pod that is already gone is a success."""
    with suppress(NotFound):
        await _take_off(cluster, pod, FINALIZER_FENCE)


async def _take_off(cluster: Cluster, pod: Pod, finalizer: str) -> None:
    left = [each for each in pod.metadata.finalizers if each != finalizer]
    await cluster.patch(
        Pod,
        pod.metadata.name,
        {"metadata": {"finalizers": left or None}},
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
    )


async def _remove_pod(cluster: Cluster, pod: Pod) -> None:
    """
    Delete *pod* for good, without its kubelet. A pod that is already gone is a success.

    The Job controller removes its finalizer from the pods that it deletes to suspend a Job, so they do not count as
    failures. It does not do so for pods that were already being deleted. A Job that replaces only failed pods keeps
    these for ever; once such a pod is Failed it counts as a failure, even of a suspended Job. So it is removed here.

    A pod that another finalizer keeps is set to Failed, as the cluster's own pod garbage collector does.
    """
    meta = pod.metadata
    failed = {"status": {"phase": "Failed", "reason": FENCED, "message": "healthd has proof that its processes ended"}}
    with suppress(NotFound):
        if FINALIZER_JOB in meta.finalizers:
            await _take_off(cluster, pod, FINALIZER_JOB)
        await cluster.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)
        await cluster.patch(Pod, meta.name, failed, namespace=meta.namespace, uid=meta.uid, subresource="status")


async def settle(cluster: Cluster, step: SpareStep, node: Node) -> Node:
    """One step of giving the spare *node* back. Raises ClusterError."""
    match step:
        case ReturnSpare():
            patch = spares.return_patch(node)
        case SettleSpare():
            patch = spares.settle_patch(node)
        case KeepSpare(claim=claim):
            patch = spares.keep_patch(claim)
    return await patch_node(cluster, node, patch)


async def _claim(cluster: Cluster, node: Node, recovery: Recovery, instead_of: str) -> Node:
    gang = recovery.spec.gang
    claim = spares.Claim(
        recovery=recovery.metadata.name,
        namespace=recovery.metadata.namespace,
        gang=gang.name,
        gang_uid=gang.uid,
        instead_of=instead_of,
    )
    return await patch_node(cluster, node, spares.claim_patch(node, claim))


async def _end_checks(cluster: Cluster, pods: Iterable[tuple[str, str]]) -> None:
    """
    Delete the pods that check a spare which is claimed now: they hold its GPUs. The recovery does not depend on it.
    What is left, the loop of these checks deletes.
    """
    for name, uid in pods:
        try:
            await cluster.delete(Pod, name, namespace=NAMESPACE, uid=uid)
        except NotFound:
            pass
        except ClusterError as error:
            log.warning("spare.check_not_ended", pod=name, error=str(error))
