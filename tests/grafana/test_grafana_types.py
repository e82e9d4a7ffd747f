"""Every dashboard fits Grafana's own types, and the check finds what does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.grafana.dashboards.files import DASHBOARDS
from tests.grafana.dashboards.model import Dashboard
from tests.grafana.dashboards.schema import json_of
from tests.grafana.grafana_types import CannotCheck, GrafanaTypes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("grafana types")]


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> GrafanaTypes:
    """From the package registry that npm is configured for."""
    try:
        return GrafanaTypes(tmp_path_factory.mktemp("grafana-types"))
    except CannotCheck as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_dashboard_is_one_that_grafana_knows(types: GrafanaTypes, dashboard: Dashboard) -> None:
    assert types.complaints("dashboard", json_of(dashboard)) == ""


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("schemaversion",), 41, "schemaversion"),
        (("graphTooltip",), 3, "Type '3'"),
        (("panels", 1, "options", "colorMode"), "loud", '"loud"'),
        (("panels", 1, "fieldConfig", "defaults", "color", "mode"), "rainbow", "rainbow"),
        (("templating", "list", 0, "hide"), 7, "Type '7'"),
        (("panels", 1, "gridPos", "h"), "4", "Type 'string'"),
    ],
)
def test_what_grafana_does_not_know_is_found(
    types: GrafanaTypes, path: tuple[str | int, ...], value: object, complaint: str
) -> None:
    spoiled: Any = copy.deepcopy(json_of(DASHBOARDS[0]))
    place = spoiled
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    assert complaint in types.complaints("spoiled", spoiled)
