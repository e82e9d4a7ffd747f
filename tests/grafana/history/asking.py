"""Ask Prometheus what Grafana would ask: variables filled in, a range for lines, one moment for numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from tests.fakes import START
from tests.grafana.dashboards.model import Panel, Query
from tests.grafana.history.prometheus import HistoryPrometheus
from tests.grafana.history.story import END, SCRAPE_EVERY
from tests.lab.prometheus import Series

STEP = timedelta(minutes=1)
_OF_GRAFANA = {
    "__rate_interval": f"{4 * SCRAPE_EVERY.total_seconds():.0f}s",
    "__interval": f"{STEP.total_seconds():.0f}s",
    "__range": f"{(END - START).total_seconds():.0f}s",
}


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    """*text* with the values of variables, written `$name` or `${name}`. Raises KeyError for one that is not there."""
    known = {**_OF_GRAFANA, **variables}
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: known[found[1] or found[2]], text)


def answer(prometheus: HistoryPrometheus, query: Query, variables: Mapping[str, str]) -> list[Series]:
    """What a panel would draw of *query*; with one point each where it asks for one moment."""
    found = _asked(prometheus, query, variables)
    return [Series(each.labels, [(at, _rounded(value)) for at, value in each.points]) for each in found]


def _rounded(value: float) -> float:
    """To nine digits: Prometheus adds series in any order, and the last bits of a sum depend on it."""
    return float(f"{value:.9g}")


def _asked(prometheus: HistoryPrometheus, query: Query, variables: Mapping[str, str]) -> list[Series]:
    expr = filled_in(query.expr.replace('"$1"', '"\x00"'), variables).replace('"\x00"', '"$1"')
    if query.instant:
        at = END.timestamp()
        return _in_order(expr, [Series(each.labels, [(at, each.value)]) for each in prometheus.query(expr, at=at)])
    step = STEP if not query.every else timedelta(minutes=int(query.every.removesuffix("m")))
    start = START + step
    return prometheus.query_range(expr, start=start.timestamp(), end=END.timestamp(), step=step.total_seconds())


def _in_order(expr: str, found: list[Series]) -> list[Series]:
    """By labels: Prometheus answers for one moment in any order, but for the values where *expr* sorts them."""
    found = sorted(found, key=lambda series: sorted(series.labels.items()))
    is_sorted = expr.startswith(("sort_desc(", "topk("))
    return sorted(found, key=lambda series: -series.points[0][1]) if is_sorted else found


def answers(prometheus: HistoryPrometheus, panel: Panel, variables: Mapping[str, str]) -> list[list[Series]]:
    """Of each query of *panel*."""
    return [answer(prometheus, query, variables) for query in panel.queries]


def moment(at: float) -> datetime:
    """A Unix time, as the pictures write it."""
    return START + timedelta(seconds=at - START.timestamp())
