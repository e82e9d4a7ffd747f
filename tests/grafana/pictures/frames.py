"""What every panel has in common: its frame, its data, its time axis, its legend."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.fakes import START
from tests.grafana.dashboards.model import Panel
from tests.grafana.history.story import END
from tests.grafana.pictures.canvas import COLORS, Area, fitted, path, px, rect, text, width_of, wrapped
from tests.lab.prometheus import Series

TICK = 1800
"""Seconds between two times on an axis."""
_LABEL = re.compile(r"\{\{(\$?\w+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A panel with the answers to its queries, and the moments of the dashboard's markers with their colors."""

    panel: Panel
    answers: Sequence[Sequence[Series]]
    marks: Sequence[tuple[float, str]] = ()

    def named(self) -> list[tuple[str, Series]]:
        """Every series with its name, in the order of Prometheus's answers."""
        return [
            (name_of(query.legend, series), series)
            for query, found in zip(self.panel.queries, self.answers, strict=True)
            for series in found
            if series.points
        ]


def name_of(legend: str, series: Series) -> str:
    """*legend* with the labels of *series* put in; without a legend, the values of all labels."""
    if legend:
        return _LABEL.sub(lambda found: series.labels.get(found[1], ""), legend)
    return " ".join(value for name, value in sorted(series.labels.items()) if name != "__name__")


def color_of(panel: Panel, value: float) -> str:
    """Of *value*, by its name or by the thresholds."""
    if int(value) == value and int(value) in panel.names:
        return COLORS[panel.names[int(value)][1]]
    reached = [color for limit, color in panel.thresholds if limit is None or value >= limit]
    return COLORS[reached[-1]]


def frame(area: Area, panel: Panel) -> Iterator[str]:
    """The box of a panel, with its title."""
    yield rect(area, kind="panel", round_by=3)
    yield text(area.x + 8, area.y + 17, fitted(panel.title, area.width - 16, 12.5), kind="title")


def empty(area: Area, panel: Panel) -> Iterator[str]:
    """What a panel without data says."""
    lines = wrapped(panel.when_empty or "No data", area.width - 20, 11.5)
    for number, line in enumerate(lines):
        y = area.y + area.height / 2 + 14 * (number - len(lines) / 2) + 14
        yield text(area.x + area.width / 2, y, line, kind="soft", anchor="middle")


def across(area: Area, at: float) -> float:
    """Where the Unix time *at* is."""
    begin, end = START.timestamp(), END.timestamp()
    return area.x + area.width * (at - begin) / (end - begin)


def time_axis(area: Area) -> Iterator[str]:
    """Hours and minutes below *area*."""
    begin, end = int(START.timestamp()), int(END.timestamp())
    step = TICK if area.width > 330 else 2 * TICK
    for at in range(begin, end + 1, step):
        x = across(area, at)
        yield f'<path class="grid" d="M{px(x)} {px(area.y)}V{px(area.bottom)}"/>'
        name = datetime.fromtimestamp(at, UTC).strftime("%H:%M")
        anchor = "end" if at == end else "start" if at == begin else "middle"
        yield text(x, area.bottom + 14, name, kind="soft", anchor=anchor)


def marks(area: Area, moments: Iterable[tuple[float, str]]) -> Iterator[str]:
    """The dashboard's markers, as Grafana draws annotations."""
    for at, color in moments:
        x = across(area, at)
        yield path([(x, area.y), (x, area.bottom)], COLORS[color], dashed=True)


def legend(area: Area, entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Names with their colors in one line at the bottom of *area*; those without room are counted."""
    x, y = area.x + 10, area.bottom - 8
    for number, (name, color) in enumerate(entries):
        more = f"+{len(entries) - number} more"
        needed = width_of(name) + 18 + (0 if number == len(entries) - 1 else width_of(more) + 8)
        if x + needed > area.right - 4:
            yield text(x, y, more, kind="soft")
            return
        yield rect(Area(x, y - 4, 10, 3), fill=color)
        yield text(x + 13, y, name, kind="soft")
        x += width_of(name) + 26
