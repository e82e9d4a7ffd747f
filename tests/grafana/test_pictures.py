"""What the pictures of the dashboards say of the data."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.fakes import START
from tests.grafana.dashboards.model import Column, Panel
from tests.grafana.dashboards.panels import bars, lines, stat, table, timeline
from tests.grafana.pictures.bands import bands
from tests.grafana.pictures.canvas import COLORS, Area
from tests.grafana.pictures.frames import Drawn
from tests.grafana.pictures.numbers import stat as drawn_stat
from tests.grafana.pictures.numbers import table as drawn_table
from tests.grafana.pictures.over_time import over_time
from tests.grafana.pictures.units import ticks, written
from tests.lab.prometheus import Series

AREA = Area(0, 0, 600, 260)


def series(*values: float, every: float = 60, **labels: str) -> Series:
    """One value a minute from the beginning."""
    return Series(labels, [(START.timestamp() + number * every, value) for number, value in enumerate(values)])


def drawing(panel: Panel, *found: Series) -> Drawn:
    """A panel with one query."""
    return Drawn(panel=panel, answers=[found])


def words(lines_of_svg: Any) -> list[str]:
    """The texts in a drawing."""
    return re.findall(r">([^<>]+)</text>", "\n".join(lines_of_svg))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (90, "s", "1.5 min"),
        (0.0005, "s", "0.5 ms"),
        (86400, "s", "1 d"),
        (0.25, "percentunit", "25 %"),
        (3.2e9, "Bps", "3.2 GB/s"),
        (71_000, "decmbytes", "71 GB"),
        (12, "short", "12"),
        (float("nan"), "short", "NaN"),
    ],
)
def test_a_number_reads_with_its_unit(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_an_axis_of_times_has_whole_minutes() -> None:
    assert ticks(0, 800, "s") == [0, 300, 600, 900]


def test_a_line_is_cut_where_values_are_missing() -> None:
    whole, late = series(1, 2, 3), series(1, 2, 3, every=600)
    panel = lines("Lines", "What it means.", "x")

    assert len(re.findall(r'class="line"', "\n".join(over_time(AREA, drawing(panel, whole))))) == 1
    assert len(re.findall(r'class="line"', "\n".join(over_time(AREA, drawing(panel, late))))) == 3


def test_bars_stand_on_each_other() -> None:
    panel = bars("Bars", "What it means.", ("x", "{{name}}"))
    drawn = "\n".join(over_time(AREA, drawing(panel, series(1, name="a"), series(1, name="b"))))
    tops = re.findall(r'<rect fill="[^"]+" x="[^"]+" y="([\d.]+)" width="[^"]+" height="([\d.]+)"', drawn)

    (lower, height), (upper, _) = tops[:2]

    assert float(upper) == pytest.approx(float(lower) - float(height), abs=0.2)


def test_a_panel_without_data_says_what_that_means() -> None:
    panel = lines("Lines", "What it means.", "x", when_empty="all is well")

    assert words(over_time(AREA, drawing(panel))) == ["Lines", "all is well"]


def test_a_number_has_the_color_of_its_threshold() -> None:
    panel = stat("Stat", "What it means.", "x", thresholds=((None, "green"), (3, "red")))

    assert COLORS["green"] in "\n".join(drawn_stat(AREA, drawing(panel, series(2))))
    assert COLORS["red"] in "\n".join(drawn_stat(AREA, drawing(panel, series(3))))


def test_a_band_names_each_state_once() -> None:
    panel = timeline("States", "What it means.", ("x", "{{node}}"), names={0: ("good", "green"), 1: ("bad", "red")})
    states = series(0, 0, 1, 1, 0, every=1800, node="n1")

    assert "n1" in words(bands(AREA, drawing(panel, states)))


def test_a_table_has_one_row_for_the_same_labels_of_several_queries() -> None:
    columns = [
        Column(source="rule", title="Rule"),
        Column(source="A", title="Findings"),
        Column(source="B", title="Nodes"),
    ]
    panel = table("Table", "What it means.", columns, "x", "y")
    found = Drawn(panel=panel, answers=[[series(4, rule="xid-79")], [series(2, rule="xid-79")]])

    assert words(drawn_table(AREA, found)) == ["Table", "Rule", "Findings", "Nodes", "xid-79", "4", "2"]
