"""Files of /sys that are read again and again: cheaply, and without retrying what the kernel has refused."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import datetime, timedelta

from healthd.probes.sysfs import LONGEST_NUMBER, read_text

Read = Callable[[str], str]
"""The text of a file, without white space at its ends. Raises OSError."""

REST = timedelta(hours=1)
"""A file that answered EINVAL or no number is not read for this long: some drivers log a line for each attempt."""
REFUSALS = 3
"""After this many refusals in one folder, its other files are not read either: one call serves all of them."""

RANGES = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "VL15_dropped": 16,
}
"""Bits of the counters that stop at their end (PortCounters, InfiniBand specification 16.1.3.5)."""


def parse_counter(text: str) -> int | None:
    """The number in *text*. Counters may be no numbers, such as `N/A (no PMA)`."""
    try:
        return int(text) if len(text) <= LONGEST_NUMBER else None
    except ValueError:
        return None


def is_full(name: str, value: float) -> bool:
    """
    Whether counter *name* stands at the end of its range: it counts no more, or its device answers with all ones.

    In both cases the value is not a count.
    """
    return name in RANGES and value == (1 << RANGES[name]) - 1


class BackingOffReader:
    """Reads counters through *read*, and does not retry for a while those that refused a number."""

    def __init__(self, read: Read = read_text) -> None:
        self._read = read
        self._resting: dict[str, datetime] = {}

    def number(self, folder: str, name: str, now: datetime) -> float | None:
        """The value of a counter. None: it has no number, or is not read now."""
        path = f"{folder}/{name}"
        if self._rests(folder, now) or self._rests(path, now):
            return None
        try:
            value = parse_counter(self._read(path))
        except OSError as error:
            if error.errno == errno.EINVAL:
                self._leave_alone(folder, path, now)
            return None
        if value is None:
            self._leave_alone(folder, path, now)
        return value

    def _rests(self, path: str, now: datetime) -> bool:
        until = self._resting.get(path)
        if until is None or now < until:
            return until is not None
        del self._resting[path]
        return False

    def _leave_alone(self, folder: str, path: str, now: datetime) -> None:
        self._resting[path] = now + REST
        refused = [one for one, until in self._resting.items() if one.startswith(f"{folder}/") and now < until]
        if len(refused) >= REFUSALS:
            self._resting[folder] = now + REST
