"""Whether the kernel's clock is kept in step by anybody: NTP, PTP or a hypervisor. Reading that needs no privilege."""

from __future__ import annotations

import ctypes
import struct
import sys
from functools import cache

_SIZE = 208
"""Of `struct timex` on 64-bit Linux, with the space that it keeps for later."""
_STATUS = struct.Struct("@Iqqqqi")
"""Its beginning: modes, offset, frequency, two estimates of the error, status."""
_UNSYNCHRONISED = 0x0040
_ERROR = -1


def is_clock_synchronised() -> bool | None:
    """None: the kernel does not say, or does not say it to us."""
    call = _adjtimex()
    if call is None:
        return None
    timex = ctypes.create_string_buffer(_SIZE)  # modes is 0: nothing is set
    if call(timex) == _ERROR:
        return None
    status = int(_STATUS.unpack_from(timex)[-1])
    return not status & _UNSYNCHRONISED


@cache
def _adjtimex() -> ctypes._CFuncPtr | None:  # type: ignore[name-defined]  # typeshed hides its own base class
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
