"""A gang on the nodes, and the real reconciler that recovers it while its nodes are repaired."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.reconciler import Reconciler
from healthd.core.api import Job
from healthd.gangs import ADAPTERS
from healthd.local.jobs.controller import JobController
from tests.builders import a_job
from tests.simulation.faulty_cluster import FaultyCluster, StaleCache
from tests.simulation.simulation import METRICS
from tests.simulation.step_scheduler import Actor, at_once
from tests.simulation.training import OvertakenCheckpoints, Store, Trainers

if TYPE_CHECKING:
    from tests.simulation.remediation.simulation import RemediationSimulation

GANG = "train-0"


class GangBeside:
    """The gang, its Job controller and its reconciler."""

    def __init__(self, sim: RemediationSimulation) -> None:
        self._sim = sim
        self._trainers = Trainers(sim.hosts, sim.dice)
        self._trainers.stores[GANG] = Store()
        self._reconciler = Actor("reconciler", self._reconciling)
        self._jobs = Actor("job-controller", self._making_pods)
        at_once(sim.ground_truth.create(_job()))

    def step(self) -> None:
        """One of its programs may have a turn."""
        if self._sim.dice.random() < 0.5:
            self._sim.go(self._sim.dice.choice((self._reconciler, self._jobs)))

    def heal(self) -> None:
        """All have a turn."""
        self._sim.go(self._reconciler)
        self._sim.go(self._jobs)

    def work(self) -> None:
        """It makes steps."""
        self._trainers.work(at_once(self._sim.ground_truth.list(Job)).items, self._sim.clock.now())

    def _reconciling(self) -> Callable[[], Coroutine[Any, Any, Any]]:
        sim = self._sim
        view = sim.ground_truth.seen_by("reconciler")
        cluster = FaultyCluster(view, sim.luck, lambda what: sim.note(f"reconciler {what}"))
        informer = StaleCache(view)
        dependencies = ReconcilerDependencies(
            cluster=cluster,
            clock=sim.clock,
            adapters=ADAPTERS,
            checkpoints=OvertakenCheckpoints(self._trainers.stores),
            metrics=METRICS,
            informer=informer,
        )
        reconciler = Reconciler(dependencies, sim.config)

        async def sample() -> None:
            informer.refresh(sim.dice, 1.0)
            await reconciler.reconcile_all(sim.clock.now())
            for each in reconciler.reads.begin():
                await reconciler.reads.take(each)

        return sample

    def _making_pods(self) -> Callable[[], Coroutine[Any, Any, Any]]:
        sim = self._sim
        letters = "bcdfghjklmnpqrstvwxz2456789"
        jobs = JobController(
            sim.ground_truth.seen_by("job-controller"),
            new_suffix=lambda: "".join(sim.dice.choice(letters) for _ in range(5)),
            free_port=lambda: 29500,
        )
        return lambda: jobs.cycle(sim.clock.now())


def _job() -> Job:
    options = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": f"/checkpoints/{GANG}"}
    job = a_job(GANG, ranks=2, backoff_limit=1_000_000, annotations=options)
    template = job.spec.template
    meta = msgspec.structs.replace(template.metadata, finalizers=["healthd.dev/fence"])
    template = msgspec.structs.replace(template, metadata=meta)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template))
