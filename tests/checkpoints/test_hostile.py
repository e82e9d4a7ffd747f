"""Files that were made to cost time or memory, or to be taken for something else: a clear answer, and soon."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from healthd.checkpoints.sstables import FOOTER, MAGIC, crc32c
from tests.checkpoints.builders import refusal
from tests.checkpoints.damages import word

NAMES = [
    "step-1.npz",
    "step-1.npy",
    "checkpoint_1",
    "state.msgpack",
    "step-1.keras",
    "step-1.h5",
    "epoch_1.pdparams",
    "model_1.ubj",
    "model_1.json",
    "model.txt.snapshot_iter_1",
    "model-step=1.nemo",
    "ckpt-1.index",
    "ckpt-1.data-00000-of-00001",
    ".metadata.json",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_fifo_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)

    assert refusal(tmp_path)
    assert "fault of healthd" not in refusal(tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"", bytes(5000), b"\xff" * 5000, os.urandom(5000)], ids=["", "0", "1", "random"])
def test_nonsense_is_refused_without_a_fault(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    assert refusal(tmp_path)
    assert "fault of healthd" not in refusal(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_link_in_a_circle_is_refused_without_a_fault(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(name)

    assert refusal(tmp_path)
    assert "fault of healthd" not in refusal(tmp_path)


def test_extensions_of_messagepack_inside_each_other_are_refused(tmp_path: Path) -> None:
    content = b"\xc0"
    for _ in range(20_000):
        content = b"\xc9" + struct.pack(">IB", len(content) + 1, 1) + b"\x93" + content
    (tmp_path / "state.msgpack").write_bytes(b"\x81\xa1w" + content)

    assert "no array at byte" in refusal(tmp_path)


def a_table(*blocks: bytes, index: bytes) -> bytes:
    raw = b""
    for block in (*blocks, index):
        masked = crc32c(block + b"\0")
        masked = ((masked >> 15 | masked << 17) + 0xA282EAD8) & 0xFFFFFFFF
        raw += block + b"\0" + struct.pack("<I", masked)
    at = len(raw) - len(index) - 5
    handles = varint(0) + varint(0) + varint(at) + varint(len(index))
    return raw + handles.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def entries(*items: tuple[int, bytes, bytes]) -> bytes:
    body = b"".join(
        varint(shared) + varint(len(key)) + varint(len(value)) + key + value for shared, key, value in items
    )
    return body + struct.pack("<I", 0)


def test_a_block_that_an_index_names_over_and_over_is_read_once(tmp_path: Path) -> None:
    block = entries((0, b"", b"x" * 100_000))
    index = entries(*((0, b"k%d" % number, varint(0) + varint(len(block))) for number in range(5000)))
    (tmp_path / "ckpt-1.index").write_bytes(a_table(block, index=index))

    assert "its index is garbled" in word(tmp_path / "ckpt-1")


def test_keys_that_grow_out_of_each_other_have_a_bound(tmp_path: Path) -> None:
    long = entries((0, b"k" * 100_000, b""), *((100_000, b"", b"") for _ in range(10_000)))
    (tmp_path / "ckpt-1.index").write_bytes(a_table(long, index=entries((0, b"k", varint(0) + varint(len(long))))))

    assert "its index is garbled" in word(tmp_path / "ckpt-1")
