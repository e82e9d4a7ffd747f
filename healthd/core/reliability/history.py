"""
The history of one machine, kept from what its Node and its agent show. Pure.

A machine is known by its own UUID (DMI), a GPU by its serial number: neither changes when a Node is deleted, renamed or
made again. Each history is written from its own machine alone. A GPU that moved is found again by its serial number in
the histories of all machines, so no move needs two writes that must agree.

What counts is an outage: one quarantine. Several findings of one fault are one outage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import Absence, Device, GpuStay, MachineHistory, Node, NodeHealthStatus, Outage
from healthd.core.api.histories import MOST_ABSENCES, MOST_ATTEMPTS, MOST_GPU_STAYS, MOST_OUTAGES
from healthd.core.diagnosis.readings import NODE
from healthd.core.node.quarantine import Record, read_record

_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
_NO_UUIDS = frozenset({"00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009"})
"""What firmware says that was never given a UUID. Others show by their number: see *shared* in `machine_of`."""
_ATTEMPTS = ("reset", "reboot", "repair")
LATE = timedelta(minutes=10)
"""So long after an outage its agent may still report what ended it."""

NO_STATUS = NodeHealthStatus()


def machine_of(node: Node, shared: Collection[str] = ()) -> str:
    """
    The identity of the machine behind *node*. *shared* are UUIDs that several Nodes report, which identify none of
    them; such a machine is known by the name of its Node.
    """
    uuid = node.status.node_info.system_uuid.lower()
    is_own = _UUID.fullmatch(uuid) and uuid not in _NO_UUIDS and uuid not in shared
    return uuid if is_own else f"node/{node.metadata.name}"


def object_name(machine: str) -> str:
    """The name of the HardwareHistory of *machine*."""
    return machine.replace("/", "-")


def gpu_id(device: Device) -> str:
    """The identity of a GPU: its serial number, else its UUID. Empty: it has neither."""
    return device.serial or device.uuid


def observed(
    known: MachineHistory | None, machine: str, node: Node, status: NodeHealthStatus, now: datetime
) -> MachineHistory:
    """
    The history of *machine* after a look at its *node* and the report of its agent, whose inventory must be complete.

    Without a change it equals *known*. *status*: `NO_STATUS` where no agent has reported.
    """
    name = node.metadata.name
    history = known or MachineHistory(machine=machine, node=name, since=now)
    gpus = _stays(history.gpus, status.inventory, now)
    outages = _outages(history.outages, name, read_record(node), status, gpus, now)
    dropped = max(0, len(outages) - MOST_OUTAGES)
    return replace(
        history,
        node=name,
        model=model_of(status.inventory) or history.model,
        gpus=gpus,
        outages=outages[dropped:],
        earlier_outages=history.earlier_outages + dropped,
        absences=[each if each.ended else replace(each, ended=now) for each in history.absences],
    )


def left(history: MachineHistory, now: datetime) -> MachineHistory:
    """The history of a machine that the cluster has no Node for any more."""
    if history.absences and history.absences[-1].ended is None:
        return history
    return replace(history, absences=[*history.absences, Absence(began=now)][-MOST_ABSENCES:])


def is_away(history: MachineHistory) -> bool:
    """Whether the cluster has no Node for the machine."""
    return bool(history.absences) and history.absences[-1].ended is None


def absent_since(history: MachineHistory) -> datetime:
    """Since when the cluster has no Node for the machine, which `is_away`."""
    return history.absences[-1].began


def is_out(history: MachineHistory) -> bool:
    """Whether the machine is in quarantine."""
    return bool(history.outages) and history.outages[-1].ended is None


def model_of(inventory: Iterable[Device]) -> str:
    """The GPUs of a machine in words: machines with the same are peers."""
    counts = Counter(gpu.name for gpu in inventory if gpu.name)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


def hours_in_service(history: MachineHistory, start: datetime, end: datetime) -> float:
    """Hours between *start* and *end* in which the machine had a Node and was not in quarantine."""
    start = max(start, history.since)
    if end <= start:
        return 0.0
    spans = [(outage.began, outage.ended or end) for outage in history.outages]
    spans += [(absence.began, absence.ended or end) for absence in history.absences]
    total, reached = end - start, start
    for began, ended in sorted(spans):
        if min(ended, end) > max(began, reached):
            total -= min(ended, end) - max(began, reached)
            reached = min(ended, end)
    return total / timedelta(hours=1)


# GPUs -----------------------------------------------------------------------------------------------------------------


def _stays(known: Sequence[GpuStay], inventory: Sequence[Device], now: datetime) -> list[GpuStay]:
    """
    Who is in which slot. A GPU that is missing keeps its slot until another one is seen there: one that fell off the
    bus is missing as well.
    """
    stays = list(known)
    for device in inventory:
        if not gpu_id(device):
            continue
        here = next((each for each in stays if each.until is None and _is_same(each, device)), None)
        if here is not None and here.slot == device.pci:
            continue
        stays = [_ended(each, now) if each is here or each.slot == device.pci else each for each in stays]
        identity = here.id if here is not None else gpu_id(device)
        stays.append(GpuStay(id=identity, uuid=device.uuid, slot=device.pci, model=device.name, since=now))
    newest_first = sorted(stays, key=lambda each: (each.until is None, each.since), reverse=True)
    return sorted(newest_first[:MOST_GPU_STAYS], key=lambda each: (each.slot, each.since))


def _is_same(stay: GpuStay, device: Device) -> bool:
    return stay.id == gpu_id(device) or bool(device.uuid and stay.uuid == device.uuid)


def _ended(stay: GpuStay, now: datetime) -> GpuStay:
    return stay if stay.until is not None else replace(stay, until=now)


# Outages --------------------------------------------------------------------------------------------------------------


def _outages(
    known: Sequence[Outage],
    node: str,
    record: Record | None,
    status: NodeHealthStatus,
    gpus: Sequence[GpuStay],
    now: datetime,
) -> list[Outage]:
    outages = list(known)
    last = outages[-1] if outages else None
    goes_on = record is not None and last is not None and last.began == record.since
    if last is not None and not goes_on:
        ended = last.ended or (max(last.began, record.since) if record is not None else now)
        outages[-1] = _over(last, ended, status) if now - ended <= LATE or not last.ended else last
    if record is not None and not goes_on:
        outages.append(_begun(record, node, status, gpus))
    return outages


def _begun(record: Record, node: str, status: NodeHealthStatus, gpus: Sequence[GpuStay]) -> Outage:
    slot, _, rule = record.finding.rpartition("/")
    gpu = next((each.id for each in gpus if each.slot == slot and each.until is None), "")
    return Outage(began=record.since, node=node, rule=rule, slot=slot or NODE, gpu=gpu, boot_id=status.boot_id)


def _over(outage: Outage, ended: datetime, status: NodeHealthStatus) -> Outage:
    """The outage with its end, and with what helped; the agent may report that a little later than the end."""
    if outage.ended is not None and outage.helped:
        return outage
    found = [each for each in status.findings if each.id == f"{outage.slot}/{outage.rule}" and each.cleared_at]
    helped = next((each.cleared_by for each in found if each.cleared_at and each.cleared_at >= outage.began), "")
    seen = {helped}
    if outage.boot_id and status.boot_id and status.boot_id != outage.boot_id:
        seen.add("reboot")
    if status.repair_seen is not None and status.repair_seen.at >= outage.began:
        seen.add("repair")
    new = [each for each in _ATTEMPTS if each in seen and each not in outage.tried]
    tried = [*outage.tried, *new][:MOST_ATTEMPTS]
    return replace(outage, ended=ended, helped=helped, tried=tried)
