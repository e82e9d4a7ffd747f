"""
Files of NumPy, `.npz` and `.npy`, which custom training code in JAX and MLX often writes.

An `.npz` is a zip archive with one `.npy` per array, stored or deflated. Its directory is written last, and each array
has a CRC-32. An `.npy` is a header with type and shape, then the bytes, without a checksum.
Source: the module numpy.lib.format and NEP 1.
"""

from __future__ import annotations

import ast
import math
import re
from functools import partial

from healthd.checkpoints.encodings import zips
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import for_each

LARGEST_HEADER = 10_000
"""Bytes. NumPy itself reads a longer header only on request."""
MOST_ARRAYS = 10_000
"""The limit of arrays in one `.npy`, one after the other."""
_TOO_MUCH = 1 << 63
_MAGIC = b"\x93NUMPY"
_SIMPLE = re.compile(r"[<>|=]([biufcSUVmM])(\d{1,9})(?:\[\w+\])?")
_OBJECTS = "an array of Python objects, a pickle, which is never loaded and cannot be verified"


class NumPy:
    """Each file is complete, and each array has the length that its type and shape give."""

    name = "numpy"

    def owns(self, filename: str) -> bool:
        """By suffix."""
        return filename.endswith((".npz", ".npy"))

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(name) for name in tree.kinds)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads directories and headers. FULL reads every byte of an archive. Raises Damaged."""
        names = sorted(name for name in tree.entries if self.owns(name))
        for_each(partial(_verify_file, tree, level), names, at_once=tree.at_once)


def array_bytes(header: bytes, name: str) -> int:
    """Bytes of the array that the header of an `.npy` describes. Raises Damaged."""
    try:
        match ast.literal_eval(header.decode("latin-1")):
            case {"descr": descr, "fortran_order": bool(), "shape": tuple(shape), **more} if not more:
                size = _item_bytes(descr, name) * math.prod(_length(length) for length in shape[:64])
                if size < _TOO_MUCH:
                    return size
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    raise Damaged(f"{name}: its header is not that of an array (torn write)")


def _length(length: object) -> int:
    if not isinstance(length, int) or not 0 <= length < _TOO_MUCH:
        raise ValueError
    return length


def _item_bytes(descr: object, name: str) -> int:
    """Bytes of a type, or of the fields of a record. Raises ValueError for what is no type, Damaged for objects."""
    if isinstance(descr, list):
        return sum(_field_bytes(field, name) for field in descr)
    if isinstance(descr, tuple) and len(descr) == 2 and isinstance(descr[1], tuple):
        return _item_bytes(descr[0], name) * math.prod(map(_length, descr[1]))
    if descr in {"|O", "O"}:
        raise Damaged(f"{name}: {_OBJECTS}")
    match = _SIMPLE.fullmatch(descr) if isinstance(descr, str) else None
    if match is None:
        raise ValueError
    return int(match[2]) * (4 if match[1] == "U" else 1)


def _field_bytes(field: object, name: str) -> int:
    match field:
        case (_, descr):
            return _item_bytes(descr, name)
        case (_, descr, tuple(shape)):
            return _item_bytes(descr, name) * math.prod(map(_length, shape))
        case _:
            raise ValueError


def _verify_file(tree: Tree, level: VerifyLevel, name: str) -> None:
    if name.endswith(".npz"):
        with tree.open(name) as file:
            _verify_archive(zips.Slice.at(file, name, 0, tree.size(name)), level)
    else:
        with open_window(tree, name) as window:
            _verify_arrays(window)


def _verify_archive(archive: zips.Slice, level: VerifyLevel) -> None:
    members = zips.read_members(archive, deflated=True)
    if not members:
        raise Damaged(f"{archive.name}: an archive without any array")
    for member in members:
        window = Window(
            partial(_read_member, archive, member), f"{archive.name}: {zips.text(member.name)}", member.size
        )
        if member.is_stored and member.name.endswith(b".npy"):
            _verify_member(window)
        if level is VerifyLevel.FULL:
            zips.check_data(archive, member)


def _read_member(archive: zips.Slice, member: zips.ZipMember, offset: int, size: int) -> bytes:
    return archive.read(member.data + offset, size)


def _verify_member(window: Window) -> None:
    """Objects are allowed here: the archive's checksum covers their pickle as well."""
    try:
        end = _array_end(window, 0)
    except Damaged as damage:
        if _OBJECTS in str(damage):
            return
        raise
    if end != window.size:
        raise Damaged(f"{window.name}: {window.size:,} bytes where its header describes {end:,}")


def _verify_arrays(window: Window) -> None:
    """One array, or several that were saved into one file."""
    end = 0
    for _ in range(MOST_ARRAYS):
        end = _array_end(window, end)
        if end == window.size:
            return
        if end > window.size:
            raise Damaged(f"{window.name}: {window.size:,} of {end:,} bytes (torn write)")
    raise Damaged(f"{window.name}: more than {MOST_ARRAYS:,} arrays")


def _array_end(window: Window, at: int) -> int:
    """The offset of the end of the array at *at*. Raises Damaged."""
    start = window.at(at, min(12, window.size - at))
    if len(start) < 10 or not start.startswith(_MAGIC):
        what = "zeros, never written" if not start.strip(b"\0") else "no array of NumPy"
        raise Damaged(f"{window.name}: {what} at byte {at:,} (torn write)")
    if start[6] not in {1, 2, 3} or start[7]:
        raise Damaged(f"{window.name}: version {start[6]}.{start[7]} of the format, which is not known")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    if length > LARGEST_HEADER:
        raise Damaged(f"{window.name}: its header says that it is {length:,} bytes long")
    header = at + 8 + width
    return header + length + array_bytes(window.at(header, length), window.name)
