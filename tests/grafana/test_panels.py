"""Every query of the dashboards, asked of a real Prometheus with three hours of real agents and controllers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.grafana.dashboards.files import DASHBOARDS
from tests.grafana.dashboards.model import Dashboard, Panel, Query
from tests.grafana.dashboards.promql import EVENTS_EVERY, events, gang_pods, of_workload
from tests.grafana.history.asking import answer
from tests.grafana.history.choices import all_choices, offered
from tests.grafana.history.prometheus import HistoryPrometheus, with_history
from tests.grafana.history.story import END
from tests.grafana.pictures.files import pictures
from tests.grafana.promtool import Promtool
from tests.lab.fixtures import get
from tests.lab.modules import PROMETHEUS
from tests.lab.prometheus import Series

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("history")]

PANELS = [
    pytest.param(dashboard, panel, id=f"{dashboard.uid}: {panel.title}")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
]


@pytest.fixture(scope="module")
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HistoryPrometheus]:
    """A Prometheus that has seen it all."""
    get(PROMETHEUS, request)
    with with_history(tmp_path_factory.mktemp("history")) as prometheus:
        yield prometheus


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_every_query_of_a_panel_has_an_answer(history: HistoryPrometheus, dashboard: Dashboard, panel: Panel) -> None:
    assert [query.expr for query in panel.queries if not is_answered(history, dashboard, query)] == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_every_marker_of_a_dashboard_has_an_answer(history: HistoryPrometheus, dashboard: Dashboard) -> None:
    queries = [Query(expr=marker.expr) for marker in dashboard.markers]

    assert [query.expr for query in queries if not is_answered(history, dashboard, query)] == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_every_variable_offers_something(history: HistoryPrometheus, dashboard: Dashboard) -> None:
    chosen: dict[str, str] = {}
    for variable in dashboard.variables:
        values = offered(history, variable, chosen)
        assert values, variable.name
        chosen[variable.name] = values[0]


def is_answered(history: HistoryPrometheus, dashboard: Dashboard, query: Query) -> bool:
    """Whether Prometheus has a number for it, for some choice of the dashboard's variables. Raises LabError."""
    return any(has_number(answer(history, query, chosen)) for chosen in all_choices(history, dashboard))


def has_number(found: list[Series]) -> bool:
    """Not empty, and not all NaN."""
    return any(not math.isnan(value) for series in found for _, value in series.points)


def test_bars_count_each_event_once_also_the_first_of_its_kind(history: HistoryPrometheus) -> None:
    query = Query(expr=events("healthd_findings_raised_total", "rule"), every=EVENTS_EVERY)
    raised = "sum by (rule) (max by (instance, rule) (max_over_time(healthd_findings_raised_total[3h])))"

    drawn = {each.labels["rule"]: sum(value for _, value in each.points) for each in answer(history, query, {})}

    assert drawn
    assert drawn == {each.labels["rule"]: each.value for each in history.query(raised, at=END.timestamp())}


KSM = 'namespace="team",uid="1"'
OF_JOB = f'kube_pod_owner{{{KSM},pod="solo-0",owner_kind="Job",owner_name="solo"}}'
OF_JOBSET = f'kube_pod_owner{{{KSM},pod="set-workers-0-0",owner_kind="Job",owner_name="set-workers-0"}}'
OF_ANOTHER = f'kube_pod_owner{{{KSM},pod="set-2-0",owner_kind="Job",owner_name="set-2"}}'
JOB_OF_JOBSET = 'kube_job_owner{namespace="team",job_name="set-workers-0",owner_kind="JobSet",owner_name="set"}'


@pytest.mark.parametrize(("gang", "pods"), [("solo", ["solo-0"]), ("set", ["set-workers-0-0"])])
def test_the_pods_of_a_gang_are_those_of_its_root_and_of_the_jobs_of_its_root(
    promtool: Promtool, gang: str, pods: list[str]
) -> None:
    series = dict.fromkeys((OF_JOB, OF_JOBSET, OF_ANOTHER, JOB_OF_JOBSET), "1")
    expected = {f'{{namespace="team",pod="{pod}"}}': 1.0 for pod in pods}

    assert promtool.evaluates(gang_pods("team", gang), series, expected) == ""


@pytest.mark.parametrize(
    "labels",
    [
        'namespace="team",pod="a-0"',
        'namespace="gpu-operator",pod="exporter",exported_namespace="team",exported_pod="a-0"',
    ],
    ids=["honored labels", "exported labels"],
)
def test_a_gpu_is_found_by_its_pod_whether_or_not_prometheus_honors_labels(promtool: Promtool, labels: str) -> None:
    expr = f"max by (namespace, pod) ({of_workload('DCGM_FI_DEV_GPU_UTIL')})"

    assert (
        promtool.evaluates(expr, {f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}": "97"}, {'{namespace="team",pod="a-0"}': 97.0})
        == ""
    )


def test_every_panel_can_be_drawn_and_the_same_answers_give_the_same_picture(history: HistoryPrometheus) -> None:
    drawn = pictures(history)

    assert [file.name for file, text in drawn.items() if "No data" in text] == []
    assert pictures(history) == drawn
