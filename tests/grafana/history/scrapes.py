"""What Prometheus would have scraped, as OpenMetrics with time stamps for `promtool tsdb create-blocks-from`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from tests.grafana.history.stage import Stage

NAMESPACE = "healthd-system"


class Exposed(NamedTuple):
    """One sample of one target, with the labels that Prometheus adds."""

    name: str
    labels: Mapping[str, str]
    value: float


class Scrapes:
    """Every series with its samples in the order of time."""

    def __init__(self) -> None:
        self._series: dict[str, list[tuple[float, float]]] = {}

    def take(self, now: datetime, stage: Stage, others: Iterable[Exposed]) -> None:
        """One scrape of all targets."""
        for each in (*_up(stage), *_healthd(stage), *others):
            self.add(each, now.timestamp())

    def add(self, sample: Exposed, at: float) -> None:
        """One more sample."""
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()) if value)
        self._series.setdefault(f"{sample.name}{{{labels}}}", []).append((at, sample.value))

    def write(self, file: Path) -> None:
        """
        As `promtool` reads it. Buckets that stay 0 are left out, as no quantile depends on them: most of each scrape.
        """
        with file.open("w") as out:
            for name in sorted(self._series):
                samples = self._series[name]
                if "_bucket{" in name and not any(value for _, value in samples):
                    continue
                out.writelines(f"{name} {value!r} {at:.0f}\n" for at, value in samples)
            out.write("# EOF\n")


def _up(stage: Stage) -> Iterator[Exposed]:
    for job, names in (("healthd-agent", stage.agents), ("healthd-controller", stage.controllers)):
        for name in names:
            yield Exposed("up", _target(job, name), float(name in stage.running))


def _healthd(stage: Stage) -> Iterator[Exposed]:
    for job, name, metrics in stage.exposed():
        target = _target(job, name)
        for sample in _samples(metrics.registry):
            yield Exposed(sample.name, {**target, **sample.labels}, sample.value)


def _samples(registry: CollectorRegistry) -> Iterator[Exposed]:
    """All but those of the process that the tests run in."""
    for family in registry.collect():
        if not family.name.startswith("process_"):
            yield from (Exposed(sample.name, sample.labels, sample.value) for sample in family.samples)


def _target(job: str, name: str) -> dict[str, str]:
    """The labels of docs/monitoring/README.md. A label of the metric itself wins: honor_labels."""
    of_agent = {"node": name, "pod": f"{job}-{name}"} if job == "healthd-agent" else {"node": "system-1", "pod": name}
    return {"job": job, "instance": f"{name}:9400", "namespace": NAMESPACE, **of_agent}
