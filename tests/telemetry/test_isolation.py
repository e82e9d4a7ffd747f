"""An error that one object brings out is logged, counted, and ends nothing."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from healthd.cluster.port import Conflict
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics


def test_it_is_counted_each_time_and_logged_once() -> None:
    metrics = Metrics()
    isolation = Isolation(metrics)
    with capture_logs() as logs:
        for _ in range(3):
            with isolation.of("tidy", "pod default/evil"):
                raise ZeroDivisionError("a fault of ours")

    count = metrics.registry.get_sample_value("healthd_object_errors_total", {"where": "tidy"})
    assert count == 3
    assert [(each["event"], each["object"]) for each in logs] == [("object.failed", "pod default/evil")]


def test_what_the_cluster_says_is_for_the_caller() -> None:
    with pytest.raises(Conflict), Isolation().of("tidy", "pod default/evil"):
        raise Conflict("somebody was faster")
