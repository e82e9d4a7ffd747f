"""
The statistics that network drivers keep for `ethtool -S`, by the ioctl of 2001. It needs no privilege.

It answers for the caller's own network namespace only. So each answer names its PCI function. A caller that takes names
from a `/sys` of the host uses the answer only where the function is the same.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol

_SIOCETHTOOL = 0x8946
_GET_DRIVER = 0x03
_GET_STRINGS = 0x1B
_GET_STATISTICS = 0x1D
_GET_SET_INFO = 0x37
_STATISTICS = 1
"""The set of strings that names statistics (ETH_SS_STATS)."""
_NAME = 32
_SLACK = 4096
"""Room for statistics beyond those announced: the kernel writes as many as there are when it writes."""


class Statistics(Protocol):
    """The source of the statistics of interfaces."""

    def bus(self, interface: str) -> str:
        """The PCI function of an interface. Raises OSError."""
        ...

    def count(self, interface: str) -> int:
        """How many statistics it has. Raises OSError."""
        ...

    def names(self, interface: str, count: int) -> list[str]:
        """Their names, in order. Raises OSError."""
        ...

    def values(self, interface: str, count: int) -> Sequence[int]:
        """Their values, in the same order. Raises OSError."""
        ...


class Ethtool:
    """The kernel's statistics."""

    def bus(self, interface: str) -> str:
        """The PCI function of an interface. Raises OSError."""
        answer = self._ask(interface, bytearray(struct.pack("=I192x", _GET_DRIVER)))
        return _text(answer[100:132])

    def count(self, interface: str) -> int:
        """How many statistics it has. Raises OSError."""
        answer = self._ask(interface, bytearray(struct.pack("=IIQI", _GET_SET_INFO, 0, 1 << _STATISTICS, 0)))
        _, _, has, count = struct.unpack("=IIQI", answer)
        return int(count) if has else 0

    def names(self, interface: str, count: int) -> list[str]:
        """Their names, in order. Raises OSError."""
        room = bytearray(struct.pack("=III", _GET_STRINGS, _STATISTICS, count)) + bytes(_NAME * (count + _SLACK))
        answer = self._ask(interface, room)
        given = min(struct.unpack_from("=I", answer, 8)[0], count)
        return [_text(answer[12 + _NAME * at : 12 + _NAME * (at + 1)]) for at in range(given)]

    def values(self, interface: str, count: int) -> Sequence[int]:
        """Their values, in the same order. Raises OSError."""
        room = bytearray(struct.pack("=II", _GET_STATISTICS, count)) + bytes(8 * (count + _SLACK))
        answer = self._ask(interface, room)
        given = min(struct.unpack_from("=I", answer, 4)[0], count)
        return struct.unpack_from(f"={given}Q", answer, 8)

    def _ask(self, interface: str, room: bytearray) -> bytearray:
        """Raises OSError: no such interface here, or its driver does not answer this."""
        pinned = array("B", room)  # its address is known without ctypes, which would cost every agent a megabyte
        request = struct.pack("16sP16x", interface.encode(), pinned.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
        return bytearray(pinned)


class StatisticsReader:
    """Reads some statistics of one interface, and reads their names again only when their number changed."""

    def __init__(self, interface: str, readings: Mapping[str, str]) -> None:
        self._interface = interface
        self._readings = readings
        self._count = -1
        self._places: list[tuple[int, str]] = []

    def read(self, source: Statistics) -> dict[str, int]:
        """By the name that *readings* gives to a statistic. Statistics of one name are added up. Raises OSError."""
        count = source.count(self._interface)
        if count != self._count:
            names = source.names(self._interface, count) if count else []
            self._places = [(at, self._readings[name]) for at, name in enumerate(names) if name in self._readings]
            self._count = count
        if not self._places:
            return {}
        values = source.values(self._interface, count)
        totals: dict[str, int] = {}
        for at, reading in self._places:
            if at < len(values):
                totals[reading] = totals.get(reading, 0) + values[at]
        return totals


def _text(raw: bytes | bytearray) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace")
