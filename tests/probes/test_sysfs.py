"""Small files of /sys and /proc: what is there, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.probes.sysfs import (
    PAGE,
    link_name,
    names_in,
    parse_number,
    pci_of,
    read_bytes,
    read_lines,
    read_number,
    read_text,
    read_word,
)


def test_word_comes_without_white_space(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text(" 4: ACTIVE\n")

    assert read_word(str(path)) == read_text(str(path)) == "4: ACTIVE"


@pytest.mark.parametrize("name", ["absent", "."], ids=["nothing there", "a folder"])
def test_what_cannot_be_read_is_nothing(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)

    assert (read_word(path), read_bytes(path), read_lines(path), read_number(path)) == ("", b"", [""], None)


def test_only_who_asks_for_an_error_gets_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_text(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("17", 17),
        ("-1", -1),
        ("0x1f", 31),
        (f"{(1 << 64) - 1}", (1 << 64) - 1),
        ("", None),
        ("0xg", None),
        ("N/A", None),
        pytest.param("9" * 400, None, id="more than a float holds"),
        pytest.param("0x" + "f" * 400, None, id="the same in hexadecimal"),
    ],
)
def test_whole_numbers_are_decimal_or_with_0x(text: str, number: int | None) -> None:
    assert parse_number(text) == number


def test_line_that_was_cut_off_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "mountinfo"
    path.write_text("first\nsecond\n")

    assert read_lines(str(path), most=9) == ["first"]


def test_a_list_that_the_kernel_gives_page_by_page_is_read_to_its_end() -> None:
    maps = read_bytes("/proc/self/maps", 1 << 24)

    assert len(maps) > PAGE
    assert b"[stack]" in maps


def test_link_is_known_by_its_last_part(tmp_path: Path) -> None:
    (tmp_path / "driver").symlink_to("../drivers/nvidia")

    assert link_name(str(tmp_path / "driver")) == "nvidia"
    assert link_name(str(tmp_path / "absent")) == ""


def test_names_come_in_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).touch()

    assert names_in(str(tmp_path)) == ["a", "b"]
    assert names_in(str(tmp_path / "absent")) == []


def test_address_of_the_nearest_function_above() -> None:
    assert pci_of("/sys/devices/pci0000:5a/0000:5a:01.0/10003:5c:00.1/net/eth0") == "10003:5c:00.1"
    assert pci_of("/sys/devices/virtual/net/lo") == ""


@given(st.text())
def test_address_is_a_part_of_the_path_or_nothing(text: str) -> None:
    assert pci_of(text) in text
