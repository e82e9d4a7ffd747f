"""
HDF5 files as h5py writes them by default: the end of file in the superblock, then every group and dataset from the
root.

Data has no checksum, so changed bytes inside an array are not detected. Lost, torn or unwritten structure is detected.
For files in the newer layout (superblock 2 and 3, which h5py writes only on request) only the superblock with its
checksum is read. `hdf5_objects` walks the structure below the superblock.
Source: the HDF5 File Format Specification, version 3.0.
"""

from __future__ import annotations

import struct

from healthd.checkpoints.encodings.hdf5_objects import verify_objects
from healthd.checkpoints.tree import Damaged
from healthd.checkpoints.windows import Window

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def verify_file(window: Window) -> None:
    """Raise Damaged unless the file is complete, as far as its own structure shows."""
    start = window.at(0, min(96, window.size))
    if not start.startswith(_SIGNATURE):
        what = "zeros, never written" if not start.strip(b"\0") else "not a file of HDF5"
        raise Damaged(f"{window.name}: {what} (torn write)")
    if len(start) < 48:
        raise Damaged(f"{window.name}: {window.size:,} bytes, too short for HDF5 (torn write)")
    if start[8] in {2, 3}:
        _verify_newer(window, start)
        return
    if start[8] > 1 or len(start) < 96:
        raise Damaged(f"{window.name}: version {start[8]} of HDF5, which is not known")
    if start[13:15] != b"\x08\x08":
        raise Damaged(f"{window.name}: addresses of {start[13]} bytes in HDF5, which cannot be verified")
    at = 24 + 4 * start[8]
    base, _, end, _, _, root = struct.unpack_from("<6Q", start, at)
    _refuse_wrong_end(window, base, end)
    try:
        verify_objects(window, root)
    except (struct.error, IndexError, ValueError) as error:
        raise Damaged(f"{window.name}: its structure is garbled") from error


def _refuse_wrong_end(window: Window, base: int, end: int) -> None:
    if base:
        raise Damaged(f"{window.name}: HDF5 inside of another file, which cannot be verified")
    if window.size < end:
        raise Damaged(f"{window.name}: {window.size:,} of {end:,} bytes (torn write)")


def _verify_newer(window: Window, start: bytes) -> None:
    if start[9:11] != b"\x08\x08":
        raise Damaged(f"{window.name}: addresses of {start[9]} bytes in HDF5, which cannot be verified")
    if lookup3(start[:44]) != int.from_bytes(start[44:48], "little"):
        raise Damaged(f"{window.name}: the checksum of its superblock does not match")
    if start[8] == 3 and start[11] & 1:
        raise Damaged(f"{window.name}: marked as open for writing; its writer did not close it (save not finished)")
    base, _, end, root = struct.unpack_from("<4Q", start, 12)
    _refuse_wrong_end(window, base, end)
    if window.at(root, 4) != b"OHDR":
        raise Damaged(f"{window.name}: no root group at byte {root:,}")


def lookup3(data: bytes) -> int:
    """Bob Jenkins' hash, the checksum of HDF5: `hashlittle` with 0 as the initial value."""
    a = b = c = (0xDEADBEEF + len(data)) & 0xFFFFFFFF
    if not data:
        return c
    padded = data + bytes(-len(data) % 12)
    words = struct.unpack(f"<{len(padded) // 4}I", padded)
    for at in range(0, len(words), 3):
        a, b, c = ((x + y) & 0xFFFFFFFF for x, y in zip((a, b, c), words[at : at + 3], strict=True))
        a, b, c = _mix(a, b, c) if at + 3 < len(words) else _final(a, b, c)
    return c


def _turn(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & 0xFFFFFFFF


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for by in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & 0xFFFFFFFF) ^ _turn(c, by)
        c = (c + b) & 0xFFFFFFFF
        a, b, c = b, c, a  # rotate the three
    return a, b, c


def _final(a: int, b: int, c: int) -> tuple[int, int, int]:
    for by in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _turn(b, by)) & 0xFFFFFFFF
        a, b, c = b, c, a
    return c, a, b
