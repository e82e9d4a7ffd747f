"""The kinds of panels, each with the options that make it readable. Sizes are columns of 24, and rows of 30 px."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.grafana.dashboards.model import Column, Panel, Query
from tests.grafana.dashboards.promql import EVENTS_EVERY

BAD_FROM_ONE = ((None, "green"), (1, "red"))
"""Any is too many."""
NOTICE_FROM_ONE = ((None, "green"), (1, "orange"))
GOOD_FROM_95 = ((None, "red"), (0.85, "orange"), (0.95, "green"))
"""A share, the higher the better."""
NEUTRAL = ((None, "blue"),)
VERDICTS = {0: ("healthy", "green"), 1: ("unknown", "purple"), 2: ("degraded", "yellow"), 3: ("unhealthy", "red")}
"""The values of `promql.VERDICT`."""
VERDICT_COLORS = {"healthy": "green", "unknown": "purple", "degraded": "yellow", "unhealthy": "red"}
SEVERITY_COLORS = {"page": "red", "notice": "orange"}
_LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def stat(title: str, meaning: str, *exprs: str | tuple[str, str], width: int = 4, **more: Any) -> Panel:
    """Numbers as of now, each an expression, or an expression and its name."""
    options = {
        "reduceOptions": _LAST,
        "colorMode": "background_solid" if more.pop("loud", False) else "value",
        "graphMode": "none",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "textMode": "auto",
        "justifyMode": "auto",
        "orientation": "auto",
    }
    return Panel(
        kind="stat",
        title=title,
        meaning=meaning,
        queries=_queries(exprs, instant=True),
        width=width,
        height=more.pop("height", 4),
        color_by="thresholds",
        options=options,
        **more,
    )


def lines(title: str, meaning: str, *exprs: str | tuple[str, str], width: int = 12, **more: Any) -> Panel:
    """Series over time as lines. *stacked*: one on the other. *stairs*: a value holds until the next."""
    stacked, stairs = more.pop("stacked", False), more.pop("stairs", False)
    return _over_time(
        title,
        meaning,
        exprs,
        width,
        {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if stacked else 0,
            "lineInterpolation": "stepAfter" if stairs or stacked else "linear",
            "spanNulls": False,
            "showPoints": "never",
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        },
        more,
    )


def bars(title: str, meaning: str, *exprs: str | tuple[str, str], width: int = 12, **more: Any) -> Panel:
    """Events over time, a bar for each `EVENTS_EVERY`: the expressions are `promql.events`."""
    custom = {
        "drawStyle": "bars",
        "lineWidth": 1,
        "fillOpacity": 80,
        "showPoints": "never",
        "stacking": {"mode": "normal", "group": "A"},
    }
    return _over_time(title, meaning, exprs, width, custom, {"decimals": 0, **more}, every=EVENTS_EVERY)


def timeline(title: str, meaning: str, *exprs: str | tuple[str, str], width: int = 24, **more: Any) -> Panel:
    """A band for each series: which state it was in, and when."""
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.85,
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(
        kind="state-timeline",
        title=title,
        meaning=meaning,
        queries=_queries(exprs),
        width=width,
        height=more.pop("height", 8),
        color_by="thresholds",
        custom={"fillOpacity": 80, "lineWidth": 0},
        options=options,
        **more,
    )


def heat_map(title: str, meaning: str, *exprs: str | tuple[str, str], width: int = 12, **more: Any) -> Panel:
    """A row of cells for each series: the color of a cell is the value at that time."""
    options = {
        "showValue": "never",
        "rowHeight": 0.9,
        "colWidth": 0.95,
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(
        kind="status-history",
        title=title,
        meaning=meaning,
        queries=_queries(exprs, every=EVENTS_EVERY),
        width=width,
        height=more.pop("height", 8),
        color_by="thresholds",
        custom={"fillOpacity": 90, "lineWidth": 0},
        options=options,
        **more,
    )


def ranking(title: str, meaning: str, *exprs: tuple[str, str], width: int = 12, **more: Any) -> Panel:
    """A horizontal bar for each series by its value now, the longest first. Each expression has a name."""
    options = {
        "reduceOptions": _LAST,
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "showUnfilled": True,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "maxVizHeight": 40,
        "sizing": "auto",
        "namePlacement": "auto",
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
    }
    return Panel(
        kind="bargauge",
        title=title,
        meaning=meaning,
        queries=_queries([(f"sort_desc({expr})", name) for expr, name in exprs], instant=True),
        width=width,
        height=more.pop("height", 8),
        minimum=0,
        color_by="thresholds",
        options=options,
        **more,
    )


def table(title: str, meaning: str, columns: Sequence[Column], *exprs: str, width: int = 12, **more: Any) -> Panel:
    """A row for each set of labels; the expressions have the same labels."""
    return Panel(
        kind="table",
        title=title,
        meaning=meaning,
        queries=[Query(expr=expr, instant=True, table=True) for expr in exprs],
        width=width,
        height=more.pop("height", 8),
        color_by="thresholds",
        custom={"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True},
        options={"showHeader": True, "cellHeight": "sm", "frameIndex": 0},
        columns=columns,
        **more,
    )


def _over_time(
    title: str,
    meaning: str,
    exprs: Sequence[str | tuple[str, str]],
    width: int,
    custom: dict[str, Any],
    more: Any,
    every: str = "",
) -> Panel:
    options = {
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if "thresholds" in more:
        custom = {**custom, "thresholdsStyle": {"mode": "line"}}
    return Panel(
        kind="timeseries",
        title=title,
        meaning=meaning,
        queries=_queries(exprs, every=every),
        width=width,
        height=more.pop("height", 8),
        minimum=more.pop("minimum", 0),
        custom=custom,
        options=options,
        **more,
    )


def _queries(exprs: Sequence[str | tuple[str, str]], *, instant: bool = False, every: str = "") -> list[Query]:
    pairs = [(one, "") if isinstance(one, str) else one for one in exprs]
    return [Query(expr=expr, legend=legend, instant=instant, every=every) for expr, legend in pairs]
