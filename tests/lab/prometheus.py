"""
A real Prometheus for tests: it scrapes what the test names, evaluates rule files, and is asked over its own API.

    prometheus = Prometheus(folder, scrape=[static("healthd-controller", "127.0.0.1:9400")], rules=FILES)
    with prometheus:
        prometheus.wait_for("up == 1")
        prometheus.alerts()

It scrapes and evaluates each second where nothing else is said, and begins five seconds after its start. Its web pages
are not built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from tests.lab import web
from tests.lab.build import program
from tests.lab.modules import PROMETHEUS
from tests.lab.programs import Program, free_port


class Sample(NamedTuple):
    """One series at one time."""

    labels: dict[str, str]
    """With `__name__` where the expression keeps the name."""
    value: float


class Series(NamedTuple):
    """One series over a range of time."""

    labels: dict[str, str]
    points: list[tuple[float, float]]
    """Unix time in seconds, and value."""


class Alert(NamedTuple):
    """One alert that is pending or firing."""

    name: str
    state: str
    """`pending` or `firing`."""
    labels: dict[str, str]
    annotations: dict[str, str]


def static(job: str, *targets: str, every: str | None = None, **labels: str) -> dict[str, Any]:
    """A scrape configuration of *targets*, each as `host:port`; its series get *labels* beside `job` and `instance`."""
    found: dict[str, Any] = {"job_name": job, "honor_labels": True}
    found |= {"scrape_interval": every, "scrape_timeout": every} if every else {}
    return found | {"static_configs": [{"targets": list(targets), "labels": labels}]}


class Prometheus:
    """
    One Prometheus with its own storage, configuration and log in *folder*.

    *scrape* are entries of `scrape_configs`; *rules* are files; *alertmanagers* are `host:port`; *flags* are further
    ones of its command line.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scrape: Sequence[Mapping[str, Any]] = (),
        rules: Sequence[Path] = (),
        alertmanagers: Sequence[str] = (),
        every: str = "1s",
        flags: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.storage = folder / "storage"
        self._config = folder / "prometheus.yml"
        settings = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(file) for file in rules],
            "scrape_configs": list(scrape),
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
        }
        self._config.write_text(yaml.safe_dump(settings))
        self._program = Program("prometheus", [*self._command(), *flags], log=folder / "prometheus.log")

    def _command(self) -> list[str]:
        return [
            str(program(PROMETHEUS)),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.storage}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and return when it answers queries. Raises LabError."""
        self._program.start()
        self._program.wait_until("ready", lambda: web.is_ready(self.port), limit=30)

    def stop(self) -> None:
        """Kill it. Its storage stays for another start."""
        self._program.stop()

    def query(self, expr: str, *, at: float | None = None) -> list[Sample]:
        """*expr* now, or *at* a Unix time in seconds. A scalar is one sample without labels. Raises LabError."""
        data = self._get("query", query=expr, time=at)
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(each["metric"], float(each["value"][1])) for each in data["result"]]

    def query_range(self, expr: str, *, start: float, end: float, step: float) -> list[Series]:
        """*expr* from *start* to *end* (Unix time), each *step* seconds. Raises LabError."""
        data = self._get("query_range", query=expr, start=start, end=end, step=step)
        return [Series(each["metric"], [(at, float(value)) for at, value in each["values"]]) for each in data["result"]]

    def alerts(self) -> list[Alert]:
        """All alerts that are pending or firing."""
        return [
            Alert(each["labels"]["alertname"], each["state"], each["labels"], each["annotations"])
            for each in self._get("alerts")["alerts"]
        ]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule that it evaluates, as its API shows it: `name`, `health`, `lastError`, `alerts` and so on."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def wait_for(self, expr: str, *, limit: float = 30) -> list[Sample]:
        """What *expr* answers, as soon as it is not empty. Raises LabError after *limit* seconds."""
        found: list[Sample] = []

        def is_answered() -> bool:
            found[:] = self.query(expr)
            return bool(found)

        self._program.wait_until(f"answering {expr!r}", is_answered, limit=limit)
        return found

    def _get(self, what: str, **query: Any) -> Any:
        return web.get(self.port, f"/api/v1/{what}", **query)["data"]
