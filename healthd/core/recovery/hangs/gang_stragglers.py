"""
The ranks of a gang that the others wait for, by what the agents of their nodes publish of the work of its pods, and the
record of them on its root. What follows, where its owner allows that, is in `core.recovery.planned.slow_nodes`.

What is not known is never a straggler: no agent or one of an older healthd, an agent or a kubelet that does not report,
a pod whose work is not listed, a gang of which a member starts, stops or is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from healthd.core.api import NodeHealth, Pod
from healthd.core.api.health import GpuClocks, GpuWork, HostBoundGpu, PodRhythm, PodSlowRank
from healthd.core.api.model import Finding
from healthd.core.config.gangs import HangPolicy, SilenceMode, StragglerMode
from healthd.core.hang.straggler import LARGEST_AMOUNT, Straggler
from healthd.core.hang.work.common_windows import AHEAD, KNOWN_FOR
from healthd.core.hang.work.gang_work import RankWork
from healthd.core.hang.work.gpus.host_bound_nodes import RankGpus
from healthd.core.hang.work.slow_in_pods import Source
from healthd.core.hang.work.straggler_text import pod_reason, rank_reason
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.hangs.gang_silence import is_whole, mode_of, ranks
from healthd.core.recovery.hangs.pod_reports import PodReport, began, gpus_of, report_of
from healthd.core.recovery.members import index_of, members

KEPT = 8
"""Stragglers on the record of a gang."""
MOST_FINDINGS = 2
"""Findings of its node that the reason of a straggler cites."""


def is_compared(root: Root, policy: HangPolicy) -> bool:
    """Whether anybody wants to know of the stragglers of this gang."""
    if not root.options.restart or root.invalid:
        return False
    return straggler_mode_of(root, policy) is not StragglerMode.IGNORE


def straggler_mode_of(root: Root, policy: HangPolicy) -> StragglerMode:
    """What to do about a slow rank: what the owner of the gang says, else the configuration. No samples: nothing."""
    if policy.stragglers is StragglerMode.IGNORE or mode_of(root, policy) is SilenceMode.IGNORE:
        return StragglerMode.IGNORE
    return root.options.stragglers or policy.stragglers


def work_of(view: GangView, now: datetime) -> Mapping[str, RankWork] | None:
    """What is published of each rank, by its name. None: of some rank it is not known, or the gang is not whole."""
    if view.root is None or not is_whole(view, view.root):
        return None
    work = dict[str, RankWork]()
    for pod in ranks(view):
        known = report_of(pod, view, now)
        if known is None or known[0].work is None or known[0].work.end <= began(pod):
            return None
        work[name_of(pod, view.root)] = RankWork(pod.metadata.uid, known[0].work, known[1], known[0].recent)
    return work if len(work) > 1 else None


def clocks_of(view: GangView, now: datetime) -> Mapping[str, GpuClocks]:
    """What is published of the GPUs of each rank, by its name. A rank of which it is not known is left out."""
    root, found = view.root, dict[str, GpuClocks]()
    if root is None or not is_whole(view, root):
        return found
    for pod in ranks(view):
        gpus = gpus_of(pod, view, now)
        clocks = gpus.clocks if gpus is not None else None
        if clocks is not None and clocks.begin >= began(pod) and -AHEAD <= now - clocks.end <= KNOWN_FOR:
            found[name_of(pod, root)] = clocks
    return found


def gpu_work_of(view: GangView, now: datetime) -> Mapping[str, RankGpus] | None:
    """What the GPUs of each rank do, by its name. None: of some rank it is not known, or the gang is not whole."""
    root, found = view.root, dict[str, RankGpus]()
    if root is None or not is_whole(view, root):
        return None
    for pod in ranks(view):
        gpus = gpus_of(pod, view, now)
        work = _since(began(pod), gpus.gpu_work) if gpus is not None and gpus.gpu_work is not None else None
        if work is None:
            return None
        found[name_of(pod, root)] = RankGpus(pod.metadata.uid, work)
    return found if len(found) > 1 else None


def _since(began: datetime, work: GpuWork) -> GpuWork | None:
    """The windows that began later: those before are of another pod on the same node. None: there are none."""
    count = min(len(work.memory), int((work.end - began).total_seconds() // work.seconds))
    return replace(work, memory=work.memory[-count:], idle=work.idle[-count:]) if count > 0 else None


def slow_in_pods_of(view: GangView, now: datetime) -> Mapping[Source, Sequence[Straggler]]:
    """What is published of ranks and GPUs that the others of their pod wait for. What is not known is left out."""
    root, found = view.root, dict[Source, Sequence[Straggler]]()
    if root is None or not is_whole(view, root):
        return found
    for pod in ranks(view):
        name, report, gpus = pod.metadata.name, report_of(pod, view, now), gpus_of(pod, view, now)
        if report is not None:
            found[Source(name)] = _slow_in(pod, report, now)
        if report is not None and gpus is not None:
            found[Source(name, of_gpus=True)] = _late_in(pod, report, gpus, name_of(pod, root), now)
    return found


def _late_in(pod: Pod, report: PodReport, gpus: PodRhythm, rank: str, now: datetime) -> list[Straggler]:
    return [
        _listed(late, pod, report, rank=rank, gpu=late.pci, idle=late.idle, peers_idle=late.peers_idle)
        for late in gpus.host_bound_gpus
        if _is_of(late, pod, now) and late.idle > 0
    ]


def _slow_in(pod: Pod, report: PodReport, now: datetime) -> list[Straggler]:
    return [
        _listed(
            slow,
            pod,
            report,
            rank=str(slow.rank),
            pid=slow.pid,
            ran=slow.ran,
            starved=slow.starved,
            peers_ran=slow.peers_ran,
            peers_starved=slow.peers_starved,
            own_waits=slow.own_waits,
            peers_own_waits=slow.peers_own_waits,
            from_start=slow.from_start,
        )
        for slow in report.rhythm.slow_ranks
        if _is_of(slow, pod, now)
    ]


def _is_of(slow: PodSlowRank | HostBoundGpu, pod: Pod, now: datetime) -> bool:
    """Not what an agent says of an earlier life of the pod, nor of a time that is yet to come: its clock is ahead."""
    return began(pod) <= slow.since <= now


def _listed(slow: PodSlowRank | HostBoundGpu, pod: Pod, report: PodReport, **shown: Any) -> Straggler:
    """*slow* as a straggler of *pod*. *shown*: what it is, and by what it is seen."""
    shares = dict.fromkeys(("ran", "starved", "peers_ran", "peers_starved"), 0.0)
    return Straggler(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        since=slow.since,
        ended_at=slow.ended_at,
        seen_at=report.seen_at,
        slower=min(slow.slower, LARGEST_AMOUNT),
        confidence=slow.confidence,
        **{**shares, **shown},
    )


def pods_of(view: GangView) -> frozenset[str]:
    """The uids of the pods of its ranks."""
    return frozenset(pod.metadata.uid for pod in ranks(view))


def name_of(pod: Pod, root: Root) -> str:
    """Its index, or else its name."""
    return index_of(pod, root) or pod.metadata.name


def nodes_of(names: Collection[str], view: GangView) -> list[str]:
    """The nodes of these ranks."""
    root = view.root
    return sorted({pod.spec.node_name for pod in ranks(view) if root and name_of(pod, root) in names})


def explained(straggler: Straggler, view: GangView) -> Straggler:
    """With its pod, its node and the reason, as far as one is known."""
    pod = next((pod for pod in ranks(view) if view.root and _is_in(straggler, pod, view.root)), None)
    if pod is None:
        return straggler
    node = pod.spec.node_name
    others = {each.spec.node_name for each in ranks(view)} - {node}
    findings = _findings_of(node, others, view.health)
    reason = rank_reason(straggler, findings) if straggler.pid else pod_reason(straggler, findings)
    return replace(straggler, pod=pod.metadata.name, node=node, reason=reason)


def _is_in(straggler: Straggler, pod: Pod, root: Root) -> bool:
    """Whether *pod* is the rank, or has it among others."""
    return pod.metadata.name == straggler.pod if straggler.pid else name_of(pod, root) == straggler.rank


def open_stragglers(root: Root, now: datetime) -> Sequence[Straggler]:
    """Those on record that are slow now, as far as the root shows."""
    if root.suspended or root.deleting or root.ending is not RootOutcome.NOT_ENDED:
        return ()
    started = root.started_at
    return [
        each
        for each in root.stragglers
        if each.ended_at is None and each.since <= now and (started is None or started <= each.since)
    ]


def next_record(root: Root, changes: Sequence[Straggler]) -> Sequence[Straggler] | None:
    """The record with *changes*, each in the place of what was known of it. None: it stays as it is."""
    record = list(root.stragglers)
    for change in changes:
        record = [each for each in record if each.identity != change.identity] + [change]
    record = record[-KEPT:]
    return record if record != list(root.stragglers) else None


def stopped(view: GangView, now: datetime) -> list[Straggler]:
    """Those on record that are not over, as over: the pods were stopped since."""
    root = view.root
    if root is None:
        return []
    still_open = open_stragglers(root, now)
    created = [pod.metadata.creation_timestamp for pod in members(view)]
    newest = max((at for at in created if at is not None), default=None)
    over = [
        each
        for each in root.stragglers
        if each.ended_at is None and (each not in still_open or (newest is not None and newest > each.since))
    ]
    return [_stopped(each, root, now) for each in over]


def _stopped(straggler: Straggler, root: Root, now: datetime) -> Straggler:
    """A gang that hangs has no slow rank, so one that was slow before was so until the hang began."""
    hang = root.silence
    hung = hang is not None and straggler.since <= hang.since <= now and (hang.ended_at is None or hang.was_stopped)
    end = hang.since if hang is not None and hung else max(now, straggler.since)
    return replace(straggler, ended_at=end, was_stopped=True, hung=hung)


def _findings_of(node: str, others: Collection[str], health: Mapping[str, NodeHealth]) -> list[str]:
    """The newest active findings of *node*, in words. What most of the *others* have explains no slow rank."""
    common = Counter(id_ for other in others for id_ in {each.id for each in _active(health, other)})
    own = [each for each in _active(health, node) if common[each.id] <= len(others) / 2]
    newest = sorted(own, key=lambda each: each.raised_at, reverse=True)[:MOST_FINDINGS]
    return [f"{each.id}: {each.message}" for each in newest]


def _active(health: Mapping[str, NodeHealth], node: str) -> list[Finding]:
    found = health[node].status.findings if node in health else []
    return [each for each in found if each.cleared_at is None and not each.shadow]
