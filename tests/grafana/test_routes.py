"""The example for Alertmanager: it is valid, each alert goes where it should, and one cause is one page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.alerts.labels import ALERT_NAME
from healthd.clock import SystemClock
from tests import quick_yaml
from tests.grafana.promtool import ROOT, rules
from tests.grafana.routes import EXAMPLE, example
from tests.lab.alertmanager import Alertmanager, amtool
from tests.lab.endpoint import Endpoint
from tests.lab.fixtures import get
from tests.lab.modules import ALERTMANAGER

CONFIG = quick_yaml.load(EXAMPLE.read_text())
SEVERITIES = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
GANG = {"namespace": "vision-train", "gang": "llama"}
PAGE, NOTICE = {"severity": "page"}, {"severity": "notice"}
CAUSES = [
    ("HealthdBreakerOpen", {}, "HealthdGangHeld", {**GANG, "reason": "breaker"}),
    ("HealthdBudgetUsedUp", {}, "HealthdQuarantineRefused", {"node": "gpu-1"}),
    ("HealthdManyAgentsDown", {}, "HealthdAgentDown", {"node": "gpu-1"}),
    ("HealthdManyAgentsDown", {}, "HealthdAgentMissing", {}),
    ("HealthdManyNodesBlind", {}, "HealthdNodeBlind", {"node": "gpu-1", "source": "nvml"}),
    ("HealthdControllerAbsent", {}, "HealthdControllerReplicaDown", {"instance": "a"}),
    (ALERT_NAME, {"namespace": "vision-train", "incident": "i"}, "HealthdGangHeld", {**GANG, "reason": "spare"}),
    (ALERT_NAME, {"namespace": "vision-train", "incident": "i"}, "HealthdGangGaveUp", GANG),
]
"""What pages, what it makes silent, and their labels."""
OTHERS = [
    ("HealthdBreakerOpen", {}, "HealthdGangHeld", {**GANG, "reason": "spare"}),
    ("HealthdBreakerOpen", {"cluster": "east"}, "HealthdGangHeld", {**GANG, "reason": "breaker", "cluster": "west"}),
    (ALERT_NAME, {"namespace": "other", "incident": "i"}, "HealthdGangHeld", {**GANG, "reason": "spare"}),
    (ALERT_NAME, {"incident": "i", "nodes": "gpu-1"}, "HealthdGangHeld", {**GANG, "reason": "spare"}),
    ("HealthdControllerAbsent", {}, "HealthdManyAgentsDown", {}),
]
"""What pages, and what is beside it: another cause, another cluster, another namespace."""


@pytest.fixture(scope="module", autouse=True)
def _amtool(request: pytest.FixtureRequest) -> None:
    get(ALERTMANAGER, request)


@pytest.mark.lab
def test_amtool_takes_the_example() -> None:
    checked = amtool("check-config", str(EXAMPLE))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def receivers_of(**labels: str) -> list[str]:
    """Who gets an alert."""
    tested = amtool(
        "config", "routes", "test", f"--config.file={EXAMPLE}", *(f"{name}={value}" for name, value in labels.items())
    )
    assert tested.returncode == 0, tested.stderr
    return tested.stdout.strip().split(",")


@pytest.mark.lab
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "HealthdWatchdog", "severity": "none"}, "heartbeat"),
        ({"alertname": "HealthdControllerAbsent", **PAGE}, "on-call"),
        ({"alertname": "HealthdGangHeld", **PAGE, **GANG}, "on-call"),
        ({"alertname": "HealthdAgentDown", **NOTICE, "node": "gpu-1"}, "platform-channel"),
        ({"alertname": "HealthdCheckpointLate", **NOTICE, **GANG}, "vision-channel"),
        ({"alertname": "HealthdCheckpointLate", **NOTICE, "namespace": "speech"}, "platform-channel"),
        ({"alertname": ALERT_NAME, **PAGE, "team": "vision", "namespace": "vision-train"}, "on-call"),
        ({"alertname": ALERT_NAME, **NOTICE, "team": "vision", "namespace": "vision-train"}, "vision-channel"),
        ({"alertname": ALERT_NAME, **NOTICE, "team": "platform"}, "platform-channel"),
        ({"alertname": "SomethingElse", "severity": "critical"}, "on-call"),
    ],
    ids=lambda each: each if isinstance(each, str) else "-".join(each.values()),
)
def test_an_alert_goes_to_one_receiver_the_right_one(labels: dict[str, str], receiver: str) -> None:
    assert receivers_of(**labels) == [receiver]


@pytest.mark.lab
@pytest.mark.slow
def test_no_page_goes_to_a_channel_and_no_notice_wakes_anybody() -> None:
    wrong = {
        name: found
        for name, severity in SEVERITIES.items()
        for found in [receivers_of(alertname=name, severity=severity, namespace="vision-train")]
        if found != [{"page": "on-call", "notice": "vision-channel", "none": "heartbeat"}[severity]]
    }

    assert wrong == {}


def test_every_alert_that_the_example_names_exists() -> None:
    named = set(re.findall(r"\bHealthd[A-Z]\w+", str(CONFIG)))

    assert named - {ALERT_NAME} - SEVERITIES.keys() == set()
    assert "HealthdWatchdog" in named


def test_only_a_page_makes_others_silent() -> None:
    sources = [re.findall(r"Healthd\w+", str(rule["source_matchers"])) for rule in CONFIG["inhibit_rules"]]

    assert {SEVERITIES.get(name, "page") for names in sources for name in names} == {"page"}


def test_the_page_about_monitoring_shows_the_example() -> None:
    page = (ROOT / "docs" / "monitoring" / "README.md").read_text()
    shown = EXAMPLE.read_text().partition("\nroute:")[2]

    assert f"route:{shown}```" in page


@pytest.fixture(scope="module")
def alertmanager(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """With the routes and the inhibitions of the example; its receivers do not answer."""
    get(ALERTMANAGER, request)
    with Alertmanager(tmp_path_factory.mktemp("am"), example(lambda name: f"http://127.0.0.1:1/{name}")) as running:
        yield running


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize(
    "number", range(len(CAUSES + OTHERS)), ids=lambda number: "-".join((CAUSES + OTHERS)[number][::2])
)
def test_a_page_about_a_cause_makes_what_follows_from_it_silent_and_nothing_else(
    alertmanager: Alertmanager, number: int
) -> None:
    source, _, target, _ = (CAUSES + OTHERS)[number]
    send_pair(alertmanager, number, test=f"{number}")
    # It takes alerts one after the other, so it has seen the pair when a later one has its effect.
    send_pair(alertmanager, 0, test=f"{number}-later")
    alertmanager.wait_until("it has seen the pair", lambda: any(inhibited(alertmanager, f"{number}-later").values()))

    assert inhibited(alertmanager, f"{number}") == {source: False, target: number < len(CAUSES)}


def send_pair(alertmanager: Alertmanager, number: int, test: str) -> None:
    """A target and then its source, in a cluster that no other test has."""
    source, of_source, target, of_target = (CAUSES + OTHERS)[number]
    ends = (SystemClock().now() + timedelta(minutes=5)).isoformat()
    for name, labels in ((target, of_target), (source, of_source)):
        apart = {"cluster": f"{labels.get('cluster', '')}{test}", "test": test}
        severity = SEVERITIES.get(name, "page")
        alertmanager.send({"labels": {**labels, **apart, "alertname": name, "severity": severity}, "endsAt": ends})


def inhibited(alertmanager: Alertmanager, test: str) -> dict[str, bool]:
    """Whether each alert of a test is made silent by another."""
    return {each.name: bool(each.inhibited_by) for each in alertmanager.alerts(f'test="{test}"')}


@pytest.mark.lab
@pytest.mark.slow
def test_a_notice_beside_its_page_is_not_sent_and_another_one_is(tmp_path: Path) -> None:
    with Endpoint() as receiver:
        config = example(lambda name: f"http://{receiver.address}/{name}")
        for route in config["route"]["routes"]:
            route["group_wait"] = "500ms"
        with Alertmanager(tmp_path, config) as running:
            for name in ("HealthdManyAgentsDown", "HealthdAgentDown", "HealthdObjectErrors"):
                running.send({"labels": {"alertname": name, "severity": SEVERITIES[name], "node": "gpu-1"}})
            running.wait_until("notified", lambda: receiver.to("/on-call") and receiver.to("/platform-channel"))

    notices = [
        alert["labels"]["alertname"] for sent in receiver.to("/platform-channel") for alert in sent.json["alerts"]
    ]
    assert notices == ["HealthdObjectErrors"]
