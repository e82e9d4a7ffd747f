"""
The parts of this machine that the runtime needs: its boot id, its GPUs, its kernel log, and its random values.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from healthd.core.api import KernelLogCursor
from healthd.local.machine.slots import Slot
from healthd.probes.klog.log import KernelLog

OpenKernelLog = Callable[[KernelLogCursor], KernelLog]
"""Opens the kernel log after a cursor. Raises CannotRead."""

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names in Kubernetes: no vowels, so no words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An argument of the runtime, so that the demo and tests can replace it."""

    boot_id: str
    slots: Sequence[Slot]
    open_kernel_log: OpenKernelLog
    environ: dict[str, str]
    new_suffix: Callable[[], str]
    free_port: Callable[[], int]
    terminal: TextIO | None = None
    """The stream that shows the output of the ranks. None: the output is only in their log files."""


def this_machine(
    slots: Sequence[Slot], *, boot_id: str, open_kernel_log: OpenKernelLog, terminal: TextIO | None
) -> Machine:
    """The machine on which this process runs."""
    return Machine(
        boot_id=boot_id,
        slots=slots,
        open_kernel_log=open_kernel_log,
        environ=dict(os.environ),
        new_suffix=new_suffix,
        free_port=free_port,
        terminal=terminal,
    )


def new_suffix() -> str:
    """The random end of a pod name."""
    return "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(5))


def free_port() -> int:
    """
    A TCP port without a listener now. If another process takes it before it is used, the restart chooses another port.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
