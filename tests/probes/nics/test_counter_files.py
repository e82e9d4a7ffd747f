"""Counters that are read again and again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.probes.nics.counter_files import parse_counter
from healthd.probes.sysfs import KeptOpen


@pytest.mark.parametrize("text", ["", "N/A (no PMA)", "1.5", "9" * 21, "0x10"])
def test_what_is_no_counter(text: str) -> None:
    assert parse_counter(text) is None


@given(st.text())
def test_no_text_of_a_file_is_a_counter_beyond_64_bits(text: str) -> None:
    number = parse_counter(text)

    assert number is None or abs(number) < 10**20


def test_file_that_is_kept_open_shows_what_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("4: ACTIVE\n")
    read = KeptOpen()
    before = read(str(path))
    path.write_text("1: DOWN\n")

    assert (before, read(str(path))) == ("4: ACTIVE", "1: DOWN")
    read.close()


def test_file_that_is_not_there_is_asked_again_later(tmp_path: Path) -> None:
    path = tmp_path / "state"
    read = KeptOpen()
    with pytest.raises(FileNotFoundError):
        read(str(path))
    path.write_text("4: ACTIVE\n")

    assert read(str(path)) == "4: ACTIVE"
    read.close()
