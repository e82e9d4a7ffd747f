"""
What users do to their gangs while healthd guards them: other options, another size, another Job of the same name, a
resumption by hand. What somebody did stays so until it is put right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from healthd.cluster.port import NotFound
from healthd.core.api import ANNOTATION_RESTART, ANNOTATION_STOPPED_BY, Job, Recovery
from tests.simulation.operator_actions import some_gang
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_OPTIONS: dict[str, tuple[str | None, ...]] = {
    "min-nodes": (None, "1", "2", "few"),
    "max-no-advance": (None, "5", "many"),
    "checkpoint": (None, "/checkpoints/elsewhere"),
}
"""What a user may write there. Some of it cannot be read."""


def switch_restarts(sim: Simulation) -> None:
    """The user takes his gang from healthd, or gives it back."""
    job = some_gang(sim)
    is_on = job.metadata.annotations.get(ANNOTATION_RESTART) == "enabled"
    _annotate(sim, job, ANNOTATION_RESTART, None if is_on else "enabled")


def edit_options(sim: Simulation) -> None:
    """The user changes what he asks of healthd."""
    key = sim.people.choice(sorted(_OPTIONS))
    _annotate(sim, some_gang(sim), f"healthd.dev/{key}", sim.people.choice(_OPTIONS[key]))


def edit_gang(sim: Simulation) -> None:
    """The user changes the size or image of a gang that is stopped: then it stays so."""
    job = some_gang(sim)
    if job.spec.suspend:
        at_once(sim.ground_truth.patch(Job, job.metadata.name, {"spec": _another(sim, job)}, namespace="default"))
        sim.watchdog.edited_by_user.add(job.metadata.name)


def resize(sim: Simulation) -> None:
    """The user makes a gang that runs larger or smaller. There may be no node for one more."""
    job = some_gang(sim)
    most = sim.worlds[job.metadata.name] + 1
    if not job.spec.suspend:
        size = sim.people.choice(sorted({*range(1, most + 1)} - {job.spec.completions}))
        _set_size(sim, job, size)


def resume_by_hand(sim: Simulation) -> None:
    """The user lets a gang go on that healthd has stopped, and does not wait for what it does."""
    job = some_gang(sim)
    if job.spec.suspend and job.metadata.annotations.get(ANNOTATION_STOPPED_BY):
        sim.watchdog.stopped_by_user.discard(job.metadata.name)
        at_once(sim.ground_truth.patch(Job, job.metadata.name, {"spec": {"suspend": False}}, namespace="default"))


def make_gang_anew(sim: Simulation) -> None:
    """The user deletes a gang, if he has not yet, and makes another of its name, which finds its checkpoints."""
    name = sim.people.choice(sorted(sim.worlds))
    try:
        job = at_once(sim.ground_truth.get(Job, name, "default"))
    except NotFound:
        job = None
    if job is not None:
        at_once(sim.ground_truth.delete(Job, name, namespace="default"))
        sim.watchdog.deletes(job)
    sim.watchdog.deleted_by_user.discard(name)
    at_once(sim.ground_truth.create(sim.new_job(name, sim.worlds[name], sim.people)))


def put_right(sim: Simulation) -> None:
    """The users give their gangs back to healthd, and let those go on that it cannot let go on itself."""
    recoveries = {each.metadata.name: each.status.phase for each in at_once(sim.ground_truth.list(Recovery)).items}
    for job in at_once(sim.ground_truth.list(Job)).items:
        name, notes = job.metadata.name, job.metadata.annotations
        _put_options_right(sim, job)
        if not job.spec.suspend and (job.spec.completions or 1) > sim.worlds[name]:
            _set_size(sim, job, sim.worlds[name])
        mark = notes.get(ANNOTATION_STOPPED_BY, "")
        is_orphan = mark and recoveries.get(mark, "Superseded") == "Superseded"
        if (
            job.spec.suspend
            and is_orphan
            and name not in sim.watchdog.stopped_by_user
            and not sim.machines.processes(name)
        ):
            at_once(sim.ground_truth.patch(Job, name, {"spec": {"suspend": False}}, namespace="default"))


def _put_options_right(sim: Simulation, job: Job) -> None:
    notes = job.metadata.annotations
    if notes.get(ANNOTATION_RESTART) != "enabled":
        _annotate(sim, job, ANNOTATION_RESTART, "enabled")
    place = f"/checkpoints/{job.metadata.name}"
    if notes.get("healthd.dev/checkpoint") != place:
        _annotate(sim, job, "healthd.dev/checkpoint", place)
    for key in ("healthd.dev/min-nodes", "healthd.dev/max-no-advance"):
        if not notes.get(key, "1").isdecimal():
            _annotate(sim, job, key, None)


def _another(sim: Simulation, job: Job) -> dict[str, Any]:
    if sim.people.random() < 0.5:
        size = sim.people.choice(sorted({1, sim.worlds[job.metadata.name]} - {job.spec.completions}))
        return {"parallelism": size, "completions": size}
    image = f"registry/train:{sim.people.randrange(1000)}"
    containers = [{"name": each.name, "image": image} for each in job.spec.template.spec.containers]
    return {"template": {"spec": {"containers": containers}}}


def _set_size(sim: Simulation, job: Job, size: int) -> None:
    sim.note(f"  {job.metadata.name} to {size}")
    spec = {"parallelism": size, "completions": size}
    at_once(sim.ground_truth.patch(Job, job.metadata.name, {"spec": spec}, namespace="default"))


def _annotate(sim: Simulation, job: Job, key: str, value: str | None) -> None:
    sim.note(f"  {job.metadata.name} {key}={value}")
    patch = {"metadata": {"annotations": {key: value}}}
    at_once(sim.ground_truth.patch(Job, job.metadata.name, patch, namespace="default"))


__all__ = ["edit_gang", "edit_options", "make_gang_anew", "put_right", "resize", "resume_by_hand", "switch_restarts"]
