"""Durations in few characters, as kubectl writes them."""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))
_NEXT = {"d": (3600, "h"), "h": (60, "m"), "m": (1, "s")}
_ALONE = 10
"""From so many of its largest unit on a duration is shown in that unit alone."""


def age(seconds: float | None) -> str:
    """*seconds* as `7s`, `2m13s`, `45m`, `3h20m`, `12d`; empty for None. Less than nothing, by a wrong clock, is 0s."""
    if seconds is None:
        return ""
    whole = max(0, int(seconds))
    for size, unit in _UNITS:
        if whole >= size:
            count, rest = divmod(whole, size)
            smaller, name = _NEXT[unit]
            more = f"{rest // smaller}{name}" if count < _ALONE and rest >= smaller else ""
            return f"{count}{unit}{more}"
    return f"{whole}s"
