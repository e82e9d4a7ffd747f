"""
Take and give back slots of the budget. Each slot is a Lease; its creation fails where the slot is taken.

A slot is taken before the cordon and given back after the uncordon, so there are never more cordons than slots. A crash
between two writes leaves a slot without a cordon; the agent's next cycle finishes the cordon or gives the slot back. A
node that is deleted from the cluster has no agent to do so. Its slots are owned by the Node object and are garbage
collected with it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from healthd.cluster.nodes import owned_by
from healthd.cluster.port import AlreadyExists, Cluster, NotFound
from healthd.core.api import LABEL_NODE, Lease, LeaseSpec, Node, ObjectMeta
from healthd.core.config import QuarantinePolicy
from healthd.core.node.budget import SlotSet, slot_sets

MOST_BLIND_TRIES = 4
SLOTS_WORTH_A_TRY = 100
"""A list of this many slots costs the API server as much as one more try."""
TRIES_A_LIST = 4


class Taken(NamedTuple):
    """The slots that a node holds now. With a *refusal*: the limit that is used up, not all that the node needs."""

    slots: frozenset[str]
    refusal: str = ""


async def held_slots(cluster: Cluster, node: Node, policy: QuarantinePolicy) -> frozenset[str]:
    """The slots that *node* holds."""
    return frozenset(lease.metadata.name for lease in await _leases_of(cluster, node, policy))


def lacks_slots(node: Node, policy: QuarantinePolicy, held: frozenset[str]) -> bool:
    """Whether *node* lacks a slot for one of its limits."""
    return any(slots.names and not slots.held(held) for slots in slot_sets(node, policy))


async def take_slots(
    cluster: Cluster,
    node: Node,
    policy: QuarantinePolicy,
    now: datetime,
    *,
    held: frozenset[str] = frozenset(),
    is_out: bool = False,
) -> Taken:
    """
    Hold one slot of every set that *node* needs. *held* are the slots that it has.

    After a refusal the node holds no slot at all: a node that cannot be quarantined must not use up the budget of
    others. A node that *is_out* already keeps its slots, and is counted where that is possible. Takes one request where
    the slot that the node prefers is free.
    """
    refusal = ""
    for slots in slot_sets(node, policy):
        if slots.held(held):
            continue
        taken = await _take_one(cluster, slots, node, policy, now)
        if taken is not None:
            held |= {taken}
            continue
        refusal = f"the budget of {slots.scope}, {len(slots.names)} nodes, is used up"
        if not is_out:
            if held:
                await give_back_slots(cluster, node, policy)
            return Taken(frozenset(), refusal)
    return Taken(held, refusal)


async def give_back_slots(cluster: Cluster, node: Node, policy: QuarantinePolicy) -> None:
    """Free every slot that *node* holds."""
    for lease in await _leases_of(cluster, node, policy):
        with suppress(NotFound):  # a Conflict goes to the caller: it must check again whether the slot is still held
            await cluster.delete(Lease, lease.metadata.name, namespace=policy.namespace, uid=lease.metadata.uid)


async def _leases_of(cluster: Cluster, node: Node, policy: QuarantinePolicy) -> list[Lease]:
    mine = {LABEL_NODE: node.metadata.name}
    return (await cluster.list(Lease, namespace=policy.namespace, labels=mine)).items


async def _take_one(
    cluster: Cluster, slots: SlotSet, node: Node, policy: QuarantinePolicy, now: datetime
) -> str | None:
    """
    The first free slot, in an order that the node's name decides. None when there is none.

    It first tries without a list: the slot that the node prefers, and more slots of a large budget, whose list costs as
    much as several tries. Then it lists the slots, and lists them again when other nodes took the free ones several
    times.
    """
    order = list(slots.by_preference(node.metadata.name))
    if not order:
        return None
    blindly = 1 + min(MOST_BLIND_TRIES, len(order) // SLOTS_WORTH_A_TRY)
    for name in order[:blindly]:
        if await _create(cluster, name, node, policy, now):
            return name
    rest = order[blindly:]
    while True:
        used = {lease.metadata.name: lease for lease in await _all_leases(cluster, policy)}
        if ours := slots.held([name for name, lease in used.items() if _is_held_by(lease, node)]):
            return ours  # taken by a write whose answer was lost
        free = [name for name in rest if name not in used]
        if not free:
            return None
        for name in free[:TRIES_A_LIST]:
            if await _create(cluster, name, node, policy, now):
                return name
        rest = free[TRIES_A_LIST:]


async def _all_leases(cluster: Cluster, policy: QuarantinePolicy) -> list[Lease]:
    return (await cluster.list(Lease, namespace=policy.namespace, labels={LABEL_NODE: None})).items


def _is_held_by(lease: Lease, node: Node) -> bool:
    return lease.metadata.labels.get(LABEL_NODE) == node.metadata.name


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
