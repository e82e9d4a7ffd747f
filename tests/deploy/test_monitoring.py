"""The component for the Prometheus operator: the rules are those of grafana/alerts, and the targets are there."""

from __future__ import annotations

import pytest

from tests.deploy.manifests import DEPLOY, Manifest, all_of, of_kind, pod_specs
from tests.deploy.prometheus_rule import FILE, as_yaml, prometheus_rule

MONITORS = {one["metadata"]["name"]: one for one in all_of(DEPLOY / "components/monitoring/service-monitors.yaml")}


def test_the_rules_are_those_of_the_files_for_prometheus() -> None:
    assert FILE.read_text() == as_yaml(), "deploy/components/monitoring/rules.yaml is out of date: run `make docs`"
    assert all_of(FILE) == [prometheus_rule()]


def test_every_file_is_part_of_the_component() -> None:
    (component,) = all_of(DEPLOY / "components" / "monitoring" / "kustomization.yaml")

    assert component["resources"] == ["service-monitors.yaml", "rules.yaml"]


@pytest.mark.parametrize("name", MONITORS)
def test_a_service_monitor_selects_the_service_of_its_name_which_the_rules_call_the_job(name: str) -> None:
    wanted = MONITORS[name]["spec"]["selector"]["matchLabels"]
    selected = [service for service, one in of_kind("Service").items() if wanted.items() <= labels_of(one).items()]

    assert selected == [name]
    assert "jobLabel" not in MONITORS[name]["spec"]


@pytest.mark.parametrize("name", MONITORS)
def test_a_service_monitor_scrapes_a_port_that_is_there_and_keeps_healthds_labels(name: str) -> None:
    (endpoint,) = MONITORS[name]["spec"]["endpoints"]
    ports = [port["name"] for port in of_kind("Service")[name]["spec"]["ports"]]

    assert endpoint["port"] in ports
    assert endpoint["honorLabels"] is True
    assert {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"} in endpoint["relabelings"]


def test_every_workload_is_scraped() -> None:
    assert set(MONITORS) == set(pod_specs())


def labels_of(service: Manifest) -> dict[str, str]:
    """The labels of a Service once the kustomization has added its own."""
    (kustomization,) = all_of(DEPLOY / "kustomization.yaml")
    added = {key: value for one in kustomization["labels"] for key, value in one["pairs"].items()}
    labels: dict[str, str] = {**service["metadata"]["labels"], **added}
    return labels
