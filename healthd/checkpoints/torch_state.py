"""
Reads a few plain fields from a file of `torch.save`, such as the step and the world size, as data.

Nothing is unpickled: `pickles` runs only the data instructions and builds no object. Data that is too large or too
unusual to be read this way counts as unknown, never as a fault of the checkpoint: the archive's own checks say whether
it is complete.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from healthd.checkpoints.encodings import zips
from healthd.checkpoints.tree import Damaged, File, Tree
from healthd.checkpoints.workers import alone
from healthd.pickles.read import EVERYTHING, PERSISTENT_ID, BadPickle, Built, Named, read_pickle

LARGEST_PICKLE = 16 << 20
"""Bytes. A model of 100,000 tensors needs about this much. A larger state counts as unknown."""
MOST_INSTRUCTIONS = 4_000_000
"""About two seconds."""
MOST_MEMORY = 96 << 20
"""Bytes of all values. A model of 100,000 tensors has less."""
_LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_SCALARS = {
    "torch.FloatStorage": struct.Struct("<f"),
    "torch.DoubleStorage": struct.Struct("<d"),
    "torch.LongStorage": struct.Struct("<q"),
    "torch.IntStorage": struct.Struct("<i"),
}
_LARGEST_COUNT = 1 << 31
_LARGEST_BITS = 63
_REBUILD = "torch._utils._rebuild_tensor_v2"


class TorchState:
    """The content of a file of `torch.save`. Valid while the file is open."""

    def __init__(self, archive: zips.Slice, members: list[zips.ZipMember], value: Any) -> None:
        self._archive = archive
        self._members = {member.name: member for member in members}
        self.value = value

    def at(self, *path: str | int) -> Any:
        """The value under these keys, indexes or attributes. None when one of them is missing."""
        value = self.value
        for key in path:
            value = _inner(value, key)
        return value

    def number(self, *path: str | int) -> float | None:
        """The integer or real number there, also when it is a tensor of one element."""
        value = self.at(*path)
        if isinstance(value, Built):
            value = self._scalar(value)
        if isinstance(value, bool) or (isinstance(value, int) and value.bit_length() > _LARGEST_BITS):
            return None
        return value if isinstance(value, int | float) else None

    def count(self, *path: str | int) -> int:
        """The integer of at least 1 there, such as a world size. 0 when there is none."""
        value = self.number(*path)
        return value if isinstance(value, int) and 0 < value <= _LARGEST_COUNT else 0

    def _scalar(self, tensor: Built) -> float | None:
        match tensor.args:
            case (Built(name=name, args=("storage", Named() as kind, str(key), _, 1)), 0, (), *_) if (
                name == PERSISTENT_ID
            ):
                layout = _SCALARS.get(kind.name)
            case _:
                return None
        member = next((m for name, m in self._members.items() if name.endswith(f"/data/{key}".encode())), None)
        if tensor.name != _REBUILD or layout is None or member is None or member.size != layout.size:
            return None
        return float(layout.unpack(self._archive.read(member.data, member.size))[0])


@contextmanager
def open_state(tree: Tree, name: str) -> Iterator[TorchState]:
    """The state in the file *name*. Its value is None when it cannot be read as data. Raises Damaged."""
    with tree.open(name) as file:
        archive = open_archive(file, name, tree.size(name))
        members = zips.read_members(archive)
        pickle = next((member for member in members if member.name.endswith(b"data.pkl")), None)
        with alone(pickle.size if pickle else 0):
            yield TorchState(archive, members, _read_value(archive, pickle))


def open_archive(file: File, name: str, size: int) -> zips.Slice:
    """The archive in *file*. Raises Damaged when it does not start like an archive."""
    if not size:
        raise Damaged(f"{name}: empty file")
    archive = zips.Slice.at(file, name, 0, size)
    start = archive.read(0, min(size, len(_LEGACY)))
    if start.startswith(b"PK\3\4"):
        return archive
    if start == _LEGACY:
        raise Damaged(f"{name}: torch's format from before 1.6, which has no checksum and cannot be verified")
    if not start.strip(b"\0"):
        raise Damaged(f"{name}: begins with zeros, never written (torn write)")
    raise Damaged(f"{name}: not a zip archive of torch.save")


def _read_value(archive: zips.Slice, pickle: zips.ZipMember | None) -> Any:
    if pickle is None or pickle.size > LARGEST_PICKLE:
        return None
    if pickle.crc:  # written with checksums
        zips.check_data(archive, pickle)
    try:
        return read_pickle(
            archive.read(pickle.data, pickle.size), EVERYTHING, most=MOST_INSTRUCTIONS, memory=MOST_MEMORY
        )
    except BadPickle:
        return None


def _inner(value: Any, key: str | int) -> Any:
    if isinstance(value, Built):
        value = value.state
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list | tuple) and isinstance(key, int) and -len(value) <= key < len(value):
        return value[key]
    return None
