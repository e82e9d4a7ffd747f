"""
The fence: proof that a pod of a stopped attempt can no longer write.

A Failed, deleted or force-deleted pod object proves nothing: with a dead kubelet its processes go on. A proof is

- the kubelet's report that every container terminated, or that it did not admit the pod;
- another boot of the machine;
- the report of the agent on the node, which may live while the kubelet is dead: the pod's last process is gone;
- a record that the machine was powered off, or a person's confirmation;
- or that the pod never got a node.

The kubelet's report counts for ever, also when its node is silent now: only a kubelet writes that a container
terminated. The pod garbage collector, which sets the pods of silent nodes to Failed, does not change the container
statuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import (
    ANNOTATION_FENCE_OVERRIDE,
    ANNOTATION_POWERED_OFF,
    FINALIZER_FENCE,
    ContainerStatus,
    FencedPod,
    Node,
    NodeHealth,
    Pod,
    is_same,
)
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.members import attempt_of, deletion_asked_at, index_of, is_terminal, will_not_run
from healthd.core.recovery.nodes.spares import is_ready
from healthd.core.recovery.terms import KUBERNETES, Terms
from healthd.core.untrusted import InvalidText, moment_or_none, read_moment

REJECTED = "Pod was rejected: "
"""Prefix of a kubelet's message for a pod that it did not admit: the GPUs are gone, or the disk is full."""
ENDED_BY_KUBELET = frozenset({"PodFailed", "PodCompleted"})
"""Reasons of the pod condition ContainersReady that only a kubelet writes, when the pod has ended."""
CLOCKS_DIFFER = timedelta(minutes=1)
"""A timestamp further in the future is a mistake: it would prove the end of pods that have not started yet."""
LONGEST_OVERRIDE = 200
"""Characters of a person's override that are kept with each pod."""
ALL = "all"
"""In a person's override: every pod that has no proof yet."""


def fence_pods(
    view: GangView, known: Sequence[FencedPod], now: datetime, *, since: datetime | None = None
) -> list[FencedPod]:
    """
    *known* and every further pod that may still write, each with its proof so far, in the order of creation.

    A recorded proof stays, so the pod object may be deleted afterwards. A member of the present attempt whose object
    vanished is also listed, unless it was created before *since*: its last known state proves its end or does not. A
    pod of an earlier attempt is added only from a fresh list. Its end was proven before the present attempt started,
    and a stale cache may still have it as alive.
    """
    fenced = {pod.uid: pod for pod in known}
    vanished = [pod for pod in view.deleted if _is_of_this_attempt(pod, view) and not _is_older(pod, since)]
    for pod in sorted((*vanished, *(pod for pod in view.pods if _may_write(pod, view))), key=_age):
        fenced.setdefault(pod.metadata.uid, _fenced(pod, view.root))
    seen: dict[str, list[Pod]] = {}
    for pod in (*view.deleted, *view.pods):
        seen.setdefault(pod.metadata.uid, []).append(pod)
    gone = {pod.metadata.uid for pod in view.deleted}
    return [_with_proof(pod, seen.get(pod.uid, []), view, now, is_gone=pod.uid in gone) for pod in fenced.values()]


def unproven(pods: Sequence[FencedPod], terms: Terms = KUBERNETES) -> list[str]:
    """The pods without proof, for people: the name, and the node if the pod has one."""
    open_ends = [pod for pod in pods if not pod.proof]
    return [terms.named(pod.name, pod.index) + (f" on {pod.node}" if pod.node else "") for pod in open_ends]


def unused_power_offs(pods: Sequence[FencedPod], nodes: Mapping[str, Node], now: datetime) -> list[str]:
    """Why the time at which a node was powered off proves nothing about a pod without proof, for the writer of it."""
    open_ends = {pod.node: pod for pod in pods if not pod.proof and pod.node in nodes}
    return [why for name, pod in sorted(open_ends.items()) if (why := _why_unused(pod, nodes[name], now))]


def _why_unused(fenced: FencedPod, node: Node, now: datetime) -> str:
    said = node.metadata.annotations.get(ANNOTATION_POWERED_OFF)
    if said is None:
        return ""
    where = f"{ANNOTATION_POWERED_OFF} on {fenced.node}"
    try:
        at = read_moment(said)
    except InvalidText as error:
        return f"{where}: {error}"
    if at > now + CLOCKS_DIFFER:
        return f"{where} is a time to come"
    if fenced.since is not None and at <= fenced.since:
        return f"{where} is from before {fenced.name} started"
    return ""


def has_unread_end(pod: Pod) -> bool:
    """Its end is not known, or no proof of it was read yet: it has the fence's finalizer."""
    return not is_terminal(pod) or FINALIZER_FENCE in pod.metadata.finalizers


def overridden(pods: Sequence[FencedPod], seen: str) -> list[FencedPod]:
    """
    *pods*, where a person's override replaces each missing proof.

    *seen* is the value of the annotation: `all`, or names of nodes; after a colon, any text for the record.
    """
    names = {name for name in re.split(r"[\s,]+", seen.partition(":")[0]) if name}
    proof = f"a person answers for it ({ANNOTATION_FENCE_OVERRIDE}: {seen.strip()[:LONGEST_OVERRIDE]})"
    return [replace(p, proof=proof) if not p.proof and names & {ALL, p.node} else p for p in pods]


def _age(pod: Pod) -> tuple[bool, str, str]:
    created = pod.metadata.creation_timestamp
    return created is not None, created.isoformat() if created else "", pod.metadata.name


def _is_of_this_attempt(pod: Pod, view: GangView) -> bool:
    return view.root is not None and attempt_of(pod) == view.root.attempt


def _is_of_earlier_attempt(pod: Pod, view: GangView) -> bool:
    return view.root is not None and attempt_of(pod) < view.root.attempt


def _is_older(pod: Pod, since: datetime | None) -> bool:
    created = pod.metadata.creation_timestamp
    return since is not None and created is not None and created < since


def _may_write(pod: Pod, view: GangView) -> bool:
    if _is_of_this_attempt(pod, view):
        return True
    return has_unread_end(pod) and (view.is_listed or not _is_of_earlier_attempt(pod, view))


def _fenced(pod: Pod, root: Root | None) -> FencedPod:
    return FencedPod(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        index=index_of(pod, root),
        since=max(filter(None, (pod.metadata.creation_timestamp, pod.status.start_time)), default=None),
    )


def _with_proof(fenced: FencedPod, seen: Sequence[Pod], view: GangView, now: datetime, *, is_gone: bool) -> FencedPod:
    if fenced.proof:
        return fenced
    bound = next((pod for pod in seen if pod.spec.node_name), None)
    if bound is not None and not fenced.node:
        fenced = _fenced(bound, view.root)
    if not fenced.node:
        # A pod that another controller recorded may be missing in this controller's cache: that does not prove it gone.
        never_ran = all(will_not_run(pod) for pod in seen) if seen else view.is_listed
        return replace(fenced, proof="it was never bound to a node" if never_ran else "")
    node, health = view.nodes.get(fenced.node), view.health.get(fenced.node)
    if is_gone or not _may_yet_start(seen, view):
        fenced = _with_boots(fenced, node, health)
    words = (
        _rebooted(fenced, node, health),
        _without_processes(fenced, seen, health),
        _powered_off(fenced, seen, node, now),
        *(_ended_by_kubelet(pod, view.terms) for pod in seen),
    )
    return replace(fenced, proof=next(filter(None, words), ""))


def _may_yet_start(seen: Sequence[Pod], view: GangView) -> bool:
    """
    Whether a kubelet may yet start a container of the pod, also after a boot of its node. The boot from before that is
    not the one that it runs in.
    """
    if not seen:
        return not view.is_listed  # else its object is gone
    return all(map(_starts_more, seen))


def _starts_more(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and not is_terminal(pod) and not _has_started_all(pod)


def _has_started_all(pod: Pod) -> bool:
    """All its containers, and each of them is started once."""
    begun = [status for status in pod.status.container_statuses if not _waits(status)]
    return pod.spec.restart_policy == "Never" and len(begun) >= max(len(pod.spec.containers), 1)


def _with_boots(fenced: FencedPod, node: Node | None, health: NodeHealth | None) -> FencedPod:
    """
    Record the boot id and the machine, as soon as the kubelet or the agent reports them. Later boots end the pod.

    Both boot ids are kept: after a boot one of the two reports first, and the later report of the other is not a
    further boot.
    """
    return replace(
        fenced,
        boot_id=fenced.boot_id or _kubelets_boot(node),
        agent_boot_id=fenced.agent_boot_id or (health.status.boot_id if health else ""),
        machine=fenced.machine or (node.status.node_info.system_uuid if node else ""),
    )


def _kubelets_boot(node: Node | None) -> str:
    return node.status.node_info.boot_id if node else ""


def _rebooted(fenced: FencedPod, node: Node | None, health: NodeHealth | None) -> str:
    """When another machine has taken the node's name, that is not a boot of the old machine."""
    machine = node.status.node_info.system_uuid if node else ""
    if machine and not is_same(fenced.machine, machine):
        return ""
    now = (_kubelets_boot(node), health.status.boot_id if health else "")
    return f"{fenced.node} has booted since" if any(is_another_boot(fenced, boot) for boot in now) else ""


def is_another_boot(fenced: FencedPod, boot_id: str) -> bool:
    """Whether *boot_id* is another boot than the one the pod ran in; an unknown boot is not."""
    known = [boot for boot in (fenced.boot_id, fenced.agent_boot_id) if boot]
    return bool(boot_id and known) and not any(is_same(boot, boot_id) for boot in known)


def _without_processes(fenced: FencedPod, seen: Sequence[Pod], health: NodeHealth | None) -> str:
    """
    The agent's report. A pod has pauses without any process: before its containers are restarted, and between its init
    containers and the others. So of a pod that may start more only a report from after its deletion counts: from then
    on its kubelet starts nothing any more, or is dead.
    """
    end = next((end for end in health.status.gone_pods if end.uid == fenced.uid), None) if health else None
    if end is None or any(_may_start_after(pod, end.at) for pod in seen):
        return ""
    return f"the agent on {fenced.node} saw its last process end"


def _may_start_after(pod: Pod, at: datetime) -> bool:
    """Whether its kubelet may have started a container of it after *at*."""
    if _was_deleted_by(pod, at):
        return False
    starts = (status.state.running.started_at for status in pod.status.container_statuses if status.state.running)
    return not _has_started_all(pod) or any(start is not None and start > at for start in starts)


def _was_deleted_by(pod: Pod, at: datetime) -> bool:
    asked = deletion_asked_at(pod)
    return asked is not None and asked <= at


def _powered_off(fenced: FencedPod, seen: Sequence[Pod], node: Node | None, now: datetime) -> str:
    """
    The machine was powered off after the pod had started there, and an annotation on the node has the time.

    A kubelet that is ready has booted since.
    """
    stamp = node.metadata.annotations.get(ANNOTATION_POWERED_OFF, "") if node else ""
    at = moment_or_none(stamp)
    if at is None or fenced.since is None or not fenced.since < at <= now + CLOCKS_DIFFER:
        return ""
    if node is not None and is_ready(node) and any(_may_start_after(pod, at) for pod in seen):
        return ""
    return f"{fenced.node} was powered off at {stamp} ({ANNOTATION_POWERED_OFF})"


def _ended_by_kubelet(pod: Pod, terms: Terms) -> str:
    node, status = pod.spec.node_name, pod.status
    if not is_terminal(pod):
        return ""
    if not status.container_statuses:
        rejected = status.phase == "Failed" and status.message.startswith(REJECTED)
        return f"the kubelet of {node} did not admit it" if rejected else ""
    final = _has_final_status(pod) or (pod.spec.restart_policy == "Never" and not status.init_container_statuses)
    if not final:
        return ""
    if all(map(_has_ended, (*status.init_container_statuses, *status.container_statuses))):
        return terms.ended_on(node)
    if _has_final_status(pod) and _never_got_to_run(status.container_statuses, status.init_container_statuses):
        return f"the kubelet of {node} ended it before its containers started"
    return ""


def _has_final_status(pod: Pod) -> bool:
    """
    The kubelet itself reports that the pod has ended, not only that its containers are down at the moment.

    When containers restart after a failure, a container that is down may run again before its status is updated.
    """
    return any(c.type == "ContainersReady" and c.reason in ENDED_BY_KUBELET for c in pod.status.conditions)


def _has_ended(status: ContainerStatus) -> bool:
    """
    Its end was observed, or it never ran.

    A kubelet also reports a container as terminated when it ran and the kubelet cannot find it any more. It then counts
    one more restart and gives no finish time. The processes of a container do not end because the runtime lost it.
    """
    end = status.state.terminated
    return end is not None and (end.finished_at is not None or status.restart_count == 0)


def _never_got_to_run(containers: Iterable[ContainerStatus], before: Iterable[ContainerStatus]) -> bool:
    """The pod ended in its init phase: some init containers ended; the others, and all main containers, still wait."""
    started = [status for status in before if not _waits(status)]
    return all(map(_waits, containers)) and all(map(_has_ended, started))


def _waits(status: ContainerStatus) -> bool:
    return status.state.running is None and status.state.terminated is None
