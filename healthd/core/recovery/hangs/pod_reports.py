"""
What the agent of its node says of one pod (`NodeHealth.status.rhythms`), and what its GPUs add to that. Pure.

A control group shows processors, and a rank of a GPU job may use them in the same way whether it works or waits: it
sleeps, or it polls. Its GPUs do not. Agents do not know which pod has which GPU, so they list the GPUs of a node
together, and that counts for a pod that has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api import Node, NodeHealth, Pod
from healthd.core.api.health import GPUS, MemberState, PodRhythm
from healthd.core.hang.start import LITTLE
from healthd.core.node.pod_devices import gpus_held, has_all_gpus
from healthd.core.node.reporting import is_silent
from healthd.core.recovery.gang import GangView

QUIET = frozenset({MemberState.SILENT, MemberState.WAITING})
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class PodReport(NamedTuple):
    """What is known of one pod."""

    rhythm: PodRhythm
    seen_at: datetime
    """When its agent wrote it."""
    gpu_utilisation: int | None = None
    """Percent, of its GPU that has run kernels for the least time since all fell silent. None: not known."""


def report_of(pod: Pod, view: GangView, now: datetime) -> PodReport | None:
    """What the agent of its own node publishes of *pod*. None: unknown."""
    name, uid = pod.spec.node_name, pod.metadata.uid
    node, health = view.nodes.get(name), view.health.get(name)
    if not uid or node is None or health is None or not health.status.rhythms or not _is_live(node, health, now):
        return None
    rhythm, gpus = (_find(health.status.rhythms, each) for each in (uid, GPUS))
    if gpus is not None and has_all_gpus(pod, node):
        rhythm = _judged(rhythm, gpus, pod)
    else:
        gpus = None
    if rhythm is not None and rhythm.state in QUIET and rhythm.is_start and not _is_idle(rhythm, pod, health):
        return None
    return _report(rhythm, gpus, health)


def gpus_of(pod: Pod, view: GangView, now: datetime) -> PodRhythm | None:
    """What is published of the GPUs of *pod*, where it has all of its node. None: unknown."""
    name = pod.spec.node_name
    node, health = view.nodes.get(name), view.health.get(name)
    if node is None or health is None or not _is_live(node, health, now) or not has_all_gpus(pod, node):
        return None
    return _find(health.status.rhythms, GPUS)


def _report(rhythm: PodRhythm | None, gpus: PodRhythm | None, health: NodeHealth) -> PodReport | None:
    if rhythm is None or health.status.seen_at is None:
        return None
    activity = gpus.activity if gpus is not None else None
    return PodReport(rhythm, health.status.seen_at, activity.gpu_utilisation if activity is not None else None)


def rhythm_of(pod: Pod, view: GangView, now: datetime) -> PodRhythm | None:
    """What *pod* does, if what is published says something about now. None: unknown."""
    report = report_of(pod, view, now)
    return report.rhythm if report else None


def began(pod: Pod) -> datetime:
    """When its last container started, or else when it was created: an earlier report is of another life."""
    running = [each.state.running for each in pod.status.container_statuses]
    starts = [each.started_at for each in running if each is not None and each.started_at is not None]
    created = pod.metadata.creation_timestamp
    return max([*starts, *([created] if created else [])], default=_LONG_AGO)


def _find(listed: Iterable[PodRhythm], uid: str) -> PodRhythm | None:
    return next((each for each in listed if each.uid == uid), None)


def _judged(rhythm: PodRhythm | None, gpus: PodRhythm, pod: Pod) -> PodRhythm | None:
    """What the pod does, by its processors and its GPUs. *rhythm* is None of one that hardly uses processors."""
    if gpus.state is MemberState.WORKING:
        known = rhythm or replace(gpus, uid=pod.metadata.uid)
        return replace(known, state=MemberState.WORKING, since=None, activity=None, shows_polling=True)
    if gpus.state in QUIET and gpus.since is not None:
        return _beside_silent_gpus(rhythm, gpus, gpus.since, pod)
    return rhythm


def _beside_silent_gpus(rhythm: PodRhythm | None, gpus: PodRhythm, since: datetime, pod: Pod) -> PodRhythm | None:
    """A pod whose processors are seen to work does: it loads or saves data."""
    if rhythm is not None and rhythm.state in QUIET and rhythm.since is not None:
        return replace(rhythm, since=max(rhythm.since, since), allowed=max(rhythm.allowed, gpus.allowed))
    may_poll = rhythm is None or (rhythm.state is MemberState.WORKING and not rhythm.shows_polling)
    is_of_another = (since - began(pod)).total_seconds() < (gpus.worked or 0.0)  # what is usual for its GPUs
    if not may_poll or is_of_another:
        return rhythm
    if rhythm is None:
        return replace(gpus, uid=pod.metadata.uid, state=MemberState.SILENT, activity=None)
    patience = max(gpus.allowed, rhythm.allowed)
    return replace(
        rhythm, state=MemberState.WAITING, since=since, period=gpus.period, allowed=patience, worked=gpus.worked
    )


def _is_idle(rhythm: PodRhythm, pod: Pod, health: NodeHealth) -> bool:
    """
    Whether *pod*, of which it is not known what is usual, does next to nothing. Its agent does not know how many ranks
    it may have, one for each of its GPUs. If it has some, all of the node have to say that they do nothing.
    """
    gpus = gpus_held(pod)
    if rhythm.activity is None or (gpus and rhythm.idle_gpus < max(1, len(health.status.inventory))):
        return False
    return rhythm.activity.cpu <= LITTLE * max(1, gpus)


def _is_live(node: Node, health: NodeHealth, now: datetime) -> bool:
    """Whether agent and kubelet report, and of the same boot. A cached boot id is empty: it is not compared."""
    if any(each.type == "Ready" and each.status != "True" for each in node.status.conditions):
        return False
    boots = {node.status.node_info.boot_id, health.status.boot_id} - {""}
    return len(boots) < 2 and not is_silent(health.status, now)
