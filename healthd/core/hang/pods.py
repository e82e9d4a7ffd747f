"""
The rhythms of the pods of one node: which of its pods are worth a sample each second, and what each of those does.

Each pod is judged for itself, as a gang of one member. Whether all pods of a gang are silent is seen where gangs are
known. A control group has no states of processes, so a pod that was stopped by a person looks silent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from heapq import nlargest
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api.health import (
    LARGEST_RATE,
    MOST_GPUS,
    MOST_PODS,
    MemberState,
    PodActivity,
    PodProcess,
    PodRhythm,
    PodWork,
)
from healthd.core.hang.past import Past
from healthd.core.hang.rhythm import WINDOW
from healthd.core.hang.samples import Rates, Stall, Usage
from healthd.core.hang.silence import GangRhythm, Silence
from healthd.core.hang.start import LITTLE, POD_LITTLE, PodStart
from healthd.core.hang.work.pod_ranks import PodRanks
from healthd.core.hang.work.rank_time import RankTime
from healthd.core.hang.work.work_windows import FINE, pod_windows, recent_work

SAMPLE_EVERY = timedelta(seconds=1)
CHOOSE_EVERY = timedelta(seconds=15)
"""How often the processor time of all pods is compared. Twice before a pod is sampled."""
ENOUGH = 0.1
"""Cores. A rank that waits for its GPU without sleeping uses one; one that sleeps, or shares a busy node, uses less."""
DECAY = 0.5
"""What is left, at the next choice, of the use of a pod that pauses. One of a full core pauses for a minute."""
STARTS_FOR = timedelta(minutes=30)
"""How old a pod is at most that may hang before its rhythm is known. Until then it is sampled once it has been busy."""
HANGS_FOR = timedelta(hours=3)
"""How long one is sampled that fell silent then. Many are no ranks, and are idle for weeks."""
MOST_KNOWN = 1024
"""Pods of which it is remembered when they began, also while they are not seen."""
STAYS = 1.5
"""A pod that is sampled counts as so many times as busy as it is: two that are alike do not take turns."""
NOTABLE = 1.5
"""A period is published anew when it is longer or shorter by this factor: each time it is learned it differs a bit."""
MOST_COMPARED = 64
"""Ranks of all pods that are compared with others of their pod: an hour is remembered of each."""
KEPT = WINDOW + 20
"""Samples of each pod."""


class GpusOfNode(NamedTuple):
    """The GPUs of the node together. Which pod has which is not known."""

    answering: int = 0
    """How many say what they do."""
    worked_at: datetime | None = None
    """When one of them last did, as far as is remembered."""
    silent_since: datetime | None = None
    """None: they work, or it is not known."""


class PodRhythms:
    """
    The pods that are sampled, *most* of them at most, from nothing: a new one knows no rhythm.

    Windows of their work are cut *late* after their end; None: their work is not published.
    """

    def __init__(self, most: int = MOST_PODS, late: timedelta | None = timedelta(0)) -> None:
        self._most = most
        self._late = late
        self._pods: dict[str, _Pod] = {}
        self._pasts: dict[str, Past] = {}
        """Of all pods of the node: one that works little and compiles now and then is sampled only while it does."""
        self._last: tuple[datetime, Mapping[str, float]] | None = None
        self._began: dict[str, datetime | None] = {}
        """When each pod was first seen. None: it was there before, so it is not known how it began."""
        self._gpus = GpusOfNode()
        self._published: list[PodRhythm] = []

    @property
    def sampled(self) -> Sequence[str]:
        """The uids of the pods to sample."""
        return list(self._pods)

    def choose(self, processor_times: Mapping[str, float], at: datetime) -> None:
        """
        Choose which pods to sample, by the processor time in seconds that each pod of the node has used so far.

        Those that use `ENOUGH`, the busiest first. A pod whose rhythm is known is as busy as it usually is, so one that
        fell silent stays.
        """
        before, self._last = self._last, (at, processor_times)
        self._note(processor_times, at)
        if before is None or at <= before[0]:
            return
        seconds = (at - before[0]).total_seconds()
        used = {uid: (time - before[1][uid]) / seconds for uid, time in processor_times.items() if uid in before[1]}
        began = (uid for uid in processor_times if self._began[uid] == at)
        used |= {uid: min(1.0, processor_times[uid] / seconds) for uid in began}
        self._remember(used, seconds)
        for uid, pod in self._pods.items():
            pod.pause_or_work(used.get(uid, 0.0))
        weights = {uid: cores for uid, cores in used.items() if cores >= ENOUGH}
        weights |= {uid: pod.weight for uid, pod in self._pods.items() if pod.stays(at) or pod.weight >= ENOUGH}
        chosen = nlargest(self._most, weights, key=lambda uid: (weights[uid], uid))
        self._pods = {
            uid: self._pods.get(uid) or self._new(uid, weights[uid], at, processor_times[uid]) for uid in chosen
        }

    def _note(self, uids: Collection[str], at: datetime) -> None:
        """When pods begin. The first that are seen were there before."""
        began = at if self._began else None
        self._began |= dict.fromkeys([uid for uid in uids if uid not in self._began], began)
        gone = [uid for uid in self._began if uid not in uids]
        for uid in gone[: max(0, len(self._began) - MOST_KNOWN)]:
            del self._began[uid]

    def _new(self, uid: str, cores: float, at: datetime, so_far: float) -> _Pod:
        """*so_far*: seconds of processor time that it has used."""
        began, past = self._began[uid], {uid: self._pasts[uid]}
        if began is None or at - began > STARTS_FOR:
            return _Pod(uid, cores, self._late, GangRhythm(KEPT, past), starts_until=at)
        start = partial(PodStart, POD_LITTLE if self._gpus.answering else LITTLE, so_far)
        return _Pod(uid, cores, self._late, GangRhythm(KEPT, past, starts=start), starts_until=began + STARTS_FOR)

    def _remember(self, used: Mapping[str, float], seconds: float) -> None:
        """What pods use that are not sampled. Those that are remember it themselves."""
        self._pasts = {uid: self._pasts.get(uid) or Past() for uid in self._pods.keys() | used.keys()}
        for uid in used.keys() - self._pods.keys():
            self._pasts[uid].add(used[uid], seconds)

    def observe(self, usages: Mapping[str, Usage], at: datetime, *, finely: bool = False) -> None:
        """
        Take one sample of the sampled pods. One that is left out is gone, or starts again: it is forgotten. *finely*:
        the newest minutes of their work are asked for.
        """
        self._pods = {uid: pod for uid, pod in self._pods.items() if uid in usages}
        for uid, pod in self._pods.items():
            pod.observe(usages[uid], at)
            pod.cut_finely(at) if finely else pod.forget_fine()

    def fell_quiet(self, after: datetime) -> bool:
        """Whether a pod is quiet that worked after this time."""
        return any(pod.silence is not None and pod.silence.since > after for pod in self._pods.values())

    def observe_gpus(self, gpus: GpusOfNode) -> None:
        """What those of the node do now."""
        self._gpus = gpus
        for pod in self._pods.values():
            pod.observe_gpus(gpus)

    @property
    def to_look_at(self) -> Sequence[str]:
        """The uids of the pods that may have fallen quiet, and whose control group was not looked at since."""
        return [uid for uid, pod in self._pods.items() if pod.is_to_look_at]

    def look_at(self, stalls: Mapping[str, Stall], processes: Mapping[str, PodProcess] | None = None) -> None:
        """Take what control groups and *processes* of the pods `to_look_at` show. Of one left out, nothing is known."""
        for uid in self.to_look_at:
            self._pods[uid].look_at(stalls.get(uid, Stall()), (processes or {}).get(uid))

    def to_compare(self, at: datetime) -> Sequence[str]:
        """The uids of the pods that work, and whose ranks are to be compared now."""
        return [uid for uid, pod in self._pods.items() if pod.is_to_compare(at)]

    def compare(self, times: Mapping[str, Sequence[RankTime]], at: datetime) -> None:
        """Take the times of the ranks of the pods `to_compare`. Of one left out, nothing is known."""
        for uid in self.to_compare(at):
            others = sum(pod.compared for name, pod in self._pods.items() if name != uid)
            known = times.get(uid, ())
            self._pods[uid].compare(known if others + len(known) <= MOST_COMPARED else (), at)

    def published(self) -> Sequence[PodRhythm]:
        """
        The pods whose rhythm is known, or that fell silent before, sorted by uid; the same list object again when
        nothing changed.
        """
        known = [self._pods[uid].published() for uid in sorted(self._pods) if self._pods[uid].is_listed]
        if known != self._published:
            self._published = known
        return self._published


class _Pod:
    """One pod that is sampled, and used so many cores when it was chosen."""

    def __init__(
        self, uid: str, cores: float, late: timedelta | None, rhythm: GangRhythm, starts_until: datetime
    ) -> None:
        self._uid = uid
        self._cores = cores
        self._late = late
        self._work = pod_windows(late) if late is not None else None
        self._recent: PodWork | None = None
        self._ranks = PodRanks() if late is not None else None
        self._rhythm = rhythm
        self._starts_until = starts_until
        self._fell_silent_in_start = False
        self.silence: Silence | None = None
        self._gpus = GpusOfNode()
        self._activity: PodActivity | None = None
        """What it does, once it may be quiet and was looked at."""
        self._numbers = (0.0, 0.0)
        """Period and allowance as they are published."""

    @property
    def is_known(self) -> bool:
        return self._rhythm.is_known

    @property
    def is_listed(self) -> bool:
        """What it was once said to do has to be taken back."""
        return self.is_known or self._fell_silent_in_start

    def stays(self, at: datetime) -> bool:
        """Whether it is worth a sample though it does nothing."""
        hangs = self.silence is not None and at - self.silence.since < HANGS_FOR
        return self.is_known or at < self._starts_until or hangs

    @property
    def weight(self) -> float:
        """How busy it is, in cores, by what it did lately and by what is usual."""
        learned = (member.rhythm for member in self._rhythm.members.values())
        usual = max((rhythm.means.get("cpu", 0.0) for rhythm in learned if rhythm), default=0.0)
        return STAYS * max(self._cores, usual)

    def pause_or_work(self, cores: float) -> None:
        self._cores = max(cores, DECAY * self._cores)

    def observe(self, usage: Usage, at: datetime) -> None:
        silence = self._rhythm.observe({self._uid: usage}, at)
        self.silence = self._beside_gpus(silence, at) if silence is not None and silence.is_start else silence
        self._fell_silent_in_start |= self.silence is not None and self.silence.is_start
        if self._quiet_since is None:
            self._activity = None
        self._numbers = rounded_anew(self._numbers, (self._rhythm.period, self._rhythm.allowed))
        if self.is_known and self._work is not None:
            self._work.observe(self._rhythm.members[self._uid].ring, self._rhythm.period, at)

    def _beside_gpus(self, silence: Silence, at: datetime) -> Silence | None:
        """*silence* since one of the GPUs last worked, which may be its own. None: that was lately."""
        since = max(silence.since, self._gpus.worked_at or silence.since)
        return replace(silence, since=since) if (at - since).total_seconds() >= silence.allowed else None

    def cut_finely(self, at: datetime) -> None:
        """Sooner than other windows: the controller waits, and few agents are asked."""
        if not self.is_known or self._late is None:
            return
        at -= self._late / 2
        if self._recent is None or (at - self._recent.end).total_seconds() >= FINE:
            self._recent = recent_work(self._rhythm.members[self._uid].ring, self._rhythm.period, at)

    def forget_fine(self) -> None:
        self._recent = None

    def is_to_compare(self, at: datetime) -> bool:
        if self._ranks is None or not self.is_known or self.silence is not None:
            return False
        return self._ranks.is_due(self._rhythm.period, at)

    @property
    def compared(self) -> int:
        """How many of its ranks are compared."""
        return self._ranks.count if self._ranks is not None else 0

    def compare(self, times: Sequence[RankTime], at: datetime) -> None:
        if self._ranks is not None:
            self._ranks.observe(times, self._rhythm.period, at)

    def observe_gpus(self, gpus: GpusOfNode) -> None:
        self._gpus = gpus

    @property
    def _quiet_since(self) -> datetime | None:
        """Beside silent GPUs a pod may be quiet of which nothing would show that it polls."""
        if self.silence is not None:
            return self.silence.since
        return self._gpus.silent_since if self.is_known and not self._shows_polling else None

    @property
    def _shows_polling(self) -> bool:
        rhythm = self._rhythm.members[self._uid].rhythm
        return rhythm is not None and rhythm.shows_polling

    @property
    def _used(self) -> Rates | None:
        """What it has used since it fell quiet. None: it is not quiet, or was not sampled since."""
        since = self._quiet_since
        return self._rhythm.members[self._uid].ring.means_since(since) if since is not None else None

    @property
    def is_to_look_at(self) -> bool:
        """Not before it is known what it uses: a pod that uses no processor at all is stopped."""
        return self._activity is None and self._used is not None

    def look_at(self, stall: Stall, process: PodProcess | None) -> None:
        used = self._used
        if used is None:
            return
        self._activity = PodActivity(
            cpu=min(round(used.cpu, 6), LARGEST_RATE),  # one that is not stopped may use a thousandth
            io=min(round(used.read + used.written), LARGEST_RATE),
            io_wait=stall.io_wait,
            frozen=stall.frozen,
            process=process,
        )

    def published(self) -> PodRhythm:
        period, allowed = self._numbers
        works = PodRhythm(
            uid=self._uid,
            state=MemberState.WORKING,
            period=period,
            allowed=allowed,
            is_start=not self.is_known,
            shows_polling=self._shows_polling,
            activity=self._activity,
            work=self._work.newest if self._work is not None else None,
            recent=self._recent,
            slow_ranks=list(self._ranks.slow) if self._ranks is not None else [],
        )
        if self.silence is None:
            return works
        return replace(
            works,
            state=self.silence.members[0].state,
            since=self.silence.since.replace(microsecond=0),
            allowed=round(self.silence.allowed, 1),
            worked=round(self.silence.worked or 0.0),
            idle_gpus=min(self._gpus.answering, MOST_GPUS) if self.silence.is_start else 0,
        )


def rounded_anew(before: tuple[float, float], now: tuple[float, float]) -> tuple[float, float]:
    """A period and an allowance as they are published: as *before* while neither differs notably."""
    if any(_differs(old, new) for old, new in zip(before, now, strict=True)):
        return round(now[0], 1), round(now[1], 1)
    return before


def _differs(old: float, new: float) -> bool:
    return not old / NOTABLE <= new <= old * NOTABLE
