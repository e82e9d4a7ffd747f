"""
This machine, as the runtime needs to know it: its boot, its GPUs, its kernel log, and its sources of chance.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from healthd.core.api import KernelLogCursor
from healthd.local.slots import Slot
from healthd.probes.klog.log import KernelLog

OpenKernelLog = Callable[[KernelLogCursor], KernelLog]
"""Opens the kernel log after a cursor. Raises CannotRead."""

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes uses in generated names: no vowels, so no words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Passed in, so that the demo and tests can have another one."""

    boot_id: str
    slots: Sequence[Slot]
    open_kernel_log: OpenKernelLog
    environ: dict[str, str]
    new_suffix: Callable[[], str]
    free_port: Callable[[], int]
    terminal: TextIO | None = None
    """Where the ranks' output is shown; None: only in their log files."""


def this_machine(
    slots: Sequence[Slot], *, boot_id: str, open_kernel_log: OpenKernelLog, terminal: TextIO | None
) -> Machine:
    """The machine that this process runs on."""
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
    """The random end of a pod's name."""
    return "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(5))


def free_port() -> int:
    """A TCP port that nobody listens on now. Should somebody take it before it is used, the restart chooses another."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
