"""Phrases of a bounded length, for messages that are stored and shown."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 3


def some(names: Sequence[str]) -> str:
    """At most three of *names*, and the number of the others."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
