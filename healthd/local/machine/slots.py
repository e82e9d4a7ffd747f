"""
Slots: the nodes of a machine without a cluster. A slot holds one rank: one GPU, a group of GPUs, or only a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count, islice

import msgspec

from healthd.cluster.port import AlreadyExists, Cluster, NotFound
from healthd.core.api import (
    LABEL_SPARE,
    Condition,
    Device,
    Node,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
    Taint,
)
from healthd.core.api.kubernetes.gpu_names import GPU_RESOURCE
from healthd.core.patches import diff
from healthd.local.processes.pods import with_condition

ANNOTATION_DEVICES = "healthd.dev/devices"
"""On a slot: JSON list of `Device`, the GPUs of this slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot for one rank on this machine."""

    name: str
    devices: tuple[Device, ...] = ()
    spare: bool = False


def slots_for(count: int, devices: Sequence[Device], *, spares: int = 0, per_slot: int = 1) -> list[Slot]:
    """
    *count* slots and *spares* more that are kept free. When there are *devices*, each slot has *per_slot* GPUs.

    Raises ValueError when there are GPUs, but not enough of them.
    """
    total = count + spares
    needed = total * per_slot
    if devices and len(devices) < needed:
        raise ValueError(
            f"{count} ranks and {spares} spares with {per_slot} GPU each need {needed} GPUs; this machine has "
            f"{len(devices)}: ask for fewer ranks or spares"
        )
    ordered = sorted(devices, key=lambda device: device.pci)
    return [
        Slot(
            name=f"slot-{number}",
            devices=tuple(ordered[number * per_slot : (number + 1) * per_slot]),
            spare=number >= count,
        )
        for number in range(total)
    ]


def offered(devices: Sequence[Device], visible: str | None) -> list[Device]:
    """
    The *devices* that the user gives to healthd. *visible* is CUDA_VISIBLE_DEVICES, None when it is not set.

    It holds numbers in bus order, or UUIDs, or prefixes of UUIDs. As for CUDA itself, -1 or an empty value hides all
    GPUs. Raises ValueError for an entry that matches no GPU: another GPU may belong to another user.
    """
    ordered = sorted(devices, key=lambda device: device.pci)
    if visible is None:
        return ordered
    words = [word.strip() for word in visible.split(",")]
    if words[0] in ("", "-1"):
        return []
    return [_offered(word, ordered) for word in dict.fromkeys(words)]


def _offered(word: str, devices: Sequence[Device]) -> Device:
    found = [device for device in devices if device.uuid and word.startswith("GPU-") and device.uuid.startswith(word)]
    if word.isdecimal():
        found = list(devices[int(word) :][:1])
    if len(found) != 1:
        there = ", ".join(device.uuid for device in devices) or "none"
        raise ValueError(
            f"CUDA_VISIBLE_DEVICES names {word!r}, which is no GPU of this machine that NVML lists ({there}): "
            "unset it, or name GPUs by number or UUID"
        )
    return found[0]


def node_of(slot: Slot) -> Node:
    """The Node object of a slot that was never registered. `status` is reported separately."""
    devices = msgspec.json.encode(slot.devices).decode()
    return Node(
        metadata=ObjectMeta(
            name=slot.name,
            labels={LABEL_SPARE: "true"} if slot.spare else {},
            annotations={ANNOTATION_DEVICES: devices} if slot.devices else {},
        ),
        spec=NodeSpec(taints=[Taint(key=LABEL_SPARE)] if slot.spare else []),
    )


def devices_of(node: Node) -> list[Device]:
    """The GPUs of a slot. Empty for a slot that is only a number."""
    return msgspec.json.decode(node.metadata.annotations.get(ANNOTATION_DEVICES, "[]"), type=list[Device])


def device_uuids(node: Node) -> list[str]:
    """The UUIDs of the GPUs of a slot, as CUDA names them."""
    return [device.uuid for device in devices_of(node) if device.uuid]


def keep_places(slots: Sequence[Slot], nodes: Sequence[Node]) -> list[Slot]:
    """
    *slots*, with each GPU under the slot name that it had when *nodes* were registered. New GPUs get the remaining
    names.

    A quarantine is on the node. When a GPU falls off the bus, new numbers for its neighbours would move a bad GPU to a
    slot that is in service.
    """
    present = {device.uuid: device for slot in slots for device in slot.devices}
    size = max((len(slot.devices) for slot in slots), default=0)
    kept: list[Slot] = []
    for node in nodes:
        uuids = device_uuids(node)
        if uuids and len(uuids) == size and present.keys() >= set(uuids):
            kept.append(Slot(name=node.metadata.name, devices=tuple(map(present.pop, uuids))))
    taken = {slot.name for slot in kept}
    names = (name for name in map("slot-{}".format, count()) if name not in taken)
    left = iter(present.values())
    new = [replace(slot, name=next(names), devices=tuple(islice(left, size))) for slot in slots[len(kept) :]]
    return sorted([*kept, *new], key=lambda slot: (len(slot.name), slot.name))


def status_of(node: Node, slot: Slot, boot_id: str, now: datetime) -> NodeStatus:
    """What the slot reports of itself. Conditions of other writers stay."""
    gpus = {GPU_RESOURCE: str(len(slot.devices))} if slot.devices else {}
    ready = Condition(type="Ready", status="True", reason="SlotReady", message="this machine is up")
    return NodeStatus(
        conditions=with_condition(node.status.conditions, ready, now),
        node_info=NodeSystemInfo(boot_id=boot_id, machine_id=node.status.node_info.machine_id),
        capacity=gpus,
        allocatable=gpus,
    )


async def register(cluster: Cluster, slots: Sequence[Slot], *, boot_id: str, now: datetime) -> list[Node]:
    """
    Create the nodes of *slots*, or update existing nodes. Nodes of an earlier run that had more slots become not
    ready.

    Decisions about a node since then (quarantine, claims, spare) are kept. Only its status and devices are written.
    """
    names = {slot.name for slot in slots}
    for node in (await cluster.list(Node)).items:
        if node.metadata.name not in names:
            await _retire(cluster, node, now)
    return [await _register(cluster, slot, boot_id, now) for slot in slots]


async def _retire(cluster: Cluster, node: Node, now: datetime) -> None:
    gone = Condition(type="Ready", status="False", reason="NoSuchSlot", message="this run has fewer slots")
    status = msgspec.structs.replace(node.status, conditions=with_condition(node.status.conditions, gone, now))
    if change := diff(node.status, status):
        await cluster.patch(Node, node.metadata.name, {"status": change}, subresource="status")


async def _register(cluster: Cluster, slot: Slot, boot_id: str, now: datetime) -> Node:
    wanted = node_of(slot)
    try:
        node = await cluster.get(Node, slot.name)
    except NotFound:
        try:
            node = await cluster.create(wanted)
        except AlreadyExists:
            node = await cluster.get(Node, slot.name)
    devices = wanted.metadata.annotations.get(ANNOTATION_DEVICES)
    if node.metadata.annotations.get(ANNOTATION_DEVICES) != devices:
        node = await cluster.patch(Node, slot.name, {"metadata": {"annotations": {ANNOTATION_DEVICES: devices}}})
    change = diff(node.status, status_of(node, slot, boot_id, now))
    if not change:
        return node
    return await cluster.patch(Node, slot.name, {"status": change}, subresource="status")
