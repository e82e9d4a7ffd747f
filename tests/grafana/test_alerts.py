"""The alert rules are valid, name metrics that healthd serves, read as they should, and lead to a page that helps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.telemetry.metrics import Metrics
from tests import quick_yaml
from tests.docs.metrics_page import LABEL_VALUES, rows
from tests.grafana.promtool import FILES, RECORDING, ROOT, Promtool, rules, run

RULES = rules()
NAMES = [rule["alert"] for rule in RULES]
TEXTS = sorted((ROOT / "tests" / "grafana" / "texts").glob("*.yaml"))
MONITORING = ROOT / "docs" / "monitoring" / "README.md"
RUNBOOKS = ROOT / "docs" / "monitoring" / "runbooks"
BASE = "https://healthd.example/docs/monitoring/runbooks/"
WATCHDOG = "HealthdWatchdog"
OF_TARGETS = {"instance", "job", "node", "pod"}
"""Labels that Prometheus adds to every series of a target, by docs/monitoring/README.md."""
LABELS = {row.name: set(row.labels) for row in rows(Metrics()).values()}


@pytest.mark.lab
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_prometheus_takes_the_rules(promtool: Promtool, file: Path) -> None:
    checked = run(promtool.program, "check", "rules", "--lint=all", "--lint-fatal", str(file))

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
def test_every_alert_reads_as_it_should(promtool: Promtool, file: Path) -> None:
    tested = run(promtool.program, "test", "rules", str(file))

    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_an_example_of_how_it_reads() -> None:
    examples = [test for file in TEXTS for test in quick_yaml.load(file.read_text())["tests"]]

    assert Counter(look["alertname"] for test in examples for look in test["alert_rule_test"]) == Counter(NAMES)


def test_every_alert_has_tests_of_when_it_fires() -> None:
    tests = "".join(file.read_text() for file in (ROOT / "tests" / "grafana").glob("test_*.py"))

    assert [name for name in NAMES if not re.search(rf"\b{name}\b", tests)] == []


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_names_metrics_labels_and_values_that_healthd_serves(rule: dict[str, Any]) -> None:
    assert list(unserved(f"{rule['expr']} {text_of(rule)}")) == []


@pytest.mark.parametrize(
    ("expr", "found"),
    [
        ("healthd_spare > 0", ["healthd_spare"]),
        ('healthd_recoveries_held{cause="hang"}', ["cause"]),
        ('healthd_recoveries_held{reason="fences"}', ["fences"]),
        ("max by (gangs) (healthd_gang_step)", ["gangs"]),
        ("of {{ $labels.gangs }}", ["gangs"]),
        ('max by (node) (healthd_findings{severity=~"error|fatal"})', []),
    ],
)
def test_a_name_that_healthd_does_not_serve_is_found(expr: str, found: list[str]) -> None:
    assert list(unserved(expr)) == found


def unserved(text: str) -> Iterator[str]:
    """The metrics, labels and values in a rule that healthd does not serve."""
    yield from (name for name in re.findall(r"\bhealthd_\w+", text) if name not in LABELS)
    for name, matchers in re.findall(r"\b(healthd_\w+|up)\{([^}]*)\}", text):
        for label, values in re.findall(r"""(\w+)=~?["']([^"']*)["']""", matchers):
            yield from [label] if label not in LABELS.get(name, set()) | OF_TARGETS else []
            known = set(LABEL_VALUES.get(label, ()))
            yield from (value for value in values.split("|") if known and value not in known)
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", text)
    named = {each for group in grouped for each in re.findall(r"\w+", group)} | set(
        re.findall(r"\$labels\.(\w+)", text)
    )
    yield from sorted(named - OF_TARGETS.union(*LABELS.values()))


def text_of(rule: dict[str, Any]) -> str:
    """The annotations of a rule, as templates."""
    return " ".join(rule["annotations"].values())


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_has_a_severity_a_text_and_a_page(rule: dict[str, Any]) -> None:
    notes = rule["annotations"]

    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in (("none",) if rule["alert"] == WATCHDOG else ("page", "notice"))
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["runbook_url"] == f"{BASE}{rule['alert']}.md"


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule["alert"] != WATCHDOG], ids=lambda rule: rule["alert"])
def test_a_description_says_what_is_left_to_do(rule: dict[str, Any]) -> None:
    description = rule["annotations"]["description"]

    waits = rule["alert"] == "HealthdGangHeld"  # what is left to do depends on the reason, and the page has a table
    assert waits or re.search(r"Left to (you|the team|their teams): ", " ".join(description.split()))
    assert re.search(
        r"(Ask why|See|Which|Which nodes|Which source|Which and why|How many more fit|The seconds): ", description
    )


def test_there_is_a_page_for_each_alert_and_no_other() -> None:
    assert sorted(page.stem for page in RUNBOOKS.glob("*")) == sorted(NAMES)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_page_says_how_grave_it_is_what_to_look_at_and_what_to_do(rule: dict[str, Any]) -> None:
    page = (RUNBOOKS / f"{rule['alert']}.md").read_text()

    assert re.findall(r"^#+ .*", page, re.MULTILINE) == [f"# {rule['alert']}", "## Look", "## Do", "## Ignore it when"]
    assert f"\n*{rule['labels']['severity'].capitalize()}.* " in page
    assert len(page.split()) < 350


def test_the_page_of_alerts_lists_every_alert_with_its_severity() -> None:
    page = (ROOT / "docs" / "monitoring" / "alerts.md").read_text()
    listed = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \|", page, re.MULTILINE)

    assert listed == [(rule["alert"], rule["alert"], rule["labels"]["severity"]) for rule in in_order_of_page(page)]


def in_order_of_page(page: str) -> list[dict[str, Any]]:
    """The rules, in the order in which *page* names them."""
    return sorted(RULES, key=lambda rule: page.find(f"[{rule['alert']}]"))


@pytest.mark.lab
def test_the_scrape_configuration_of_the_page_is_one_that_prometheus_takes(promtool: Promtool) -> None:
    page = MONITORING.read_text()
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "scrape_configs" in text)
    config = quick_yaml.load(block)
    (promtool.folder / "prometheus.yml").write_text(block)

    checked = run(promtool.program, "check", "config", "--syntax-only", str(promtool.folder / "prometheus.yml"))

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert config["rule_files"] == [file.name for file in (*FILES, *RECORDING)]
    assert {job["job_name"] for job in config["scrape_configs"]} == {"healthd-controller", "healthd-agent"}
