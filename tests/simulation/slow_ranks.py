"""
Ranks that make their gangs slow, in some worlds, with dice of their own: agents show it, and it is on the record.

Some users allow that a gang leaves such a node, and change their minds. Whatever happens: no other gang is restarted
for it, and no rank twice (`tests.simulation.invariants`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from healthd.core.api import ANNOTATION_SLOW_RANK, ANNOTATION_STRAGGLERS, Job, Pod
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.gang import Root
from healthd.core.recovery.hangs.pod_reports import began
from healthd.core.recovery.members import attempt_of, index_of
from healthd.gangs.job import read_job
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

AT_MOST = timedelta(minutes=15)
"""So long ago a rank began to be slow, or when it was started."""
WORDS = (None, "report", "swap", "swap")


def change(sim: Simulation) -> None:
    """A rank begins to make its gang slow, or keeps up again, or a user changes what he allows."""
    jobs = sorted(at_once(sim.ground_truth.list(Job)).items, key=lambda job: str(job.metadata.name))
    if not jobs:
        return
    job = sim.uneven.choice(jobs)
    if sim.uneven.random() < 0.3:
        allow(sim, job, sim.uneven.choice(WORDS))
    elif job.metadata.uid in sim.slow:
        end(sim, job)
    else:
        begin(sim, job)


def allow(sim: Simulation, job: Job, word: str | None) -> None:
    """The user says what is to be done about slow ranks."""
    sim.note(f"* {ANNOTATION_SLOW_RANK} of {job.metadata.name} is {word}")
    _annotate(sim, job, ANNOTATION_SLOW_RANK, word)


def begin(sim: Simulation, job: Job) -> None:
    """Some rank of a gang that runs makes it slow."""
    root, now = read_job(job), sim.clock.now()
    pods = [pod for pod in at_once(sim.ground_truth.list(Pod)).items if _may_be_slow(pod, job, root)]
    if not pods:
        return
    pod = sim.uneven.choice(sorted(pods, key=lambda each: str(each.metadata.name)))
    since = max(began(pod), root.started_at or now, now - AT_MOST)
    straggler = Straggler(
        rank=index_of(pod, root), slower=0.2, since=since, seen_at=now, ran=1, starved=0,
        peers_ran=0.8, peers_starved=0, confidence=0.9, pod=pod.metadata.name, node=pod.spec.node_name,
    )  # fmt: skip
    sim.note(f"* rank {straggler.rank} of {job.metadata.name} is slow on {straggler.node}, since {straggler.since}")
    sim.slow[job.metadata.uid] = straggler
    _record(sim, job, [*root.stragglers, straggler])
    sim.check()  # a controller may act on it before this step is over


def end(sim: Simulation, job: Job) -> None:
    """It keeps up with the others again."""
    slow = sim.slow.pop(job.metadata.uid)
    sim.note(f"* rank {slow.rank} of {job.metadata.name} keeps up again")
    others = [each for each in read_job(job).stragglers if (each.rank, each.since) != (slow.rank, slow.since)]
    _record(sim, job, [*others, replace(slow, ended_at=sim.clock.now())])


def begin_all(sim: Simulation) -> None:
    """A rank of each gang begins to be slow, and most users allow that it is swapped."""
    for job in sim.world()[Job]:
        if sim.uneven.random() < 0.7:
            allow(sim, job, "swap")
    for job in sim.world()[Job]:
        begin(sim, job)


def end_all(sim: Simulation) -> None:
    """No rank is slow any more."""
    for job in sim.world()[Job]:
        if job.metadata.uid in sim.slow:
            end(sim, job)


def shown(sim: Simulation, root: Root) -> Sequence[Straggler]:
    """What agents show of a gang now."""
    slow = sim.slow.get(root.ref.uid)
    return [replace(slow, seen_at=sim.clock.now())] if slow is not None else []


def _may_be_slow(pod: Pod, job: Job, root: Root) -> bool:
    is_its = any(owner.uid == job.metadata.uid for owner in pod.metadata.owner_references)
    is_there = pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
    return is_its and is_there and attempt_of(pod) == root.attempt


def _record(sim: Simulation, job: Job, record: Sequence[Straggler]) -> None:
    _annotate(sim, job, ANNOTATION_STRAGGLERS, msgspec.json.encode(record[-8:]).decode())


def _annotate(sim: Simulation, job: Job, key: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {key: value}}}
    at_once(sim.ground_truth.patch(Job, job.metadata.name, patch, namespace="default"))


__all__ = ["begin_all", "change", "end_all", "shown"]
