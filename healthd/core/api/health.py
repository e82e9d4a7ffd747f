"""`NodeHealth`: what an agent knows about its node and must not forget."""

from __future__ import annotations

from typing import Annotated

import msgspec

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.api.model import Finding, Verdict
from healthd.core.untrusted import Moment

MOST_POWER = 64
"""No counter exceeds it: a power of two is computed from what stands here."""
Power = Annotated[int, msgspec.Meta(ge=0, le=MOST_POWER)]


class Device(Slim, frozen=True, kw_only=True):
    """One GPU of a node's inventory. `pci` is `dddd:bb:dd.f`, lower case."""

    pci: str
    """PCI address, `dddd:bb:dd.f`, lower case."""
    uuid: str = ""
    """The UUID that the driver gives it, `GPU-…`."""
    name: str = ""
    """The product."""
    index: int | None = None
    """The driver's number for it; it may change with a boot."""


class Nic(Slim, frozen=True, kw_only=True):
    """One RDMA port of a node's inventory."""

    pci: str
    """PCI address of its function, `dddd:bb:dd.f`, lower case."""
    port: int
    """Counted from 1."""
    device: str = ""
    """The kernel's name for it, such as `mlx5_0`."""
    family: str = ""
    """`ib`, `roce` or `efa`."""
    netdev: str = ""
    """The network interface of the same port, where it has one."""
    rate_gbps: float = 0
    """What the link runs at, in Gb/s; 0 where that is not told."""
    firmware: str = ""
    """The version of its firmware."""
    parent: str = ""
    """The address of the physical function, of which this is a virtual one."""
    rail: int | None = None
    """Which rail it is, counted from 0 in the order of the GPUs; absent: it is no GPU's nearest port."""
    gpu: str = ""
    """The address of the GPU whose traffic goes through it."""
    growth: dict[str, Power] = {}
    """
    By reading, such as `roce.out_of_sequence`: the power of two that it grew by in the last hour, 0 below 2^10. What is
    not there is not counted, or not yet for an hour.
    """


class KernelLogCursor(Slim, frozen=True, kw_only=True):
    """
    Where reading stopped: *sequence* is the last kernel record that was judged in boot *boot_id*.

    Every *source* (`kmsg`, `journal`, `file`) numbers in its own way, so the number means nothing to another one.
    """

    boot_id: str = ""
    """The boot whose log was read."""
    sequence: int = -1
    """The last kernel record that was judged; -1: none."""
    source: str = ""
    """`kmsg`, `journal` or `file`: each numbers in its own way."""


class PodEnd(Slim, frozen=True, kw_only=True):
    """The agent saw processes of pod *uid* and later, at *at*, saw that none was left: proof for a fence."""

    uid: str
    """The pod."""
    at: Moment
    """When its last process was seen to be gone."""


class RepairSeen(Slim, frozen=True, kw_only=True):
    """A repair that was said, and since when it counts: a stamp ahead of time counts from when it was first seen."""

    stamp: Moment
    """As it stood on the node."""
    at: Moment
    """What is older no longer acts."""


class Shape(Slim, frozen=True, kw_only=True):
    """The most that was seen of a node's hardware since its last repair, in whatever boot."""

    gpus: int = 0
    """GPUs on the PCI bus."""
    rdma_devices: int = 0
    """RDMA devices, without virtual ones."""
    memory_kb: int = 0
    """Of the machine itself."""
    rates: dict[str, float] = {}
    """Gb/s by port that was ever up, such as `ib 0000:5c:00.0 port 1`."""


class NodeHealthStatus(Slim, frozen=True, kw_only=True):
    """Everything that an agent knows and must not forget."""

    verdict: Verdict = Verdict.UNKNOWN
    message: str = ""
    """The worst finding, for a person."""
    findings: list[Finding] = []
    """All findings that stand, and those cleared not long ago."""
    inventory: list[Device] = []
    """The GPUs of the node."""
    nics: list[Nic] = []
    """The RDMA ports of the node."""
    boot_id: str = ""
    """The boot in which the agent runs."""
    seen_at: Moment | None = None
    """When the agent last wrote this. It does so every hour or two, however quiet it is: an old one tells nothing."""
    cursor: KernelLogCursor = KernelLogCursor()
    repair_seen: RepairSeen | None = None
    """The last repair that the agent took note of."""
    sources: list[str] = []
    """Sources that had readings since the last repair, sorted: without them the verdict is unknown."""
    best: Shape = Shape()
    """What there should be, as far as it was ever there."""
    lost_records: int = 0
    """Kernel records that were overwritten before they were read, ever."""
    live_pods: list[str] = []
    """Uids of the pods that have processes on the node, sorted."""
    gone_pods: list[PodEnd] = []
    """Pods whose processes ended lately, oldest first. A pod that is in neither list is not known to be gone."""


class NodeHealth(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, cluster scope, named as its node."""

    metadata: ObjectMeta
    status: NodeHealthStatus = NodeHealthStatus()
