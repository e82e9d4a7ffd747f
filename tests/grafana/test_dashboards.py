"""The dashboards are those of the script, name what healthd serves, and tell a person what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests import quick_yaml
from tests.grafana.dashboards.files import DASHBOARDS, FOLDER, as_json, files
from tests.grafana.dashboards.model import Dashboard, Panel
from tests.grafana.dashboards.schema import json_of
from tests.grafana.test_alerts import NAMES, RUNBOOKS, unserved

ROOT = FOLDER.parents[1]
PANELS = [
    pytest.param(dashboard, panel, id=f"{dashboard.uid}: {row.title}: {panel.title}")
    for dashboard in DASHBOARDS
    for row in dashboard.rows
    for panel in row.panels
]
PROVISIONING = sorted((ROOT / "grafana" / "provisioning").rglob("*.yaml"))
OF_OTHERS = re.compile(r"\b(?:DCGM|kube|kubelet|node|process)_\w+(?:\{[^}]*\})?")
"""Metrics of other exporters; the labels in their matchers are theirs."""
OF_GRAFANA = {"datasource", "runbooks", "__rate_interval", "__range", "__data"}
FOREIGN_LABELS = {
    "gpu",
    "instance",
    "phase",
    "pod",
    "persistentvolumeclaim",
    "alertname",
    "label_x",
    "owner_name",
    "le",
}
IDS = [dashboard.uid for dashboard in DASHBOARDS]


def test_the_files_are_those_of_the_script() -> None:
    assert {file: file.read_text() for file in FOLDER.glob("*.json")} == {
        file: as_json(dashboard) for file, dashboard in files().items()
    }, "grafana/dashboards is out of date: run `make docs`"


def test_uids_are_unique_and_no_dashboard_has_a_number_of_one_grafana() -> None:
    made = [json_of(dashboard) for dashboard in DASHBOARDS]

    assert max(Counter(each["uid"] for each in made).values()) == 1
    assert [each["uid"] for each in made if "id" in each] == []


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_a_query_names_metrics_labels_and_values_that_healthd_serves(dashboard: Dashboard, panel: Panel) -> None:
    exprs = [OF_OTHERS.sub("", query.expr.replace("$domain", "node")) for query in panel.queries]
    histograms = [re.sub(r"(healthd_\w+_seconds)_(?:bucket|sum|count)\b", r"\1", expr) for expr in exprs]

    assert [name for expr in histograms for name in unserved(expr) if name not in FOREIGN_LABELS] == []


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_a_panel_says_what_it_means_and_has_a_unit(dashboard: Dashboard, panel: Panel) -> None:
    assert len(panel.meaning.split()) >= 8
    assert panel.meaning.endswith(".")
    assert panel.unit


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_every_runbook_that_a_panel_links_exists(dashboard: Dashboard) -> None:
    linked = {name for panel in dashboard.panels for name in panel.runbooks}

    assert {name for name in linked if not (RUNBOOKS / f"{name}.md").exists()} == set()


def test_every_alert_has_a_panel_that_shows_its_reason() -> None:
    linked = {name for dashboard in DASHBOARDS for panel in dashboard.panels for name in panel.runbooks}

    assert sorted(set(NAMES) - linked) == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_every_variable_that_is_used_is_there(dashboard: Dashboard) -> None:
    used = set(re.findall(r"\$\{?([a-z_]\w*)", as_json(dashboard)))

    assert used - OF_GRAFANA == {variable.name for variable in dashboard.variables}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_a_link_to_a_dashboard_leads_to_one_and_sets_variables_that_it_has(dashboard: Dashboard) -> None:
    known = {each.uid: {f"var-{one.name}" for one in each.variables} | {"var-datasource"} for each in DASHBOARDS}
    links = re.findall(r'"/d/([\w-]+)\?([^"]*)"', as_json(dashboard))

    assert [
        (uid, name) for uid, query in links for name in re.findall(r"(var-\w+)=", query) if name not in known[uid]
    ] == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_no_panel_lies_on_another_and_all_are_within_the_page(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in json_of(dashboard)["panels"]]

    assert [each for each in places if each["x"] + each["w"] > 24] == []
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []


def overlap(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether two places share a cell."""
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_the_component_makes_a_config_map_that_the_sidecar_finds_of_each_dashboard() -> None:
    component = quick_yaml.load((FOLDER / "kustomization.yaml").read_text())
    kept = [name for each in component["configMapGenerator"] for name in each["files"]]

    assert sorted(kept) == sorted(file.name for file in FOLDER.glob("*.json"))
    assert {each["namespace"] for each in component["configMapGenerator"]} == {"healthd-system"}
    assert component["generatorOptions"]["labels"] == {"grafana_dashboard": "1"}
    assert max(file.stat().st_size for file in FOLDER.glob("*.json")) < 200_000


def test_the_page_shows_every_dashboard() -> None:
    page = (ROOT / "docs" / "monitoring" / "dashboards.md").read_text()

    assert re.findall(r"\]\((dashboards/[\w-]+\.svg)\)", page) == [f"dashboards/{name}.svg" for name in stems()]
    assert re.findall(r"^## (.*)$", page, re.MULTILINE)[: len(DASHBOARDS)] == [
        dashboard.title.removeprefix("healthd / ") for dashboard in DASHBOARDS
    ]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=IDS)
def test_the_picture_of_a_dashboard_shows_every_panel(dashboard: Dashboard) -> None:
    (name,) = (file.stem for file, each in files().items() if each is dashboard)
    drawn = (ROOT / "docs" / "monitoring" / "dashboards" / f"{name}.svg").read_text()

    missing = [panel.title for panel in dashboard.panels if f">{escape(panel.title)}<" not in drawn]

    assert missing == [], "run `python -m tests.grafana.pictures`"


def stems() -> Iterator[str]:
    """The names of the files."""
    return (Path(file).stem for file in files())


@pytest.mark.parametrize(
    "file", sorted((ROOT / "grafana" / "provisioning").rglob("*.yaml")), ids=lambda file: file.parent.name
)
def test_the_files_for_provisioning_can_be_read_and_name_one_version(file: Path) -> None:
    assert quick_yaml.load(file.read_text())["apiVersion"] == 1
