"""Where the time of a gang's GPUs went: the account on its root, and the counters, whatever happens to controllers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.cluster.port import Forbidden, Unavailable
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.reconciler import Reconciler
from healthd.core.accounting.figures import Figures, figures
from healthd.core.accounting.timeline import milliseconds
from healthd.core.api import ANNOTATION_GPU_TIME, Job
from healthd.core.api.gpu_time import LARGEST_SIZE, GpuTime
from healthd.core.api.model import Phase
from healthd.core.untrusted import LARGEST_STEP
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.fakes import START
from tests.grafana.history.stores import TimedStore
from tests.scenarios.scenario import Loop, Scenario, reading_at_once
from tests.scenarios.test_controllers import DiesAtWrite
from tests.simulation.step_scheduler import Crashed
from tests.simulation.training import SeenCheckpoints

COUNTERS = ("productive", "lost", "unverified", "waiting")
ACCOUNTS = 5
"""Controllers write the account so often in `lived`, or more often."""


class Controllers:
    """Controllers of one scenario, each with metrics of its own, as a process has them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.metrics: list[Metrics] = []
        scenario.trainers.stores["train"] = scenario.store = TimedStore(scenario.clock, 1000)

    def start(self, name: str = "controller", cluster: Any = None) -> Loop:
        """One more."""
        scenario = self._scenario
        self.metrics.append(Metrics())
        dependencies = ReconcilerDependencies(
            cluster=cluster or scenario.ground_truth.seen_by(name),
            clock=scenario.clock,
            adapters=ADAPTERS,
            checkpoints=SeenCheckpoints(scenario.trainers.stores),
            metrics=self.metrics[-1],
        )
        loop = reading_at_once(Reconciler(dependencies, scenario.config))
        scenario.add_loop(name, loop)
        return loop

    def counted(self, *names: str) -> float:
        """Of all processes, in GPU-seconds."""
        return sum(_sum(metrics, f"healthd_{name}gpu_seconds_total") for metrics in self.metrics for name in names)


def _sum(metrics: Metrics, name: str) -> float:
    found = (sample for family in metrics.registry.collect() for sample in family.samples if sample.name == name)
    return sum(sample.value for sample in found)


def account_of(scenario: Scenario) -> GpuTime:
    account = scenario.root.gpu_time
    assert account is not None
    return account


def seconds(found: Figures) -> float:
    return found.whole / 1000


async def lived(scenario: Scenario) -> None:
    """Half an hour with a broken GPU."""
    await scenario.run_for(minutes=10, seconds=10)
    scenario.fault("node-1")
    await scenario.run_for(minutes=20)
    scenario.suspend()
    await scenario.run_for(minutes=1)


async def test_the_parts_add_up_to_the_wall_clock_times_the_gpus_and_the_counters_to_the_account() -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    controllers.start()
    await lived(scenario)
    account = account_of(scenario)

    assert seconds(figures([account])) == 2 * (account.until - account.since) / 1000
    assert account.since - milliseconds(START) < 10_000
    assert milliseconds(scenario.clock.now()) - account.until <= 60_000
    assert controllers.counted("") == pytest.approx(seconds(figures([account])))
    assert controllers.counted(*(f"{part}_" for part in COUNTERS)) == pytest.approx(controllers.counted(""))


async def test_a_broken_gpu_costs_the_work_since_the_last_save_and_each_phase() -> None:
    scenario = Scenario()
    Controllers(scenario).start()
    await lived(scenario)
    found = figures([account_of(scenario)])
    lost = {f"{loss.part}/{loss.cause}": loss.gpu_ms / 1000 for loss in found.losses()}

    assert 0 < lost["redone/xid"] <= 2 * 20 + 2
    assert found.ettr is not None
    assert 0.9 < found.ettr < 1
    assert {name.partition("/")[2] for name in lost} <= {"xid", "user"}


class DiesAtAccount:
    """A cluster whose user dies at its *number*th write of the account, before or after it took effect."""

    def __init__(self, cluster: Any, number: int, *, after: bool) -> None:
        self._cluster = cluster
        self._left = number
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, *args: Any, **options: Any) -> Any:
        self._left -= ANNOTATION_GPU_TIME in str(args)
        if self._left == 0 and not self._after:
            raise Crashed
        answer = await self._cluster.patch(*args, **options)
        if self._left == 0:
            raise Crashed
        return answer


async def lives_with_a_death(scenario: Scenario, controllers: Controllers, mortal: Loop) -> float:
    """What the controller that died had stored and not counted, in GPU-seconds."""
    lost = 0.0

    async def until_death(now: datetime) -> Any:
        nonlocal lost
        try:
            return await mortal(now)
        except Crashed:
            known = scenario.root.gpu_time
            lost = seconds(figures([known] if known else [])) - controllers.counted("")
            return await controllers.start()(now)

    scenario.add_loop("controller", until_death)
    await lived(scenario)
    assert len(controllers.metrics) == 2
    return lost


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, ACCOUNTS + 1))
async def test_a_controller_that_dies_at_a_write_of_the_account_loses_no_more_than_that_write_from_the_counters(
    number: int, after: bool
) -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    view = scenario.ground_truth.seen_by("controller")
    mortal = controllers.start(cluster=DiesAtAccount(view, number, after=after))
    lost = await lives_with_a_death(scenario, controllers, mortal)
    account = account_of(scenario)

    assert seconds(figures([account])) == 2 * (account.until - account.since) / 1000
    assert controllers.counted("") == pytest.approx(seconds(figures([account])) - lost)
    assert (lost > 1) == (after and number > 2)  # the first two begin the account


@pytest.mark.slow
@pytest.mark.parametrize("number", [36, 41, 46, 51])
async def test_a_controller_that_dies_in_a_recovery_loses_nothing_of_the_account(number: int) -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    view = scenario.ground_truth.seen_by("controller")
    lost = await lives_with_a_death(
        scenario, controllers, controllers.start(cluster=DiesAtWrite(view, number, after=True))
    )
    account = account_of(scenario)

    assert seconds(figures([account])) == 2 * (account.until - account.since) / 1000
    assert controllers.counted("") == pytest.approx(seconds(figures([account])) - lost)
    assert [row.status.phase for row in scenario.recoveries()] == [Phase.RECOVERED]


async def test_two_controllers_that_both_believe_to_lead_count_once() -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    controllers.start()
    controllers.start("second controller")
    await lived(scenario)

    assert controllers.counted("") == pytest.approx(seconds(figures([account_of(scenario)])))


class AnswersLost:
    """A cluster whose answers to patches of Jobs are lost, while *is_lost*."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.is_lost = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: Any, *args: Any, **options: Any) -> Any:
        answer = await self._cluster.patch(kind, *args, **options)
        if self.is_lost and kind is Job and "gpu-time" in str(args):
            raise Unavailable("no answer")
        return answer


class RefusesAccounts(AnswersLost):
    """A cluster with an older admission policy."""

    tries = 0

    async def patch(self, kind: Any, *args: Any, **options: Any) -> Any:
        if ANNOTATION_GPU_TIME in str(args):
            self.tries += 1
            raise Forbidden("an admission policy denied the request")
        return await self._cluster.patch(kind, *args, **options)


async def test_where_the_account_is_refused_a_fault_is_recovered_and_the_write_is_tried_rarely() -> None:
    scenario = Scenario()
    old = RefusesAccounts(scenario.ground_truth.seen_by("controller"))
    Controllers(scenario).start(cluster=old)
    await scenario.run_for(minutes=2)
    scenario.fault("node-1")
    await scenario.run_for(minutes=8)

    assert [each.status.phase for each in scenario.recoveries()] == [Phase.RECOVERED]
    assert 1 <= old.tries <= 3


@pytest.mark.slow
async def test_a_write_whose_answer_was_lost_is_counted_once_it_is_seen() -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    lossy = AnswersLost(scenario.ground_truth.seen_by("controller"))
    controllers.start(cluster=lossy)
    await lived(scenario)
    lossy.is_lost = False
    await scenario.run_for(minutes=1)

    assert controllers.counted("") == pytest.approx(seconds(figures([account_of(scenario)])))


async def test_an_account_that_its_owner_takes_away_or_spoils_is_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    controllers.start()
    await scenario.run_for(minutes=10)
    counted = controllers.counted("")
    for text in (None, "{}", '{"since": 0, "start": 0, "totals": {"productive": 9007199254740991}}'):
        scenario.patch_job({"metadata": {"annotations": {"healthd.dev/gpu-time": text}}})
        await scenario.run_for(minutes=1)

        assert account_of(scenario).since > milliseconds(scenario.clock.now() - timedelta(minutes=2))
    assert controllers.counted("") < counted + 2 * 4 * 60


def gauges(metrics: Iterable[Metrics], name: str) -> list[float | None]:
    labels = {"namespace": "default", "gang": "train"}
    return [each.registry.get_sample_value(name, labels) for each in metrics]


async def test_the_gauges_of_a_gang_show_what_a_recovery_that_is_on_hold_costs() -> None:
    scenario = Scenario(spares=0)
    controllers = Controllers(scenario)
    controllers.start()
    await scenario.run_for(minutes=10)
    scenario.fault("node-1")
    await scenario.run_for(minutes=20)

    (lost,) = gauges(controllers.metrics, "healthd_gang_lost_gpu_seconds")
    (ettr,) = gauges(controllers.metrics, "healthd_gang_effective_training_time_ratio")
    assert lost is not None
    assert ettr is not None
    assert 2 * 14 * 60 < lost < 2 * 21 * 60
    assert 0.25 < ettr < 0.45


async def test_an_owner_who_puts_back_an_older_account_has_no_time_counted_twice() -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    controllers.start()
    await scenario.run_for(minutes=1)
    older = msgspec.json.encode(account_of(scenario)).decode()
    await scenario.run_for(minutes=10)
    for _ in range(2):
        scenario.patch_job({"metadata": {"annotations": {ANNOTATION_GPU_TIME: older}}})
        await scenario.run_for(minutes=6)

    assert controllers.counted("") <= 2 * (scenario.clock.now() - START).total_seconds()


async def test_an_owner_who_claims_more_gpus_than_the_members_ask_for_has_only_those_counted() -> None:
    scenario = Scenario()
    controllers = Controllers(scenario)
    controllers.start()
    await scenario.run_for(minutes=6)
    false = msgspec.json.encode(replace(account_of(scenario), gpus=1_000_000)).decode()
    scenario.patch_job({"metadata": {"annotations": {ANNOTATION_GPU_TIME: false}}})
    await scenario.run_for(minutes=12)

    assert 2 * 10 * 60 < controllers.counted("") <= 2 * 18 * 60


async def test_an_account_with_the_largest_numbers_keeps_no_fault_from_being_recovered() -> None:
    scenario = Scenario()
    Controllers(scenario).start()
    await scenario.run_for(minutes=2)
    largest = replace(
        account_of(scenario), totals={"productive": LARGEST_STEP}, gpus=LARGEST_SIZE, missing=LARGEST_SIZE
    )
    note = {ANNOTATION_GPU_TIME: msgspec.json.encode(largest).decode()}
    scenario.patch_job({"metadata": {"annotations": note}})
    await scenario.run_for(minutes=6)
    scenario.fault("node-1")
    await scenario.run_for(minutes=6)

    assert [each.status.phase for each in scenario.recoveries()] == [Phase.RECOVERED]
