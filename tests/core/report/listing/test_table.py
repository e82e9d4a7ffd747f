"""Tables for people: columns that are easy to cut, and that fit the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.core.report.listing.ages import age
from healthd.core.report.listing.table import Column, lines_of

COLUMNS = (Column("NAME"), Column("SECRET", wide=True), Column("MESSAGE", flexible=True))
ROW = ("llama", "hidden", "waits for a spare that is not there")


def test_columns_line_up_and_an_empty_cell_is_a_dash() -> None:
    assert list(lines_of(COLUMNS, [("llama", "x", "runs"), ("a", "x", "")])) == [
        "NAME    MESSAGE",
        "llama   runs",
        "a       -",
    ]


def test_wide_columns_are_shown_where_they_are_asked_for() -> None:
    assert "hidden" not in "".join(lines_of(COLUMNS, [ROW]))
    assert "hidden" in "".join(lines_of(COLUMNS, [ROW], wide=True))


def test_a_narrow_terminal_cuts_the_flexible_column_and_no_other() -> None:
    _, line = lines_of(COLUMNS, [ROW], width=24)

    assert line == "llama   waits for a spa…"


def test_a_pipe_gets_everything() -> None:
    assert list(lines_of(COLUMNS, [ROW]))[1].endswith("that is not there")


def test_a_cell_cannot_drive_the_terminal() -> None:
    _, line = lines_of(COLUMNS, [("a\x1b[2J\nb", "", "")])

    assert "\x1b" not in line
    assert "\n" not in line


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9), st.text(max_size=99)), max_size=4), st.integers(1, 80)
)
def test_every_row_is_one_line_at_any_width(rows: list[tuple[str, str, str]], width: int) -> None:
    assert len(list(lines_of(COLUMNS, rows, width=width))) == len(rows) + 1


def test_durations_are_short() -> None:
    spans = [None, -5, 0, 59.9, 60, 133, 599, 600, 3600 + 20 * 60, 36_000, 86_400 * 3, 86_400 * 12 + 5]

    assert [age(span) for span in spans] == [
        "",
        "0s",
        "0s",
        "59s",
        "1m",
        "2m13s",
        "9m59s",
        "10m",
        "1h20m",
        "10h",
        "3d",
        "12d",
    ]
