"""
Zeros up to the end of a safetensors file: the result of a power loss when the size was on the disk before the data.

The format has no checksums, and tensors of zeros are no damage: biases start as zeros, and so does half of an adapter.
A tail of zeros is refused when it starts within a tensor at a block boundary, as after a torn write, or when an older
step has other values, because no training sets whole tensors back to zero. Otherwise it is a doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from healthd.checkpoints.encodings.safetensors_headers import Tensor, parse_header, read_header
from healthd.checkpoints.formats.beside import older_steps
from healthd.checkpoints.stores.urls import Location
from healthd.checkpoints.tree import Damaged, File, Tree, filename_of, read_at, survey
from healthd.checkpoints.workers import alone

FEWEST = 2
"""The smallest number of whole tensors in a tail. A single one is not unusual."""
SHORTEST = 4096
"""Bytes."""
_BLOCK = 4096
"""The unit that a file system or the page cache writes, or a multiple of it."""
_ELEMENT = 8
"""Bytes before the block boundary that may be zeros by chance."""
_FIRST_READ = 4096
_CHUNK = 1 << 20


class Layout(NamedTuple):
    """The positions of the tensors in one file."""

    data: int
    """Offset of the first byte after the header."""
    size: int
    tensors: Mapping[str, Tensor]


class ZeroTail(NamedTuple):
    """Zeros up to the end of a file."""

    begin: int
    """Offset of the first zero."""
    whole: list[str]
    """The tensors that have only zeros, in order."""
    within: str
    """The tensor in which the zeros start. Empty when they start at the beginning of a tensor."""


def find_tail(file: File, name: str, layout: Layout) -> ZeroTail | None:
    """The zeros at the end, when there are many and they cover several whole tensors. Otherwise reads nothing more."""
    begin = _last_data(file, name, layout)
    if layout.size - begin < SHORTEST:
        return None
    spans = sorted(
        (layout.data + t.data_offsets[0], layout.data + t.data_offsets[1], n) for n, t in layout.tensors.items()
    )
    whole = [tensor for start, end, tensor in spans if start >= begin and end > start]
    within = next((tensor for start, end, tensor in spans if start < begin < end), "")
    return ZeroTail(begin, whole, within) if len(whole) >= FEWEST else None


def refuse_torn_end(tree: Tree, file: File, name: str, layout: Layout) -> None:
    """Raise Damaged when the file *name* ends with zeros that were not saved."""
    tail = find_tail(file, name, layout)
    if tail is None:
        return
    if tail.within and -tail.begin % _BLOCK < _ELEMENT:
        raise Damaged(f"{name}: {describe(tail, layout)}, from within {tail.within[:80]!r} (torn write)")
    for step in older_steps(tree):
        tensor = _has_values(step, name, tail.whole)
        if tensor:
            raise Damaged(f"{name}: {describe(tail, layout)}; in {step.name} {tensor[:80]!r} has others (torn write)")


def describe(tail: ZeroTail, layout: Layout) -> str:
    """The tail, in words for a person."""
    first, last = tail.whole[0], tail.whole[-1]
    return (
        f"zeros from byte {tail.begin:,} to its end at {layout.size:,}, "
        f"{len(tail.whole):,} whole tensors ({first[:80]!r} to {last[:80]!r})"
    )


def _last_data(file: File, name: str, layout: Layout) -> int:
    """Offset after the last byte that is not zero, but not before the end of the header."""
    end, length = layout.size, _FIRST_READ
    while end > layout.data:
        begin = max(layout.data, end - length)
        if data := read_at(file, name, offset=begin, size=end - begin).rstrip(b"\0"):
            return begin + len(data)
        end, length = begin, _CHUNK
    return layout.data


def _has_values(step: Location, name: str, tensors: list[str]) -> str:
    """The first of *tensors* that is not all zeros in this file of another *step*. Empty when that is unknown."""
    try:
        tree = survey(step / name)
        filename = filename_of(name)
        with tree.open(filename) as file:
            raw = read_header(file, filename, tree.size(filename))
            with alone(len(raw)):
                header = parse_header(raw, filename)
            layout = Layout(8 + len(raw), tree.size(filename), header)
            return next((t for t in tensors if t in header and _is_set(file, filename, layout, t)), "")
    except Damaged:
        return ""


def _is_set(file: File, name: str, layout: Layout, tensor: str) -> bool:
    start, end = (layout.data + at for at in layout.tensors[tensor].data_offsets)
    if not start <= end <= layout.size:
        return False
    pieces = ((at, min(_CHUNK, end - at)) for at in range(start, end, _CHUNK))
    return any(read_at(file, name, offset=at, size=size).strip(b"\0") for at, size in pieces)
