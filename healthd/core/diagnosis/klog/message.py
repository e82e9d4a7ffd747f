"""The fields of a kernel message, as values. Nothing is judged here."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec


class MessageKind(StrEnum):
    """Which family of messages; the `kind` of `healthd klog --json`."""

    XID = "xid"
    SXID = "sxid"
    NVRM = "nvrm"
    """Any other line of NVIDIA's kernel modules, NVLink and NVSwitch included."""
    AER = "aer"
    MLX5 = "mlx5"
    EFA = "efa"
    IB = "ib"
    MCE = "mce"
    OOM = "oom"
    STALL = "stall"
    """Work that does not progress: hung tasks, soft and hard lock-ups, RCU stalls."""
    OOPS = "oops"
    """The kernel itself failed: bugs, oopses, panics."""
    NMI = "nmi"
    THERMAL = "thermal"
    PCIE = "pcie"
    """Devices that left the bus or cannot be reached, where no error report (AER) shows it."""
    DISK = "disk"
    """NVMe, SCSI, ATA, RAID, and the errors of the block layer above them."""
    FILESYSTEM = "filesystem"
    """Local and network file systems."""
    NET = "net"
    """Ethernet drivers other than mlx5 and EFA."""
    CRASH = "crash"
    """A process that died in one of the libraries through which it uses GPUs."""


CONTRACT = frozenset(
    {
        MessageKind.XID,
        MessageKind.SXID,
        MessageKind.NVRM,
        MessageKind.AER,
        MessageKind.MLX5,
        MessageKind.EFA,
        MessageKind.IB,
        MessageKind.MCE,
        MessageKind.OOM,
    }
)
"""The kinds that `healthd klog --json` has always had. Scripts may rely on these unless they ask for more."""


class Mig(msgspec.Struct, frozen=True, kw_only=True):
    """The slice of a GPU that an Xid names; *compute* is None where the line gives the GPU instance alone."""

    gpu: int
    compute: int | None = None


class LinkFault(msgspec.Struct, frozen=True, kw_only=True):
    """
    An NVLink error with its register words: Xid 74, or Xid 144 to 150 on Blackwell.

    *link* is None for `Link -1` (no single link). *unit* and *fatal* are of 144 to 150 only.
    """

    link: int | None
    words: tuple[int, ...] = ()
    unit: str = ""
    fatal: bool = False


class Load(StrEnum):
    """What NVIDIA's driver reports while it is loaded."""

    BEGINS = "begins"
    """Before the driver sets up any GPU."""
    DONE = "done"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """
    One parsed kernel message.

    *pci* is `dddd:bb:dd.f` in lower case. *pid* and *process* are of Xid, OOM and crash lines only. A user chose
    *process*: never act on it, and escape it for a terminal.
    """

    kind: MessageKind
    text: str
    xid: int | None = None
    sxid: int | None = None
    pci: str | None = None
    pid: int | None = None
    process: str | None = None
    mig: Mig | None = None
    detail: str = ""
    """What follows code, pid and name in an Xid or SXid line."""
    link: LinkFault | None = None
    recovery: int | None = None
    """Xid 154: the number of the NEW recovery action."""
    gpu_lost: bool = False
    """The driver reports that the GPU no longer answers, without an Xid."""
    load: Load | None = None
    """The driver is being loaded, or was loaded."""
    fatal: bool | None = None
    """The severity in the line: SXid `Fatal`/`Non-fatal`, AER `Uncorrected (Fatal)`, corrected or not for MCE."""


ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
"""A PCI address as drivers print it: domain and function may be missing."""

FULL_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_FIRST_ADDRESS = re.compile(rf"(?<![0-9a-fA-F:]){FULL_ADDRESS}(?![0-9a-fA-F])")


def normal_address(address: str) -> str:
    """
    `3B:00` or `00000000:3B:00.0` as `0000:3b:00.0`.

    The domain keeps at least four digits: GB200 and some clouds use domains other than 0000, and there are longer ones.
    """
    body, _, function = address.lower().partition(".")
    *domain, bus, device = body.split(":")
    number = int(domain[0], 16) if domain else 0
    return f"{number:04x}:{bus}:{device}.{function or '0'}"


def first_address(text: str) -> str | None:
    """The first full device address in *text*."""
    found = _FIRST_ADDRESS.search(text)
    return normal_address(found[0]) if found else None
