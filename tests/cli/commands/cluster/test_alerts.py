"""`healthd alerts list`: what is open, and which service has what of it."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from healthd.cli.commands.cluster import alerts
from healthd.core.api import Delivery, IncidentRecord, IncidentStatus, ObjectMeta
from healthd.core.api.incidents import Severity
from tests.core.alerts.problems import an_incident, at

TOOK = Delivery(revision=1, answer="accepted")
FAILS = Delivery(attempts=4, error="503", since=at(60))
RECORDS: list[tuple[str, dict[str, Any], dict[str, Delivery]]] = [
    ("a", {"severity": Severity.NOTICE, "title": "is being restarted"}, {}),
    ("b", {"title": "waits: no spare", "namespace": "team-a", "gang": "job/llama"}, {"oncall": TOOK}),
    ("c", {"title": "it was", "resolved": at(60), "revision": 2}, {"oncall": Delivery(revision=2, answer="accepted")}),
    ("d", {"title": "GPU fell off", "nodes": ("n1",)}, {"oncall": FAILS, "chat": Delivery(dead=1, error="400")}),
]


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code and what is printed."""
    parser = argparse.ArgumentParser()
    alerts.add_arguments(parser)
    records = [a_record(key, fields, deliveries) for key, fields, deliveries in RECORDS]
    code = alerts.show(records, parser.parse_args(["list", *words]), at(120))
    return code, capsys.readouterr().out


def a_record(key: str, fields: dict[str, Any], deliveries: dict[str, Delivery]) -> IncidentRecord:
    status = IncidentStatus(deliveries=deliveries)
    return IncidentRecord(metadata=ObjectMeta(name=key), spec=an_incident(key, **fields), status=status)


def test_what_is_open_is_listed_pages_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = listed(capsys, "-o", "json")

    assert code == alerts.OPEN
    assert [json.loads(line)["spec"]["key"] for line in out.splitlines()] == ["b", "d", "a"]


def test_what_is_over_is_listed_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = listed(capsys, "--all", "-o", "json")

    assert [json.loads(line)["spec"]["key"] for line in out.splitlines()][-1] == "c"


def test_only_one_namespace_is_listed_where_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = listed(capsys, "-n", "team-a", "-o", "json")

    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["Incident"]


def test_what_each_service_has_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = listed(capsys, "--all")
    words = out.split()

    assert {"accepted", "spare", "SERVICES", "(400);", "resolved"} <= set(words)


def test_nothing_open_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = listed(capsys, "-n", "team-z")

    assert (code, out.strip()) == (0, "no incident is open")


@pytest.mark.parametrize("title", ["waits: [/x]", "[link=https://evil.example]x[/link]", "[black on black]x[/]"])
def test_brackets_in_a_title_are_shown_as_they_are(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = argparse.Namespace(output="table", namespace="", all=False)
    alerts.show([a_record("a", {"title": title}, {})], asked, at(0))

    assert "".join(title.split()) in "".join(capsys.readouterr().out.split()).replace("-", "")
