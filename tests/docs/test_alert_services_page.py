"""The page about alert services says what the code does."""

from __future__ import annotations

import re
from typing import Any

from healthd.alerts.registry import HTTP_SINKS
from healthd.alerts.sinks.apprise import Apprise
from healthd.alerts.sinks.webhook import schema, signature
from healthd.cli.configuration.reading import parse
from healthd.core.config.alerts import SinkKind
from tests import quick_yaml
from tests.docs.page import ROOT

PAGE = (ROOT / "docs" / "monitoring" / "alert-services.md").read_text()
ROWS = {row[0].strip(" `").split("`")[0]: row for line in PAGE.splitlines() if len(row := line.split("|")[1:-1]) == 5}


def test_the_table_has_every_kind_with_its_rate() -> None:
    rates = {**{kind: sink.rate for kind, sink in HTTP_SINKS.items()}, SinkKind.APPRISE: Apprise.rate}

    assert {kind: float(ROWS[kind][4]) for kind in SinkKind} == rates


def test_every_kind_is_set_up_in_five_steps() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    steps = [len(re.findall(r"^\d\. ", section, re.MULTILINE)) for section in sections]

    assert sorted(count for count in steps if count) == [5] * 11, "the two kinds of Slack are one section"


def test_the_example_of_a_configuration_is_taken() -> None:
    [example] = re.findall(r"```yaml\n(alerts:.*?)```", PAGE, re.DOTALL)
    loaded: dict[str, Any] = quick_yaml.load(example)

    assert parse(example.encode(), "page").alerts.sinks[0].urls == tuple(loaded["alerts"]["sinks"][0]["urls"])


def test_the_example_of_a_receiver_knows_what_healthd_signs() -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(example, scope)
    is_from_healthd = scope["is_from_healthd"]
    signed = f"v1={signature('key', '1000', b'{}')}"

    assert is_from_healthd(b"key", "1000", signed, b"{}", 1100)
    assert not is_from_healthd(b"key", "1000", signed, b"{}", 1400)
    assert not is_from_healthd(b"key", "1001", signed, b"{}", 1100)
    assert not is_from_healthd(b"key", "1000", signed, b"{ }", 1100)
    assert not is_from_healthd(b"other", "1000", signed, b"{}", 1100)


def test_the_patch_fits_the_controller() -> None:
    [example] = re.findall(r"```yaml\n# my-cluster/kustomization.yaml\n(.*?)```", PAGE, re.DOTALL)
    manifests = [each for each in quick_yaml.load_all((ROOT / "deploy" / "controller.yaml").read_text()) if each]
    [deployment] = [each for each in manifests if each["kind"] == "Deployment"]
    [patch] = quick_yaml.load(example)["patches"]

    assert patch["target"]["name"] == deployment["metadata"]["name"]
    for step in quick_yaml.load(patch["patch"]):
        *parents, last = step["path"].strip("/").split("/")
        place = deployment
        for name in parents:
            place = place[int(name)] if isinstance(place, list) else place[name]
        assert isinstance(place, list) if last == "-" else last not in place
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 65532


def test_the_network_policy_is_about_the_controller() -> None:
    [example] = re.findall(r"```yaml\n# my-cluster/alerts-network.yaml\n(.*?)```", PAGE, re.DOTALL)
    manifests = [each for each in quick_yaml.load_all((ROOT / "deploy" / "controller.yaml").read_text()) if each]
    [deployment] = [each for each in manifests if each["kind"] == "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    assert quick_yaml.load(example)["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_schema_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "monitoring" / "alert-webhook.schema.json").read_text() == schema(), (
        "the page is old: run `make docs`"
    )
