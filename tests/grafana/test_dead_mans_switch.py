"""
The dead man's switch with real parts: a controller that is killed pages, and a Prometheus that is killed beats no more.

Rules, routes and scrape intervals are those that are documented, so this takes two minutes. `python -m
tests.bench.dead_mans_switch` measures it several times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grafana.stack import Controller, Monitoring
from tests.lab.control_plane import ControlPlane
from tests.lab.endpoint import Endpoint
from tests.lab.fixtures import get
from tests.lab.modules import ALERTMANAGER, PROMETHEUS
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("monitoring")]

WITHIN = 120.0
"""Seconds from the death of the last controller to the page, as docs/monitoring/README.md promises."""


@pytest.fixture
def controller(request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Controller]:
    get(PROMETHEUS, request)
    get(ALERTMANAGER, request)
    with Controller(control_plane, tmp_path) as running:
        yield running


def test_a_controller_that_is_killed_pages_within_two_minutes_and_is_the_only_page(
    controller: Controller, tmp_path: Path
) -> None:
    with Monitoring(tmp_path / "monitoring", controller.address) as monitoring:
        monitoring.prometheus.wait_for("healthd_leading == 1", limit=60)
        wait_until("a beat", lambda: monitoring.beats, limit=180)
        before = monitoring.paged()
        controller.kill()
        killed = time.monotonic()
        wait_until("a page", lambda: monitoring.pages("HealthdControllerAbsent"), limit=WITHIN)
        wait_until("a beat after that", lambda: monitoring.beats[-1].at > killed, limit=180)

    assert before == set()
    assert monitoring.paged() == {"HealthdControllerAbsent"}
    assert monitoring.pages("HealthdControllerAbsent")[0].at - killed < WITHIN


def test_a_controller_beats_at_its_own_heartbeat_service_until_it_is_killed(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with Endpoint() as service:
        (tmp_path / "url").write_text(f"http://{service.address}/secret")
        config = {"heartbeat": {"url_file": str(tmp_path / "url"), "interval": "10s", "insecure": True}}
        with Controller(control_plane, tmp_path, config=config) as controller:
            wait_until("two beats", lambda: len(service.to("/secret")) == 2, limit=60)
            controller.kill()
        first, second = service.to("/secret")

    assert first.method == "GET"
    assert 9 < second.at - first.at < 15


def test_a_prometheus_that_is_killed_beats_no_more_once_its_last_alerts_have_ended(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """They end after four resend delays or evaluations. With the usual delay of a minute that is four minutes."""
    get(PROMETHEUS, request)
    get(ALERTMANAGER, request)
    with Monitoring(tmp_path, "127.0.0.1:1", flags=("--rules.alert.resend-delay=15s",)) as monitoring:
        wait_until("a beat", lambda: monitoring.beats, limit=180)
        monitoring.prometheus.stop()
        stopped = time.monotonic()
        wait_until("the end of the alerts", lambda: not monitoring.alertmanager.alerts(), limit=90)

    assert all(beat.at - stopped < 61 for beat in monitoring.beats)
