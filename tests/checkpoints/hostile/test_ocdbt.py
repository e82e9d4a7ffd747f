"""Stores of OCDBT whose nodes name each other over and over, or blow up when they are read."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from healthd.checkpoints.encodings.ocdbt import read_values
from healthd.checkpoints.encodings.sstables import crc32c
from healthd.checkpoints.tree import Damaged, survey
from tests.checkpoints.hostile.stores import MANIFEST, NODE, a_leaf, a_store, an_inner, each, files, framed
from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow


def a_root_that_is_its_own_child(folder: Path) -> Path:
    node = framed(NODE, an_inner(1, [b"a"], [(0, 1)]))
    for _ in range(9):  # until it knows its own length
        node = framed(NODE, an_inner(1, [b"a"], [(0, len(node))]))
    return a_store(folder, node, height=1)


def a_lattice(folder: Path) -> Path:
    """Forty levels of one node, which names the node below it twice: 2 to the 40 ways down."""
    nodes, at = [framed(NODE, a_leaf([0], [b"k"]))], 0
    for height in range(1, 41):
        place = (at, len(nodes[-1]))
        at += len(nodes[-1])
        nodes.append(framed(NODE, an_inner(height, [b"a", b"b"], [place, place])))
    return a_store(folder, *nodes, height=40, root=(at, len(nodes[-1])))


def nodes_that_blow_up(folder: Path) -> Path:
    """Two kilobytes each, of sixteen megabytes of the smallest keys."""
    count = 3_000_000
    leaf = bytes([0]) + files(1) + each(count) + bytes(16_000_000)
    return a_store(folder, framed(NODE, leaf), height=0)


def a_manifest_that_blows_up(folder: Path) -> Path:
    a_store(folder, framed(NODE, a_leaf([0], [b"k"])), height=0)
    (folder / "manifest.ocdbt").write_bytes(framed(MANIFEST, bytes(1 << 30)))
    return folder


def a_window_of_128_mb(folder: Path) -> Path:
    """The compression asks for memory by itself, before anything comes out of it."""
    a_store(folder, framed(NODE, a_leaf([0], [b"k"])), height=0)
    content = bytes([0, 1]) + bytes.fromhex("28b52ffd0088") + bytes([1, 0, 0])
    raw = MANIFEST + struct.pack("<Q", len(content) + 16) + content
    (folder / "manifest.ocdbt").write_bytes(raw + struct.pack("<I", crc32c(raw)))
    return folder


def keys_that_grow_out_of_each_other(folder: Path) -> Path:
    count, long = 200_000, 60_000
    prefixes = [0, *[long + number // 255 for number in range(count - 1)]]
    keys = [b"k" * long, *(bytes([1 + number % 255]) for number in range(count - 1))]
    return a_store(folder, framed(NODE, a_leaf(prefixes, keys)), height=0)


def a_prefix_that_all_keys_have(folder: Path) -> Path:
    """Each level adds to what all below begin with."""
    nodes, at = [framed(NODE, a_leaf([0] * 90, [b"%02d" % number for number in range(90)]))], 0
    for height in range(1, 200):
        place = (at, len(nodes[-1]))
        at += len(nodes[-1])
        nodes.append(framed(NODE, an_inner(height, [b"p" * 60_000], [place], [60_000])))
    return a_store(folder, *nodes, height=199, root=(at, len(nodes[-1])))


def a_long_prefix_of_many_keys(folder: Path) -> Path:
    """Thousands of leaves below a name that is as long as may be."""
    leaf = framed(NODE, a_leaf([0] * 2000, [struct.pack(">H", number) for number in range(2000)]))
    places = [(len(leaf) * number, len(leaf)) for number in range(200)]
    keys = [b"p" * 60_000 + b"%03d" % number for number in range(200)]
    root = framed(NODE, an_inner(1, keys, places, [60_003] * 200))
    return a_store(folder, *[leaf] * 200, root, height=1, root=(len(leaf) * 200, len(root)))


def names_of_files_without_end(folder: Path) -> Path:
    long = b"f" * 60_000
    node = bytes([0]) + files(40_000, prefix=len(long), name=long) + each(0)
    return a_store(folder, framed(NODE, node), height=0)


@pytest.mark.parametrize(
    ("made", "reported"),
    [
        (a_root_that_is_its_own_child, "a tree that comes back"),
        (a_lattice, "a tree that comes back"),
        (nodes_that_blow_up, "garbled"),
        (a_manifest_that_blows_up, "an index of more than"),
        (a_window_of_128_mb, "cannot be decompressed"),
        (keys_that_grow_out_of_each_other, "too large"),
        (a_prefix_that_all_keys_have, "garbled"),
        (names_of_files_without_end, "too large"),
    ],
)
def test_a_hostile_store_is_refused_soon(
    judge: Judge, tmp_path: Path, made: Callable[[Path], Path], reported: str
) -> None:
    assert reported in judge.verify(made(tmp_path / "10")).reason


@pytest.mark.slow
def test_the_largest_node_of_small_keys_is_read(judge: Judge, tmp_path: Path) -> None:
    count = 900_000
    keys = sorted(struct.pack(">I", number)[1:] for number in range(count))
    leaf = framed(NODE, a_leaf([0] * count, keys))

    assert judge.verify(a_store(tmp_path / "10", leaf, height=0)).reason == ""


def test_what_all_keys_begin_with_is_not_written_out_without_end(tmp_path: Path) -> None:
    store = survey(a_long_prefix_of_many_keys(tmp_path / "10"))

    with pytest.raises(Damaged, match="too large, to verify"):
        deque(read_values(store, "manifest.ocdbt"), maxlen=0)
