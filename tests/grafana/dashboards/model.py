"""What a dashboard is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RUNBOOKS = "https://healthd.example/docs/monitoring/runbooks"
"""The same base as in the alert rules: docs/monitoring/README.md says how a site puts in its own."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One expression. *instant*: its value at the end of the time range, instead of a series over it."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False
    every: str = ""
    """The least time between two points, such as `5m`."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: a label by its name, or the value of a query by its letter (`A` is the first)."""

    source: str
    title: str
    unit: str = ""
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. *meaning* is for an operator at night: what it shows, and what to do when it is bad."""

    kind: str
    title: str
    meaning: str
    queries: Sequence[Query]
    width: int
    height: int
    unit: str = "short"
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    thresholds: Sequence[tuple[float | None, str]] = ((None, "green"),)
    """From which value on which color; None: from the lowest."""
    names: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Value -> the text that is shown for it, and its color."""
    series: Mapping[str, str] = field(default_factory=dict)
    """Name of a series -> its color, where the name has a meaning."""
    color_by: str = "palette-classic"
    """`thresholds`, or a palette."""
    custom: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[Column] = ()
    runbooks: Sequence[str] = ()
    """The alerts whose pages help."""
    when_empty: str = ""
    """What stands there without data: "no data" and "all is well" are different things."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Panels below one heading, laid out from left to right."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice at the top of the dashboard. *kind*: query, constant or textbox."""

    name: str
    label: str
    kind: str
    query: str
    """For a query: `label_values(EXPR, LABEL)`. Otherwise the value."""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """Vertical lines on all panels, at the times at which *expr* has a value."""

    name: str
    expr: str
    title: str
    color: str = "orange"


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """All of one. *uid* is part of its address, so it never changes."""

    uid: str
    title: str
    meaning: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = ()
    markers: Sequence[Marker] = ()
    since: str = "now-6h"
    refresh: str = "1m"

    @property
    def panels(self) -> list[Panel]:
        """Of all rows."""
        return [panel for row in self.rows for panel in row.panels]
