"""
The machine's one kernel log, for tests and benchmarks that really write to it.

A writer holds a lock (other test processes share the same ring), marks its records, and puts back the setting
that lets user space write without a rate limit.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from healthd.core.api.model import KernelRecord

DEVICE = Path("/dev/kmsg")
RATE_LIMIT = Path("/proc/sys/kernel/printk_devkmsg")


_OF_A_DEVICE = re.compile(r"[\w.-]+ ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])[: ]")


def tags_of(text: str) -> dict[str, str]:
    """The tags that the kernel adds when a driver prints *text* about its device."""
    found = _OF_A_DEVICE.match(text)
    return {"SUBSYSTEM": "pci", "DEVICE": f"+pci:{found[1]}"} if found else {}


class Unwritable(Exception):
    """This machine does not let us write to its kernel log; says why."""


class RealLog:
    """Writes records that carry a mark of their own."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.tag = f"test-{uuid.uuid4().hex[:12]}"

    def write(self, text: str, *, level: int = 3) -> None:
        """One record. Without the newline the kernel would hold it back, as a line that may be continued."""
        os.write(self._fd, f"<{level}>{text} {self.tag}\n".encode())

    def wrote(self, record: KernelRecord) -> bool:
        """True for a record of ours."""
        return self.tag in record.text


@contextmanager
def kernel_log() -> Iterator[RealLog]:
    """The log, for us alone until the block ends. Raises Unwritable."""
    with _locked():
        before = _allow_all()
        fd = os.open(DEVICE, os.O_WRONLY)
        try:
            yield RealLog(fd)
        finally:
            os.close(fd)
            RATE_LIMIT.write_text(before)


@contextmanager
def _locked() -> Iterator[None]:
    """The setting that is changed is what is locked: it is there once, whatever the folders of a process."""
    try:
        setting = RATE_LIMIT.open()
    except OSError as error:
        raise Unwritable(f"cannot read {RATE_LIMIT}: {error.strerror}") from error
    with setting:
        fcntl.flock(setting, fcntl.LOCK_EX)
        yield


def _allow_all() -> str:
    """Switch the rate limit off; answers what was set before. The kernel takes the word only with its newline."""
    try:
        if not os.access(DEVICE, os.W_OK):
            raise Unwritable(f"{DEVICE} is not writable here: run as root")
        before = RATE_LIMIT.read_text()
        RATE_LIMIT.write_text("on\n")
    except OSError as error:
        raise Unwritable(f"cannot set {RATE_LIMIT}: {error.strerror}") from error
    return before
