"""The alert rules do what they promise, name metrics that there are, and lead to a page that says what to do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from healthd.core.api.model import Verdict
from healthd.core.api.save_stats import Concern
from healthd.telemetry.metrics import GangSaves, Metrics
from tests.fakes import START
from tests.lab.build import PROMTOOL, program
from tests.lab.fixtures import get

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "grafana" / "alerts").glob("*.yaml"))
RULES: list[dict[str, Any]] = [
    rule for file in FILES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]
]
PAGE = ROOT / "docs" / "alerts.md"


@pytest.fixture(scope="module")
def promtool(request: pytest.FixtureRequest) -> str:
    """Prometheus's own judge of rules."""
    get(PROMTOOL, request)
    return str(program(PROMTOOL))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.lab
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_prometheus_takes_the_rules(promtool: str, file: Path) -> None:
    checked = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(file))

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.lab
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_alerts_fire_and_stay_silent_as_they_should(promtool: str, file: Path) -> None:
    tested = run(promtool, "test", "rules", str(ROOT / "tests" / "grafana" / file.name))

    assert tested.returncode == 0, tested.stdout + tested.stderr


def shown() -> str:
    """What is served of a gang with which everything is wrong, and of a node that is blind."""
    metrics = Metrics()
    metrics.show_node("gpu-1", Verdict.UNKNOWN, [], ["nvml"])
    gang = GangSaves("ml", "llama", saved=START, interval=START - START, lost=START - START, concerns=list(Concern))
    metrics.show_saves([gang])
    return generate_latest(metrics.registry).decode()


def test_every_metric_that_a_rule_names_is_one_that_healthd_serves() -> None:
    named = {name for rule in RULES for name in re.findall(r"healthd_\w+", f"{rule['expr']} {rule['annotations']}")}
    served = set(re.findall(r"^(healthd_\w+)\{", shown(), re.MULTILINE))

    assert named
    assert named - served == set()


def test_every_concern_has_an_alert() -> None:
    selected = {concern for rule in RULES for concern in re.findall(r'concern="(\w+)"', rule["expr"])}

    assert selected == set(Concern)


def test_every_alert_says_how_grave_it_is_and_leads_to_what_to_do() -> None:
    headings = {
        f"docs/{PAGE.name}#{each.lower()}" for each in re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    }

    assert {rule["annotations"]["runbook"] for rule in RULES} == headings
    assert {rule["labels"]["severity"] for rule in RULES} <= {"critical", "warning", "info"}
