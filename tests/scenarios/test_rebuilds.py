"""A gang whose root failed for good: it is made again where its owner allows it, else its recovery says what to do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from healthd.cluster.port import Forbidden, Invalid, NotFound
from healthd.controller.rebuilds import Rebuilds
from healthd.core.api import CopiedRoot, Job, JobManifest, ObjectMeta, Pod, RootCopy
from healthd.core.api.model import Phase
from healthd.core.config import BreakerPolicy
from healthd.core.recovery.gang import RootOutcome
from healthd.gangs import ADAPTERS
from tests.builders import a_job
from tests.scenarios.scenario import ConcurrentWrite, Scenario
from tests.scenarios.test_controllers import DiesAtWrite
from tests.scenarios.test_deleted_recoveries import SomebodyDeletes
from tests.simulation.step_scheduler import Crashed, at_once

ALLOWED = {"healthd.dev/rebuild": "enabled"}
WRITES = 23
"""Such a recovery takes so many writes, or fewer."""


def a_stage(options: dict[str, str] | None = None, spares: int = 1, **given: Any) -> Scenario:
    return Scenario(spares=spares, backoff_limit=0, options=ALLOWED if options is None else options, **given)


async def fails_for_good(scenario: Scenario, node: str = "node-1", *, broken: bool = True) -> None:
    """The GPU of a node is lost, the ranks die of it, and the Job has failed before the controller looks again."""
    with scenario.controller_paused():
        if broken:
            scenario.fault(node)
        for process in scenario.processes():
            scenario.crash(int(process.index))
        await scenario.run_for(seconds=3)
    assert scenario.root.ending is RootOutcome.FAILED


async def a_failed_gang(options: dict[str, str] | None = None, *, broken: bool = True, **given: Any) -> Scenario:
    scenario = a_stage(options, **given)
    await scenario.run_for(minutes=1)
    await fails_for_good(scenario, broken=broken)
    return scenario


def the_job(scenario: Scenario) -> JobManifest:
    return at_once(scenario.cluster.get(JobManifest, "train", "default"))


def copies(scenario: Scenario) -> list[str]:
    return [each.metadata.name for each in at_once(scenario.cluster.list(RootCopy)).items]


async def test_a_gang_that_failed_because_of_a_node_is_made_again_and_resumes() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    before = the_job(scenario)
    await fails_for_good(scenario)
    recovery = await scenario.run_until(Phase.RECOVERED)
    after = the_job(scenario)

    assert recovery.status.resumes_from == "step 2"
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert len(scenario.recoveries()) == 1
    assert after.metadata.uid != before.metadata.uid
    assert after.metadata.annotations["healthd.dev/rebuilt-from"] == before.metadata.uid
    assert after.metadata.annotations["healthd.dev/rebuilt-by"] == recovery.metadata.name
    changed = {key for key in {*before.spec, *after.spec} if before.spec.get(key) != after.spec.get(key)}
    assert changed <= {"template", "suspend"}
    assert after.spec["template"]["spec"]["containers"] == before.spec["template"]["spec"]["containers"]
    assert scenario.root.attempt == 1
    assert copies(scenario) == []


async def test_a_gang_whose_owner_did_not_allow_it_stays_and_its_recovery_says_what_to_do() -> None:
    scenario = await a_failed_gang({})
    before = the_job(scenario)
    await scenario.run_for(minutes=30)
    (recovery,) = scenario.recoveries()

    assert recovery.status.phase is Phase.GAVE_UP
    assert recovery.status.bad_nodes == "node-1"
    assert recovery.status.message == (
        "the root is failed for good and may not be rebuilt; to run it again, from step 1 or later, delete it and make "
        "it from its manifest: kubectl replace --force -n default -f FILE; healthd.dev/rebuild: enabled lets healthd "
        "do so where a node is to blame"
    )
    assert the_job(scenario) == before


async def test_an_unknown_word_allows_nothing_and_is_named() -> None:
    scenario = await a_failed_gang({"healthd.dev/rebuild": "yes please"})
    recovery = await scenario.run_until(Phase.GAVE_UP)

    assert "(healthd.dev/rebuild: 'yes please' is unknown)" in recovery.status.message
    assert scenario.root.ending is RootOutcome.FAILED


async def test_a_gang_that_its_program_ended_is_left_as_it_is() -> None:
    scenario = await a_failed_gang(broken=False)
    before = the_job(scenario)
    await scenario.run_for(hours=2)

    assert scenario.recoveries() == []
    assert the_job(scenario).metadata.uid == before.metadata.uid


async def test_a_fault_that_is_seen_after_the_failure_counts() -> None:
    scenario = await a_failed_gang(broken=False)
    await scenario.run_for(seconds=30)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-2"}


async def test_a_gang_that_fails_while_it_is_being_stopped_is_made_again() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    failing = scenario.new_controller("controller", cluster=BeforeTheStop(scenario))
    scenario.add_loop("controller", failing)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.status.rebuild is not None
    assert scenario.root.attempt == 1


class BeforeTheStop:
    """The cluster of a controller: the Job has failed for good right before the write that would stop it."""

    def __init__(self, scenario: Scenario) -> None:
        self._cluster: Any = scenario.ground_truth.seen_by("controller")
        self._is_done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: type[Any], name: str, *args: Any, **options: Any) -> Any:
        if kind is Job and not self._is_done:
            self._is_done = True
            at = "2026-01-01T00:01:01Z"
            failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": at}
            patch = {"status": {"conditions": [failed]}}
            await self._cluster.patch(Job, "train", patch, namespace="default", subresource="status")
        return await self._cluster.patch(kind, name, *args, **options)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
async def test_a_controller_that_dies_at_any_write_is_continued_by_the_next(number: int, after: bool) -> None:
    scenario = await a_failed_gang()
    mortal = scenario.new_controller(
        "controller", cluster=DiesAtWrite(scenario.ground_truth.seen_by("controller"), number, after=after)
    )

    async def until_death(now: datetime) -> Any:
        try:
            return await mortal(now)
        except Crashed:
            scenario.restart_controller()
            return await scenario.new_controller("controller")(now)

    scenario.add_loop("controller", until_death)
    await scenario.run_for(minutes=15)

    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED]
    assert scenario.root.attempt == 1
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert copies(scenario) == []


async def test_two_controllers_at_once_make_it_once() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    with scenario.controller_paused():
        await fails_for_good_without_controllers(scenario)
    scenario.add_loop("second controller", scenario.new_controller("controller-2"))
    await scenario.run_for(minutes=5)

    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED]
    assert scenario.root.attempt == 1


async def fails_for_good_without_controllers(scenario: Scenario) -> None:
    scenario.fault("node-1")
    scenario.crash(0)
    await scenario.run_for(seconds=3)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 40))
async def test_what_its_user_deletes_at_any_moment_before_healthd_does_stays_deleted(number: int) -> None:
    scenario = await a_failed_gang()
    uid = scenario.root.ref.uid
    deleted = False

    async def the_user_deletes() -> None:
        nonlocal deleted
        try:
            job = await scenario.cluster.get(Job, "train", "default")
        except NotFound:
            return
        if job.metadata.uid == uid and job.metadata.deletion_timestamp is None:
            scenario.delete()
            deleted = True

    cluster = ConcurrentWrite(scenario.ground_truth.seen_by("controller"), number, the_user_deletes)
    scenario.add_loop("controller", scenario.new_controller("controller", cluster=cluster))
    await scenario.run_for(minutes=15)

    jobs = at_once(scenario.cluster.list(Job)).items
    assert [job.metadata.name for job in jobs] == ([] if deleted else ["train"])
    assert copies(scenario) == []


async def test_a_gang_that_its_user_makes_anew_meanwhile_is_theirs() -> None:
    scenario = await a_failed_gang()
    scenario.add_loop("controller", scenario.new_controller("controller", cluster=InTheGap(scenario)))
    recovery = await scenario.run_until(Phase.SUPERSEDED)
    await scenario.run_for(minutes=5)

    assert recovery.status.message == "somebody made Job train anew; that one is left as it is"
    assert the_job(scenario).metadata.labels == {"by": "hand"}
    assert copies(scenario) == []


class InTheGap:
    """The cluster of a controller: somebody makes a Job of the name right before the controller does."""

    def __init__(self, scenario: Scenario) -> None:
        self._stage = scenario
        self._cluster: Any = scenario.ground_truth.seen_by("controller")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, obj: Any, **options: Any) -> Any:
        if isinstance(obj, JobManifest) and not options.get("dry_run"):
            await self._stage.ground_truth.create(a_job(labels={"by": "hand"}))
        return await self._cluster.create(obj, **options)


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.FENCING, Phase.CHOOSING])
async def test_a_recovery_that_somebody_deletes_meanwhile_goes_on(phase: Phase) -> None:
    scenario = await a_failed_gang()
    somebody = SomebodyDeletes(scenario, phase)
    scenario.add_loop("controller", scenario.new_controller("controller", somebody, scenario.ground_truth))
    await scenario.run_until(Phase.RECOVERED)

    assert somebody.is_done
    assert len(scenario.recoveries()) == 1
    assert scenario.root.attempt == 1


async def test_it_is_not_made_again_before_the_end_of_every_old_pod_is_proven() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    scenario.kill_kubelet("node-1")
    with scenario.controller_paused():
        scenario.fault("node-1")
        scenario.crash(0)
        await scenario.run_for(seconds=3)
    held = await scenario.run_until(Phase.HELD)

    assert "can no longer write" in held.status.message
    assert [process.node for process in scenario.processes()] == ["node-1"]
    scenario.machines.all["node-1"].broken = False
    scenario.reboot("node-1")
    scenario.revive_kubelet("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)
    assert recovery.status.rebuild is not None


async def test_the_breaker_holds_it_before_anything_is_deleted() -> None:
    scenario = await a_failed_gang(breaker=BreakerPolicy(restarts=0))
    before = the_job(scenario)
    held = await scenario.run_until(Phase.HELD)
    await scenario.run_for(minutes=5)

    assert held.status.message.startswith("the breaker is open")
    assert the_job(scenario) == before


async def test_a_second_fault_after_it_was_made_again_counts_on() -> None:
    scenario = await a_failed_gang(spares=2)
    await scenario.run_until(Phase.RECOVERED)
    first = scenario.root.ref.uid
    await scenario.run_for(minutes=2)
    await fails_for_good(scenario, "node-2")
    await scenario.run_until(Phase.RECOVERED)

    assert [each.spec.first_attempt for each in scenario.recoveries()] == [1, 2]
    assert scenario.root.attempt == 2
    assert scenario.root.rebuilt_from == first


async def test_a_fault_before_the_first_step_makes_it_again_within_the_same_recovery() -> None:
    scenario = await a_failed_gang(spares=2)
    await scenario.run_until(Phase.CONFIRMING)
    await fails_for_good(scenario, "node-2")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert len(scenario.recoveries()) == 1
    assert [each.number for each in recovery.status.attempts] == [1, 2]
    assert scenario.places()["1"] == "node-3"


async def test_a_program_that_fails_after_it_was_made_again_ends_it() -> None:
    scenario = await a_failed_gang()
    await scenario.run_until(Phase.CONFIRMING)
    made = scenario.root.ref.uid
    await fails_for_good(scenario, broken=False)
    recovery = await scenario.run_until(Phase.GAVE_UP)

    assert "no node of it was found bad then, so its program ended it" in recovery.status.message
    assert scenario.root.ref.uid == made


async def test_a_gang_that_its_user_had_suspended_stays_so() -> None:
    scenario = await a_failed_gang()
    before = the_job(scenario)
    with scenario.controller_paused():
        scenario.suspend()
    await scenario.run_for(minutes=10)

    assert the_job(scenario).metadata.uid == before.metadata.uid
    assert scenario.root.suspended


async def test_its_old_pods_are_gone_before_the_new_ones_come() -> None:
    scenario = await a_failed_gang()
    await scenario.run_until(Phase.CONFIRMING)

    owners = {owner.uid for pod in at_once(scenario.cluster.list(Pod)).items for owner in pod.metadata.owner_references}
    assert owners == {scenario.root.ref.uid}


def reservations(scenario: Scenario, *nodes: str) -> set[str]:
    return {taint.value for node in nodes for taint in scenario.node(node).spec.taints}


@pytest.mark.parametrize("phase", [Phase.CONFIRMING, Phase.RECOVERED])
async def test_the_spare_that_it_has_from_an_earlier_fault_is_reserved_for_the_new_root(phase: Phase) -> None:
    scenario = await a_failed_gang(spares=2)
    await scenario.run_until(phase)
    await scenario.run_for(seconds=5)
    await fails_for_good(scenario, "node-0")
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=5)

    assert scenario.places() == {"0": "node-3", "1": "node-2"}
    assert reservations(scenario, "node-2", "node-3") == {f"train-{scenario.root.ref.uid}"}


async def test_spares_that_went_back_before_the_fault_was_seen_are_claimed_again() -> None:
    scenario = await a_failed_gang(spares=2)
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=2)
    await fails_for_good(scenario, broken=False)
    await scenario.run_for(seconds=30)
    assert scenario.pool() == ["node-2", "node-3"]
    scenario.fault("node-0")
    await scenario.run_until(Phase.RECOVERED)

    assert set(scenario.places().values()) == {"node-2", "node-3"}
    assert reservations(scenario, "node-2", "node-3") == {f"train-{scenario.root.ref.uid}"}


async def test_a_copy_that_nothing_needs_any_more_is_deleted() -> None:
    scenario = await a_failed_gang()
    await scenario.run_until(Phase.RECOVERED)
    made = scenario.recovery().status.rebuild
    assert made is not None
    left = CopiedRoot(gang=scenario.root.ref, recovery=scenario.recovery().metadata.name, version="1", manifest="")
    meta = ObjectMeta(name=made.uid, namespace="healthd-system")
    at_once(scenario.cluster.create(RootCopy(metadata=meta, spec=left)))
    scenario.restart_controller()
    await scenario.run_for(minutes=1)

    assert copies(scenario) == []


@pytest.mark.parametrize(("age", "left"), [(timedelta(hours=1), ["u"]), (timedelta(hours=2), [])])
async def test_a_copy_whose_recovery_is_missing_is_kept_for_a_person_and_not_for_ever(
    age: timedelta, left: list[str]
) -> None:
    scenario = a_stage()
    copy = CopiedRoot(gang=scenario.root.ref, recovery="nobody-knows", version="1", manifest="")
    at_once(scenario.cluster.create(RootCopy(metadata=ObjectMeta(name="u", namespace="healthd-system"), spec=copy)))
    rebuilds = Rebuilds(scenario.cluster, ADAPTERS, "healthd-system")
    await rebuilds.clear(lambda namespace, name: None, timedelta(hours=2), scenario.clock.now() + age)

    assert copies(scenario) == left


class Refuses:
    """The cluster of a controller that may not do one thing, as the API server says to dry runs, too."""

    def __init__(self, scenario: Scenario, verb: str, kind: type[Any], error: Exception) -> None:
        self._cluster: Any = scenario.ground_truth.seen_by("controller")
        self._refused = verb, kind
        self._error = error

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)

        async def call(what: Any, *args: Any, **options: Any) -> Any:
            if (name, what if isinstance(what, type) else type(what)) == self._refused:
                raise self._error
            return await verb(what, *args, **options)

        return call


@pytest.mark.parametrize(
    ("verb", "kind", "error", "said"),
    [
        ("create", RootCopy, NotFound("no such kind"), "no such kind; apply deploy/crds.yaml of this version"),
        (
            "create",
            JobManifest,
            Forbidden("it may not create jobs"),
            "may not create jobs (deploy/components/rebuild",
        ),
        ("create", JobManifest, Invalid("a policy says no"), "cannot be rebuilt: a policy says no; to run it again"),
        ("delete", Job, Forbidden("it may not delete jobs"), "it may not delete jobs (deploy/components/rebuild"),
    ],
)
async def test_nothing_is_deleted_where_a_dry_run_is_refused(
    verb: str, kind: type[Any], error: Exception, said: str
) -> None:
    scenario = await a_failed_gang()
    before = the_job(scenario)
    refusing = Refuses(scenario, verb, kind, error)
    scenario.add_loop("controller", scenario.new_controller("controller", cluster=refusing))
    recovery = await scenario.run_until(Phase.GAVE_UP)
    await scenario.run_for(minutes=5)

    assert said in recovery.status.message
    assert the_job(scenario).metadata.uid == before.metadata.uid
    assert copies(scenario) == []
