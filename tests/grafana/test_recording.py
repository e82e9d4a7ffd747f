"""The recording rules are valid, name metrics that healthd serves, and record the figures of docs/goodput.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from healthd.telemetry.metrics import Metrics
from tests import quick_yaml
from tests.docs.metrics_page import rows
from tests.grafana.promtool import RECORDING, ROOT, Promtool, run

RULES: dict[str, str] = {
    rule["record"]: rule["expr"]
    for file in RECORDING
    for group in quick_yaml.load(file.read_text())["groups"]
    for rule in group["rules"]
}
DAY = 24 * 60
SERVED = {row.name for row in rows(Metrics()).values()}
COUNTED = {
    "healthd_gpu_seconds_total": "0+600x144",
    "healthd_productive_gpu_seconds_total": "0+360x144",
    'healthd_waiting_gpu_seconds_total{state="queued"}': "0+120x144",
    'healthd_lost_gpu_seconds_total{cause="xid", phase="redone"}': "0+120x144",
    'healthd_lost_gpu_seconds_total{cause="hang", phase="held"}': "0x144",
    'healthd_recovery_running_seconds_bucket{le="60"}': "0x100 9x44",
    'healthd_recovery_running_seconds_bucket{le="+Inf"}': "0x100 10x44",
}
"""
A day in which each GPU hour had 36 minutes of training, 12 in a queue and 12 lost; ten recoveries.
A sample each ten minutes.
"""


def after_a_day(promtool: Promtool, series: Mapping[str, str], record: str, samples: list[dict[str, Any]]) -> str:
    """What is wrong with the claim that *record* has these samples after a day; empty: nothing."""
    test = {
        "interval": "10m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": f"round({record}, 0.001)", "eval_time": "1d", "exp_samples": samples}],
    }
    file = promtool.folder / "test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(each) for each in RECORDING], "evaluation_interval": "10m", "tests": [test]})
    )
    done = run(promtool.program, "test", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.lab
@pytest.mark.parametrize(
    ("record", "samples"),
    [
        ("healthd:goodput:ratio1d", [("{}", 0.6)]),
        ("healthd:effective_training_time:ratio1d", [("{}", 0.75)]),
        (
            "healthd:lost_gpu_seconds:increase1d",
            [('{cause="hang", phase="held"}', 0), ('{cause="xid", phase="redone"}', 12 * DAY)],
        ),
        ("healthd:recovery_running_seconds:p90_1d", [("{}", 60)]),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_day_is_recorded(promtool: Promtool, record: str, samples: list[tuple[str, float]]) -> None:
    expected = [{"labels": labels, "value": value} for labels, value in samples]

    assert after_a_day(promtool, COUNTED, record, expected) == ""


@pytest.mark.lab
@pytest.mark.parametrize("record", [name for name in RULES if "ratio" in name])
def test_a_day_in_which_no_gang_was_counted_has_no_ratio(promtool: Promtool, record: str) -> None:
    nothing = dict.fromkeys(COUNTED, "0x1440")

    assert after_a_day(promtool, nothing, record, []) == ""


@pytest.mark.lab
def test_prometheus_takes_the_recording_rules(promtool: Promtool) -> None:
    for file in RECORDING:
        checked = run(promtool.program, "check", "rules", "--lint=all", "--lint-fatal", str(file))

        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("record", RULES)
def test_a_recording_rule_names_metrics_that_healthd_serves(record: str) -> None:
    named = set(re.findall(r"\bhealthd_\w+", RULES[record]))

    assert {name.removesuffix("_bucket") for name in named} <= SERVED | {
        name.removesuffix("_bucket") for name in SERVED
    }


def test_the_page_about_goodput_names_every_recording_rule() -> None:
    page = (ROOT / "docs" / "goodput.md").read_text()

    assert [record for record in RULES if f"`{record}`" not in page] == []
