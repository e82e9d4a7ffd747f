"""
The header of a safetensors file: which tensors there are, and where. Its claims have limits.

Source: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import math

import msgspec

from healthd.checkpoints.encodings.jsons import refuse_too_many_values
from healthd.checkpoints.tree import Damaged, File, read_at
from healthd.checkpoints.workers import LARGE

LARGEST_HEADER = 32 << 20
"""Bytes. A third of what the reference implementation reads, and enough for 100,000 tensors in one file."""
MOST_VALUES = 4_000_000
"""The limit of values in a header. A tensor has about thirty."""
_FIRST_READ = 16_384
"""The header of most shards fits in this, so one read is enough."""
_DTYPE_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("C128",), 128),
}


class Tensor(msgspec.Struct, gc=False):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_METADATA = msgspec.json.Decoder(dict[str, str])
_TENSOR = msgspec.json.Decoder(Tensor)


def read_header(file: File, name: str, size: int) -> bytes:
    """The JSON at the start of a file of *size* bytes, after eight bytes with its length. Raises Damaged."""
    if size < 8:
        raise Damaged(f"{name}: {size} bytes, too short for any header (torn write)" if size else f"{name}: empty file")
    start = read_at(file, name, offset=0, size=min(size, _FIRST_READ))
    length = int.from_bytes(start[:8], "little")
    if not 2 <= length <= LARGEST_HEADER:
        raise Damaged(f"{name}: its header says that it is {length:,} bytes long (torn write or no safetensors file)")
    if 8 + length > size:
        raise Damaged(f"{name}: {size:,} bytes, and its header alone needs {8 + length:,} (torn write)")
    if len(start) < 8 + length:
        start += read_at(file, name, offset=len(start), size=8 + length - len(start))
    return start[8 : 8 + length]


def parse_header(raw: bytes, name: str) -> dict[str, Tensor]:
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


def metadata_of(raw: bytes) -> dict[str, str]:
    """The texts that the writer put into a JSON header for its own use. Raises msgspec.DecodeError."""
    return _METADATA.decode(_ENTRIES.decode(raw).get("__metadata__", b"{}"))


def judge_layout(tensors: dict[str, Tensor], name: str) -> int:
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


def _tensor_bytes(entry: Tensor, tensor: str, name: str) -> int:
    bits = _DTYPE_BITS.get(entry.dtype)
    if bits is None:
        raise Damaged(
            f"{name}: tensor {tensor[:80]!r} is of type {entry.dtype[:20]!r}, which this version does not know"
        )
    if len(entry.shape) > 64 or (entry.shape and min(entry.shape) < 0):
        raise Damaged(f"{name}: tensor {tensor[:80]!r} has an impossible shape")
    return -(-math.prod(entry.shape) * bits // 8)
