"""
One gang on Kubernetes: which of its ranks the others wait for, by the windows of work that agents publish of its pods.

Cores say how much of the time a pod works only as a share of those that it could use, which nothing tells. So a rank
is named only when its peers began to work less at the same time: they wait. By how much less says how slow it is. One
that was slow from the start is not seen.

An agent publishes windows soon when its pod works more or less than before, and else every few minutes. A window is
compared once it is known of all ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from statistics import fmean, median
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api.health import PodWork
from healthd.core.hang.work.stragglers import LOW, PAUSED, Straggler, StragglerDetector, excesses
from healthd.core.hang.work.work_share import ShareWindow, WorkShare
from healthd.core.hang.work.work_windows import Window
from healthd.core.node.reporting import WORK_AFTER

KNOWN_FOR = WORK_AFTER + timedelta(minutes=2)
"""How long what an agent published of a pod counts: one that lives writes again before that."""
AHEAD = timedelta(seconds=30)
"""Windows that end so much later than now are of a clock that is wrong."""
USUAL = 20
"""Windows by which the usual cores of the pods are known."""
MOST_IDLE = 0.75
"""Of its usual cores, rounded up, that a pod uses at least. Else they were rounded up by too much."""
BUSY = 0.8
"""The share of the time that it is taken to work then."""
BEFORE, AFTER = 8, 3
"""Windows before and after a rank became slow, at least, by which it is judged whether its peers wait."""
FEWER = 0.98
"""The part of their work that is left at most to the peers of a rank that they wait for."""
SHOWN = 6
"""The newest windows that have to show a rank to be slow before anything follows from that."""
SHOWN_BY = 0.06
"""Their mean excess."""
OVER = 4
"""Windows in which a rank that was reported by another controller keeps up, after which it is over."""
KEPT = 80
"""Windows of a gang: 20 minutes, where steps are short."""


class RankWork(NamedTuple):
    """What is published of one rank."""

    pod: str
    """Its uid."""
    work: PodWork
    seen_at: datetime
    """When its agent wrote it."""


class _Fed(NamedTuple):
    """One window of the gang, by number of the rank."""

    end: datetime
    windows: Mapping[str, Window]
    is_pause: bool = False
    """The ranks do not step, as in an evaluation or a save by one of them."""


class GangWork:
    """
    One gang, as long as it has the same pods and windows of the same length. *ranks*: its work by rank, the first one
    first: that rank may evaluate and save for all.
    """

    def __init__(self, ranks: Mapping[str, RankWork]) -> None:
        self._names = {name: str(number) for number, name in enumerate(ranks)}
        self._pods = {name: each.pod for name, each in ranks.items()}
        self._seconds = _length(ranks)
        self._detector = StragglerDetector(from_start=False)
        self._known: dict[str, dict[int, Window]] = {name: {} for name in ranks}
        self._newest: dict[str, RankWork] = {}
        self._next = 0
        self._scale = 0.0
        self._fed: deque[_Fed] = deque(maxlen=KEPT)
        self._present: dict[str, Straggler] = {}
        self._shown: list[Straggler] | None = None
        """Those that the newest windows show. None: that was not worked out since the last change."""

    @property
    def present(self) -> list[Straggler]:
        """Those that are slow now."""
        return list(self._present.values())

    def slow_now(self, now: datetime) -> list[Straggler]:
        """
        Those that are slow, seen until the end of the newest window, each with how much slower the gang is by all
        windows since, where their peers before are known. None at all unless the newest windows show each of them to be
        slow: more is asked for than for a report.
        """
        if self._shown is None:
            self._shown = self._shown_by_newest()
        known_until = now - KNOWN_FOR - timedelta(seconds=self._seconds)
        return [] if any(each.seen_at < known_until for each in self._shown) else self._shown

    def _shown_by_newest(self) -> list[Straggler]:
        newest = [fed for fed in self._fed if not fed.is_pause][-SHOWN:]
        if len(newest) < SHOWN or not all(self._is_high(name, newest) for name in self._present):
            return []
        return [self._measured(name, each, newest[-1].end) for name, each in self._present.items()]

    def _is_high(self, name: str, windows: Sequence[_Fed]) -> bool:
        """Whether *windows* show the excess of a straggler, and the newer half of them does, too."""
        excess = (self._excess(name, part) for part in (windows, windows[len(windows) // 2 :]))
        return all(each is not None and each >= SHOWN_BY for each in excess)

    def _measured(self, name: str, straggler: Straggler, at: datetime) -> Straggler:
        left = self._left_to_peers(replace(straggler, rank=self._names[name]))
        return replace(straggler, seen_at=at, slower=straggler.slower if left is None else 1 / left - 1)

    def is_of(self, ranks: Mapping[str, RankWork]) -> bool:
        """Whether these are the same pods, with windows of the same length."""
        return self._pods == {name: each.pod for name, each in ranks.items()} and self._seconds == _length(ranks)

    def adopt(self, straggler: Straggler) -> None:
        """Take over one that was reported before. It is over when its rank keeps up again."""
        self._present[straggler.rank] = straggler
        self._shown = None

    def stopped(self, at: datetime) -> list[Straggler]:
        """Those that were slow, as ended: the pods were stopped."""
        return [replace(each, ended_at=at, was_stopped=True) for each in self.present]

    def observe(self, ranks: Mapping[str, RankWork], now: datetime) -> list[Straggler]:
        """
        *ranks*: those that this `is_of`. Returns what changes: those that begin to be slow, and with `ended_at` those
        that no longer are.
        """
        self._shown = None
        for name, each in ranks.items():
            self._take(name, each, now)
        changes = list[Straggler]()
        while (fed := self._next_window(now)) is not None:
            self._feed(fed)
            changes += [*self._over(fed.end), *self._begun(fed.end)]
        return changes

    # Windows ---------------------------------------------------------------------------------------------------------

    def _take(self, name: str, each: RankWork, now: datetime) -> None:
        before = self._newest.get(name)
        if before is not None and (before.work, before.seen_at) == (each.work, each.seen_at):
            return
        if each.work.end - now > AHEAD:
            return
        self._newest[name] = each
        known = self._known[name]
        known.update(_windows(each.work, self._seconds))
        oldest = max(self._next, self._oldest(now))
        for number in [number for number in known if number < oldest]:
            del known[number]

    def _next_window(self, now: datetime) -> _Fed | None:
        """The next window of which enough is known. One that stays unknown is left out."""
        if len(self._newest) < len(self._names):
            return None
        first = max(min(known, default=0) for known in self._known.values())
        self._next = max(self._next or first, self._oldest(now))  # whatever an agent says of long ago
        while first and (end := datetime.fromtimestamp(self._next * self._seconds, UTC)) <= now:
            number, age = self._next, now - end
            windows = {rank: self._known[name].get(number) for name, rank in self._names.items()}
            whole = {rank: window for rank, window in windows.items() if window is not None}
            if len(whole) < len(windows) and age < KNOWN_FOR:
                return None
            self._next += 1
            if len(whole) == len(windows):
                return _Fed(end, whole)
        return None

    def _oldest(self, now: datetime) -> int:
        return int(now.timestamp()) // self._seconds - KEPT

    # Stragglers ------------------------------------------------------------------------------------------------------

    def _feed(self, fed: _Fed) -> None:
        if not self._scale and len(self._fed) + 1 >= USUAL:
            earlier = [*self._fed, fed]
            self._scale = _scale([window.cores for each in earlier for window in each.windows.values()])
            self._fed = deque(maxlen=KEPT)
            for each in earlier[:-1]:
                self._feed(each)
        if self._scale:
            fed = fed._replace(is_pause=median(w.cores for w in fed.windows.values()) < PAUSED * self._usual())
            self._compare(fed)
        self._fed.append(fed)

    def _usual(self) -> float:
        return median([median(w.cores for w in fed.windows.values()) for fed in self._fed] or [0.0])

    def _compare(self, fed: _Fed) -> None:
        shares = {
            rank: WorkShare(window.cores / self._scale, window.starved, window.stalled)
            for rank, window in fed.windows.items()
        }
        self._detector.add(ShareWindow(fed.end - timedelta(seconds=self._seconds), fed.end, shares))

    def _over(self, at: datetime) -> list[Straggler]:
        """An adopted one is not known to the detector."""
        slow = {each.rank for each in self._detector.present}
        over = [
            name
            for name, each in self._present.items()
            if self._names.get(name) not in slow and (at > each.seen_at) and self._keeps_up(name)
        ]
        return [replace(self._present.pop(name), ended_at=at) for name in over]

    def _keeps_up(self, name: str) -> bool:
        newest = [*self._fed][-OVER:]
        excess = self._excess(name, newest) if len(newest) == OVER else None
        return name not in self._names if excess is None else excess < LOW

    def _excess(self, name: str, windows: Collection[_Fed]) -> float | None:
        """Of a rank, in the mean of *windows*. None: it is not known."""
        if name not in self._names or not self._scale:
            return None
        rank = self._names[name]
        return fmean(excesses({r: w.cores / self._scale for r, w in fed.windows.items()})[rank] for fed in windows)

    def _begun(self, at: datetime) -> list[Straggler]:
        names = {rank: name for name, rank in self._names.items()}
        begun = []
        for each in self._detector.present:
            name = names[each.rank]
            if name in self._present:
                continue
            left = self._left_to_peers(each)
            if left is None or left > FEWER:
                continue
            self._present[name] = replace(each, rank=name, slower=1 / left - 1, seen_at=at)
            begun.append(self._present[name])
        return begun

    def _left_to_peers(self, straggler: Straggler) -> float | None:
        """The part of their work before that its peers do since. None: too little is known."""
        begin = straggler.since + timedelta(seconds=self._seconds)  # it became slow within the first window
        working = [fed for fed in self._fed if not fed.is_pause]
        before = [fed for fed in working if fed.end <= straggler.since]
        after = [fed for fed in working if fed.end > begin]
        if len(before) < BEFORE or len(after) < AFTER:
            return None
        peers = [rank for rank in self._names.values() if rank != straggler.rank]
        usual = {rank: median(fed.windows[rank].cores for fed in before) for rank in peers}
        now = {rank: median(fed.windows[rank].cores for fed in after) for rank in peers}
        left = [now[rank] / usual[rank] for rank in peers if usual[rank] > 0]
        return max(0.1, median(left)) if left else None


def _length(ranks: Mapping[str, RankWork]) -> int:
    """Of the windows of a gang, in seconds: agents learn periods that differ a bit."""
    return max((each.work.seconds for each in ranks.values()), default=0)


def _windows(work: PodWork, seconds: int) -> dict[int, Window]:
    """By number, counted from 1970, in windows of *seconds*, of which the published ones are parts."""
    parts, newest = seconds // work.seconds, int(work.end.timestamp()) // work.seconds
    if seconds % work.seconds:
        return {}
    count = len(work.cores)
    starved, stalled = (each if len(each) == count else [0.0] * count for each in (work.starved, work.stalled))
    first = newest - len(work.cores) + 1
    groups: dict[int, list[Window]] = {}
    for number, values in enumerate(zip(work.cores, starved, stalled, strict=True), start=first):
        groups.setdefault(-(-number // parts), []).append(Window(*values))
    return {number: _mean(group) for number, group in groups.items() if len(group) == parts}


def _mean(windows: list[Window]) -> Window:
    return Window(*map(fmean, zip(*windows, strict=True)))


def _scale(cores: list[float]) -> float:
    """How many cores a pod would use that works all the time."""
    usual = median(cores)
    whole = max(1, ceil(usual))
    return float(whole) if whole == 1 or usual >= MOST_IDLE * whole else usual / BUSY
