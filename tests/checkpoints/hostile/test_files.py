"""Files that were made to cost time or memory, or to be taken for something else: a clear answer, and soon."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from tests.checkpoints.builders import refusal, safetensors_bytes

pytestmark = pytest.mark.slow

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
@pytest.mark.parametrize(
    "content", [b"", bytes(5000), b"\xff" * 5000, random.Random(1).randbytes(5000)], ids=["", "0", "1", "random"]
)
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


@pytest.mark.parametrize("beside", ["model.h4", "model.h6"])
def test_a_torn_file_does_not_hide_behind_another_digit_in_the_suffix(tmp_path: Path, beside: str) -> None:
    (tmp_path / beside).write_bytes(b"anything")
    (tmp_path / "model.h5").write_bytes(b"torn")
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"a": 1}))

    assert refusal(tmp_path).startswith("model.h5: ")
