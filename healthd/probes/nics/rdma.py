"""
The RDMA ports of this machine (InfiniBand, RoCE, EFA), as `/sys/class/infiniband` lists them.

Only devices on the PCI bus are listed: software RDMA on an ordinary interface (rxe, siw) has no hardware of its own to
be judged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from healthd.core.api import Nic
from healthd.core.fabric.rail_topology import DevicePath, Rail, rails
from healthd.probes.nics.netdevs import own_interface
from healthd.probes.sysfs import listed, names_in, pci_of, read_word

SYS = Path("/sys")
LIST_EVERY = timedelta(minutes=1)
"""How often devices are listed again although their names are the same: links, interfaces and functions can move."""

_RATE = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec")
_STATE = re.compile(
    r"\d: (DOWN|INIT|ARMED|ACTIVE|ACTIVE_DEFER"
    r"|Sleep|Polling|Disabled|PortConfigurationTraining|LinkUp|LinkErrorRecovery|Phy Test)"
)
"""The words of the kernel (drivers/infiniband/core/sysfs.c), without those for states that it does not know itself."""
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""The PCI class of GPUs, with and without a display."""


class Family(StrEnum):
    """The kind of port: the first word of the names of its own counters."""

    IB = "ib"
    ROCE = "roce"
    EFA = "efa"


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """One port. *folder* holds its files. *place*: where its function is, and which ports it may be compared with."""

    device: str
    number: int
    family: Family
    place: DevicePath
    folder: str
    parent: str
    """The address of the function of which this is a virtual one or a part. Empty: it is physical."""
    netdev: str
    firmware: str

    @property
    def pci(self) -> str:
        """The address of its function."""
        return self.place.pci

    @property
    def part(self) -> str:
        """Its name in readings."""
        return f"port {self.number}"

    @property
    def key(self) -> str:
        """Function and port."""
        return f"{self.pci} {self.part}"

    @property
    def parent_key(self) -> str:
        """The same for the function that it belongs to, or empty."""
        return f"{self.parent} {self.part}" if self.parent else ""


class Ports:
    """The ports of this machine, listed again when the names of devices changed, and now and then."""

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        self._names: list[str] = []
        self._until: datetime | None = None
        self._rails: Mapping[str, Rail] = {}
        self.physical: list[RdmaPort] = []
        """Also virtual ones whose physical function is not visible, as in a virtual machine."""
        self.virtual: list[RdmaPort] = []

    def refresh(self, now: datetime) -> bool:
        """Whether they were listed again. Raises OSError where this is no /sys."""
        names = listed(str(self._sys), "infiniband", self._names)
        if names == self._names and self._until and now < self._until:
            return False
        ports = read_ports(self._sys)
        keys = {port.key for port in ports if not port.parent}
        self.physical = [port for port in ports if port.parent_key not in keys]
        self.virtual = [port for port in ports if port.parent_key in keys and port.parent != port.pci]
        self._rails = read_rails(self.physical, self._sys)
        self._names, self._until = names, now + LIST_EVERY
        return True

    def is_on_rail(self, port: RdmaPort) -> bool:
        """Whether a GPU's traffic goes through it."""
        return port.pci in self._rails

    def kind(self, port: RdmaPort) -> str:
        """Which ports it may be compared with: a port of the storage network may be the same product and run slower."""
        return f"{port.place.kind} {'on' if self.is_on_rail(port) else 'off'} rail"


def read_ports(sys: Path = SYS) -> list[RdmaPort]:
    """Every port of every RDMA device, in the order of devices. Raises OSError where *sys* is no /sys."""
    return [port for device in device_names(sys) for port in _ports_of(str(sys), device)]


def device_names(sys: Path = SYS) -> list[str]:
    """
    The devices listed now. Cheap: callers that keep ports use it to check whether the devices are still the same.
    Raises OSError where *sys* is no /sys.
    """
    return listed(str(sys), "infiniband")


def read_usable(sys: Path = SYS) -> set[str]:
    """The devices that programs can open. None where the required module (ib_uverbs) is not loaded."""
    root = f"{sys}/class/infiniband_verbs"
    return {device for name in names_in(root) if (device := read_word(f"{root}/{name}/ibdev"))}


def read_gpus(sys: Path = SYS) -> list[DevicePath]:
    """Where NVIDIA's GPUs are, whether their driver answers or not."""
    root = f"{sys}/bus/pci/devices"
    gpus = [pci for pci in names_in(root) if _is_gpu(f"{root}/{pci}")]
    return [DevicePath(pci, os.path.relpath(os.path.realpath(f"{root}/{pci}"), os.path.realpath(sys))) for pci in gpus]


def read_rails(ports: Sequence[RdmaPort], sys: Path = SYS) -> dict[str, Rail]:
    """The rail of each of *ports* that serves a GPU, by address."""
    return rails(read_gpus(sys), list({port.pci: port.place for port in ports}.values()))


def read_nics(sys: Path = SYS) -> list[Nic]:
    """The inventory: every port with its rail. For occasional use. Raises OSError where *sys* is no /sys."""
    ports = read_ports(sys)
    in_sight = {port.key for port in ports if not port.parent}
    own = [port for port in ports if port.parent_key not in in_sight]
    rail_of = read_rails(own, sys)
    return [_nic(port, rail_of.get(port.pci) if port in own else None) for port in ports]


def parse_rate(text: str) -> float | None:
    """`400 Gb/sec (4X NDR)` as 400."""
    match = _RATE.match(text)
    return float(match[1]) if match else None


def parse_state(text: str) -> str:
    """`4: ACTIVE` as `ACTIVE`. Empty for anything that is not a state of a port or of its link."""
    match = _STATE.fullmatch(text)
    return match[1] if match else ""


def _ports_of(sys: str, device: str) -> list[RdmaPort]:
    folder = f"{sys}/class/infiniband/{device}"
    below = os.path.realpath(f"{folder}/device")
    function = _function(below)
    pci = pci_of(function)
    if not pci:
        return []
    parent = _parent(function, is_part=function != below)
    path = os.path.relpath(function, os.path.realpath(sys))
    board = read_word(f"{folder}/board_id") or read_word(f"{folder}/hca_type") or _model(function)
    firmware = read_word(f"{folder}/fw_ver")
    is_efa = Path(os.path.realpath(f"{function}/driver")).name == "efa"
    found = []
    for number in sorted(int(name) for name in names_in(f"{folder}/ports") if name.isdecimal()):
        layer = read_word(f"{folder}/ports/{number}/link_layer")
        family = Family.EFA if is_efa else Family.ROCE if layer == "Ethernet" else Family.IB
        found.append(
            RdmaPort(
                device=device,
                number=number,
                family=family,
                place=DevicePath(pci, path, " ".join(filter(None, (board, layer, "virtual" if parent else "")))),
                folder=f"{folder}/ports/{number}",
                parent=parent,
                netdev=own_interface(function, number),
                firmware=firmware,
            )
        )
    return found


def _parent(function: str, *, is_part: bool) -> str:
    """The function whose virtual function *function* is. For a sub-function, which is only a part of one, itself."""
    if is_part:
        return pci_of(function)
    return pci_of(os.path.realpath(f"{function}/physfn")) if os.path.lexists(f"{function}/physfn") else ""


def _function(path: str) -> str:
    """The PCI function at or above *path*: the device of a sub-function lies below one."""
    pci = pci_of(path)
    return path[: path.rindex(pci) + len(pci)] if pci else ""


def _model(function: str) -> str:
    return f"{read_word(f'{function}/vendor')}:{read_word(f'{function}/device')}"


def _is_gpu(function: str) -> bool:
    return read_word(f"{function}/vendor") == _NVIDIA and read_word(f"{function}/class").startswith(_DISPLAY)


def _nic(port: RdmaPort, rail: Rail | None) -> Nic:
    return Nic(
        pci=port.pci,
        port=port.number,
        device=port.device,
        family=port.family,
        netdev=port.netdev,
        rate_gbps=parse_rate(read_word(f"{port.folder}/rate")) or 0,
        firmware=port.firmware,
        parent=port.parent,
        rail=rail.number if rail else None,
        gpu=rail.gpu if rail else "",
    )
