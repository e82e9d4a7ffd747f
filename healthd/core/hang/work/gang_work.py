"""
One gang on Kubernetes: which of its ranks the others wait for, by the windows of work that agents publish of its pods.

Cores say how much of the time a pod works only as a share of those that it could use, which nothing tells. So a rank
is named only when its peers began to work less at the same time: they wait. By how much less says how slow it is. One
that was slow from the start is not seen.

Windows are compared once they are known of all ranks (`common_windows`). Where a rank may have become slow, agents are
asked for the newest minutes in shorter windows, and the ranks that are known so are compared at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from statistics import fmean, median
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api.health import PodWork
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.common_windows import AHEAD, KEPT, KNOWN_FOR, CommonWindows
from healthd.core.hang.work.compared_member import LEAST
from healthd.core.hang.work.excesses import excesses, newest_below
from healthd.core.hang.work.fine_windows import MOST_FINE, FineWindows
from healthd.core.hang.work.pauses import PAUSED
from healthd.core.hang.work.published_windows import end_of
from healthd.core.hang.work.questions import LATE, LATE_FOR, OLD, Doubt, Questions
from healthd.core.hang.work.stragglers import LOW, StragglerDetector
from healthd.core.hang.work.suspects import LASTS, Suspect, still_slow, suspects
from healthd.core.hang.work.work_share import ShareWindow, WorkShare
from healthd.core.hang.work.work_windows import FINE, Window, by_number

USUAL = 20
"""Windows by which the usual cores of the pods are known."""
MOST_IDLE = 0.75
"""Of its usual cores, rounded up, that a pod uses at least. Else they were rounded up by too much."""
BUSY = 0.8
"""The share of the time that it is taken to work then."""
BEFORE, AFTER = 8, 3
"""Windows before and after a rank became slow, at least, by which it is judged whether its peers wait."""
FEWER = 0.985
"""The part of their work that is left at most to the peers of a rank that they wait for, pauses of others left out."""
PART_WAITED = 0.3
"""Of what a rank works more, that its peers have to work less at least. If it only uses more, they work as before."""
ODD = 16
"""One window in so many may be odd on each side: rank 0 evaluates or saves in a part of it."""
SHOWN = 6
"""The newest windows that have to show a rank to be slow before anything follows from that."""
SHOWN_BY = 0.06
"""Their mean excess."""
OVER = 4
"""Windows in which a rank that was reported by another controller keeps up, after which it is over."""
WATCHED_AFTER = OLD - timedelta(seconds=10)
"""Since when a rank is suspected: soon agents are asked."""
FRESH = timedelta(seconds=45)
"""Fine windows that end so long ago are no longer the newest minutes."""
LEAST_ASKED = 8
"""Ranks of which fine windows have to be known, or all of a smaller gang."""


class RankWork(NamedTuple):
    """What is published of one rank."""

    pod: str
    """Its uid."""
    work: PodWork
    seen_at: datetime
    """When its agent wrote it."""
    recent: PodWork | None = None
    """The newest minutes, finely, where the controller asked for them."""


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
        self._common = CommonWindows[Window](ranks, self._seconds)
        self._windows: dict[str, dict[int, Window]] = {}
        """Those that are published now."""
        self._fine = FineWindows(ranks)
        self._looked_at = 0, 0
        """The newest fine window that was compared, and of how many ranks."""
        self._questions = Questions(len(ranks))
        self._doubts: Sequence[Doubt] = ()
        self._suspects: dict[str, Suspect] = {}
        """By rank: those of the last minutes."""
        self._newest: dict[str, RankWork] = {}
        self._observed_at: datetime | None = None
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

    def is_ahead(self, now: datetime) -> bool:
        """Whether it was compared at a time that is yet to come: the clock was set back, and it would wait for that."""
        return self._observed_at is not None and self._observed_at - now > AHEAD

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
        self._observed_at = now
        for name, each in ranks.items():
            self._take(name, each, now)
        changes = list[Straggler]()
        while (window := self._common.next(now)) is not None:
            self._feed(_Fed(window.end, {self._names[name]: each for name, each in window.windows.items()}))
            changes += [*self._over(window.end), *self._begun(window.end)]
        return [*changes, *self._look(now)]

    def is_watched(self, now: datetime) -> bool:
        """Whether agents are asked, or will be soon: the gang is then compared as soon as more is known."""
        return self._questions.is_open(now) or any(now - each.since >= WATCHED_AFTER for each in self._doubts)

    def to_ask(self, now: datetime) -> Mapping[str, datetime]:
        """Until when the agents of which ranks are to publish the newest minutes, from now on; mostly of none."""
        found = self._suspected(now)
        first = next(iter(self._names))  # it evaluates and saves for all, so it is judged late
        self._doubts = [doubt for each in found if each.rank != first and (doubt := self._doubt(each)) is not None]
        wrote = {name: each.seen_at for name, each in self._newest.items()}
        return self._questions.next(self._doubts, wrote, now, self._lasting(found, now))

    def _suspected(self, now: datetime) -> list[Suspect]:
        if not self._scale or len(self._newest) < len(self._names) or len(self._names) < 2:
            return []
        return suspects(self._published(now), self._present, self._scale, self._usual())

    def _published(self, now: datetime) -> dict[str, dict[int, Window]]:
        return {name: self._windows[name] for name, each in self._newest.items() if now - each.work.end < KNOWN_FOR}

    def _lasting(self, found: Sequence[Suspect], now: datetime) -> list[Doubt]:
        """Those that were suspected minutes ago, and are still slow. What is usual is not seen by then any more."""
        for each in found:
            known = self._suspects.get(each.rank)
            if known is None or each.since - known.since > LASTS:
                self._suspects[each.rank] = each
        old = {name: now - end_of(each.since, self._seconds) for name, each in self._suspects.items()}
        for name in [name for name, age in old.items() if age > LATE[-1] + LATE_FOR or name in self._present]:
            del self._suspects[name]
        late = [each for name, each in self._suspects.items() if old[name] >= LATE[0]]
        published, usual = (self._published(now), self._usual()) if late else ({}, 0.0)
        return [
            Doubt(each.rank, end_of(each.since, self._seconds), end_of(each.until, self._seconds))
            for each in still_slow(late, published, self._scale, usual)
        ]

    def _doubt(self, suspect: Suspect) -> Doubt | None:
        """None: fine windows show that it is over."""
        since, until = end_of(suspect.since, self._seconds), end_of(suspect.until, self._seconds)
        newest = self._fine.newest_of(suspect.rank)
        if end_of(newest, FINE) > until:
            until = end_of(newest, FINE)
            excess = self._fine.excess(suspect.rank, newest)
            if excess is None or excess / self._scale < suspect.usual + suspect.rise / 2:
                return None
        return Doubt(suspect.rank, since, until)

    # Windows ---------------------------------------------------------------------------------------------------------

    def _take(self, name: str, each: RankWork, now: datetime) -> None:
        before = self._newest.get(name)
        if before == each:
            return
        if max(work.end for work in (each.work, each.recent) if work is not None) - now > AHEAD:
            return
        self._newest[name] = each
        self._windows[name] = by_number(each.work, self._seconds)
        self._common.take(name, self._windows[name], now)
        if each.recent is not None and self._fine.take(name, each.recent):
            self._questions.answered()

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
        self._detector.add(self._shares(fed, self._seconds))

    def _shares(self, fed: _Fed, seconds: int) -> ShareWindow:
        shares = {
            rank: WorkShare(window.cores / self._scale, window.starved, window.stalled)
            for rank, window in fed.windows.items()
        }
        return ShareWindow(fed.end - timedelta(seconds=seconds), fed.end, shares)

    def _over(self, at: datetime) -> list[Straggler]:
        """An adopted one is not known to the detector."""
        slow = {each.rank for each in self._detector.present}
        over = [
            name
            for name, each in self._present.items()
            if self._names.get(name) not in slow and (at > each.seen_at) and self._keeps_up(name)
        ]
        ends = {name: self._kept_up_since(name, self._present[name], at) for name in over}
        return [replace(self._present.pop(name), ended_at=end) for name, end in ends.items()]

    def _kept_up_since(self, name: str, straggler: Straggler, at: datetime) -> datetime:
        """When it began to keep up, which is seen *at* a later time: the begin of the newest windows that show it."""
        windows = [fed for fed in self._fed if fed.end > straggler.since and not fed.is_pause]
        excess = [each for fed in windows if (each := self._excess(name, [fed])) is not None]
        if not windows or len(excess) < len(windows):
            return at
        return max(windows[-newest_below(excess, LOW)].end - timedelta(seconds=self._seconds), straggler.since)

    def _keeps_up(self, name: str) -> bool:
        newest = [*self._fed][-OVER:]
        excess = self._excess(name, newest) if len(newest) == OVER else None
        return name not in self._names if excess is None else excess < LOW

    def _excess(self, name: str, windows: Collection[_Fed]) -> float | None:
        """Of a rank, in the mean of *windows*. None: it is not known."""
        if name not in self._names or not self._scale:
            return None
        rank = self._names[name]
        return fmean(excesses(self._cores(fed, fed.windows))[rank] for fed in windows)

    def _cores(self, fed: _Fed, ranks: Collection[str]) -> dict[str, float]:
        """Of those that a pod can use."""
        return {rank: fed.windows[rank].cores / self._scale for rank in ranks}

    def _look(self, now: datetime) -> list[Straggler]:
        """Those that begin to be slow by fine windows of the newest minutes."""
        least = min(len(self._names), LEAST_ASKED)
        newest = self._fine.newest(least)
        answering = self._fine.known_at(newest)
        if not self._scale or (newest, len(answering)) == self._looked_at or len(answering) < least:
            return []
        self._looked_at = newest, len(answering)
        if now - end_of(newest, FINE) > FRESH:
            return []
        recent = [fed for fed in self._newest_minutes(newest, answering) if not fed.is_pause]
        if not recent:
            return []
        self._detector.look([self._shares(fed, FINE) for fed in recent])
        return self._begun(recent[-1].end, recent)

    def _newest_minutes(self, newest: int, names: Collection[str]) -> list[_Fed]:
        """Fine windows of *names* until *newest*. Where one is not known of a rank, the longer one is taken for it."""
        fed = {round(each.end.timestamp()) // self._seconds: each for each in self._fed}
        usual, parts, found = self._usual(), self._seconds // FINE, list[_Fed]()
        for number in range(newest, newest - MOST_FINE, -1):
            longer = fed.get(-(-number // parts))
            windows = dict[str, Window]()
            for name in names:
                rank, window = self._names[name], self._fine.window(name, number)
                if window is None and longer is not None:
                    window = longer.windows[rank]
                if window is not None:
                    windows[rank] = window
            if len(windows) < len(names):
                break
            is_pause = median(window.cores for window in windows.values()) < PAUSED * usual
            found.append(_Fed(end_of(number, FINE), windows, is_pause))
        return found[::-1]

    def _begun(self, at: datetime, recent: Collection[_Fed] | None = None) -> list[Straggler]:
        """*recent*: the newest windows, where these are not those that were compared last."""
        names = {rank: name for name, rank in self._names.items()}
        begun = []
        for each in self._detector.present:
            name = names[each.rank]
            if name in self._present:
                continue
            left = self._left_to_peers(each, recent)
            if left is None or left > min(FEWER, 1 / (1 + PART_WAITED * max(0.0, each.slower - LEAST))):
                continue
            self._present[name] = replace(each, rank=name, slower=1 / left - 1, seen_at=at)
            begun.append(self._present[name])
        return begun

    def _left_to_peers(self, straggler: Straggler, recent: Collection[_Fed] | None = None) -> float | None:
        """The part of their work before that its peers do since. None: too little is known."""
        length = self._seconds if recent is None else FINE
        begin = straggler.since + timedelta(seconds=length)  # it became slow within the first window
        working = [fed for fed in self._fed if not fed.is_pause]
        before = [fed for fed in working if fed.end <= straggler.since]
        after = [fed for fed in (working if recent is None else recent) if fed.end > begin]
        if len(before) < BEFORE or len(after) < AFTER:
            return None
        known = self._names.values() if recent is None else [*recent][-1].windows
        before, after = self._without_pauses(before, after, known, straggler.rank)
        if len(before) < BEFORE or len(after) < AFTER:
            return None
        peers = [rank for rank in known if rank != straggler.rank]
        usual = {rank: _level([fed.windows[rank].cores for fed in before]) for rank in peers}
        now = {rank: _level([fed.windows[rank].cores for fed in after]) for rank in peers}
        left = [now[rank] / usual[rank] for rank in peers if usual[rank] > 0]
        return max(0.1, median(left)) if left else None

    def _without_pauses(
        self, before: Sequence[_Fed], after: Sequence[_Fed], known: Collection[str], slow: str
    ) -> tuple[list[_Fed], list[_Fed]]:
        """
        Without windows in which the gang may wait for another of the *known* ranks than the *slow* one. Those of the
        past would hide that its peers wait for it now, and those of now would show that they do where they do not. In
        a large gang some rank always pauses, so there it is half of the windows: those with the longest pauses.
        """
        past, now = ([excesses(self._cores(fed, known)) for fed in each] for each in (before, after))
        usual = {rank: median(excess[rank] for excess in past) for rank in known if rank != slow}

        def highest(excess: Mapping[str, float]) -> float:
            return max(excess[rank] - each for rank, each in usual.items())

        most = max(LEAST, median(map(highest, past)))
        return (
            [fed for fed, excess in zip(before, past, strict=True) if highest(excess) <= most],
            [fed for fed, excess in zip(after, now, strict=True) if highest(excess) <= most],
        )


def _length(ranks: Mapping[str, RankWork]) -> int:
    """Of the windows of a gang, in seconds: agents learn periods that differ a bit."""
    return max((each.work.seconds for each in ranks.values()), default=0)


def _level(cores: Sequence[float]) -> float:
    """The mean without odd windows. The median would be off: of long steps, one window has two and the next three."""
    odd = len(cores) // ODD
    return fmean(sorted(cores)[odd : len(cores) - odd])


def _scale(cores: list[float]) -> float:
    """How many cores a pod would use that works all the time."""
    usual = median(cores)
    whole = max(1, ceil(usual))
    return float(whole) if whole == 1 or usual >= MOST_IDLE * whole else usual / BUSY
