"""
Whether the kernel's clock is synchronised: by NTP, PTP or a hypervisor. Reading that needs no privilege.

This module is also a program that prints `yes`, `no` or nothing: the query needs ctypes, which costs a megabyte that
the agent need not hold for one bit that it reads now and then. It imports nothing of healthd.
"""

from __future__ import annotations

import struct
import subprocess
import sys

_SIZE = 208
"""Of `struct timex` on 64-bit Linux, with the space that it reserves."""
_STATUS = struct.Struct("@Iqqqqi")
"""Its beginning: modes, offset, frequency, two error estimates, status."""
_UNSYNCHRONISED = 0x0040
_ERROR = -1
_PATIENCE = 5.0
_ANSWERS = {"yes": True, "no": False}


def is_clock_synchronised() -> bool | None:
    """None: the kernel does not report it, or not to this process. Starts a process."""
    command = [sys.executable, "-I", "-S", __file__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _ANSWERS.get(done.stdout.strip())


def ask() -> bool | None:
    """The same query, in this process."""
    import ctypes  # imported here: see above

    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    timex = ctypes.create_string_buffer(_SIZE)  # modes is 0: nothing is set
    if call(timex) == _ERROR:
        return None
    status = int(_STATUS.unpack_from(timex)[-1])
    return not status & _UNSYNCHRONISED


if __name__ == "__main__":
    print({True: "yes", False: "no", None: ""}[ask()])
