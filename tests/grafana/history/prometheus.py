"""A real Prometheus that serves a played history: `promtool` writes its blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from tests.fakes import START
from tests.grafana.history.scrapes import Exposed, Scrapes
from tests.grafana.history.story import END, SCRAPE_EVERY, play
from tests.grafana.promtool import rules, run
from tests.lab import web
from tests.lab.build import program
from tests.lab.modules import PROMETHEUS
from tests.lab.prometheus import Prometheus

STALE_AFTER = SCRAPE_EVERY * 1.5
"""A backfilled series has no mark of its end, so a target that is gone ends by this."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


class HistoryPrometheus(Prometheus):
    """Serves what was written into its storage, and scrapes nothing."""

    def _command(self) -> list[str]:
        stale = f"--query.lookback-delta={STALE_AFTER.total_seconds():.0f}s"
        return [*super()._command(), "--storage.tsdb.retention.time=50y", stale]

    def label_values(self, metric: str, label: str) -> list[str]:
        """The values of *label* in the history, as Grafana's `label_values(metric, label)` asks for them."""
        when = {"start": START.timestamp(), "end": END.timestamp()}
        found: list[str] = web.get(self.port, f"/api/v1/label/{label}/values", **{"match[]": metric}, **when)["data"]
        return sorted(found)

    def backfill(self, scrapes: Scrapes, folder: Path) -> None:
        """Add *scrapes* to the storage, while it is stopped."""
        text = folder / "history.om"
        scrapes.write(text)
        promtool = str(program(PROMETHEUS, "promtool"))
        done = run(promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(self.storage))
        assert done.returncode == 0, done.stderr
        text.unlink()


def with_history(folder: Path) -> HistoryPrometheus:
    """A Prometheus with the played history, and with the alerts that fired in it. It is not started."""
    prometheus = HistoryPrometheus(folder)
    prometheus.storage.mkdir()
    prometheus.backfill(asyncio.run(play()), folder)
    with prometheus:
        alerts = fired(prometheus)
    prometheus.backfill(alerts, folder)
    return prometheus


def fired(prometheus: Prometheus) -> Scrapes:
    """
    The series ALERTS of the shipped rules: Prometheus judges each expression over the whole history, and `for` and
    `keep_firing_for` are applied here, as it evaluates rules only in the present.
    """
    found = Scrapes()
    step = SCRAPE_EVERY.total_seconds()
    for rule in rules():
        named = {"alertname": rule["alert"], "alertstate": "firing", **rule["labels"]}
        wait, keep = _seconds(rule.get("for", "0s")), _seconds(rule.get("keep_firing_for", "0s"))
        for series in prometheus.query_range(
            rule["expr"], start=START.timestamp() + step, end=END.timestamp(), step=step
        ):
            labels = {name: value for name, value in series.labels.items() if name != "__name__"}
            for at in _firing([at for at, _ in series.points], wait, keep, step):
                found.add(Exposed("ALERTS", {**labels, **named}, 1), at)
    return found


def _firing(active: list[float], wait: float, keep: float, step: float) -> Iterator[float]:
    """When an alert fires whose expression is true at the times *active*."""
    since = last = None
    at = active[0] if active else 0.0
    times = set(active)
    end = (active[-1] if active else 0.0) + keep
    fires = False
    while active and at <= end:
        if at in times:
            since = at if since is None else since
            last = at
            fires = fires or at - since >= wait
        elif not (fires and last is not None and at - last < keep):
            since, fires = None, False
        if fires:
            yield at
        at += step


def _seconds(duration: str) -> float:
    """Such as `1m30s`."""
    total, number = 0, ""
    for letter in duration:
        if letter.isdigit():
            number += letter
        else:
            total, number = total + int(number) * _UNITS[letter], ""
    return total
