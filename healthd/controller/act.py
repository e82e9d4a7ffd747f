"""
Perform what a recovery decided. Every write carries a precondition, so an act of a deposed or late controller fails
with Conflict instead of doing harm; the next look at the world decides anew.
"""

from __future__ import annotations

from typing import Any, assert_never

from healthd.cluster.nodes import patch_node
from healthd.cluster.port import Cluster, Conflict, NotFound
from healthd.controller.observe import World
from healthd.core import spares
from healthd.core.acts import ClaimSpare, ReleasePods, RemovePods, StartGang, StopGang
from healthd.core.gang import Root
from healthd.core.objects import FINALIZER_FENCE, Node, Pod, Recovery
from healthd.core.patches import diff
from healthd.core.spares import ReturnSpare, SettleSpare
from healthd.gangs.adapter import GangAdapter


async def record(cluster: Cluster, recovery: Recovery, status: Any) -> Recovery:
    """Write the new *status*; Conflict when anybody wrote since *recovery* was read."""
    return await cluster.patch(
        Recovery,
        recovery.metadata.name,
        {"status": diff(recovery.status, status)},
        namespace=recovery.metadata.namespace,
        subresource="status",
        resource_version=recovery.metadata.resource_version,
        uid=recovery.metadata.uid,
    )


async def perform(
    cluster: Cluster,
    act: StopGang | ReleasePods | RemovePods | ClaimSpare | StartGang,
    *,
    recovery: Recovery,
    root: Root,
    world: World,
    adapter: GangAdapter[Any],
) -> None:
    """One act on the cluster. Raises ClusterError."""
    await _expect_unchanged(cluster, recovery)
    match act:
        case StopGang(name):
            await adapter.stop(cluster, root, name)
        case ReleasePods(names):
            for name in names:
                await release_pod(cluster, _pod(world, root, name))
        case RemovePods(names):
            for name in names:
                await _remove_pod(cluster, _pod(world, root, name))
        case ClaimSpare(spare, instead_of):
            instead_of = spares.origin(instead_of, world.nodes, root.ref.uid)
            await _claim(cluster, world.nodes[spare], recovery, instead_of)
        case StartGang(hint):
            await adapter.start(cluster, root, hint)
        case _:
            assert_never(act)


async def _expect_unchanged(cluster: Cluster, recovery: Recovery) -> None:
    """
    Raise Conflict when anybody wrote since *recovery* was read.

    The root was read after it. Without this look a controller that stood still in between could stop a gang, as the
    recovery told it to then, that its user has set going since.
    """
    meta = recovery.metadata
    now = await cluster.get(Recovery, meta.name, meta.namespace)
    if now.metadata.resource_version != meta.resource_version:
        raise Conflict(f"recovery {meta.name} has been changed: it is now in {now.status.phase}")


async def release_pod(cluster: Cluster, pod: Pod) -> None:
    """Take our finalizer off *pod*; a pod that is gone already is as good."""
    left = [finalizer for finalizer in pod.metadata.finalizers if finalizer != FINALIZER_FENCE]
    try:
        await cluster.patch(
            Pod,
            pod.metadata.name,
            {"metadata": {"finalizers": left or None}},
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            resource_version=pod.metadata.resource_version,
        )
    except NotFound:
        return


async def _remove_pod(cluster: Cluster, pod: Pod) -> None:
    """Delete *pod* for good, without its kubelet; one that is gone already is as good."""
    meta = pod.metadata
    try:
        await cluster.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)
    except NotFound:
        return


async def settle(cluster: Cluster, step: ReturnSpare | SettleSpare, world: World) -> None:
    """One step of giving a spare back. Raises ClusterError."""
    node = world.nodes[step.node]
    patch = spares.return_patch(node) if isinstance(step, ReturnSpare) else spares.settle_patch(node)
    await patch_node(cluster, node, patch)


async def _claim(cluster: Cluster, node: Node, recovery: Recovery, instead_of: str) -> None:
    gang = recovery.spec.gang
    claim = spares.Claim(
        recovery=recovery.metadata.name,
        namespace=recovery.metadata.namespace,
        gang=gang.name,
        gang_uid=gang.uid,
        instead_of=instead_of,
    )
    await patch_node(cluster, node, spares.claim_patch(node, claim))


def _pod(world: World, root: Root, name: str) -> Pod:
    return next(pod for pod in world.pods[root.ref.uid] if pod.metadata.name == name)
