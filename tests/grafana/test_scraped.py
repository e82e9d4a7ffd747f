"""
Every alert fires at a real Prometheus when its cause is there, and none but the watchdog while all is well.

One server scrapes the registries of controllers and agents over HTTP; one controller is a real one. One gang of its
cannot be fenced, and no write to another is let through. The rules are copies whose spans are `FACTOR` times shorter;
the seconds that they compare times with are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from healthd.core.api import ANNOTATION_RESTART, Job, NodeHealth, Pod
from tests.builders import a_job, a_nodehealth, a_pod
from tests.controller.replicas import Replicas
from tests.fakes import settle
from tests.grafana.faster import faster_rules
from tests.grafana.promtool import rules
from tests.grafana.scraped import Cluster, exposition
from tests.lab.endpoint import Endpoint
from tests.lab.fixtures import get
from tests.lab.modules import PROMETHEUS
from tests.lab.programs import LabError, wait_until
from tests.lab.prometheus import Alert, Prometheus

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("monitoring")]

FACTOR = 80
NAMES = [rule["alert"] for rule in rules()]
ALWAYS = "HealthdWatchdog"
WITHOUT_LEADER, WITHOUT_CONTROLLER = "HealthdNoLeader", "HealthdControllerAbsent"
PATIENCE = 70.0
"""Seconds for all alerts of one stage."""


class Played(NamedTuple):
    """What fired."""

    while_well: list[Alert]
    by_name: dict[str, list[Alert]]


class Watcher:
    """Collects the alerts that fire, as `/api/v1/alerts` shows them."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self.fired: dict[str, list[Alert]] = {}

    async def until_fired(self, names: Collection[str]) -> None:
        """Return when all of *names* have fired, or after a while."""
        with suppress(LabError):  # the test of the alert that is missing says so
            await asyncio.to_thread(wait_until, "firing", lambda: self._look() >= set(names), limit=PATIENCE)

    def _look(self) -> set[str]:
        for alert in self._prometheus.alerts():
            known = self.fired.setdefault(alert.name, [])
            if alert.state == "firing" and alert.labels not in [each.labels for each in known]:
                known.append(alert)
        return {name for name, alerts in self.fired.items() if alerts}


@asynccontextmanager
async def a_real_controller() -> AsyncIterator[Replicas]:
    """It leads, and guards a gang of two, on nodes whose agents report."""
    stage = Replicas(history=100)  # each tenth write, such as of the Lease, is a sign of life on every watch
    await stage.set_up()
    for node in ("node-0", "node-1"):
        await stage.cluster.create(a_nodehealth(node))
        seen = {"status": {"verdict": "healthy", "seenAt": stage.clock.now().isoformat()}}
        await stage.cluster.patch(NodeHealth, node, seen, subresource="status")
    await stage.start("real")
    await refuse(stage)
    await stage.until(lambda: stage.is_led_by("real"))
    await stage.clock.run_for(timedelta(minutes=1))
    yield stage
    await stage.close()


async def refuse(stage: Replicas) -> None:
    """A second gang of the real controller, on the node that will break. No write to its Job is let through."""
    job = await stage.cluster.create(a_job("refused", ranks=1, annotations={ANNOTATION_RESTART: "enabled"}))
    started = {"status": {"active": 1, "startTime": stage.clock.now().isoformat()}}
    await stage.cluster.patch(Job, "refused", started, namespace="default", subresource="status")
    labels = {"batch.kubernetes.io/job-name": "refused"}
    await stage.cluster.create(a_pod("refused-0", node="node-1", index=0, owner=job, labels=labels))
    running = {"status": {"phase": "Running"}}
    await stage.cluster.patch(Pod, "refused-0", running, namespace="default", subresource="status")
    stage.links["real"].refused.add("refused")


async def hold(stage: Replicas) -> None:
    """The gang of the real controller is stopped, its pods are gone, and nothing proves that they cannot write."""
    await stage.quarantine("node-1")
    await stage.until(stage.is_stopped)
    for rank in range(2):
        await stage.cluster.delete(Pod, f"train-{rank}", namespace="default", grace_seconds=0)
    suspended = {"status": {"active": 0, "conditions": [{"type": "Suspended", "status": "True"}]}}
    await stage.cluster.patch(Job, "train", suspended, namespace="default", subresource="status")
    await settle()
    await stage.clock.run_for(timedelta(minutes=50))


async def play(folder: Path) -> Played:
    """All causes, in three stages: what goes beside a leader, no leader, no controller."""
    with Endpoint() as endpoint:
        async with a_real_controller() as stage:
            cluster = Cluster(endpoint)
            cluster.serve("real", lambda: exposition(stage.daemons["real"].metrics, stage.clock.now))
            with Prometheus(folder, scrape=cluster.scrape(), rules=faster_rules(folder, FACTOR)) as prometheus:
                prometheus.wait_for("sum(up) == 16 and on () sum(healthd_leading) == 2")
                history = f"{3600 / FACTOR + 1:.0f}s"
                await asyncio.to_thread(
                    prometheus.wait_for, f"count(healthd_node_verdict offset {history})", limit=2 * 3600 / FACTOR
                )
                while_well = prometheus.alerts()
                watcher = Watcher(prometheus)
                await hold(stage)
                cluster.break_nodes()
                cluster.break_gangs()
                cluster.break_service()
                await watcher.until_fired(set(NAMES) - {WITHOUT_LEADER, WITHOUT_CONTROLLER})
                stage.links["real"].cut = True
                await stage.clock.run_for(timedelta(minutes=2))
                cluster.end_leaders()
                await watcher.until_fired({WITHOUT_LEADER})
                cluster.end_controllers()
                await watcher.until_fired({WITHOUT_CONTROLLER})
                return Played(while_well, watcher.fired)


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    get(PROMETHEUS, request)
    return asyncio.run(play(tmp_path_factory.mktemp("scraped")))


def test_while_all_is_well_only_the_watchdog_fires(played: Played) -> None:
    assert [(alert.name, alert.state) for alert in played.while_well] == [(ALWAYS, "firing")]


@pytest.mark.parametrize("name", NAMES)
def test_its_cause_makes_an_alert_fire(played: Played, name: str) -> None:
    assert played.by_name.get(name)


def test_the_alerts_name_what_is_in_trouble(played: Played) -> None:
    def of(name: str, *labels: str) -> list[tuple[str, ...]]:
        return sorted(tuple(alert.labels[label] for label in labels) for alert in played.by_name[name])

    held = [("default", "train", "fence"), ("team-a", "waits", "spare")]
    assert of("HealthdGangHeld", "namespace", "gang", "reason") == held
    assert of("HealthdRecoveryStuck", "namespace", "gang", "phase") == [("default", "refused", "Stopping")]
    assert of("HealthdNodeBlind", "node") == [("n3",), ("n4",), ("n5",), ("n6",)]
    assert ("n0",) in of("HealthdAgentDown", "node")
    assert of("HealthdNodeQuarantinedLong", "node") == [("n3",)]
    assert of("HealthdCheckpointRefused", "gang") == [("older",)]


def test_the_text_of_an_alert_has_its_values(played: Played) -> None:
    (rising,) = played.by_name["HealthdFindingsRising"]

    assert rising.annotations["summary"] == "xid-79: 5 more nodes than an hour ago"
