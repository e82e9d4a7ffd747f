"""
Safetensors: one file, shards with an index, or shards whose names say how many there are.

A file is 8 bytes of header length (little endian), a JSON header, then the tensors' bytes without gap or overlap
(https://github.com/huggingface/safetensors#format). The format has no checksums: bytes that were changed in place, or
zeros that were really written, cannot be told from weights. A shard of the same shapes from another step neither.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import partial

import msgspec

from healthd.checkpoints.encodings.jsons import refuse_too_many_values
from healthd.checkpoints.formats.format import Level
from healthd.checkpoints.tree import Damaged, Tree, folder_of, inside, read_at
from healthd.checkpoints.workers import LARGE, alone, for_each

LARGEST_HEADER = 32 << 20
"""Bytes; a third of what the reference implementation reads, and enough for 100,000 tensors in one file."""
LARGEST_INDEX = 64 << 20
MOST_VALUES = 4_000_000
"""In a header; a tensor has about thirty."""
_MOST_IN_INDEX = 2_000_000
"""A tensor has five."""
_FIRST_READ = 16_384
"""Holds the whole header of most shards, so that one read is enough."""
_DTYPE_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("C128",), 128),
}
_SHARD = re.compile(r"(?P<stem>.*?)(?P<number>\d{1,9})-of-(?P<total>\d{1,9})(?P<rest>\D*)")


class _Tensor(msgspec.Struct, gc=False):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_METADATA = msgspec.json.Decoder(dict[str, str])
_TENSOR = msgspec.json.Decoder(_Tensor)

_Promises = dict[str, list[tuple[str, list[str]]]]
"""Listed file name to the indexes that name it, each with the tensors that it should hold."""


class Safetensors:
    """Every `*.safetensors` file holds by itself, and together they are all that the index or their names promise."""

    name = "safetensors"

    def owns(self, filename: str) -> bool:
        """By suffix."""
        return filename.endswith((".safetensors", ".safetensors.index.json"))

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(name) for name in tree.kinds)

    def verify(self, tree: Tree, level: Level) -> None:  # noqa: ARG002 - there is nothing more to read
        """The same at both levels, for want of checksums. Raises Damaged."""
        indexes = sorted(name for name in tree.entries if name.endswith(".safetensors.index.json"))
        shards = sorted(name for name in tree.entries if name.endswith(".safetensors"))
        promises = _read_promises(tree, indexes)
        indexed = {folder_of(index) for index in indexes}
        refuse_missing_shards(name for name in shards if folder_of(name) not in indexed)
        for_each(partial(_verify_file, tree, promises), shards, at_once=tree.at_once)


def refuse_missing_shards(names: Iterable[str]) -> None:
    """Raise Damaged when names such as `model-00001-of-00004` are not all there; numbers begin at 0 or at 1."""
    groups: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    for name in names:
        if match := _SHARD.fullmatch(name):
            groups[match["stem"], match["total"], match["rest"]][int(match["number"])] = match["number"]
    for (stem, total, rest), numbers in sorted(groups.items()):
        first = 0 if 0 in numbers else 1
        if len(numbers) == int(total) and max(numbers) == first + int(total) - 1:
            continue
        absent = next(number for number in range(first, first + len(numbers) + 1) if number not in numbers)
        width = len(next(iter(numbers.values())))
        raise Damaged(
            f"{stem}{absent:0{width}}-of-{total}{rest}: missing; {len(numbers)} of {int(total)} shards are here"
        )


def parse_header(raw: bytes, name: str) -> dict[str, _Tensor]:
    """The tensors of a JSON header by name. Raises Damaged."""
    if len(raw) > LARGE:
        refuse_too_many_values(raw, name, most=MOST_VALUES)
    try:
        entries = _ENTRIES.decode(raw)
        _METADATA.decode(entries.pop("__metadata__", b"{}"))
        return {tensor: _TENSOR.decode(entry) for tensor, entry in entries.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "is zeros" if not raw.strip(b"\0") else "is not the JSON that it should be"
        raise Damaged(f"{name}: its header {what} (torn write)") from error


def judge_layout(tensors: dict[str, _Tensor], name: str) -> int:
    """Bytes of tensor data that the header describes, without gap or overlap. Raises Damaged."""
    end = 0
    for tensor, entry in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        begin, after = entry.data_offsets
        if begin != end or after < begin:
            raise Damaged(
                f"{name}: tensor {tensor[:80]!r} is at bytes {begin:,} to {after:,}, expected from {end:,} on"
            )
        if after - begin != _tensor_bytes(entry, tensor, name):
            raise Damaged(
                f"{name}: tensor {tensor[:80]!r} has {after - begin:,} bytes, which is not its type times shape"
            )
        end = after
    return end


def _tensor_bytes(entry: _Tensor, tensor: str, name: str) -> int:
    bits = _DTYPE_BITS.get(entry.dtype)
    if bits is None:
        raise Damaged(
            f"{name}: tensor {tensor[:80]!r} is of type {entry.dtype[:20]!r}, which this version does not know"
        )
    if len(entry.shape) > 64 or (entry.shape and min(entry.shape) < 0):
        raise Damaged(f"{name}: tensor {tensor[:80]!r} has an impossible shape")
    return -(-math.prod(entry.shape) * bits // 8)


def _verify_file(tree: Tree, promises: _Promises, name: str) -> None:
    size = tree.size(name)
    if size < 8:
        raise Damaged(f"{name}: {size} bytes, too short for any header (torn write)" if size else f"{name}: empty file")
    with tree.open(name) as file:
        start = read_at(file, name, offset=0, size=min(size, _FIRST_READ))
        length = int.from_bytes(start[:8], "little")
        if not 2 <= length <= LARGEST_HEADER:
            raise Damaged(
                f"{name}: its header says that it is {length:,} bytes long (torn write or no safetensors file)"
            )
        if 8 + length > size:
            raise Damaged(f"{name}: {size:,} bytes, and its header alone needs {8 + length:,} (torn write)")
        with alone(length):
            if len(start) < 8 + length:
                start += read_at(file, name, offset=len(start), size=8 + length - len(start))
            tensors = parse_header(start[8 : 8 + length], name)
            _refuse_wrong_size(name, size, 8 + length + judge_layout(tensors, name))
            _refuse_missing_tensors(name, tensors, promises)


def _refuse_wrong_size(name: str, size: int, described: int) -> None:
    if size < described:
        raise Damaged(f"{name}: {size:,} of {described:,} bytes (torn write)")
    if size > described:
        raise Damaged(f"{name}: {size:,} bytes where its header describes {described:,}")


def _refuse_missing_tensors(name: str, tensors: dict[str, _Tensor], promises: _Promises) -> None:
    for index, promised in promises.get(name, []):
        absent = next((tensor for tensor in promised if tensor not in tensors), None)
        if absent is not None:
            raise Damaged(f"{name}: has no tensor {absent[:80]!r}, which {index} puts there (a shard of another step?)")


def _read_promises(tree: Tree, indexes: list[str]) -> _Promises:
    """What the indexes say of each listed file, all of which are there. Raises Damaged."""
    promises: _Promises = defaultdict(list)
    for index in indexes:
        folder = folder_of(index)
        for file, tensors in read_index(tree, index).items():
            name = inside(folder, file, told_by=index)
            tree.require(name)
            if not name.endswith(".safetensors"):
                raise Damaged(f"{index}: names {file[:80]!r}, which is no safetensors file")
            promises[name].append((index, tensors))
    return promises


def read_index(tree: Tree, index: str) -> dict[str, list[str]]:
    """The tensors that an index of a Hugging Face model puts into each file, files in order. Raises Damaged."""
    raw = tree.read(index, at_most=LARGEST_INDEX)
    refuse_too_many_values(raw, index, most=_MOST_IN_INDEX)
    try:
        weight_map = msgspec.json.decode(raw, type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{index}: not a whole index (torn write)") from error
    if not weight_map:
        raise Damaged(f"{index}: names no tensor")
    files: dict[str, list[str]] = defaultdict(list)
    for tensor, file in weight_map.items():
        files[file].append(tensor)
    return dict(sorted(files.items()))
