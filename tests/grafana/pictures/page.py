"""One dashboard as one SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from tests.grafana.dashboards.model import Dashboard, Panel, Query
from tests.grafana.dashboards.schema import json_of
from tests.grafana.history.asking import STEP, answer, answers, filled_in
from tests.grafana.history.prometheus import HistoryPrometheus
from tests.grafana.pictures.bands import bands
from tests.grafana.pictures.canvas import STYLE, Area, px, rect, text
from tests.grafana.pictures.frames import Drawn
from tests.grafana.pictures.numbers import ranking, stat, table
from tests.grafana.pictures.over_time import over_time

COLUMN, LINE, GAP, MARGIN, HEAD = 50.0, 34.0, 6.0, 8.0, 40.0
_DRAW = {
    "stat": stat,
    "bargauge": ranking,
    "table": table,
    "timeseries": over_time,
    "state-timeline": bands,
    "status-history": bands,
}


def picture(prometheus: HistoryPrometheus, dashboard: Dashboard, chosen: Mapping[str, str]) -> str:
    """The file. *chosen* are the values of the dashboard's variables."""
    marks = _marks(prometheus, dashboard, chosen)
    body: list[str] = [text(MARGIN + 4, 26, _heading(dashboard, chosen), kind="head")]
    bottom = 0.0
    made = json_of(dashboard)["panels"]
    panels = iter(dashboard.panels)
    for each in made:
        area = _area(each["gridPos"])
        bottom = max(bottom, area.bottom)
        if each["type"] == "row":
            body.append(text(area.x + 4, area.y + 22, each["title"], kind="row"))
            continue
        panel = next(panels)
        found = answers(prometheus, panel, chosen)
        body.extend(_panel(area, Drawn(panel=panel, answers=found, marks=marks), chosen))
    return _svg(24 * COLUMN + 2 * MARGIN, bottom + MARGIN, dashboard, body)


def _panel(area: Area, drawn: Drawn, chosen: Mapping[str, str]) -> Iterator[str]:
    panel: Panel = drawn.panel
    filled = [
        Query(expr=query.expr, legend=_legend(query.legend, chosen), instant=query.instant) for query in panel.queries
    ]
    shown = Drawn(panel=_with(panel, filled), answers=drawn.answers, marks=drawn.marks)
    yield from _DRAW[panel.kind](area, shown)


def _with(panel: Panel, queries: list[Query]) -> Panel:
    values = {name: getattr(panel, name) for name in panel.__dataclass_fields__}
    return Panel(**{**values, "queries": queries})


def _legend(legend: str, chosen: Mapping[str, str]) -> str:
    return filled_in(legend, chosen) if "$" in legend else legend


def _marks(prometheus: HistoryPrometheus, dashboard: Dashboard, chosen: Mapping[str, str]) -> list[tuple[float, str]]:
    """When each marker begins."""
    found = []
    for marker in dashboard.markers:
        for series in answer(prometheus, Query(expr=marker.expr), chosen):
            before = 0.0
            for at, _ in series.points:
                if at - before > 1.5 * STEP.total_seconds():
                    found.append((at, marker.color))
                before = at
    return sorted(found)


def _area(place: Mapping[str, int]) -> Area:
    x, y = MARGIN + place["x"] * COLUMN, HEAD + place["y"] * LINE
    return Area(x + GAP / 2, y + GAP / 2, place["w"] * COLUMN - GAP, place["h"] * LINE - GAP)


def _heading(dashboard: Dashboard, chosen: Mapping[str, str]) -> str:
    values = [f"{variable.label}: {chosen[variable.name]}" for variable in dashboard.variables]
    return " · ".join([dashboard.title, *values])


def _svg(width: float, height: float, dashboard: Dashboard, body: list[str]) -> str:
    said = f"{dashboard.meaning} Drawn from Prometheus by a script, not by Grafana."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {px(width)} {px(height)}" role="img">',
            f"<title>{escape(dashboard.title)}</title><desc>{escape(said)}</desc>",
            f"<style>\n{STYLE}</style>",
            rect(Area(0, 0, width, height), kind="page"),
            *body,
            "</svg>\n",
        ]
    )
