"""Durations as people write them: `250ms`, `30s`, `1h30m`. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
"""Milliseconds per unit, largest first."""
_LONGEST = 3650 * _UNITS["d"]
"""Keeps `now` plus a duration within what a datetime can hold."""
_DURATION = re.compile(r"(?:\d{1,9}(?:d|h|ms|m|s))+", re.ASCII)
_TERM = re.compile(r"(\d+)(d|h|ms|m|s)", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Read `250ms`, `30s`, `5m`, `1h30m` or `2d`. Raises ValueError with a text for the person who wrote it."""
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a duration; write a number with a unit, such as 250ms, 30s, 5m or 1h30m")
    terms = _TERM.findall(text)
    units = [unit for _, unit in terms]
    if units != sorted(set(units), key=list(_UNITS).index):
        raise ValueError(f"{text!r} is not a duration; name each unit once, the largest first, as in 1h30m")
    milliseconds = sum(int(number) * _UNITS[unit] for number, unit in terms)
    if milliseconds > _LONGEST:
        raise ValueError(f"{text!r} is longer than ten years")
    return timedelta(milliseconds=milliseconds)


def format_duration(duration: timedelta) -> str:
    """Write a duration as `parse_duration` reads it; what is shorter than a millisecond is dropped."""
    left = duration // timedelta(milliseconds=1)
    parts = []
    for unit, size in _UNITS.items():
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def short_duration(duration: timedelta) -> str:
    """A duration as kubectl prints ages: to the second, `2m13s`; below 10 s with one decimal, `4.6s`."""
    if duration >= timedelta(seconds=10):
        return format_duration(duration - duration % timedelta(seconds=1))
    return f"{max(0.0, duration // timedelta(milliseconds=100) / 10):g}s"
