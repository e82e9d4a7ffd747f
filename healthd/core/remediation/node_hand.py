"""
What healthd's own pod on a node may do to it: reset its GPUs, or reboot it. Pure; `healthd.hand` does it.

The node is out of service and nothing runs on it but DaemonSets, as far as the API server knows. What the machine
itself shows is looked at once more here, because what runs beside Kubernetes is in no API.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from healthd.core.phrases import some
from healthd.core.printable import printable

LONGEST = 1024
"""Characters of a sentence about the end."""
_BUS_ID = re.compile(r"(?P<domain>[0-9a-f]{4,8}):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_ON = "enabled"


class Code(IntEnum):
    """The exit code. `healthd-reboot` knows by it that the node was not rebooted."""

    DONE = 0
    REFUSED = 3
    """Nothing was done."""
    FAILED = 4
    """It was tried."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended, in words for a person."""

    code: Code
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A process that has a GPU open."""

    pid: int
    name: str
    pod: str = ""
    """The uid of its pod, where it has one."""
    computes: bool = False
    """It has a compute context, as far as can be seen, and does not only read values."""
    is_killed: bool = False
    """It was sent SIGKILL and did not end: it hangs in the driver, and only a boot ends it."""

    def __str__(self) -> str:
        of_pod = f" of pod {self.pod}" if self.pod else ""
        killed = ", killed and not ended" if self.is_killed else ""
        return f"{printable(self.name)} (process {self.pid}{of_pod}{killed})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverGpu:
    """A GPU, as nvidia-smi lists it. *pci* is written as the kernel writes it."""

    pci: str
    is_persistent: bool = False


class Unreadable(ValueError):
    """nvidia-smi printed something else than expected."""


def is_another_boot(wanted: str, found: str) -> str:
    """Why nothing is to be done, because *found* is not the boot that was decided on; empty: it is that boot."""
    return "" if wanted == found else f"nothing was done: it booted since ({printable(found)[:64]})"


def refusal(clients: Iterable[Client], what: str) -> str:
    """Why *what* is not done, by the *clients* that stand in its way; empty: there is none."""
    names = [str(client) for client in clients]
    return f"{what} was refused: the GPUs are used by {some(names)}"[:LONGEST] if names else ""


def computing(clients: Iterable[Client]) -> list[Client]:
    """Those that compute."""
    return [client for client in clients if client.computes]


def ended_by_reboot(clients: Iterable[Client]) -> list[Client]:
    """Those whose work a reboot would end. One that was killed and hangs in the driver does no work any more."""
    return [client for client in clients if client.computes and not client.is_killed]


def with_contexts(clients: Iterable[Client], pids: Collection[int]) -> list[Client]:
    """*clients* with the word of the driver that the processes *pids* compute, also those that were not seen."""
    known = [replace(one, computes=one.computes or one.pid in pids) for one in clients]
    unseen = set(pids) - {one.pid for one in known}
    return [*known, *(Client(pid=pid, name="?", computes=True) for pid in sorted(unseen))]


def parse_gpus(text: str) -> list[DriverGpu]:
    """`nvidia-smi --query-gpu=pci.bus_id,persistence_mode --format=csv,noheader`. Raises Unreadable."""
    return [DriverGpu(pci=bus_id(row[0]), is_persistent=row[1].strip().lower() == _ON) for row in _rows(text, 2)]


def parse_pids(text: str) -> set[int]:
    """`nvidia-smi --query-compute-apps=pid --format=csv,noheader`. Raises Unreadable."""
    words = [row[0].strip() for row in _rows(text, 1)]
    if bad := next((word for word in words if not (word.isascii() and word.isdecimal() and len(word) < 10)), None):
        raise Unreadable(f"nvidia-smi lists {printable(bad)[:64]!r} as a process")
    return {int(word) for word in words}


def bus_id(text: str) -> str:
    """`00000000:3B:00.0` as the kernel writes it, `0000:3b:00.0`. Raises Unreadable."""
    match = _BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        raise Unreadable(f"nvidia-smi lists {printable(text)[:64]!r} as the address of a GPU")
    return f"{int(match['domain'], 16):04x}:{match['rest']}"


def lost(expected: Collection[str], found: Collection[str]) -> list[str]:
    """The GPUs of the machine that the driver does not list."""
    return sorted(set(expected) - set(found))


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if any(len(row) != columns for row in rows):
        raise Unreadable(f"nvidia-smi printed {printable(text)[:200]!r}")
    return rows
