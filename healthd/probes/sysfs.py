"""
Reading small files of /sys again and again: cheaply, and without asking what the kernel has refused.

Paths are words here and not `Path` objects: these functions run hundreds of times in each look.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

Read = Callable[[str], str]
"""The text of a file, without white space at its ends. Raises OSError."""

REST = timedelta(hours=1)
"""For so long a file is left alone that answered EINVAL or no number: some drivers log a line for each attempt."""
REFUSALS = 3
"""After so many refusals in one folder the rest of it rests as well: all of it is answered by one and the same call."""

_LONGEST = 20
"""Digits of 64 bits, or a sign and those of 63."""
_MOST = 4096
"""No attribute of /sys is longer than a page."""
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_text(path: str) -> str:
    """The whole file, at one go. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, _MOST, 0).decode(errors="replace").strip()
    finally:
        os.close(descriptor)


def read_or_empty(path: str) -> str:
    """The same, and nothing for what cannot be read."""
    try:
        return read_text(path)
    except OSError:
        return ""


def names_in(folder: str) -> list[str]:
    """What is in a folder, in order; nothing when it cannot be listed."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - the names are wanted, not paths
    except OSError:
        return []


def listed(sys: str, name: str) -> list[str]:
    """
    The devices of a class, in order; none where the kernel does not have the class.

    Raises OSError, with the path, where that cannot be known: this is no /sys, or it cannot be listed.
    """
    try:
        return sorted(os.listdir(f"{sys}/class/{name}"))  # noqa: PTH208 - the names are wanted, not paths
    except FileNotFoundError:
        os.stat(f"{sys}/class")  # noqa: PTH116 - paths are words here
        return []


def trouble_with(error: OSError) -> str:
    """For a person: what could not be listed and what helps."""
    return f"{error.filename} cannot be listed ({error.strerror}): mount the host's /sys there, readable for all"


def pci_of(real_path: str) -> str:
    """The PCI function at or above a device, by the real path of the device; empty where there is none."""
    return next((part for part in reversed(real_path.split("/")) if _PCI.fullmatch(part)), "")


def as_number(text: str) -> float | None:
    """Counters may be no numbers, such as `N/A (no PMA)`."""
    try:
        return int(text) if len(text) <= _LONGEST else None
    except ValueError:
        return None


class KeptOpen:
    """
    A Read that keeps its files open: the kernel makes the text anew for each read from the beginning.

    A device that went away answers ENODEV to whoever holds its files; then the path is opened anew, once.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def __call__(self, path: str) -> str:
        """Raises OSError."""
        held = self._open.get(path)
        if held is not None:
            with suppress(OSError):
                return self._read(held)
            self._close(path)
        self._open[path] = descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._read(descriptor)
        except OSError:
            self._close(path)
            raise

    def close(self) -> None:
        """Let go of every file."""
        for path in list(self._open):
            self._close(path)

    def _read(self, descriptor: int) -> str:
        return os.pread(descriptor, _MOST, 0).decode(errors="replace").strip()

    def _close(self, path: str) -> None:
        os.close(self._open.pop(path))


class Patient:
    """Reads counters through *read*, and leaves those alone for a while that refuse to tell a number."""

    def __init__(self, read: Read = read_text) -> None:
        self._read = read
        self._resting: dict[str, datetime] = {}

    def number(self, folder: str, name: str, now: datetime) -> float | None:
        """What a counter shows; None: it has no number, or is not asked now."""
        path = f"{folder}/{name}"
        if self._rests(folder, now) or self._rests(path, now):
            return None
        try:
            value = as_number(self._read(path))
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
