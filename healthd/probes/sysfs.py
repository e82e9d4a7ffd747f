"""
Small files of /sys and /proc as text, words, numbers and bytes; folders as names; links as their targets.

Unless stated otherwise, what is missing or not permitted is an empty result and not an error. Paths are strings here
and not `Path` objects: these functions run hundreds of times in each sample.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress

PAGE = 4096
"""Bytes: no attribute of /sys is longer."""
MOST = 64 * 1024
"""Bytes of one file that are read: /proc/self/mountinfo of a busy node is long."""
LONGEST_NUMBER = 20
"""Characters of 64 bits, or of a sign and 63. A longer number would not fit into the floats of the rules."""

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_text(path: str) -> str:
    """An attribute of /sys, without white space at its ends. Raises OSError."""
    return _read(path, PAGE).decode(errors="replace").strip()


def read_word(path: str) -> str:
    """The same, and empty for what cannot be read."""
    try:
        return read_text(path)
    except OSError:
        return ""


def read_number(path: str) -> int | None:
    """The whole number in *path*, decimal or with 0x. None also where other text is there."""
    return parse_number(read_word(path))


def read_bytes(path: str, most: int = MOST) -> bytes:
    """
    Up to *most* bytes from the beginning of *path*.

    Of a list, such as the mounts of a process or the processes of a control group, the kernel gives about a page for
    each call, however many bytes are asked for.
    """
    try:
        return _read_whole(path, most)
    except OSError:
        return b""


def read_lines(path: str, most: int = MOST) -> list[str]:
    """The lines of *path*. A line that was cut off is left out."""
    lines = read_bytes(path, most).decode(errors="replace").split("\n")
    return lines[:-1] if len(lines) > 1 else lines


def parse_number(text: str) -> int | None:
    """*text* as a whole number, decimal or with 0x. None also where it has more digits than 64 bits need."""
    if len(text) > LONGEST_NUMBER:
        return None
    try:
        return int(text, 16 if text.startswith("0x") else 10)
    except ValueError:
        return None


def link_name(path: str) -> str:
    """The last part of the target of the link at *path*."""
    try:
        return os.path.basename(os.readlink(path))  # noqa: PTH115, PTH119 - paths are words in probes
    except OSError:
        return ""


def names_in(folder: str) -> list[str]:
    """The names in a folder, in order. Empty when it cannot be listed."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - the names are wanted, not paths
    except OSError:
        return []


def listed(sys: str, name: str, before: Collection[str] = ()) -> list[str]:
    """
    The devices of a class, in order. None where the kernel does not have the class.

    *before*: the last list. Raises OSError, with the path, where the list cannot be known: this is no /sys, it cannot
    be listed, or a class that had devices is gone with all of them.
    """
    try:
        return sorted(os.listdir(f"{sys}/class/{name}"))  # noqa: PTH208 - the names are wanted, not paths
    except FileNotFoundError:
        os.stat(f"{sys}/class")  # noqa: PTH116 - paths are words here
        if before:
            raise
        return []


def trouble_with(error: OSError) -> str:
    """For a person: what could not be listed, and the remedy."""
    return f"{error.filename} cannot be listed ({error.strerror}): mount the host's /sys there, readable for all"


def pci_of(real_path: str) -> str:
    """The PCI function at or above a device, by the real path of the device. Empty where there is none."""
    return next((part for part in reversed(real_path.split("/")) if _PCI.fullmatch(part)), "")


class KeptOpen:
    """
    A Read that keeps its files open: the kernel makes the text anew for each read from the beginning.

    A device that went away answers ENODEV to readers of its open files. Then the path is opened anew, once. *most*:
    bytes of one file that are read.
    """

    def __init__(self, most: int = PAGE) -> None:
        self._most = most
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
        """Close every file."""
        for path in list(self._open):
            self._close(path)

    def _read(self, descriptor: int) -> str:
        return os.pread(descriptor, self._most, 0).decode(errors="replace").strip()

    def _close(self, path: str) -> None:
        os.close(self._open.pop(path))


def _read_whole(path: str, most: int) -> bytes:
    """Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = piece = os.read(descriptor, most)
        while piece and len(content) < most:
            piece = os.read(descriptor, most - len(content))
            content += piece
        return content
    finally:
        os.close(descriptor)


def _read(path: str, most: int) -> bytes:
    """One call for all of it: the kernel makes the text for each read anew. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)
