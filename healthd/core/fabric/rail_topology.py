"""
Which port serves which GPU, from their positions in the tree of PCI bridges, and the rail number that follows.

A GPU's traffic takes the port with which it shares the most PCI bridges. So in a cluster of equal machines the same
ports get the same number, and a rail can be compared from node to node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class DevicePath(NamedTuple):
    """
    The position of a device: *path* is the real path of its PCI function below `/sys`, such as
    `devices/pci0000:15/0000:15:01.0/0000:16:00.0`. *kind*: only ports of one kind are paired with GPUs by order.
    """

    pci: str
    path: str
    kind: str = ""


class Rail(NamedTuple):
    """A rail: *number* counts from 0 in the order of the GPUs; *gpu* is the address of the GPU that it serves."""

    number: int
    gpu: str


def rails(gpus: Sequence[DevicePath], ports: Sequence[DevicePath]) -> dict[str, Rail]:
    """
    The rail of each port that is nearest to a GPU, by the port's address. Other ports (storage, management) have none.

    When no port shares a bridge with any GPU, as in virtual machines that hide the bridges, the ports of a kind that
    has as many ports as there are GPUs are paired with the GPUs in order.
    """
    gpus, ports = sorted(gpus, key=_order), sorted(ports, key=_order)
    pairs = _by_bridges(gpus, ports) or _by_order(gpus, ports)
    position = {gpu.pci: number for number, gpu in enumerate(gpus)}
    in_order = sorted(pairs.items(), key=lambda pair: position[pair[1]])  # stable: ports of one GPU stay in order
    return {port: Rail(number, gpu) for number, (port, gpu) in enumerate(in_order)}


def _by_bridges(gpus: Sequence[DevicePath], ports: Sequence[DevicePath]) -> dict[str, str]:
    """Pairs by shared bridges: GPUs with the same nearest ports divide these ports among them."""
    sharing: dict[tuple[str, ...], list[str]] = {}
    for gpu in gpus:
        if nearest := _nearest(gpu, ports):
            sharing.setdefault(nearest, []).append(gpu.pci)
    return {port: gpu for nearest, these in sharing.items() for port, gpu in _shared_out(nearest, these).items()}


def _nearest(gpu: DevicePath, ports: Sequence[DevicePath]) -> tuple[str, ...]:
    shared = {port.pci: _bridges_shared(gpu.path, port.path) for port in ports}
    most = max(shared.values(), default=0)
    return tuple(port for port, bridges in shared.items() if bridges == most) if most else ()


def _shared_out(ports: Sequence[str], gpus: Sequence[str]) -> dict[str, str]:
    return {port: gpus[number * len(gpus) // len(ports)] for number, port in enumerate(ports)}


def _by_order(gpus: Sequence[DevicePath], ports: Sequence[DevicePath]) -> dict[str, str]:
    for kind in sorted({port.kind for port in ports}):
        these = [port.pci for port in ports if port.kind == kind]
        if len(these) == len(gpus):
            return _shared_out(these, [gpu.pci for gpu in gpus])
    return {}


def _bridges_shared(one: str, other: str) -> int:
    """How many PCI bridges are on both paths. The same root complex alone does not count as near."""
    shared = 0
    for here, there in zip(one.split("/"), other.split("/"), strict=False):
        if here != there:
            break
        shared += _FUNCTION.fullmatch(here) is not None
    return shared


def _order(place: DevicePath) -> tuple[int, str]:
    domain, rest = place.pci.split(":", 1)
    return int(domain, 16), rest
