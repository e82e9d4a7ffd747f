"""A dashboard as JSON in Grafana's classic schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.grafana.dashboards.model import RUNBOOKS, Column, Dashboard, Marker, Panel, Query, Row, Variable

SCHEMA = 41
"""Of the JSON. Grafana migrates older ones when it loads them."""
WIDTH = 24
"""Columns of a dashboard."""
ROW_HEIGHT = 1
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
DOCS = RUNBOOKS.removesuffix("/runbooks")

Json = dict[str, Any]


def json_of(dashboard: Dashboard) -> Json:
    """As Grafana imports it. It has no number of its own: each Grafana gives it one."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.meaning,
        "tags": ["healthd"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "",
        "time": {"from": dashboard.since, "to": "now"},
        "timepicker": {},
        "refresh": dashboard.refresh,
        "fiscalYearStartMonth": 0,
        "links": [_LINKS, _link("Runbooks", "${runbooks}"), _link("Metrics", f"{DOCS}/metrics.md")],
        "annotations": {"list": [_DEPLOYED, *map(_marker, dashboard.markers)]},
        "templating": {"list": [_DATASOURCE_VARIABLE, *map(_variable, dashboard.variables), _RUNBOOKS_VARIABLE]},
        "panels": list(_laid_out(dashboard.rows)),
    }


def _laid_out(rows: Sequence[Row]) -> Iterator[Json]:
    y, number = 0, 0
    for row in rows:
        number += 1
        yield _row(row, number, y)
        y += ROW_HEIGHT
        x = line = 0
        for panel in row.panels:
            number += 1
            if x + panel.width > WIDTH:
                x, y, line = 0, y + line, 0
            yield _panel(panel, number, {"h": panel.height, "w": panel.width, "x": x, "y": y})
            x, line = x + panel.width, max(line, panel.height)
        y += line


def _row(row: Row, number: int, y: int) -> Json:
    place = {"h": ROW_HEIGHT, "w": WIDTH, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, place: Json) -> Json:
    made: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [_target(query, letter) for query, letter in zip(panel.queries, "ABCDEFGH", strict=False)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": dict(panel.options),
    }
    if panel.columns:
        made["transformations"] = [{"id": "merge", "options": {}}, {"id": "organize", "options": _organized(panel)}]
    if panel.runbooks:
        made["links"] = [_link(f"Runbook: {name}", f"${{runbooks}}/{name}.md") for name in panel.runbooks]
    return made


def _target(query: Query, letter: str) -> Json:
    step = {"interval": query.every} if query.every else {}
    return {
        **step,
        "refId": letter,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": "table" if query.table else "time_series",
        "instant": query.instant,
        "range": not query.instant,
        "legendFormat": query.legend or "__auto",
    }


def _defaults(panel: Panel) -> Json:
    made: Json = {
        "unit": panel.unit,
        "color": {"mode": panel.color_by},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": color} for value, color in panel.thresholds],
        },
        "custom": dict(panel.custom),
    }
    optional = {"decimals": panel.decimals, "min": panel.minimum, "max": panel.maximum}
    made |= {name: value for name, value in optional.items() if value is not None}
    if panel.when_empty:
        made["noValue"] = panel.when_empty
    if panel.names:
        named = {
            str(value): {"text": text, "color": color, "index": index}
            for index, (value, (text, color)) in enumerate(panel.names.items())
        }
        made["mappings"] = [{"type": "value", "options": named}]
    return made


def _overrides(panel: Panel) -> Iterator[Json]:
    for name, color in panel.series.items():
        fixed = {"id": "color", "value": {"mode": "fixed", "fixedColor": color}}
        yield {"matcher": {"id": "byName", "options": name}, "properties": [fixed]}
    for column in panel.columns:
        set_to: list[Json] = [{"id": "unit", "value": column.unit}] if column.unit else []
        set_to += [{"id": "links", "value": [_data_link(column)]}] if column.link else []
        if set_to:
            yield {"matcher": {"id": "byName", "options": column.title}, "properties": set_to}


def _organized(panel: Panel) -> Json:
    """Names and order of the columns; the time of an instant query is not shown, nor is a value that only selects."""
    several = len(panel.queries) > 1
    fields = {f"Value #{letter}" if several else "Value": letter for letter in "ABCDEFGH"[: len(panel.queries)]}
    wanted = {column.source: column for column in panel.columns}
    names = {name: letter for name, letter in fields.items() if letter in wanted}
    order = [next((name for name, letter in names.items() if letter == one), one) for one in wanted]
    return {
        "excludeByName": {"Time": True, **{name: True for name, letter in fields.items() if letter not in wanted}},
        "indexByName": {name: index for index, name in enumerate(order)},
        "renameByName": {name: wanted[names.get(name, name)].title for name in order},
    }


def _variable(variable: Variable) -> Json:
    made: Json = {"name": variable.name, "label": variable.label, "type": variable.kind, "hide": 0}
    if variable.kind != "query":
        chosen = {"text": variable.query, "value": variable.query, "selected": True}
        return made | {"query": variable.query, "current": chosen, "options": [chosen]}
    return made | {
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": f"variable-{variable.name}"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "includeAll": False,
        "multi": False,
        "options": [],
    }


def _marker(marker: Marker) -> Json:
    return {
        "name": marker.name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": marker.color,
        "expr": marker.expr,
        "titleFormat": marker.title,
        "useValueForTime": False,
        "step": "1m",
    }


def _data_link(column: Column) -> Json:
    return {"title": column.title, "url": column.link, "targetBlank": False}


def _link(title: str, url: str) -> Json:
    return {**_LINKS, "title": title, "type": "link", "tags": [], "keepTime": False, "targetBlank": True, "url": url}


_LINKS: Json = {
    "title": "healthd",
    "type": "dashboards",
    "tags": ["healthd"],
    "asDropdown": False,
    "includeVars": False,
    "keepTime": True,
    "targetBlank": False,
    "icon": "external link",
    "tooltip": "",
    "url": "",
}
"""To the other dashboards of healthd."""
_DEPLOYED = {
    "builtIn": 1,
    "name": "Annotations & Alerts",
    "type": "dashboard",
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
}
_DATASOURCE_VARIABLE = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "hide": 0,
    "refresh": 1,
    "regex": "",
    "includeAll": False,
    "multi": False,
    "options": [],
}
_RUNBOOKS_VARIABLE = {
    "name": "runbooks",
    "label": "Runbooks",
    "type": "constant",
    "query": RUNBOOKS,
    "hide": 2,
    "skipUrlSync": True,
    "current": {"text": RUNBOOKS, "value": RUNBOOKS, "selected": True},
    "options": [],
}
