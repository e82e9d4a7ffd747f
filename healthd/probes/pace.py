"""How often to sample sources that must be fast where they have devices."""

from __future__ import annotations

from datetime import timedelta

WITHOUT_DEVICES = timedelta(seconds=10)
"""
A source without a device only waits for a device to appear, which is no fault. The sample after one that finds a device
follows at the usual pace.
"""


def pace(usual: timedelta, *, has_devices: bool) -> timedelta:
    """How often to sample. *has_devices*: this source has something that can break."""
    return usual if has_devices else max(usual, WITHOUT_DEVICES)
