"""
Whether all ranks of a gang have stopped working, by what the agents of their nodes publish
(`NodeHealth.status.rhythms`).

An agent lists a pod as silent or waiting once that has lasted for longer than the pod's own rhythm allows. A gang hangs
when every rank is listed so, for as long as the most patient rank allows. What is not known is never a hang: no agent,
an agent or a kubelet that does not report, a pod without a rhythm, a report of another boot or of an earlier container.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api import Pod
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.api.recoveries import HangSuspect
from healthd.core.config.gangs import HangPolicy, SilenceMode
from healthd.core.hang.describe import who_holds_up
from healthd.core.hang.silence import SHORTEST, Silence, SilentMember
from healthd.core.hang.suspects.evidence import Activity, RankEvidence
from healthd.core.hang.suspects.pod_evidence import is_stopped, pod_evidence, waits_for_io
from healthd.core.hang.suspects.suspicion import suspects_of
from healthd.core.hang.suspects.vote import vote
from healthd.core.node.pod_devices import devices_of
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.hangs.pod_reports import QUIET, began, report_of, rhythm_of
from healthd.core.recovery.members import index_of, members
from healthd.core.untrusted import number_or

FRESH = timedelta(seconds=90)
"""Before a restart every report must be younger. An agent that has ended does not take back that a pod is silent. One
that lives renews it each minute (`core.node.reporting.RENEW_AFTER`)."""
READ_LATE = timedelta(minutes=2)
"""A step that is read later than this after the ranks fell silent was made after that."""
MISSED_SAVES = 2
"""Of the longest intervals between saves, after which such a gang is no longer taken to work."""


class ObservedSilence(NamedTuple):
    """A gang that hangs by the reports of its agents."""

    silence: Silence
    doubt: str = ""
    """Why the reports are not good enough for a restart; empty: they are."""


class _Report(NamedTuple):
    """What the agent of its node says of one rank that is quiet."""

    pod: Pod
    rhythm: PodRhythm
    since: datetime
    """When the rank last worked."""
    seen_at: datetime
    """When the agent wrote it."""
    gpu_utilisation: int | None
    """Percent, of the rank's GPU that does least; None: not known."""


def mode_of(root: Root, policy: HangPolicy) -> SilenceMode:
    """What to do when all members of the gang fall silent: what its owner says, else the configuration."""
    if not policy.enabled:
        return SilenceMode.IGNORE
    return root.options.hang or policy.silence


def to_restart_for(root: Root | None, seen: ObservedSilence | None, policy: HangPolicy) -> Silence | None:
    """The silence for which the gang is to be restarted, once its usual pauses are known. None: it is not."""
    if root is None or seen is None or seen.doubt or mode_of(root, policy) is not SilenceMode.RESTART:
        return None
    return seen.silence


def ranks(view: GangView) -> list[Pod]:
    """
    The members of the present attempt that do the work, without those that have succeeded.

    A launcher and the head of a RayCluster may idle or poll at any time. They have no device where others have one, or
    no number where others have one.
    """
    everyone = members(view)
    working = [pod for pod in everyone if devices_of(pod)] or [pod for pod in everyone if index_of(pod, view.root)]
    return [pod for pod in working or everyone if pod.status.phase != "Succeeded"]


def observed_silence(view: GangView, policy: HangPolicy, now: datetime) -> ObservedSilence | None:
    """The silence of a gang that hangs. None: it does not hang, or that is not known."""
    if view.root is None or _first_works(view, now) or not is_whole(view, view.root):
        return None
    reports = _quiet_reports(view, now)
    is_start = any(report.rhythm.is_start for report in reports)
    if not reports or (is_start and not _others_are_idle(view, reports, now)):
        return None
    last = max(report.since for report in reports)
    allowed = max(SHORTEST.total_seconds(), *(report.rhythm.allowed for report in reports))
    if not is_start and (last - min(report.since for report in reports)).total_seconds() > allowed:
        return None  # ranks that wait for each other stop together: one of the reports is old, or is of no rank
    if (now - last).total_seconds() < allowed or _may_still_save(view.root, last, policy, now):
        return None
    suspects, located = _who_holds_up(reports, view.root)
    silence = Silence(
        since=last,
        seen_at=now,
        allowed=allowed,
        period=max(report.rhythm.period for report in reports),
        members=tuple(_member(report, view.root) for report in reports),
        worked=_worked(reports),
        is_start=is_start,
        suspects=suspects,
        located=located,
    )
    return ObservedSilence(silence, _doubt(view, reports, now))


def a_rank_works(view: GangView, now: datetime) -> bool:
    """
    Whether a rank is seen to work as usual, and not only to poll. An agent publishes when that ends, so a report holds
    for as long as its agent lives.
    """
    return any(_works_as_usual(pod, view, now) for pod in ranks(view))


def quiet_ranks(view: GangView, now: datetime) -> list[RankEvidence]:
    """What each rank of a gang that hangs does, by the agents; empty while one works, or says nothing."""
    reports = _quiet_reports(view, now) if view.root is not None else []
    numbers = [number_or(index_of(report.pod, view.root), -1) for report in reports]
    are_known = len(set(numbers)) == len(numbers) and -1 not in numbers
    return _evidence(reports, numbers if are_known else range(len(reports)))


def _works_as_usual(pod: Pod, view: GangView, now: datetime) -> bool:
    known = report_of(pod, view, now)
    if known is None or known.seen_at < began(pod):
        return False
    return known.rhythm.state is MemberState.WORKING and known.rhythm.shows_polling


def _first_works(view: GangView, now: datetime) -> bool:
    """Whether the first member with a device is seen not to be quiet: of most gangs no other is looked at."""
    first = next((pod for pod in members(view) if devices_of(pod)), None)
    if first is None or first.status.phase == "Succeeded":
        return False
    rhythm = rhythm_of(first, view, now)
    return rhythm is None or rhythm.state not in QUIET


def is_whole(view: GangView, root: Root) -> bool:
    """Whether the gang runs with all its members: one that starts, stops or lost a member is no matter of silence."""
    stands = root.suspended or root.deleting or bool(root.invalid) or root.ending is not RootOutcome.NOT_ENDED
    here = members(view)
    if stands or not root.has_begun or len(here) < root.world or any(pod.metadata.deletion_timestamp for pod in here):
        return False
    return {pod.status.phase for pod in here} - {"Succeeded"} == {"Running"}


def _quiet_reports(view: GangView, now: datetime) -> list[_Report]:
    """The reports of all ranks when every one is quiet; else none."""
    reports = []
    for pod in ranks(view):
        known = report_of(pod, view, now)
        if known is None or known.rhythm.state not in QUIET or known.rhythm.since is None:
            return []
        rhythm, seen_at, since = known.rhythm, known.seen_at, known.rhythm.since
        if not began(pod) <= since <= min(now, seen_at):
            return []
        reports.append(_Report(pod, rhythm, since, seen_at, known.gpu_utilisation))
    return reports


def _others_are_idle(view: GangView, reports: Sequence[_Report], now: datetime) -> bool:
    """
    Whether the members that are no ranks do nothing either. A start may wait for them: the workers of a RayCluster do
    nothing until its head has work for them.
    """
    rhythms = (rhythm_of(pod, view, now) for pod in _others(view, reports) if pod.status.phase != "Succeeded")
    return all(rhythm is not None and rhythm.state in QUIET for rhythm in rhythms)


def _others(view: GangView, reports: Sequence[_Report]) -> Iterator[Pod]:
    """The members of which there is no report: they are no ranks."""
    known = {report.pod.metadata.uid for report in reports}
    return (pod for pod in members(view) if pod.metadata.uid not in known)


def _may_still_save(root: Root, last: datetime, policy: HangPolicy, now: datetime) -> bool:
    """
    Whether a checkpoint appeared after the ranks fell silent: something still wrote it.

    The step may also have been read late, after a hang had begun. So this counts for `hang.floor` and no longer. A step
    that came too late for that shows that the gang works, whatever its ranks show: until its next ones do not come.
    """
    saved = root.progress.at
    if saved is None or saved <= last:
        return False
    waits = policy.floor
    if saved - last > READ_LATE:
        waits = max(waits, MISSED_SAVES * timedelta(seconds=max(root.progress.intervals, default=0.0)))
    return now - saved < waits


def _doubt(view: GangView, reports: Sequence[_Report], now: datetime) -> str:
    oldest = min(reports, key=lambda report: report.seen_at)
    if now - oldest.seen_at > FRESH:
        age = (now - oldest.seen_at).total_seconds()
        return f"the report of {view.terms.node} {oldest.pod.spec.node_name} is {age:.0f} s old"
    for pod in _others(view, reports):
        rhythm = rhythm_of(pod, view, now)
        if rhythm is not None and rhythm.state is MemberState.WORKING:
            return f"{pod.metadata.name}, which is no rank, works"
    return ""


def _worked(reports: Sequence[_Report]) -> float | None:
    """Seconds for which every rank was seen to work before. None: an agent does not say."""
    known = [report.rhythm.worked for report in reports]
    return None if None in known else min(each for each in known if each is not None)


def _member(report: _Report, root: Root) -> SilentMember:
    states = "T" if is_stopped(report.rhythm) else "D" if waits_for_io(report.rhythm) else ""
    return SilentMember(rank=_name(report, root), state=report.rhythm.state, last_active=report.since, states=states)


def _name(report: _Report, root: Root) -> str:
    return index_of(report.pod, root) or report.pod.metadata.name


def _who_holds_up(reports: Sequence[_Report], root: Root) -> tuple[tuple[HangSuspect, ...], str]:
    """The suspects by what the agents saw of their pods, and the same in a sentence. Older agents saw nothing."""
    known = _evidence(reports, range(len(reports)))
    location = vote(known)

    def named(number: int) -> str:
        return _name(reports[number], root)

    return suspects_of(location, known, named), who_holds_up(location, named)


def _evidence(reports: Sequence[_Report], numbers: Sequence[int]) -> list[RankEvidence]:
    seen = (_evidence_of(report, number) for number, report in zip(numbers, reports, strict=True))
    return [evidence for evidence in seen if evidence is not None]


def _evidence_of(report: _Report, number: int) -> RankEvidence | None:
    pod, node = report.pod.metadata.name, report.pod.spec.node_name
    known = pod_evidence(report.rhythm, number, pod, node)
    if report.gpu_utilisation is None:
        return known
    known = known or RankEvidence(number, pod, node)
    return replace(known, activity=replace(known.activity or Activity(), gpu_utilisation=report.gpu_utilisation))
