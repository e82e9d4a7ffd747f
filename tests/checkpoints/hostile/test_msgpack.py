"""MessagePack that counts more than there is, nests without end, or has arrays of the absurd."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow

MB = 1 << 20


def an_array(shape: bytes, kind: bytes = b"\xa7float32", data: bytes = b"\xc4\x04abcd") -> bytes:
    body = b"\x93" + shape + kind + data
    return b"\x81\xa1a\xc9" + struct.pack(">IB", len(body), 1) + body


HUGE = b"\xcf" + b"\xff" * 8


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (lambda: b"\xdf\xff\xff\xff\xff" + b"\xa1a\xc0" * 1000, "more than there can be"),
        (lambda: b"\x81\xa1a\xdd\xff\xff\xff\xff", "more than there can be"),
        (lambda: b"\x81\xa1a\xdb\xff\xff\xff\xff", "(torn write)"),
        (lambda: b"\x81\xa1a\xc6\xff\xff\xff\xff", "(torn write)"),
        (lambda: b"\x81\xa1a" * 100_000 + b"\xc0", "more than there can be"),
        (lambda: b"\x81\xa1a\xdb" + struct.pack(">I", 17 * MB) + b"x" * (17 * MB), "for one piece of its structure"),
        pytest.param(
            lambda: b"\xdf" + struct.pack(">I", 3_000_000) + b"\xa0\xc0" * 3_000_000,
            "too many to verify",
            marks=pytest.mark.slow,
        ),
        (lambda: an_array(b"\x9f" + HUGE * 15), "its type and shape need"),
        (lambda: an_array(b"\xdc\x00\x40" + HUGE * 64), "its type and shape need"),
        (lambda: an_array(b"\xdd\xff\xff\xff\xff"), "no array at byte"),
        (lambda: an_array(b"\x91\xd3" + b"\xff" * 8), "and shape [-1]"),
        (lambda: an_array(b"\x91\xca\x7f\x80\0\0"), "no shape and type of an array"),
        (lambda: an_array(b"\x91\x01", kind=b"\xa3V99"), "an array of type"),
    ],
    ids=range(13),
)
def test_a_hostile_state_is_refused_soon(
    judge: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "state.msgpack").write_bytes(content())

    assert reported in judge.verify(tmp_path).reason
