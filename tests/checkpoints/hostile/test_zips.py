"""Archives with millions of members, members over each other, and bombs: see also test_numpy."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow

MB = 1 << 20
FULL_16, FULL_32 = 0xFFFF, 0xFFFFFFFF


def an_entry(header: int, size: int = 0, name: bytes = b"a.npy") -> bytes:
    sizes = struct.pack("<3I", 0, size, size)
    return b"PK\1\2" + bytes(12) + sizes + struct.pack("<5H2I", len(name), 0, 0, 0, 0, 0, header) + name


def a_member(content: bytes = b"", name: bytes = b"a.npy") -> bytes:
    return b"PK\3\4" + bytes(14) + struct.pack("<2I2H", len(content), len(content), len(name), 0) + name + content


def an_archive(members: bytes, entries: bytes, count: int) -> bytes:
    """With the wide end records, which can tell of any number."""
    place = struct.pack("<2Q", len(entries), len(members))
    wide = struct.pack("<4sQ2H2I2Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count) + place
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(members) + len(entries), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count & FULL_16, FULL_16, FULL_32, FULL_32, 0)
    return members + entries + wide + locator + end


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (
            lambda: an_archive(b"PK\3\4", an_entry(0, name=b"") * 600_000, 600_000),
            "600,000 members, too many to verify",
        ),
        (lambda: an_archive(b"PK\3\4", an_entry(0, name=b"") * 600_000, 9), "does not list its 9 members"),
        (lambda: an_archive(b"PK\3\4", an_entry(0) * 3, (1 << 64) - 1), "18,446,744,073,709,551,615 members"),
        (lambda: an_archive(b"PK\3\4" + bytes(33 * MB), bytes(33 * MB), 1), "its archive directory claims"),
        (lambda: an_archive(a_member(), an_entry(0) * 1000, 1000), "reaches over what comes after it"),
        (lambda: an_archive(a_member(b"x" * 100), an_entry(0, 1 << 31), 1), "many times"),
    ],
    ids=range(6),
)
def test_a_hostile_archive_is_refused_soon(
    judge: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "step-1.npz").write_bytes(content())

    assert reported in judge.verify(tmp_path).reason
