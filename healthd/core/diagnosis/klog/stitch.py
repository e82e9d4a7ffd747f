"""
Joins messages that a driver spreads over several records.

A GPU that is gone when the driver loads is reported in three records, and only the first has an address. Other CPUs may
print in between, so a part waits for a few records.
"""

from __future__ import annotations

import re

import msgspec

from healthd.core.diagnosis.klog.message import FULL_ADDRESS

PATIENCE = 16
"""Records that may lie between two parts of one message."""

_HEAD = re.compile(rf"NVRM: The NVIDIA GPU {FULL_ADDRESS}$")
_MIDDLE = re.compile(r"NVRM: \(PCI ID: [^)]{1,64}\)")
_TAIL = re.compile(r"NVRM: fallen off the bus and is not responding to commands")


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a message whose end has not arrived yet. Empty by default."""

    text: str = ""
    age: int = 0


def stitch(partial: Partial, text: str) -> tuple[Partial, str]:
    """Take the next record's *text*. Return what waits now, and the text to parse: joined, where it ends a message."""
    text = text.strip()
    if _HEAD.match(text):
        return Partial(text=text), text
    if not partial.text:
        return partial, text
    if partial.age >= PATIENCE:
        return Partial(), text
    if _MIDDLE.match(text):
        return Partial(text=f"{partial.text} {text.removeprefix('NVRM: ')}", age=partial.age + 1), text
    if _TAIL.match(text):
        return Partial(), f"{partial.text} has {text.removeprefix('NVRM: ')}".replace("has has", "has")
    return Partial(text=partial.text, age=partial.age + 1), text
