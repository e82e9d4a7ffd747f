"""The values that the variables of a dashboard offer, asked as Grafana asks for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tests.grafana.dashboards.model import RUNBOOKS, Dashboard, Variable
from tests.grafana.history.asking import filled_in
from tests.grafana.history.prometheus import HistoryPrometheus

_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")


def choices(
    prometheus: HistoryPrometheus, variables: Sequence[Variable], chosen: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Every combination of values, as name -> value; a variable may depend on those before it."""
    chosen = {"runbooks": RUNBOOKS, **(chosen or {})}
    if not variables:
        yield dict(chosen)
        return
    first, *rest = variables
    for value in offered(prometheus, first, chosen):
        yield from choices(prometheus, rest, {**chosen, first.name: value})


def offered(prometheus: HistoryPrometheus, variable: Variable, chosen: Mapping[str, str]) -> list[str]:
    """What one variable offers once those before it are *chosen*."""
    if variable.kind != "query":
        return [variable.query]
    found = _LABEL_VALUES.fullmatch(variable.query)
    assert found, f"{variable.query} is no label_values(METRIC, LABEL)"
    return prometheus.label_values(filled_in(found[1], chosen), found[2])


def all_choices(prometheus: HistoryPrometheus, dashboard: Dashboard) -> list[dict[str, str]]:
    """Of a dashboard."""
    return list(choices(prometheus, dashboard.variables))
