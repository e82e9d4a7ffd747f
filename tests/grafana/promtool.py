"""Play series to the alert rules with Prometheus's own `promtool test rules`."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests import quick_yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "grafana" / "alerts").glob("*.yaml"))
RECORDING = sorted((ROOT / "grafana" / "recording").glob("*.yaml"))


def rules() -> list[dict[str, Any]]:
    """Every alerting rule that is shipped."""
    groups = (group for file in FILES for group in quick_yaml.load(file.read_text())["groups"])
    return [rule for group in groups for rule in group["rules"]]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Promtool(NamedTuple):
    """The program, and a folder for the files that it reads."""

    program: str
    folder: Path

    def fires(self, alert: str, series: Mapping[str, str], *, in_minutes: Collection[int], of: int = 20) -> str:
        """
        What is wrong with the claim that *alert* fires exactly *in_minutes* of the first *of* minutes; empty: nothing.

        *series* are selectors with a sample a minute in promtool's notation. *alert* may have matchers, such as
        `HealthdGangHeld{gang="llama"}`. The first minute is 0, at Unix time 0.
        """
        name, _, matchers = alert.rstrip("}").partition("{")
        selector = ",".join([f'alertname="{name}"', 'alertstate="firing"', *filter(None, [matchers])])
        looks = [_look(f"count(ALERTS{{{selector}}}) > bool 0 or vector(0)", at, at in in_minutes) for at in range(of)]
        test = {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": looks,
        }
        file = self.folder / "test.yaml"
        defined_in = [str(each) for each in FILES if f"alert: {name}\n" in each.read_text()]
        assert defined_in, f"there is no alert {name}"
        text = {"rule_files": defined_in, "evaluation_interval": "15s", "tests": [test]}
        file.write_text(yaml.safe_dump(text))
        done = run(self.program, "test", "rules", str(file))
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def evaluates(self, expr: str, series: Mapping[str, str], expected: Mapping[str, float]) -> str:
        """What is wrong with the claim that *expr* has the value of *expected* (labels -> value); empty: nothing."""
        samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
        test = {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [{"expr": expr, "eval_time": "0m", "exp_samples": samples}],
        }
        file = self.folder / "test.yaml"
        file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
        done = run(self.program, "test", "rules", str(file))
        return "" if done.returncode == 0 else done.stdout + done.stderr


def _look(expr: str, minute: int, fires: bool) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": int(fires)}]
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": samples}
