"""Damages for a file that is whole: what storage and a dying writer make of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from healthd.checkpoints.latest import Candidate, Rejected, VerifyLevel, verify
from healthd.checkpoints.steps import find


def word(path: Path, *, level: VerifyLevel = VerifyLevel.FULL) -> str:
    """Why the checkpoint that *path* is, or stands for, is refused; empty when it holds."""
    candidate = next(iter(find(path)), Candidate(path=path, step=0))
    outcome = verify(candidate, level=level)
    return outcome.reason if isinstance(outcome, Rejected) else ""


def held_when_cut(
    checkpoint: Path, file: Path, *, level: VerifyLevel = VerifyLevel.QUICK, times: int = 20
) -> list[int]:
    """The lengths to which *file* was cut, and still it was said to be whole."""
    return [
        length for length, content in cuts(file.read_bytes(), times) if not _said_of(checkpoint, file, content, level)
    ]


def held_when_flipped(checkpoint: Path, file: Path, *, times: int = 60) -> list[int]:
    """The bytes of *file* of which a bit was flipped, and still it was said to be whole by a full look."""
    whole = file.read_bytes()
    places = sorted({index * len(whole) // times for index in range(times)})
    flipped = ((at, whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]) for at in places)
    return [at for at, content in flipped if not _said_of(checkpoint, file, content, VerifyLevel.FULL)]


def cuts(whole: bytes, times: int) -> Iterator[tuple[int, bytes]]:
    """From nothing to all but one byte."""
    for length in sorted({index * len(whole) // times for index in range(times)} | {len(whole) - 1}):
        yield length, whole[:length]


def _said_of(checkpoint: Path, file: Path, content: bytes, level: VerifyLevel) -> str:
    whole = file.read_bytes()
    file.write_bytes(content)
    reason = word(checkpoint, level=level)
    file.write_bytes(whole)
    return reason
