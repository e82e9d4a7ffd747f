"""
What a healed world must look like: no slot leaked, no node out of service, every gang whole, no spare lost.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from healthd.core.api import (
    ANNOTATION_CLAIM,
    ANNOTATION_PLACEMENT,
    ANNOTATION_QUARANTINE,
    ANNOTATION_STOPPED_BY,
    LABEL_SPARE,
    Job,
    Lease,
    Node,
    Pod,
    Recovery,
    RecoveryStatus,
)
from healthd.core.api.model import ENDED, Phase
from healthd.core.recovery.members import index_of, is_terminal
from healthd.core.recovery.nodes.spares import NO_NODE
from tests.simulation.machines import root_of

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


def unsettled(sim: Simulation) -> str:
    """What is not yet as it should be in a healthy world; empty when all is."""
    world = sim.world()
    if world[Lease]:
        return f"slot {world[Lease][0].metadata.name} leaked"
    if out := [n.metadata.name for n in world[Node] if ANNOTATION_QUARANTINE in n.metadata.annotations]:
        return f"{out} are still quarantined"
    jobs = {job.metadata.name: job for job in world[Job]}
    for recovery in world[Recovery]:
        if recovery.status.phase not in ENDED and recovery.spec.gang.name not in jobs:
            return f"{recovery.metadata.name} recovers a gang that is gone"
    for job in jobs.values():
        if why := _why_not_running(sim, job, world[Recovery]):
            return why
    uids = {job.metadata.uid for job in jobs.values()}
    if strays := [p.metadata.name for p in world[Pod] if root_of(p) not in uids]:
        return f"{strays} outlive their gang"
    return _pool_trouble(sim, world[Node], world[Pod], jobs)


def _why_not_running(sim: Simulation, job: Job, recoveries: list[Recovery]) -> str:
    name = job.metadata.name
    mine = [r for r in recoveries if r.spec.gang.uid == job.metadata.uid]
    active = [r for r in mine if r.status.phase not in ENDED]
    given_up = next((r.status for r in mine if r.status.phase is Phase.GAVE_UP and _is_stopped_by(job, r)), None)
    if name in sim.watchdog.stopped_by_user:
        return f"{active[0].metadata.name} goes on though the user stopped {name}" if active else ""
    if any(c.type in ("Failed", "Complete") and c.status == "True" for c in job.status.conditions):
        return ""
    if given_up is not None:
        return "" if given_up.no_advance >= 3 else f"{name} was given up too early"
    if active:
        name = f"{active[0].metadata.name} of {name}"
        now = active[0].status
        return "" if _waits_rightly(sim, job, now) else f"{name} is still {now.phase}: {now.message}"
    return _member_trouble(sim, job)


def _waits_rightly(sim: Simulation, job: Job, now: RecoveryStatus) -> bool:
    """Nothing that healthd may do would help this gang."""
    if now.phase is Phase.HELD and "no checkpoint" in now.message:
        return sim.trainers.stores[job.metadata.name].newest_whole() is None
    without = (job.spec.completions or 1) - len({pod.node for pod in now.pods if pod.node})
    if now.phase is Phase.HELD and f"no spare for {NO_NODE}" in now.message and len(_pool(sim)) < without:
        return True  # they never had nodes of their own, and ordinary ones are not healthd's to give
    # Gangs compete for nodes, and the scheduler may give one what the other needs.
    return len(sim.worlds) > 1 and (now.phase is Phase.STARTING or "no spare" in now.message)


def _member_trouble(sim: Simulation, job: Job) -> str:
    """One process for each index and not one more: what an unreachable kubelet still runs is no member."""
    pods = [p for p in _pods_of(sim, job) if p.status.phase == "Running" and p.metadata.deletion_timestamp is None]
    wanted = {pod.metadata.uid for pod in pods}
    ranks = sim.machines.processes(job.metadata.name)
    have = sorted(rank.index if rank.uid in wanted else f"stray {rank.index}" for rank in ranks)
    kept_out = {index_of(pod) for pod in _pods_of(sim, job) if _is_kept_out(sim, pod)}
    should = sorted({str(index) for index in range(job.spec.completions or 1)} - kept_out)
    return "" if have == should else f"{job.metadata.name} has ranks {have}, suspended={job.spec.suspend}"


def _pods_of(sim: Simulation, job: Job) -> list[Pod]:
    return [p for p in sim.world()[Pod] if root_of(p) == job.metadata.uid]


def _is_kept_out(sim: Simulation, pod: Pod) -> bool:
    """
    It waits for the node that it was to run on, and the scheduler has given that to another gang: or to a member
    of its own, and a person deleted the recovery that would have claimed a spare for it. Or the node is a spare again,
    as no member needed it for a while: its user has made the gang larger since.
    """
    reported = json.loads(pod.metadata.annotations.get(ANNOTATION_PLACEMENT, "{}")).get(index_of(pod), "")
    there = [p for p in sim.world()[Pod] if p.spec.node_name == reported and not is_terminal(p)]
    own = set() if sim.watchdog.lost_recoveries else {pod.metadata.labels["healthd.dev/gang"]}
    gangs = {p.metadata.labels["healthd.dev/gang"] for p in there} - own
    is_taken = bool(gangs) or reported in _pool(sim)
    return not pod.spec.node_name and pod.metadata.deletion_timestamp is None and bool(reported) and is_taken


def _pool(sim: Simulation) -> list[str]:
    return [n.metadata.name for n in sim.world()[Node] if n.metadata.labels.get(LABEL_SPARE) == "true"]


def _pool_trouble(sim: Simulation, nodes: list[Node], pods: list[Pod], jobs: dict[str, Job]) -> str:
    """Every claim belongs to a gang that lives, and no spare was lost."""
    busy = {pod.spec.node_name for pod in pods if not is_terminal(pod)}
    for node in nodes:
        if ANNOTATION_CLAIM in node.metadata.annotations and node.metadata.name not in busy:
            stopped = sim.watchdog.stopped_by_user | {n for n, j in jobs.items() if j.spec.suspend}
            if not stopped and len(sim.worlds) == 1:
                return f"{node.metadata.name} is claimed and idle"
        if node.metadata.name in busy and node.metadata.labels.get(LABEL_SPARE) == "true":
            return f"{node.metadata.name} is in the pool and busy"
    free = sum(node.metadata.labels.get(LABEL_SPARE) == "true" for node in nodes)
    claimed = sum(ANNOTATION_CLAIM in node.metadata.annotations for node in nodes)
    all_run = len(jobs) == 1 and not any(job.spec.suspend for job in jobs.values())
    if sim.free_scheduler:
        return ""  # it puts members on what was a spare although their own node is free again
    if all_run and free + claimed < sim.pool_size:
        return f"{free} spares are free and {claimed} claimed, of {sim.pool_size}"
    return ""


def _is_stopped_by(job: Job, recovery: Recovery) -> bool:
    return job.metadata.annotations.get(ANNOTATION_STOPPED_BY) == recovery.metadata.name
