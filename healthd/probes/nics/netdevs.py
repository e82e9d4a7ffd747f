"""
The network interfaces that are hardware of this machine, as `/sys/class/net` lists them.

A `/sys` that was mounted on the host lists the host's interfaces also to a pod with a network namespace of its own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from healthd.probes.sysfs import listed, names_in, pci_of, read_number, read_word

_ETHERNET = "1"
"""ARPHRD_ETHER. IPoIB interfaces (32) are covered by their InfiniBand port."""
_IFF_UP = 1
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+|(c\d+)?pf\d+hpf")
"""`phys_port_name` of an interface that represents a virtual function of another interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One physical Ethernet port. *kind*: which ports it may be compared with."""

    name: str
    pci: str
    part: str
    folder: str
    kind: str
    was_up: bool
    """It had a carrier at some time since its driver was loaded."""
    is_virtual: bool


def read_interfaces(sys: Path) -> list[Interface]:
    """
    Every Ethernet interface that sits on a PCI function and does not represent another one, by name. Raises OSError
    where *sys* is no /sys.
    """
    found = [_interface(f"{sys}/class/net/{name}", name) for name in listed(str(sys), "net")]
    return [interface for interface in found if interface is not None]


def own_interface(function: str, port: int) -> str:
    """The interface of port *port* of a PCI function, given by its path. Empty where none is visible."""
    for name in names_in(f"{function}/net"):
        folder = f"{function}/net/{name}"
        if not _is_representor(folder) and _port_of(folder) == port:
            return name
    return ""


def is_set_up(folder: str) -> bool:
    """Whether the interface is set up; this is independent of its carrier. False where the interface is not visible."""
    try:
        return bool(int(read_word(f"{folder}/flags"), 16) & _IFF_UP)
    except ValueError:
        return False


def _interface(folder: str, name: str) -> Interface | None:
    device = os.path.realpath(f"{folder}/device")
    pci = pci_of(device)
    if not pci or read_word(f"{folder}/type") != _ETHERNET or _is_representor(folder):
        return None
    is_virtual = os.path.lexists(f"{folder}/device/physfn")
    model = f"{read_word(f'{folder}/device/vendor')}:{read_word(f'{folder}/device/device')}"
    return Interface(
        name=name,
        pci=pci,
        part=f"port {_port_of(folder)}",
        folder=folder,
        kind=f"{model} virtual" if is_virtual else model,
        was_up=(read_number(f"{folder}/carrier_up_count") or 0) > 0,
        is_virtual=is_virtual,
    )


def _port_of(folder: str) -> int:
    """Counted from 1, as RDMA does. `dev_port` counts from 0. Some old drivers report `dev_id` instead."""
    dev_port = read_number(f"{folder}/dev_port") or 0
    return int(dev_port) + 1


def _is_representor(folder: str) -> bool:
    return _REPRESENTOR.fullmatch(read_word(f"{folder}/phys_port_name")) is not None
