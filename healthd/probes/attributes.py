"""
Small files of /sys and /proc as numbers, words and bytes. What is not there, or not for us, is nothing, not an error.
"""

from __future__ import annotations

import os

MOST = 64 * 1024
"""Bytes of one file that are read: /proc/self/mountinfo of a busy node is long."""


def read_bytes(path: str, most: int = MOST) -> bytes:
    """Up to *most* bytes from the beginning of *path*."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def read_lines(path: str, most: int = MOST) -> list[str]:
    """The lines of *path*; of one that was cut off nothing is given."""
    lines = read_bytes(path, most).decode(errors="replace").split("\n")
    return lines[:-1] if len(lines) > 1 else lines


def read_word(path: str) -> str:
    """The text of *path* without white space around it."""
    return read_bytes(path, 4096).decode(errors="replace").strip()


def read_number(path: str) -> int | None:
    """The whole number in *path*, decimal or with 0x; None also where something else stands there."""
    return parse_number(read_word(path))


def parse_number(text: str) -> int | None:
    """*text* as a whole number, decimal or with 0x."""
    try:
        return int(text, 16 if text.startswith("0x") else 10)
    except ValueError:
        return None


def link_name(path: str) -> str:
    """The last part of what the link at *path* points to."""
    try:
        return os.path.basename(os.readlink(path))  # noqa: PTH115, PTH119 - paths are words in probes
    except OSError:
        return ""
