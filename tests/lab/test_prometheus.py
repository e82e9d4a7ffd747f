"""Prometheus scrapes, evaluates rules, and answers over its API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.lab.endpoint import Endpoint
from tests.lab.fixtures import get
from tests.lab.modules import PROMETHEUS
from tests.lab.programs import LabError
from tests.lab.prometheus import Alert, Prometheus, static

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RULE = {
    "alert": "Hot",
    "expr": "celsius > 90",
    "labels": {"severity": "page"},
    "annotations": {"summary": "{{ $value }} degrees"},
}


@pytest.fixture(scope="module")
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """With one target that answers, and one that does not."""
    get(PROMETHEUS, request)
    folder = tmp_path_factory.mktemp("prometheus")
    rules = folder / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "lab", "rules": [RULE]}]}))
    with Endpoint({"/metrics": "celsius 95\n"}) as target:
        scrape = [static("hot", target.address, node="n1"), static("away", "127.0.0.1:1")]
        with Prometheus(folder, scrape=scrape, rules=[rules]) as running:
            yield running


def test_a_target_is_scraped_with_its_labels(prometheus: Prometheus) -> None:
    (found,) = prometheus.wait_for("celsius")

    assert found.value == 95
    assert found.labels["job"] == "hot"
    assert found.labels["node"] == "n1"


def test_a_target_that_does_not_answer_is_down(prometheus: Prometheus) -> None:
    (found,) = prometheus.wait_for('up{job="away"}')

    assert found.value == 0


def test_a_rule_becomes_an_alert(prometheus: Prometheus) -> None:
    prometheus.wait_for('ALERTS{alertstate="firing"}')
    (found,) = prometheus.alerts()

    assert found == Alert("Hot", "firing", found.labels, {"summary": "95 degrees"})
    assert found.labels["severity"] == "page"
    assert [rule["health"] for rule in prometheus.rules()] == ["ok"]


def test_a_range_has_its_points_in_order(prometheus: Prometheus) -> None:
    prometheus.wait_for("count_over_time(celsius[1m]) >= 3")
    now = prometheus.query("time()")[0].value
    (found,) = prometheus.query_range("celsius", start=now - 1, end=now, step=0.5)

    assert [value for _, value in found.points] == [95, 95, 95]
    assert [round(at - now, 1) for at, _ in found.points] == [-1, -0.5, 0]


def test_an_expression_that_is_wrong_says_so(prometheus: Prometheus) -> None:
    with pytest.raises(LabError, match="parse error"):
        prometheus.query("sum(")
