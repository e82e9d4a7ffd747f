"""
Which pods have processes on a node, and which had processes and have none any more. Pure.

The end of a pod's processes is proof for a fence, so it is reported only for a pod that was observed alive. A pod whose
containers have all ended still has its sandbox: one idle process (`pause`) that the runtime keeps until the kubelet
removes it; a dead kubelet never does. The sandbox is the oldest container of its pod and has a single task. It is
identified while another container runs beside it: later, alone, it would look like any program with one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import PodEnd

QUIET_FOR = timedelta(seconds=15)
"""How long the sandbox must be alone: a container that crashes is often restarted within seconds."""
KEPT_FOR = timedelta(hours=1)
KEPT_ENDS = 128


class ContainerTasks(msgspec.Struct, frozen=True):
    """One container: *id* grows in the order of creation, *tasks* counts all threads."""

    id: int
    tasks: int


class PodTasks(msgspec.Struct, frozen=True):
    """A pod as its cgroups show it; *tasks* counts the tasks of the whole pod."""

    uid: str
    tasks: int
    containers: tuple[ContainerTasks, ...] = ()


@dataclass(frozen=True, slots=True)
class PodLives:
    """What was observed so far. *live* and *gone* are published; the rest is lost when the agent's process ends."""

    live: frozenset[str] = frozenset()
    gone: tuple[PodEnd, ...] = ()
    sandboxes: Mapping[str, int] = field(default_factory=dict)
    """Pod uid -> id of its sandbox."""
    quiet_since: Mapping[str, datetime] = field(default_factory=dict)
    """Uid of a pod of which only the sandbox is left -> since when."""

    def update(self, pods: Iterable[PodTasks], now: datetime) -> PodLives:
        """
        Add one sample of all pods of the node. A pod that is not in the sample has no cgroup and so no process.

        A pod that is alive again (a live kubelet may restart its containers) is no longer gone.
        """
        seen = {pod.uid: pod for pod in pods if pod.tasks > 0}
        sandboxes = {uid: id_ for uid, pod in seen.items() if (id_ := _sandbox(pod, self.sandboxes.get(uid)))}
        quiet = {uid: self.quiet_since.get(uid, now) for uid, pod in seen.items() if _is_quiet(pod, sandboxes.get(uid))}
        over = {uid for uid, since in quiet.items() if uid not in self.live or now - since >= QUIET_FOR}
        live = frozenset(seen.keys() - over)
        return PodLives(live, _ends(self.gone, self.live - live, live, now), sandboxes, quiet)


def _sandbox(pod: PodTasks, known: int | None) -> int | None:
    """The id of the pod's sandbox, once a second container has run beside it."""
    running = [container for container in pod.containers if container.tasks > 0]
    if known is not None and any(container.id == known for container in running):
        return known
    oldest = min(running, key=lambda container: container.id, default=None)
    return oldest.id if oldest and oldest.tasks == 1 and len(running) > 1 else None


def _is_quiet(pod: PodTasks, sandbox: int | None) -> bool:
    running = [container for container in pod.containers if container.tasks > 0]
    return pod.tasks == 1 and sandbox is not None and [container.id for container in running] == [sandbox]


def _ends(before: tuple[PodEnd, ...], ended: frozenset[str], live: frozenset[str], now: datetime) -> tuple[PodEnd, ...]:
    """The ends to publish. Old ends are dropped only together with another change: alone they are not worth a write."""
    if not ended and not any(end.uid in live for end in before):
        return before
    kept = [end for end in before if end.uid not in live and end.uid not in ended and now - end.at < KEPT_FOR]
    return tuple([*kept, *(PodEnd(uid=uid, at=now) for uid in sorted(ended))][-KEPT_ENDS:])
