"""How often sources are looked at that must be quick where they have something to show."""

from __future__ import annotations

from datetime import timedelta

WITHOUT_DEVICES = timedelta(seconds=10)
"""
What a source without a device looks for is a device that comes, which is no fault. A look that finds one is followed by
the next one at the usual pace.
"""


def pace(usual: timedelta, *, has_devices: bool) -> timedelta:
    """How often to look. *has_devices*: this source has something that can break."""
    return usual if has_devices else max(usual, WITHOUT_DEVICES)
