"""Histories for tests, and the machines that they are about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from healthd.core.api import Device, GpuStay, MachineHistory, Node, NodeSystemInfo, Outage
from healthd.core.node.quarantine import Record, cordon_patch
from tests.builders import a_node
from tests.fakes import START

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NOW = START + 73 * DAY
"""As long as the published study of 504 GPUs observed its nodes."""
H100 = "NVIDIA H100 80GB HBM3"
SLOTS = [f"0000:{index:x}b:00.0" for index in range(8)]


def uuid_of(number: int) -> str:
    """The UUID of a machine."""
    return f"4c4c4544-0000-4000-8000-{number:012x}"


def a_history(
    number: int = 1, *, outages: Sequence[Outage] = (), since: datetime = START, **fields: Any
) -> MachineHistory:
    """A machine of eight H100s, in service since *since*."""
    gpus = [
        GpuStay(id=f"{number:04}{at}", uuid=f"GPU-{number:04}-{at}", slot=slot, model=H100, since=since)
        for at, slot in enumerate(SLOTS)
    ]
    fields = {"node": f"gpu-{number:02}", "model": f"8 x {H100}", "gpus": gpus, **fields}
    return MachineHistory(machine=uuid_of(number), since=since, outages=list(outages), **fields)


def an_outage(day: float, *, hours: float | None = 4, **fields: Any) -> Outage:
    """One that began *day* days after START; *hours* None: it goes on."""
    began = START + day * DAY
    fields = {"node": "gpu-01", "rule": "xid-79", "slot": "node", **fields}
    return Outage(began=began, ended=began + hours * HOUR if hours is not None else None, **fields)


def a_machine(number: int = 1, name: str = "", *, quarantined: Record | None = None, uuid: str | None = None) -> Node:
    """The Node of a machine."""
    node = a_node(name or f"gpu-{number:02}")
    info = NodeSystemInfo(boot_id="boot-1", system_uuid=uuid_of(number) if uuid is None else uuid)
    node = replace(node, status=replace(node.status, node_info=info))
    if quarantined is None:
        return node
    notes = cordon_patch(node, quarantined)["metadata"]["annotations"]
    return replace(node, metadata=replace(node.metadata, annotations=notes))


def a_quarantine(finding: str = f"{SLOTS[3]}/xid-79", since: datetime = START) -> Record:
    """A quarantine for *finding*."""
    return Record(finding=finding, message="GPU has fallen off the bus", since=since)


def inventory(number: int = 1, **by_slot: str) -> list[Device]:
    """The GPUs of a machine; `at3="…"`: the serial number of the one in the fourth slot, empty: it is missing."""
    serials = [by_slot.get(f"at{at}", f"{number:04}{at}") for at in range(8)]
    return [
        Device(pci=slot, uuid=f"GPU-{serial}", serial=serial, name=H100)
        for slot, serial in zip(SLOTS, serials, strict=True)
        if serial
    ]
