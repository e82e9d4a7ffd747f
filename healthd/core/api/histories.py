"""`HardwareHistory`: what one machine and the GPUs in it went through. It outlives its Node and its NodeHealth."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.untrusted import Moment

MOST_OUTAGES = 64
"""Outages that one history keeps, the newest. Older ones are only counted."""
MOST_GPU_STAYS = 64
"""GPUs that one history keeps, those that are in the machine now first."""
MOST_ABSENCES = 32
"""Absences that one history keeps, the newest."""
MOST_ATTEMPTS = 8
"""Remedies that one outage keeps."""


class Outage(Slim, frozen=True, kw_only=True):
    """One time that the machine was taken out of service for a fault."""

    began: Moment
    """When the quarantine began."""
    ended: Moment | None = None
    """When the machine was back in service; absent while it is out."""
    node: str = ""
    """The name of the Node at that time."""
    rule: str = ""
    """The rule that took it out, such as `xid-79`."""
    slot: str = ""
    """The PCI address of the device with the fault; `node` for the machine itself."""
    gpu: str = ""
    """The GPU in that slot, by its serial number or else its UUID; empty: the fault is not of a GPU."""
    boot_id: str = ""
    """The boot in which it began."""
    tried: list[str] = []
    """What was tried, in this order: `reset`, `reboot`, `repair`."""
    helped: str = ""
    """What ended the finding: `repair`, `reset`, `reboot`, `decay`, `recovered` or `configuration`."""


class Absence(Slim, frozen=True, kw_only=True):
    """A time in which the cluster had no Node for the machine."""

    began: Moment
    """When the controller first missed the Node."""
    ended: Moment | None = None
    """When the machine was back; absent while it is away."""


class GpuStay(Slim, frozen=True, kw_only=True):
    """One GPU in one slot of the machine."""

    id: str
    """Its serial number. Where the driver tells none: its UUID, which is as lasting."""
    uuid: str = ""
    """The UUID that the driver gives it, `GPU-…`."""
    slot: str
    """Its PCI address, `dddd:bb:dd.f`."""
    model: str = ""
    """The product."""
    since: Moment
    """When it was first seen there."""
    until: Moment | None = None
    """When another GPU was first seen in its place; absent while it is there."""


class MachineHistory(Slim, frozen=True, kw_only=True):
    """What one machine went through. Hours in service follow from `since`, the absences and the outages."""

    machine: str
    """The machine's own UUID (DMI). Without one that tells machines apart: `node/` and the name of its Node."""
    node: str
    """The name of its Node now, or of its last one."""
    model: str = ""
    """The GPUs in it, such as `8 x NVIDIA H100 80GB HBM3`."""
    since: Moment
    """When healthd first saw it in service."""
    gpus: list[GpuStay] = []
    """The GPUs that are in it, and those that were."""
    outages: list[Outage] = []
    """The newest, oldest first."""
    earlier_outages: int = 0
    """How many older ones are no longer kept."""
    absences: list[Absence] = []
    """The newest, oldest first."""


class HardwareHistory(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, in healthd's own namespace: one object for each machine, named after the machine."""

    metadata: ObjectMeta
    spec: MachineHistory
