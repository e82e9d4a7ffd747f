"""HDF5 whose structure leads in circles, names things over and over, or claims more than anybody can hold."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow

ROOT = 96
"""Where the root group begins, behind the superblock."""
MB = 1 << 20


def an_hdf5(path: Path, *parts: tuple[int, bytes], size: int = 0) -> Path:
    """A file of HDF5 with these bytes at these places, and the root group at `ROOT`."""
    end = max(size, *(at + len(content) for at, content in parts))
    content = bytearray(b"\1" * end)
    content[:ROOT] = b"\x89HDF\r\n\x1a\n" + struct.pack("<5xBB9x6Q24x", 8, 8, 0, 0, end, 0, 0, ROOT)
    for at, part in parts:
        content[at : at + len(part)] = part
    path.write_bytes(content)
    return path


def an_object(*messages: bytes, count: int | None = None) -> bytes:
    """The header of a group or a dataset."""
    body = b"".join(messages)
    return struct.pack("<BxHII4x", 1, len(messages) if count is None else count, 1, len(body)) + body


def a_message(kind: int, data: bytes) -> bytes:
    return struct.pack("<HHI", kind, len(data), 0) + data


def a_group(tree: int, heap: int) -> bytes:
    return an_object(a_message(17, struct.pack("<2Q", tree, heap)))


def a_heap(at: int, size: int) -> bytes:
    return struct.pack("<4s4x3Q", b"HEAP", size, 0, at)


def a_tree(*children: int, level: int = 0, kind: int = 0, key: int = 8) -> bytes:
    pairs = b"".join(bytes(key) + struct.pack("<Q", child) for child in children)
    return struct.pack("<4sBBH2Q", b"TREE", kind, level, len(children), 0, 0) + pairs + bytes(key)


def members(*entries: tuple[int, int]) -> bytes:
    """Names by their place in the heap, each with the header that it leads to."""
    rows = b"".join(struct.pack("<2QI20x", name, header, 0) for name, header in entries)
    return struct.pack("<4sBxH", b"SNOD", 1, len(entries)) + rows


def an_attribute(*texts: tuple[int, int, int], name: bytes = b"a_config\0") -> bytes:
    """Texts of any length, each by its length, its heap and its number in there."""
    space = struct.pack("<BBB5xQ", 1, 1, 0, len(texts))
    value = b"".join(struct.pack("<IQI", *text) for text in texts)
    kind = struct.pack("<BBBBI", 0x19, 1, 0, 0, 16)
    head = struct.pack("<BxHHH", 1, len(name), len(kind), len(space))
    return a_message(12, head + name.ljust(-(-len(name) // 8) * 8, b"\0") + kind + space + value)


def messages_without_end() -> list[tuple[int, bytes]]:
    return [(ROOT, struct.pack("<BxHII4x", 1, 1, 1, 15 * MB) + bytes(15 * MB))]


def blocks_that_go_on_in_each_other() -> list[tuple[int, bytes]]:
    """Each block of messages leads to the one that begins 24 bytes later, and has it in itself."""
    blocks = 20_000
    chain = b"".join(
        a_message(16, struct.pack("<2Q", ROOT + 16 + 24 * number, 24 * (blocks - number)))
        for number in range(1, blocks + 1)
    )
    return [(ROOT, struct.pack("<BxHII4x", 1, 65535, 1, len(chain)) + chain)]


def a_tree_of_itself() -> list[tuple[int, bytes]]:
    return [(ROOT, a_group(200, 300)), (200, a_tree(200, level=1)), (300, a_heap(400, 8)), (400, bytes(8))]


def a_chunked_dataset(tree: int) -> bytes:
    return an_object(
        a_message(1, struct.pack("<BBB5xQ", 1, 1, 0, 4)),
        a_message(3, struct.pack("<BBBBI", 0x10, 0, 0, 0, 4)),
        a_message(8, struct.pack("<BBBQII", 3, 2, 2, tree, 1, 4)),
    )


def a_tree_of_trees_without_end() -> list[tuple[int, bytes]]:
    """Every 32 bytes another node begins, with 65,535 children that are such nodes as well."""
    count = 100_000
    nodes = b"".join(
        struct.pack("<4sBBH8xQ8x", b"TREE", 1, 9, 65535, MB + 32 * (number * 7919 % 30_000)) for number in range(count)
    )
    return [(ROOT, a_chunked_dataset(MB)), (MB, nodes)]


def pieces_without_end() -> list[tuple[int, bytes]]:
    """As before, but each node is said to be the last, and to lead to data."""
    nodes = a_tree(*(MB + 32 * number for number in range(40_000)), level=1, kind=1, key=24)
    leaves = struct.pack("<4sBBH8x2Q", b"TREE", 1, 0, 65535, 0, 0) * 100_000
    return [(ROOT, a_chunked_dataset(8 * MB)), (8 * MB, nodes), (MB, leaves)]


def a_heap_that_is_one_name() -> list[tuple[int, bytes]]:
    """Members are named by ever longer ends of it."""
    size, count = 8 * MB, 60_000
    heap = b"n" * size + b"\0"
    rows = members(*((size - 1 - number - size // 2, ROOT) for number in range(count)))
    return [
        (ROOT, a_group(200, 300)),
        (200, a_tree(4096)),
        (300, a_heap(4096 + len(rows), size + 1)),
        (4096, rows + heap),
    ]


def attributes_that_share_one_heap() -> list[tuple[int, bytes]]:
    """Each text is the last of a heap of millions."""
    heap = b"GCOL" + struct.pack("<4xQ", 12 * MB) + struct.pack("<H6xQ", 1, 0) * (12 * MB // 16 - 3)
    heap += struct.pack("<H6xQ", 2, 8) + b"12345678"
    attributes = [an_attribute(*[(8, MB, 2)] * 2000) for _ in range(30)]
    return [(ROOT, an_object(*attributes)), (MB, heap.ljust(12 * MB, b"\0"))]


def a_configuration_of_wide_letters() -> list[tuple[int, bytes]]:
    """One letter that takes four bytes makes all others take as many."""
    text = b'"' + b"a" * (15 * MB) + "\U0001f525".encode() + b'"'
    heap = b"GCOL" + struct.pack("<4xQ", 32 + len(text)) + struct.pack("<H6xQ", 1, len(text)) + text
    return [(ROOT, an_object(an_attribute((len(text), MB, 1)))), (MB, heap)]


def nested_groups() -> list[tuple[int, bytes]]:
    """Groups inside each other, two hundred thousand and more of them."""
    count, step = 250_000, 128
    place = 4096
    groups = b"".join(
        (
            struct.pack("<BxHII4x", 1, 1, 1, 24) + a_message(17, struct.pack("<2Q", place + step * number + 40, 300))
        ).ljust(40, b"\0")
        + struct.pack("<4sBBH2Q", b"TREE", 0, 0, 1, 0, 0)
        + struct.pack("<3Q", 0, place + step * count + 48 * number, 0)
        + bytes(step - 40 - 48)
        for number in range(count)
    )
    nodes = b"".join(members((8, place + step * (number + 1))) for number in range(count))
    return [
        (ROOT, a_group(place + 40, 300)),
        (300, a_heap(400, 16)),
        (400, bytes(8) + b"member\0\0"),
        (place, groups + nodes),
    ]


@pytest.mark.parametrize(
    ("made", "reported"),
    [
        (messages_without_end, "parts of the object"),
        (blocks_that_go_on_in_each_other, "parts of the object"),
        (a_tree_of_itself, "a tree that comes back"),
        (a_tree_of_trees_without_end, "too many to verify"),
        (pieces_without_end, "too many to verify"),
        (a_heap_that_is_one_name, "garbled"),
        (attributes_that_share_one_heap, "too many to verify"),
        (a_configuration_of_wide_letters, "too long"),
        pytest.param(nested_groups, "too many to verify", marks=pytest.mark.slow),
    ],
)
def test_a_hostile_structure_is_refused_soon(
    judge: Judge, tmp_path: Path, made: Callable[[], list[tuple[int, bytes]]], reported: str
) -> None:
    path = an_hdf5(tmp_path / "step-1.h5", *made())

    assert reported in judge.verify(path).reason
