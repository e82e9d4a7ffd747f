"""Numbers as of now: stats, rankings and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.grafana.dashboards.model import Column, Panel
from tests.grafana.pictures.canvas import COLORS, Area, fitted, rect, text, width_of
from tests.grafana.pictures.frames import Drawn, color_of, empty, frame
from tests.grafana.pictures.units import written

_LINE = 21.0


def stat(area: Area, drawn: Drawn) -> Iterator[str]:
    """One large number for each series."""
    panel = drawn.panel
    yield from frame(area, panel)
    named = drawn.named()
    if not named:
        yield from empty(area.inset(top=10), panel)
        return
    is_loud = panel.options["colorMode"] != "value"
    width = area.width / len(named)
    for number, (name, series) in enumerate(named):
        cell = Area(area.x + number * width, area.y + 24, width, area.height - 26)
        value = series.points[-1][1]
        words = _shown(panel, value)
        color = COLORS[panel.series[name]] if name in panel.series else color_of(panel, value)
        if is_loud:
            yield rect(cell.inset(4, 0, 4, 4), fill=color, round_by=3)
        size = min(cell.height * 0.46, 34.0, 30 * (cell.width - 16) / max(width_of(words, 30), 1))
        middle, y = cell.x + cell.width / 2, cell.y + cell.height / 2 + (2 if len(named) > 1 else 8)
        yield text(middle, y, words, anchor="middle", size=size, fill="#ffffff" if is_loud else color)
        if len(named) > 1:
            yield text(middle, y + 18, fitted(name, width - 8), kind="soft", anchor="middle")


def ranking(area: Area, drawn: Drawn) -> Iterator[str]:
    """A bar for each series, the largest first."""
    panel = drawn.panel
    yield from frame(area, panel)
    named = drawn.named()
    if not named:
        yield from empty(area, panel)
        return
    left = min(max(width_of(name) for name, _ in named) + 18, area.width * 0.4)
    rows = area.inset(left=left, top=30, right=76, bottom=10)
    height = min(rows.height / len(named), 26)
    most = max(series.points[-1][1] for _, series in named) or 1
    for number, (name, series) in enumerate(named):
        value, y = series.points[-1][1], rows.y + number * height
        yield text(rows.x - 6, y + height / 2 + 4, fitted(name, left - 12), kind="soft", anchor="end")
        yield rect(Area(rows.x, y + 2, rows.width, height - 4), fill="#eef0f2")
        yield rect(Area(rows.x, y + 2, rows.width * value / most, height - 4), fill=color_of(panel, value))
        yield text(rows.right + 6, y + height / 2 + 4, _shown(panel, value))


def table(area: Area, drawn: Drawn) -> Iterator[str]:
    """Rows of labels and values."""
    panel = drawn.panel
    yield from frame(area, panel)
    rows = _rows(drawn)
    if not rows:
        yield from empty(area, panel)
        return
    columns = [column for column in panel.columns if any(row.get(column.source) for row in rows)]
    places = list(_places(columns, rows, area))
    y = area.y + 40
    for column, (x, wide) in zip(columns, places, strict=True):
        yield text(x, y, fitted(column.title, wide - 8), kind="soft")
    room = int((area.height - 56) // _LINE)
    shown = rows if len(rows) <= room else rows[: room - 1]
    for line, row in enumerate(shown, start=1):
        yield f'<path class="grid" d="M{area.x + 8:.0f} {y + _LINE * line - 15:.0f}H{area.right - 8:.0f}"/>'
        for column, (x, wide) in zip(columns, places, strict=True):
            fill = COLORS["blue"] if column.link else ""
            words = fitted(row.get(column.source, ""), wide - 8)
            yield text(x, y + _LINE * line, words, fill=fill) if fill else text(x, y + _LINE * line, words)
    if len(shown) < len(rows):
        yield text(area.x + 10, y + _LINE * (len(shown) + 1), f"+{len(rows) - len(shown)} more", kind="soft")


def _places(columns: list[Column], rows: list[dict[str, str]], area: Area) -> Iterator[tuple[float, float]]:
    """Left border and width of each column: what it needs, and an even share of the rest."""
    needs = [
        max(width_of(words) for words in (column.title, *(row.get(column.source, "") for row in rows))) + 14
        for column in columns
    ]
    room = area.width - 20
    rest = (room - sum(needs)) / len(needs)
    x = area.x + 10
    for need in needs:
        wide = need + rest if rest > 0 else need * room / sum(needs)
        yield x, wide
        x += wide


def _rows(drawn: Drawn) -> list[dict[str, str]]:
    """One row for each set of labels, as Grafana's transformation `merge` makes them."""
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    by_source: Mapping[str, Column] = {column.source: column for column in drawn.panel.columns}
    for letter, found in zip("ABCDEFGH", drawn.answers, strict=False):
        for series in found:
            labels = {name: value for name, value in series.labels.items() if name != "__name__"}
            row = rows.setdefault(tuple(sorted(labels.items())), dict(labels))
            if letter in by_source:
                row[letter] = written(series.points[-1][1], by_source[letter].unit or drawn.panel.unit)
    return list(rows.values())


def _shown(panel: Panel, value: float) -> str:
    if int(value) == value and int(value) in panel.names:
        return panel.names[int(value)][0]
    return written(value, panel.unit, panel.decimals)
