"""
Take and give back slots of the budget: one Lease each, whose creation fails where the slot is taken.

A slot is taken before the cordon and given back after it, so there are never more cordons than slots. A crash between
two writes leaves a slot without a cordon, which the agent's next cycle finishes or gives back. A node that is taken out
of the cluster has no agent that could: the slot belongs to the Node object, and is collected with it.
"""

from __future__ import annotations

from datetime import datetime

from healthd.cluster.nodes import owned_by
from healthd.cluster.port import AlreadyExists, Cluster, NotFound
from healthd.core.budget import SlotSet, slot_sets
from healthd.core.objects import LABEL_NODE, Lease, LeaseSpec, Node, ObjectMeta
from healthd.core.policy import QuarantinePolicy


async def held_slots(cluster: Cluster, node: Node, policy: QuarantinePolicy) -> list[Lease]:
    """The slots that *node* holds."""
    mine = {LABEL_NODE: node.metadata.name}
    return (await cluster.list(Lease, namespace=policy.namespace, labels=mine)).items


async def take_slots(cluster: Cluster, node: Node, policy: QuarantinePolicy, now: datetime) -> str | None:
    """
    Hold one slot of every set that *node* needs. None when they are held, else which limit is used up.

    For a node that is not quarantined. After a refusal it holds no slot at all: a node that cannot be quarantined must
    not use up the budget of another.
    """
    held = {lease.metadata.name for lease in await held_slots(cluster, node, policy)}
    for slots in slot_sets(node, policy):
        if slots.held(held) or await _take_one(cluster, slots, node, policy, now):
            continue
        await give_back_slots(cluster, node, policy)
        return f"the budget of {slots.scope}, {len(slots.names)} nodes, is used up"
    return None


async def give_back_slots(cluster: Cluster, node: Node, policy: QuarantinePolicy) -> None:
    """Free every slot that *node* holds."""
    for lease in await held_slots(cluster, node, policy):
        await _give_back(cluster, lease.metadata.name, policy)


async def _take_one(
    cluster: Cluster, slots: SlotSet, node: Node, policy: QuarantinePolicy, now: datetime
) -> str | None:
    """First the slot that the node's name prefers, then one list and a free one; a lost race tries the next."""
    preferred = next(slots.by_preference(node.metadata.name), None)
    if preferred is None:
        return None
    if await _create(cluster, preferred, node, policy, now):
        return preferred
    used = {lease.metadata.name for lease in (await cluster.list(Lease, namespace=policy.namespace)).items}
    for name in slots.by_preference(node.metadata.name):
        if name not in used and await _create(cluster, name, node, policy, now):
            return name
    return None


async def _create(cluster: Cluster, name: str, node: Node, policy: QuarantinePolicy, now: datetime) -> bool:
    meta = ObjectMeta(
        name=name,
        namespace=policy.namespace,
        labels={LABEL_NODE: node.metadata.name},
        owner_references=[owned_by(node)],
    )
    lease = Lease(
        metadata=meta,
        spec=LeaseSpec(holder_identity=node.metadata.name, acquire_time=now),
    )
    try:
        await cluster.create(lease)
    except AlreadyExists:
        return False
    return True


async def _give_back(cluster: Cluster, name: str, policy: QuarantinePolicy) -> None:
    try:
        await cluster.delete(Lease, name, namespace=policy.namespace)
    except NotFound:
        return
