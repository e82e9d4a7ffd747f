"""The fuzzing of kernel lines itself, in small: it finds nothing, is the same each time, and would find something."""

from __future__ import annotations

import msgspec
import pytest

from healthd.cli.commands.klog import KlogLine
from healthd.core.diagnosis.klog import MessageKind
from tests.fuzz.klog import Author, Read, fuzz, made_lines, read_line

pytestmark = pytest.mark.slow

LINES = 3000


def blind(number: int, line: str) -> KlogLine | None:
    """Fails on what it does not like."""
    if "\x00" in line:
        raise ValueError("a null")
    return read_line(number, line)


def credulous(number: int, line: str) -> KlogLine | None:
    """Finds an Xid wherever the word stands."""
    reading = read_line(number, line)
    return msgspec.structs.replace(reading, kind=MessageKind.XID, xid=79) if reading and "Xid" not in line else reading


def test_nothing_is_found() -> None:
    report = fuzz(LINES, seed=7)

    assert report.failures == []
    assert report.lines == LINES


def test_every_kind_is_met() -> None:
    assert set(fuzz(LINES, seed=7).kinds) == {*MessageKind, "nothing"}


def test_the_same_seed_gives_the_same_lines() -> None:
    assert fuzz(300, seed=7).digest == fuzz(300, seed=7).digest != fuzz(300, seed=8).digest


def test_every_author_writes_some_lines() -> None:
    assert {author for _, author in made_lines(300, seed=7)} == set(Author)


@pytest.mark.parametrize("broken", [blind, credulous])
def test_a_reader_with_a_fault_is_found_out(broken: Read) -> None:
    assert fuzz(LINES, seed=7, read=broken).failures
