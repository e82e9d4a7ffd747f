"""State timelines and heat maps: a row for each series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.grafana.dashboards.model import Panel
from tests.grafana.history.asking import STEP
from tests.grafana.pictures.canvas import COLORS, Area, fitted, rect, text, width_of
from tests.grafana.pictures.frames import Drawn, across, color_of, empty, frame, legend, time_axis
from tests.grafana.pictures.units import written
from tests.lab.prometheus import Series

_GAP = 1.5 * STEP.total_seconds()


def bands(area: Area, drawn: Drawn) -> Iterator[str]:
    """A panel of kind `state-timeline` or `status-history`."""
    panel = drawn.panel
    yield from frame(area, panel)
    named = [(name, series) for name, series in drawn.named() if any(not math.isnan(v) for _, v in series.points)]
    if not named:
        yield from empty(area, panel)
        return
    is_history = panel.kind == "status-history"
    left = min(max(width_of(name) for name, _ in named) + 18, area.width * 0.42)
    plot = area.inset(left=left, top=28, right=14, bottom=40 if is_history else 24)
    yield from time_axis(plot)
    height = min(plot.height / len(named), 40)
    for number, (name, series) in enumerate(named):
        row = Area(plot.x, plot.y + number * height + 1, plot.width, height - 2)
        words = fitted(name, left - 14)
        yield text(plot.x - 6, row.y + height / 2 + 3, words, kind="soft", anchor="end")
        yield from _cells(row, series, panel) if is_history else _row(row, series, panel)
    if is_history:
        yield from legend(area, list(_meanings(panel)))


def _row(row: Area, series: Series, panel: Panel) -> Iterator[str]:
    for begin, end, value in _spans(series.points):
        x = across(row, begin)
        band = Area(x, row.y, max(across(row, end) - x, 2), row.height)
        yield rect(band, fill=color_of(panel, value))
        name = panel.names[int(value)][0] if int(value) in panel.names else written(value, panel.unit, panel.decimals)
        if row.height >= 11 and width_of(name) + 8 < band.width:
            yield text(band.x + 4, row.y + row.height / 2 + 4, name, kind="inside")


def _cells(row: Area, series: Series, panel: Panel) -> Iterator[str]:
    times = [at for at, _ in series.points]
    wide = min((later - earlier for earlier, later in pairwise(times)), default=300.0)
    for at, value in series.points:
        x = across(row, at - wide)
        yield rect(Area(x, row.y, across(row, at) - x - 1, row.height), fill=color_of(panel, value))


def _spans(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float, float]]:
    """From when to when which value stood."""
    begin: float | None = None
    last, held = 0.0, math.nan
    for at, value in points:
        if begin is not None and (value != held or at - last > _GAP):
            yield begin, at if at - last <= _GAP else last + STEP.total_seconds(), held
            begin = None
        begin = at if begin is None else begin
        last, held = at, value
    if begin is not None:
        yield begin, last, held


def _meanings(panel: Panel) -> Iterator[tuple[str, str]]:
    """The colors of a heat map."""
    limits = [limit or 0 for limit, _ in panel.thresholds]
    for (limit, color), upper in zip(panel.thresholds, [*limits[1:], None], strict=True):
        low = limit or 0
        one = upper is not None and upper - low == 1
        yield (f"{low:g}" if one else f"{low:g} or more" if upper is None else f"below {upper:g}"), COLORS[color]
