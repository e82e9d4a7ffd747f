"""
Decides when a change is worth a write to the agent's `NodeHealth`. Pure.

Ten thousand agents share one API server. Data that others act on is written at once. Data that others only read is
written later. Data that only the agent itself needs after a restart is written rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import KernelLogCursor, NodeHealth, NodeHealthStatus, PodRhythm
from healthd.core.api.health import GpuClocks, GpuWork, HostBoundGpu, MemberState, PodSlowRank, PodWork
from healthd.core.node.work_changes import has_changed

PODS_AFTER = timedelta(seconds=2)
"""Between two writes for pods that began or ended."""
DETAILS_AFTER = timedelta(seconds=30)
"""Between two writes for repeated findings or lost records."""
GROWTH_AFTER = timedelta(minutes=15)
"""Between two writes for port counters that grow by another power of two: new work changes them on many nodes."""
RHYTHMS_AFTER = timedelta(minutes=5)
"""Between two writes for pods whose rhythm became known. Their periods, which are learned anew all the time, take
GROWTH_AFTER."""
WORK_AFTER = timedelta(seconds=160)
"""Between two writes for the work of pods: each has the windows since the last one."""
WORK_CHANGED_AFTER = timedelta(seconds=30)
"""The same while a pod works more or less than minutes before: one of its gang may have become slow."""
CLOCKS_CHANGED_AFTER = timedelta(seconds=20)
"""Between two writes because a GPU runs slower or faster: it may hold up its gang, or does no longer."""
CLOCKS_CHANGED = 0.015
"""By how much of its clock."""
WORK_ASKED_AFTER = timedelta(seconds=9)
"""The same while the controller asks for the newest minutes: two windows of 5 s, of which some are cut a bit late."""
SLOW_RANKS_AFTER = timedelta(seconds=5)
"""The same because a rank of a pod or a GPU became slow, or keeps up again: a person is to know."""
RENEW_AFTER = timedelta(minutes=1)
"""Between two writes while a pod is quiet. Nothing takes back what an agent said that has died: a gang is restarted
only for what was said lately (`core.recovery.hangs.gang_silence.FRESH`)."""
RENEWED_FOR = timedelta(minutes=15)
"""How long a silence is renewed after it was longer than its rhythm allows: many pods of a cluster fall idle."""
CURSOR_AFTER = timedelta(minutes=1)
CURSOR_STRIDE = 256
"""
How many records the cursor may be ahead of the stored cursor before a write, at most one write per CURSOR_AFTER.

After a restart the agent reads on from the stored cursor. It knows the records that it judges again by their number.
But records that the ring buffer has dropped by then would count as lost. The smallest ring buffer holds about 1,300.
"""
REFRESH_AFTER = timedelta(hours=1)
"""In quiet times: between two writes of the cursor alone, of the node's conditions, and of the sign that the agent
lives. May be longer by up to half."""
SILENT_AFTER = 3 * REFRESH_AFTER
"""An older report about a node does not count as known any more: its agent missed a refresh, by at least half an
hour."""

_NO_CURSOR = KernelLogCursor()


def is_silent(status: NodeHealthStatus | None, now: datetime) -> bool:
    """
    Whether the node has no live agent: the last report that it is healthy is too old, or there is none.

    Findings against the node stay valid: silence repairs nothing.
    """
    return status is None or status.seen_at is None or now - status.seen_at > SILENT_AFTER


def silence(health: Mapping[str, NodeHealth], now: datetime) -> Callable[[str], bool]:
    """A function from a node name to whether its agent is silent."""
    return lambda name: is_silent(health[name].status if name in health else None, now)


def write_at(
    stored: NodeHealthStatus, known: NodeHealthStatus, *, written: datetime, refresh_after: timedelta = REFRESH_AFTER
) -> datetime:
    """When to write *known* over *stored*, which was written at *written*."""
    renewals = [(stored.seen_at or written - refresh_after) + refresh_after]
    renewals += [written + wait for wait in _waits_of_silences(known, written)]
    refresh = min(renewals)
    known = msgspec.structs.replace(known, seen_at=stored.seen_at)
    if known == stored:
        return refresh
    if _what_others_act_on(stored) != _what_others_act_on(known):
        return written
    if (stored.live_pods, stored.gone_pods) != (known.live_pods, known.gone_pods):
        return written + PODS_AFTER
    if _details(stored) != _details(known):
        return written + DETAILS_AFTER
    if _is_far(stored.cursor, known.cursor):
        return written + CURSOR_AFTER
    return min([refresh, *(written + wait for wait in _waits_of_growth(stored, known))])


def quiet_pods(rhythms: Iterable[PodRhythm]) -> list[PodRhythm]:
    """
    The pods that have done nothing for longer than their rhythm allows, as far as others act on it: without numbers.
    """
    return [PodRhythm(uid=rhythm.uid, state=rhythm.state, since=rhythm.since) for rhythm in _quiet(rhythms)]


def works_differently(rhythms: Iterable[PodRhythm]) -> bool:
    """Whether one of the pods, or the GPUs, work more or less than minutes before."""
    return any(has_changed(rhythm.work) or has_changed(rhythm.gpu_work) for rhythm in rhythms)


def _work(status: NodeHealthStatus) -> list[PodWork | GpuWork]:
    work = (each for rhythm in status.rhythms for each in (rhythm.work, rhythm.gpu_work))
    return [each for each in work if each is not None]


def _slow_ranks(status: NodeHealthStatus) -> list[tuple[str, list[PodSlowRank], list[HostBoundGpu]]]:
    slow = (rhythm for rhythm in status.rhythms if rhythm.slow_ranks or rhythm.host_bound_gpus)
    return [(rhythm.uid, rhythm.slow_ranks, rhythm.host_bound_gpus) for rhythm in slow]


def _clocks(status: NodeHealthStatus) -> GpuClocks | None:
    return next((rhythm.clocks for rhythm in status.rhythms if rhythm.clocks is not None), None)


def _are_notably_different(before: GpuClocks | None, now: GpuClocks) -> bool:
    """Whether a GPU runs slower or faster than before, or was not known."""
    known = {each.pci: each.mhz for each in before.gpus} if before is not None else {}
    return any(abs(gpu.mhz - known.get(gpu.pci, 0.0)) > CLOCKS_CHANGED * gpu.mhz for gpu in now.gpus)


def _quiet(rhythms: Iterable[PodRhythm]) -> Iterator[PodRhythm]:
    return (rhythm for rhythm in rhythms if rhythm.state in {MemberState.WAITING, MemberState.SILENT})


def _what_others_act_on(status: NodeHealthStatus) -> tuple[object, ...]:
    findings = [(finding.id, finding.quarantines, finding.cleared_at) for finding in status.findings]
    ports = [(nic.pci, nic.port, nic.rail) for nic in status.nics]
    quiet = quiet_pods(status.rhythms)
    return status.verdict, status.message, findings, status.inventory, ports, status.boot_id, status.repair_seen, quiet


def _details(status: NodeHealthStatus) -> NodeHealthStatus:
    """The status without the cursor, the growth of counters, and the rhythms of pods."""
    ports = [msgspec.structs.replace(nic, growth={}) for nic in status.nics]
    return msgspec.structs.replace(status, cursor=_NO_CURSOR, nics=ports, rhythms=[])


def _waits_of_growth(stored: NodeHealthStatus, known: NodeHealthStatus) -> Iterator[timedelta]:
    """How long after a write each change is written that nothing waits for."""
    if [rhythm.uid for rhythm in stored.rhythms] != [rhythm.uid for rhythm in known.rhythms]:
        yield RHYTHMS_AFTER
    if (stored.nics, stored.rhythms) != (known.nics, known.rhythms):
        yield GROWTH_AFTER
    if any(rhythm.recent is not None for rhythm in known.rhythms) and stored.rhythms != known.rhythms:
        yield WORK_ASKED_AFTER
    if (clocks := _clocks(known)) is not None and clocks != _clocks(stored):
        yield CLOCKS_CHANGED_AFTER if _are_notably_different(_clocks(stored), clocks) else WORK_AFTER
    if _slow_ranks(stored) != _slow_ranks(known):
        yield SLOW_RANKS_AFTER
    if _work(stored) != _work(known):
        yield WORK_CHANGED_AFTER if works_differently(known.rhythms) else WORK_AFTER


def _waits_of_silences(known: NodeHealthStatus, written: datetime) -> Iterator[timedelta]:
    """
    How long after a write the silence of a pod is renewed, for as long as someone may act on it. For that of a start no
    gang is restarted, and a node may have many services that have nothing to do.
    """
    for rhythm in _quiet(known.rhythms):
        if rhythm.since is None or rhythm.is_start:
            continue
        if written - rhythm.since < timedelta(seconds=rhythm.allowed) + RENEWED_FOR:
            yield RENEW_AFTER


def _is_far(stored: KernelLogCursor, known: KernelLogCursor) -> bool:
    same_log = (stored.boot_id, stored.source) == (known.boot_id, known.source)
    return not same_log or known.sequence - stored.sequence >= CURSOR_STRIDE
