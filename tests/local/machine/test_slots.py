"""Slots are this machine's nodes, and a restart keeps what was decided about them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import LABEL_SPARE, Device, Node, Taint
from healthd.core.recovery.nodes.spares import is_ready
from healthd.local.machine.slots import device_uuids, keep_places, node_of, offered, register, slots_for
from tests.fakes import START, ManualClock, counting_uids

GPUS = [Device(pci=f"0000:{number:02x}:00.0", uuid=f"GPU-{number}") for number in range(4)]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as embedded:
        yield embedded


def test_without_gpus_a_slot_is_a_number() -> None:
    slots = slots_for(2, [], spares=1)

    assert [(slot.name, slot.spare, slot.devices) for slot in slots] == [
        ("slot-0", False, ()),
        ("slot-1", False, ()),
        ("slot-2", True, ()),
    ]


def test_each_slot_has_its_own_gpus_in_the_order_of_the_bus() -> None:
    slots = slots_for(2, list(reversed(GPUS)), per_slot=2)

    assert [[device.uuid for device in slot.devices] for slot in slots] == [["GPU-0", "GPU-1"], ["GPU-2", "GPU-3"]]


def test_too_few_gpus_are_an_error_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="4 ranks and 1 spares with 1 GPU each need 5 GPUs; this machine has 4"):
        slots_for(4, GPUS, spares=1)


@pytest.mark.parametrize(
    ("visible", "left"),
    [
        (None, [0, 1, 2, 3]),
        ("2,3", [2, 3]),
        ("GPU-1", [1]),
        ("GPU-3, 0", [3, 0]),
        ("", []),
        ("-1", []),
    ],
)
def test_only_the_gpus_that_the_user_left_are_used(visible: str | None, left: list[int]) -> None:
    assert offered(GPUS, visible) == [GPUS[number] for number in left]


@pytest.mark.parametrize("visible", ["4", "GPU-", "GPU-9", "MIG-1", "0,,1"])
def test_a_gpu_that_the_user_named_and_that_is_not_there_is_an_error(visible: str) -> None:
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES names '"):
        offered(GPUS, visible)


def test_a_gpu_keeps_its_slot_when_another_one_is_lost() -> None:
    nodes = [node_of(slot) for slot in slots_for(4, GPUS)]
    without_the_second = slots_for(3, [GPUS[0], GPUS[2], GPUS[3]])
    slots = keep_places(without_the_second, nodes)

    assert {slot.name: slot.devices[0].uuid for slot in slots} == {
        "slot-0": "GPU-0",
        "slot-2": "GPU-2",
        "slot-3": "GPU-3",
    }


def test_a_new_gpu_takes_the_place_of_the_one_that_it_replaced() -> None:
    nodes = [node_of(slot) for slot in slots_for(4, GPUS)]
    new = Device(pci="0000:00:00.0", uuid="GPU-new")
    slots = keep_places(slots_for(4, [new, GPUS[0], GPUS[2], GPUS[3]]), nodes)

    assert [slot.devices[0].uuid for slot in slots] == ["GPU-0", "GPU-new", "GPU-2", "GPU-3"]


def test_a_new_grouping_of_gpus_begins_anew() -> None:
    nodes = [node_of(slot) for slot in slots_for(4, GPUS)]
    slots = slots_for(2, GPUS, per_slot=2)

    assert keep_places(slots, nodes) == slots


def test_slots_that_were_never_registered_stay_as_they_are() -> None:
    slots = slots_for(2, GPUS, per_slot=2)

    assert keep_places(slots, []) == slots
    assert keep_places(slots_for(2, []), []) == slots_for(2, [])


async def test_slots_of_a_larger_run_are_no_longer_ready(cluster: EmbeddedCluster) -> None:
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)
    await register(cluster, slots_for(1, []), boot_id="boot-1", now=START)
    smaller = [is_ready(node) for node in (await cluster.list(Node)).items]
    await register(cluster, slots_for(2, []), boot_id="boot-1", now=START)

    assert smaller == [True, False]
    assert [is_ready(node) for node in (await cluster.list(Node)).items] == [True, True]


async def test_slots_become_ready_nodes(cluster: EmbeddedCluster) -> None:
    plain, spare = await register(cluster, slots_for(1, GPUS[:2], spares=1), boot_id="boot-1", now=START)

    assert is_ready(plain)
    assert plain.status.node_info.boot_id == "boot-1"
    assert (plain.status.capacity, device_uuids(plain)) == ({"nvidia.com/gpu": "1"}, ["GPU-0"])
    assert (plain.metadata.labels, plain.spec.taints) == ({}, [])
    assert spare.metadata.labels == {LABEL_SPARE: "true"}
    assert [(taint.key, taint.effect) for taint in spare.spec.taints] == [(LABEL_SPARE, "NoSchedule")]


async def test_a_second_registration_changes_nothing(cluster: EmbeddedCluster) -> None:
    slots = slots_for(1, GPUS[:2], spares=1)
    first = await register(cluster, slots, boot_id="boot-1", now=START)
    second = await register(cluster, slots, boot_id="boot-1", now=START + timedelta(hours=1))

    assert second == first


async def test_a_restart_keeps_quarantines_claims_and_who_is_a_spare(cluster: EmbeddedCluster) -> None:
    slots = slots_for(1, [], spares=1)
    await register(cluster, slots, boot_id="boot-1", now=START)
    bad = {"unschedulable": True, "taints": [{"key": "healthd.dev/quarantined", "value": "xid-79"}]}
    await cluster.patch(Node, "slot-0", {"spec": bad, "metadata": {"annotations": {"healthd.dev/quarantine": "{}"}}})
    await cluster.patch(Node, "slot-1", {"spec": {"taints": None}, "metadata": {"labels": {LABEL_SPARE: None}}})
    quarantined, claimed = await register(cluster, slots, boot_id="boot-2", now=START)

    assert quarantined.spec.unschedulable
    assert quarantined.spec.taints == [Taint(key="healthd.dev/quarantined", value="xid-79")]
    assert quarantined.metadata.annotations == {"healthd.dev/quarantine": "{}"}
    assert (claimed.spec.taints, claimed.metadata.labels) == ([], {})
    assert claimed.status.node_info.boot_id == "boot-2"


async def test_conditions_of_others_stay(cluster: EmbeddedCluster) -> None:
    slots = slots_for(1, [])
    await register(cluster, slots, boot_id="boot-1", now=START)
    conditions = [{"type": "AcceleratorHealthy", "status": "False"}, {"type": "Ready", "status": "False"}]
    await cluster.patch(Node, "slot-0", {"status": {"conditions": conditions}}, subresource="status")
    [node] = await register(cluster, slots, boot_id="boot-1", now=START + timedelta(hours=1))

    assert [(c.type, c.status) for c in node.status.conditions] == [("AcceleratorHealthy", "False"), ("Ready", "True")]
    assert node.status.conditions[1].last_transition_time == START + timedelta(hours=1)
