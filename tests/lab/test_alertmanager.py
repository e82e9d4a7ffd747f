"""Alertmanager takes alerts, routes and silences them, and tells its replicas."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from healthd.clock import SystemClock
from tests.lab.alertmanager import Alertmanager, amtool, replicas
from tests.lab.endpoint import Endpoint
from tests.lab.fixtures import get
from tests.lab.modules import ALERTMANAGER

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ALERT = {"labels": {"alertname": "Hot", "node": "n1"}, "annotations": {"summary": "95 degrees"}}


@pytest.fixture
def receiver(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """Where notifications arrive."""
    get(ALERTMANAGER, request)
    with Endpoint() as endpoint:
        yield endpoint


def all_to(receiver: Endpoint) -> dict[str, Any]:
    """A configuration that notifies at once."""
    hook = {"name": "hook", "webhook_configs": [{"url": f"http://{receiver.address}/hook"}]}
    return {"route": {"receiver": "hook", "group_wait": "0s"}, "receivers": [hook]}


def test_an_alert_is_held_and_its_receiver_notified(tmp_path: Path, receiver: Endpoint) -> None:
    with Alertmanager(tmp_path, all_to(receiver)) as alertmanager:
        alertmanager.send(ALERT)
        alertmanager.wait_until("notified", lambda: receiver.to("/hook"))
        (held,) = alertmanager.alerts('node="n1"')

    assert (held.name, held.state, held.receivers) == ("Hot", "active", ["hook"])
    assert receiver.to("/hook")[0].json["alerts"][0]["labels"] == ALERT["labels"]


def test_a_silence_of_one_replica_is_one_of_the_other(tmp_path: Path, receiver: Endpoint) -> None:
    one, other = replicas(tmp_path, all_to(receiver))
    with one, other:
        other.wait_until("joined", lambda: len(one.peers()) == 2)
        silence = one.silence(SystemClock().now() - timedelta(seconds=1), node="n1")
        other.wait_until("silenced", lambda: other.silences() == [silence])
        other.send(ALERT)
        (held,) = other.alerts()

    assert held.silenced_by == [silence]
    assert held.state == "suppressed"


def test_amtool_says_what_is_wrong_with_a_configuration(tmp_path: Path, receiver: Endpoint) -> None:
    (tmp_path / "am.yml").write_text("route: {receiver: nobody}")

    checked = amtool("check-config", str(tmp_path / "am.yml"))

    assert checked.returncode != 0
    assert "undefined receiver" in checked.stderr + checked.stdout
