"""Lines, stacked areas and bars over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.grafana.history.asking import STEP
from tests.grafana.pictures.canvas import COLORS, PALETTE, Area, filled, path, px, rect, text
from tests.grafana.pictures.frames import Drawn, across, empty, frame, legend, marks, time_axis
from tests.grafana.pictures.units import ticks, written

Points = list[tuple[float, float]]
_GAP = 1.5 * STEP.total_seconds()
_BAR = 300.0
"""Seconds: `EVENTS_EVERY`."""


def over_time(area: Area, drawn: Drawn) -> Iterator[str]:
    """A panel of kind `timeseries`."""
    panel = drawn.panel
    yield from frame(area, panel)
    named = [(name, _finite(series.points)) for name, series in drawn.named()]
    named = [(name, points) for name, points in named if points]
    if not named:
        yield from empty(area, panel)
        return
    plot = area.inset(left=58, top=28, right=14, bottom=40)
    is_stacked = panel.custom.get("stacking", {}).get("mode") == "normal"
    layers = _stacked([points for _, points in named]) if is_stacked else [(points, []) for _, points in named]
    high = max(value for points, _ in layers for _, value in points)
    values = ticks(panel.minimum or 0, panel.maximum or max(high, _lowest_limit(drawn, high)), panel.unit)
    if panel.decimals == 0:
        values = [value for value in values if value == int(value)]
    yield from time_axis(plot)
    yield from _value_axis(plot, values, drawn)
    yield from marks(plot, drawn.marks)
    scale = _Scale(plot, values[0], values[-1])
    colors = [_color(drawn, name, number) for number, (name, _) in enumerate(named)]
    for color, (points, below) in zip(colors, layers, strict=True):
        yield from _layer(scale, points, below, color, drawn)
    yield from _limits(scale, drawn)
    yield from legend(area, [(name, color) for (name, _), color in zip(named, colors, strict=True)])


def _color(drawn: Drawn, name: str, number: int) -> str:
    fixed = drawn.panel.series.get(name)
    return COLORS[fixed] if fixed else PALETTE[number % len(PALETTE)]


class _Scale:
    def __init__(self, plot: Area, low: float, high: float) -> None:
        self.plot, self._low, self.high = plot, low, high

    def at(self, moment: float, value: float) -> tuple[float, float]:
        share = (value - self._low) / (self.high - self._low)
        return across(self.plot, moment), self.plot.bottom - self.plot.height * min(max(share, 0.0), 1.0)


def _layer(scale: _Scale, points: Points, below: Points, color: str, drawn: Drawn) -> Iterator[str]:
    custom = drawn.panel.custom
    if custom["drawStyle"] == "bars":
        for (at, value), (_, base) in zip(points, below, strict=True):
            if value > base:
                (x, top), (_, bottom) = scale.at(at, value), scale.at(at, base)
                wide = scale.plot.width * _BAR / 10800 * 0.8
                yield rect(Area(x - wide, top, wide, bottom - top), fill=color)
        return
    stairs = custom.get("lineInterpolation") == "stepAfter"
    if below:
        upper = [scale.at(at, value) for at, value in _stairs(points)]
        lower = [scale.at(at, value) for at, value in _stairs(below)]
        yield filled([*upper, *reversed(lower)], color)
        return
    for part in _parts(points):
        yield path([scale.at(at, value) for at, value in (_stairs(part) if stairs else _thinned(part))], color)


def _value_axis(plot: Area, values: Sequence[float], drawn: Drawn) -> Iterator[str]:
    low, high = values[0], values[-1]
    for value in values:
        y = plot.bottom - plot.height * (value - low) / (high - low)
        yield f'<path class="grid" d="M{px(plot.x)} {px(y)}H{px(plot.right)}"/>'
        yield text(plot.x - 5, y + 4, written(value, drawn.panel.unit, drawn.panel.decimals), kind="soft", anchor="end")


def _limits(scale: _Scale, drawn: Drawn) -> Iterator[str]:
    """Thresholds, where the panel shows them as lines."""
    if "thresholdsStyle" not in drawn.panel.custom:
        return
    for limit, color in drawn.panel.thresholds:
        if limit is not None and limit <= scale.high:
            y = scale.at(0, limit)[1]
            yield path([(scale.plot.x, y), (scale.plot.right, y)], COLORS[color], dashed=True)


def _lowest_limit(drawn: Drawn, high: float) -> float:
    """A threshold line that is near is shown."""
    limits = [limit for limit, _ in drawn.panel.thresholds if limit is not None]
    is_line = "thresholdsStyle" in drawn.panel.custom
    return min((limit for limit in limits if limit <= 4 * high), default=0.0) * 1.05 if is_line else 0.0


def _stacked(series: Sequence[Points]) -> list[tuple[Points, Points]]:
    """Each series on top of those before it: its upper and its lower border."""
    times = sorted({at for points in series for at, _ in points})
    base = dict.fromkeys(times, 0.0)
    layers = []
    for points in series:
        own = dict(points)
        top = {at: base[at] + own.get(at, 0.0) for at in times}
        layers.append((list(top.items()), list(base.items())))
        base = top
    return layers


def _finite(points: Sequence[tuple[float, float]]) -> Points:
    return [(at, value) for at, value in points if math.isfinite(value)]


def _parts(points: Points) -> Iterator[Points]:
    """Cut where a value is missing."""
    part: Points = []
    for at, value in points:
        if part and at - part[-1][0] > _GAP:
            yield part
            part = []
        part.append((at, value))
    yield part


def _stairs(points: Points) -> Points:
    """Only the corners, where a value holds until the next."""
    corners: Points = []
    for value, run in groupby(points, key=lambda point: point[1]):
        first = next(run)[0]
        if corners:
            corners.append((first, corners[-1][1]))
        corners.append((first, value))
    return [*corners, (points[-1][0], points[-1][1])]


def _thinned(points: Points) -> Points:
    """Without the points within a straight level stretch."""
    return [
        point
        for number, point in enumerate(points)
        if not 0 < number < len(points) - 1 or not points[number - 1][1] == point[1] == points[number + 1][1]
    ]
