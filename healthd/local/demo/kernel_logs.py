"""
Kernel logs that the demo can write to: a log of its own, or, for root, the machine's log.

In both cases the code that reads `/dev/kmsg` in `healthd run` reads the records, judges them and acts on them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from healthd.clock import Clock
from healthd.core.api import KernelLogCursor
from healthd.local.machine.machine import OpenKernelLog
from healthd.probes.errors import CannotRead, cannot_open_kernel_log
from healthd.probes.klog.kmsg import KMSG, open_kmsg
from healthd.probes.klog.log import KernelLog
from healthd.probes.klog.pipe import KernelLogPipe
from healthd.probes.klog.record import sequence_of

ERROR = "<3>"
"""The level at which a driver reports a fault. The kernel adds that a process wrote the record."""


class Writable(Protocol):
    """A kernel log that accepts made-up records."""

    def write(self, text: str) -> int:
        """Log *text* as an error. The returned number is not used here."""
        ...

    def close(self) -> None:
        """No more records follow."""
        ...


def own_log(clock: Clock, boot_id: str) -> tuple[Writable, OpenKernelLog]:
    """A log that no other program sees, and the function that opens it for reading."""
    pipe = KernelLogPipe(clock)

    def open_after(cursor: KernelLogCursor) -> KernelLog:
        return open_kmsg(clock=clock, boot_id=boot_id, cursor=cursor, fd=pipe.fd, kernel_time=pipe.kernel_time)

    return pipe, open_after


def machine_log(clock: Clock, boot_id: str) -> tuple[Writable, OpenKernelLog]:
    """
    The machine's own log, read from now on: records of earlier demos are left out. Raises CannotRead.
    """
    log = MachineLog()
    begin = KernelLogCursor(boot_id=boot_id, sequence=log.mark("healthd demo: the Xid lines that follow are made up"))

    def open_after(cursor: KernelLogCursor) -> KernelLog:
        after = max(begin, cursor, key=lambda known: known.sequence)
        return open_kmsg(clock=clock, boot_id=boot_id, cursor=after, trust_user_space=True)

    return log, open_after


def is_real_device(pci: str, devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether this machine has a device there: other readers of the log could believe a made-up fault of it."""
    return (devices / pci).exists()


class MachineLog:
    """`/dev/kmsg`, open for writing. Raises CannotRead when that is not allowed."""

    def __init__(self) -> None:
        try:
            self._fd = os.open(KMSG, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise cannot_open_kernel_log(KMSG, error) from error

    def write(self, text: str) -> int:
        """Log *text* as an error."""
        return os.write(self._fd, f"{ERROR}{text}\n".encode())

    def mark(self, text: str) -> int:
        """Log *text*. Returns the kernel's number of it, or of a record just before it. Raises CannotRead."""
        os.lseek(self._fd, 0, os.SEEK_END)
        self.write(text)
        try:
            return sequence_of(os.read(self._fd, 8192))
        except BlockingIOError as error:
            remedy = "sysctl kernel.printk_devkmsg=ratelimit"
            raise CannotRead(KMSG, "the kernel drops what processes write to it", remedy) from error

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)
