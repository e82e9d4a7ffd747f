"""Tar archives with members that are not what they seem, and headers that claim the absurd."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from healthd.checkpoints.encodings.tars import TarMember, read_members
from healthd.checkpoints.windows import Window
from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow

BLOCK = 512


def a_header(name: bytes = b"a", *, size: bytes = b"0", kind: bytes = b"0") -> bytes:
    head = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0") + b"0\0".ljust(12)
    head += b" " * 8 + kind + bytes(100) + b"ustar\x0000"
    head = head.ljust(BLOCK, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def an_extension(data: bytes, kind: bytes = b"x", size: int | None = None) -> bytes:
    length = len(data) if size is None else size
    return a_header(size=b"%o" % length, kind=kind) + data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0")


def a_record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length += 1
    return str(length).encode() + body


LONG = b"n" * 65_000


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (lambda: a_header(size=b"-0000001000"), "not a tar archive"),
        (lambda: a_header(size=b"-1000000000"), "not a tar archive"),
        (lambda: a_header(size=b"1_0"), "not a tar archive"),
        (lambda: a_header(size=b"\xff" * 12), "not a tar archive"),
        (lambda: a_header(size=b"\x80" + b"\xff" * 11), "(torn write)"),
        (lambda: an_extension(b"", size=7 << 30), "(torn write)"),
        (lambda: an_extension(bytes(1 << 20)), "1,048,576 bytes of extension headers for a member"),
        (lambda: an_extension(b"99999999 path=a\n"), "garbled"),
        (lambda: an_extension(b"0 path=a\n"), "garbled"),
        (lambda: an_extension(b"-5 path=a\n"), "garbled"),
        (lambda: an_extension(a_record(b"size", b"-512")) + a_header(), "no size of a member"),
        (lambda: an_extension(a_record(b"size", b"9" * 5000)) + a_header(), "no size of a member"),
        (lambda: an_extension(a_record(b"size", b"9" * 18)) + a_header(), "(torn write)"),
        (lambda: an_extension(a_record(b"path", b"../../secret")) + a_header(), "not inside the checkpoint"),
        (lambda: an_extension(a_record(b"path", b"/secret")) + a_header(), "not inside the checkpoint"),
        (lambda: an_extension(a_record(b"path", b"a"), b"g") + a_header(), "for all of its members"),
        (lambda: an_extension(a_record(b"GNU.sparse.major", b"1")) + a_header(), "a member with holes"),
        (lambda: an_extension(a_record(b"path", LONG)) + a_header(), "too long to verify"),
        (lambda: an_extension(LONG, b"L") + a_header(), "too long to verify"),
        (lambda: a_header(b"../../etc/passwd"), "not inside the checkpoint"),
        (lambda: a_header(kind=b"2"), "is a link or a device"),
        (lambda: a_header(kind=b"1"), "is a link or a device"),
        (lambda: a_header(kind=b"6"), "is a link or a device"),
        (lambda: a_header(kind=b"S"), "has holes"),
        (lambda: a_header() * 100_001, "too many to verify"),
        (
            lambda: b"".join(an_extension(b"%05d" % n + LONG[:4000], b"L") + a_header() for n in range(5000)),
            "too long to verify",
        ),
    ],
    ids=lambda value: value[-24:] if isinstance(value, str) else "",
)
def test_a_hostile_archive_is_refused_soon(
    judge: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "step=1.nemo").write_bytes(content() + bytes(2 * BLOCK))

    assert reported in judge.verify(tmp_path / "step=1.nemo").reason


def test_a_member_of_more_than_eight_gib_is_as_long_as_the_extension_says() -> None:
    size = (8 << 30) + 1
    info = tarfile.TarInfo("model_weights.ckpt")
    info.size = size
    header = info.tobuf(tarfile.PAX_FORMAT)
    window = Window(
        lambda offset, length: (header[offset:]).ljust(length, b"\0")[:length], "a", len(header) + size + 2048
    )

    assert read_members(window) == {"model_weights.ckpt": TarMember(len(header), size)}


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_what_python_writes_is_read(kind: int) -> None:
    names = ["./model_config.yaml", "é/weights.ckpt", "/".join(["folder"] * 20) + "/common.pt"]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=kind) as archive:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = 600 * number
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    raw = buffer.getvalue()
    members = read_members(Window(lambda offset, length: raw[offset : offset + length], "a", len(raw)))

    assert {name: member.size for name, member in members.items()} == {
        name.removeprefix("./"): 600 * number for number, name in enumerate(names)
    }
