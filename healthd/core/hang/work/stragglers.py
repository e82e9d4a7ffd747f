"""
Which member of a gang makes the others wait, by windows of work shares. It is only reported: nothing follows from it.

Of a member that is slower than its peers by 10 % the others wait for 9 % of the time. So its excess, the share of the
time in which it works beyond the median of its peers, is 0.09, whatever share of a step is work of the host.

What a rank does for a minute is a pause: another program, a cold page cache. So a member is judged by the newest
minutes, whatever part of them as long as a pause is left out. It is named if the rest is above what was to be expected
by its own past, by so much as the gang's own past makes unlikely: the spread is that of the same difference in the last
hour. Where no past is known yet it has to stand out from its peers, or change more than they do. Rank 0 legitimately
does more, and is judged by what has changed alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from math import sqrt
from statistics import fmean, median, stdev
from typing import NamedTuple

import msgspec

from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.compared_member import (
    BLOCK,
    LEAST,
    LEAST_WINDOWS,
    LONG,
    QUICK,
    SHORT,
    ComparedMember,
    Span,
)
from healthd.core.hang.work.excesses import (
    NORMAL,
    Part,
    beside_pause,
    excesses_of,
    newest_above,
    newest_below,
    rise_of,
    whole,
)
from healthd.core.hang.work.pauses import PAUSED, BesidePauses, UsualWork, of_first
from healthd.core.hang.work.slowed_peers import lasting_less, mean_less
from healthd.core.hang.work.work_share import ShareWindow, WorkShare

LEAST_FROM_START = 0.06
"""The least rise of a straggler whose past is not known."""
LEAST_OF_FIRST = 0.1
"""The same for rank 0: it mostly does a bit more than its peers once steps begin, after a compilation say."""
LEAST_FROM_FEW = 0.1
"""With fewer peers than `ENOUGH`, for one that stood out from the start: how uneven these are is not known."""
APART_FROM_PEERS = 8.0
"""How many standard deviations of its peers, where its past is not known."""
APART_FROM_FEW = 12.0
"""The same of so few peers."""
ENOUGH = 5
LEAST_SPREAD = 0.005
LOW = 0.03
"""A rise below it is none."""
FLOOR = 12
"""Blocks of its past before the span that a member needs to be judged by it."""
WIDER = 1.5
"""A spread of its own counts if it is so much greater than that of the median member, which is better known."""
POOLED = 64
"""Members whose spread is compared. More tell the same."""
FIRST = "0"
"""The rank that evaluates, saves and prints for all."""
FEW = 4
"""Fewer members show no spread, and one of them that is faster looks like another that is slower."""
LEARNED = 20
"""The weight of a new window in the noise is one in so many."""
OVER = 60.0
"""Seconds with less than the least rise of any, after which it is over."""
AT_MOST = 4
"""One member in so many may be a straggler. More of them have another part in the job."""
MUCH = 0.4
"""An excess: a step that takes two thirds longer."""
SHOWN = 0.5
"""Of what one part of the work shows: so much more a member has to work in all, for the others to wait for it."""
CONFIRMED = 0.6
"""A `confirmed_factor` for main threads and GPUs, of which it is known how much they compute."""
SLOWED = 0.5
"""Of its excess: so much less than before its peers compute, where their steps take longer because of it."""


class _Case(NamedTuple):
    """Why a member is a straggler: the rise of its excess above *usual*."""

    excess: float
    usual: float
    from_start: bool
    confidence: float


class _Recent(NamedTuple):
    """The newest windows, and the excess of one member in those of them in which it was compared."""

    excesses: Sequence[float]
    ends: Sequence[datetime]
    windows: Sequence[ShareWindow]


class _Newest(NamedTuple):
    """The newest windows of a *span*, and the excess of one member in each."""

    span: Span
    excesses: Sequence[float]
    since: datetime
    """The end of the first window in which it was compared: of rank 0 some are left out, so that may be long ago."""
    windows: Sequence[ShareWindow]
    peers: Callable[[], Mapping[str, Sequence[float]]]
    """The excesses of its peers in as many windows. They are worked out only where they are needed."""

    @property
    def seconds(self) -> float:
        """Of a window."""
        return _seconds(self.windows[-1])

    @property
    def pause(self) -> int:
        """How many windows a pause touches."""
        return self.span.windows(self.seconds)[1]

    @property
    def blocks(self) -> int:
        """How many blocks of the past have such windows in them."""
        return self.span.blocks(self.seconds)

    @property
    def left(self) -> float:
        """Seconds beside a pause."""
        return (len(self.windows) - self.pause) * self.seconds

    def beside(self, excesses: Sequence[float]) -> float:
        """The mean of those of a member without those of a pause."""
        return fmean(beside_pause(excesses, self.pause))


class StragglerDetector:
    """
    One gang. Members are compared in the windows that all of them have.

    *from_start*: a member that has been slow since its shares are known is named, too. *part*: members are compared by
    this part of their work alone, and one that does more of it is named where it works more in all. *confirmed_factor*:
    this part of the usual distance from the noise is enough for a member whose peers compute less than before.
    *only_confirmed*: no other member is named, nor one that usually does more of that part than its peers; and all but
    a few of these have to compute less.
    """

    def __init__(
        self,
        *,
        from_start: bool = True,
        part: Part | None = None,
        confirmed_factor: float = 1.0,
        only_confirmed: bool = False,
    ) -> None:
        self._names_from_start = from_start
        self._part = part
        self._confirmed_factor = confirmed_factor
        self._only_confirmed = only_confirmed
        self._members: dict[str, ComparedMember] = {}
        self._windows: deque[ShareWindow] = deque()
        self._first = BesidePauses()
        self._usual_work = UsualWork()
        self._noise = 0.0
        self._seconds = 0.0
        """Of the newest window."""
        self._pooled: dict[Span, float] = {}
        """The spread of the median member, until a further block is over."""
        self._pooled_for = 0.0

    @property
    def present(self) -> list[Straggler]:
        """Those that are slow now."""
        return [member.named for member in self._members.values() if member.named is not None]

    def restart(self, at: datetime) -> list[Straggler]:
        """Forget all: the ranks were stopped. Returns those that were slow, as ended."""
        ended = [msgspec.structs.replace(each, ended_at=at, was_stopped=True) for each in self.present]
        self._members.clear()
        self._windows.clear()
        self._pooled.clear()
        self._first = BesidePauses()
        self._usual_work = UsualWork()
        self._noise = 0.0
        return ended

    def add(self, window: ShareWindow) -> list[Straggler]:
        """
        Returns what changes: those that begin to be slow, and with `ended_at` those that no longer are. That is when
        they began to keep up, about a minute before it is seen.
        """
        changes = self.restart(window.end) if window.shares.keys() != self._members.keys() else []
        if not self._members:
            self._members = {rank: ComparedMember() for rank in window.shares}
        self._seconds = _seconds(window)
        stepping = self._usual_work.part_of((share.busy for share in window.shares.values()), self._seconds)
        if len(self._members) < 2:
            return changes
        present = self._excesses(window)
        first = self._first.next(present.get(FIRST, 0.0), window, is_pause=stepping < of_first(self._seconds).stepping)
        if stepping < PAUSED:
            return changes
        self._windows.append(window)
        spans = 2 if self._only_confirmed else 1  # as many before a long span show what was usual
        while len(self._windows) > spans * LONG.windows(self._seconds)[0]:
            self._windows.popleft()  # of thousands of members many windows would be much memory
        self._learn_noise(present)
        for rank, excess in present.items():
            if rank != FIRST:
                self._members[rank].add(excess, window)
            elif first is not None:
                self._members[rank].add(*first)
        return [*changes, *self._over(window.end), *self._begun(window.end)]

    def look(self, newest: Sequence[ShareWindow]) -> list[Straggler]:
        """
        Those that begin to be slow by the *newest* windows, the last of which has just ended. They are finer than those
        that were added, of equal length, and none is of a pause. Nothing is learned from them.
        """
        count, _ = QUICK.windows(_seconds(newest[-1]))
        if len(newest) < count or not newest[-1].shares.keys() <= self._members.keys() or len(newest[-1].shares) < 2:
            return []
        newest = newest[-count:]
        ends = [window.end for window in newest]
        excess = [self._excesses(window) for window in newest]
        of_all = {rank: [each[rank] for each in excess] for rank in newest[-1].shares}
        found = dict[str, tuple[_Case, _Recent]]()
        for rank, own in of_all.items():
            if rank == FIRST or self._members[rank].named is not None or fmean(own) < LEAST:
                continue
            peers = partial(_without, rank, of_all)
            if case := self._by_past_or_peers(rank, _Newest(QUICK, own, ends[0], newest, peers)):
                found[rank] = case, _Recent(own, ends, newest)
        return self._name(found, ends[-1])

    def _excesses(self, window: ShareWindow) -> dict[str, float]:
        return excesses_of(window, self._part or whole)

    def _learn_noise(self, present: Mapping[str, float]) -> None:
        """By the median member: the noise is that of the job, not of a member that has become slow."""
        steps = [abs(present[rank] - each.recent[-1]) for rank, each in self._members.items() if each.recent]
        if not steps:
            return
        now = NORMAL * median(steps) / sqrt(2)
        self._noise += (now - self._noise) / LEARNED if self._noise else now

    def _over(self, at: datetime) -> list[Straggler]:
        over, newest = [], max(4, round(OVER / self._seconds))
        for member in self._members.values():
            if member.named is not None and fmean([*member.recent][-newest:]) - member.usual < LOW:
                over.append(
                    msgspec.structs.replace(member.named, ended_at=self._kept_up_since(member, member.named, at))
                )
                member.forget_newest()
        return over

    def _kept_up_since(self, member: ComparedMember, named: Straggler, at: datetime) -> datetime:
        """When it began to keep up, which is seen *at* a later time: the begin of the newest windows that show it."""
        known = zip(member.recent, member.ends, strict=True)
        since = [(excess, end) for excess, end in known if end > named.since]
        if not since:  # it was named by newer windows than those that are known here
            return at
        newest = newest_below([excess for excess, _ in since], member.usual + max(LOW, member.excess / 2))
        return max(since[-newest][1] - timedelta(seconds=self._seconds), named.since)

    def _begun(self, at: datetime) -> list[Straggler]:
        self._age_pooled()
        cases = {rank: case for rank, member in self._members.items() if (case := self._case(rank, member))}
        return self._name({rank: (case, self._recent(rank)) for rank, case in cases.items()}, at)

    def _recent(self, rank: str) -> _Recent:
        member = self._members[rank]
        return _Recent(member.recent, member.ends, self._windows)

    def _name(self, found: Mapping[str, tuple[_Case, _Recent]], at: datetime) -> list[Straggler]:
        """Too many are none: they have another part in the job."""
        found = {rank: each for rank, each in found.items() if self._is_slow(rank, *each)}
        slow = len(found) + len(self.present)
        if not found or slow > max(1, len(self._members) // AT_MOST):
            return []
        named = {rank: self._straggler(rank, case, at, recent) for rank, (case, recent) in found.items()}
        for rank, straggler in named.items():
            self._members[rank].usual, self._members[rank].excess = found[rank][0].usual, found[rank][0].excess
            self._members[rank].named = straggler
        return [*named.values()]

    def _is_slow(self, rank: str, case: _Case, recent: _Recent) -> bool:
        """Whether it works more than its peers in all: one that computes more and sleeps less holds up nothing."""
        if self._part is None:
            return True
        since = _since(case, recent)
        in_all = fmean(excesses_of(window, whole)[rank] for window in recent.windows if window.end > since)
        return in_all >= max(LEAST, SHOWN * case.excess)

    def _case(self, rank: str, member: ComparedMember) -> _Case | None:
        if member.named is not None or member.smooth < LEAST / 2:
            return None
        spans = of_first(self._seconds).spans if rank == FIRST else (SHORT, LONG)
        cases = (self._case_of(rank, member, span) for span in spans)
        return next((case for case in cases if case is not None), None)

    def _case_of(self, rank: str, member: ComparedMember, span: Span) -> _Case | None:
        count, _ = span.windows(self._seconds)
        if len(member.recent) < count:
            return None
        newest = [*islice(member.recent, len(member.recent) - count, None)]
        if fmean(newest) < LEAST:
            return None  # first: most of the time no rank is slow, and the past is long
        since, windows, peers = member.ends[-count], [*self._windows][-count:], partial(self._peers, rank, count)
        return self._by_past_or_peers(rank, _Newest(span, newest, since, windows, peers))

    def _by_past_or_peers(self, rank: str, newest: _Newest) -> _Case | None:
        is_known = len(self._members[rank].past) - newest.blocks >= FLOOR
        return self._rise(rank, newest) if is_known else self._by_peers(rank, newest)

    def _rise(self, rank: str, newest: _Newest) -> _Case | None:
        """Its excess in the *newest* windows is above that of its past."""
        member, span, blocks = self._members[rank], newest.span, newest.blocks
        usual = max(0.0, member.usual_before(blocks) if span is LONG else member.short_usual(blocks))
        rise = rise_of(newest.excesses, usual, newest.pause)
        if not rise.is_lasting(LEAST) or self._is_usual(usual):
            return None
        spread = self._spread(member, span, blocks)
        if span is not LONG:
            spread *= sqrt(max(BLOCK, newest.seconds) / newest.left)
        is_confirmed = self._have_peers_slowed(rank, newest.windows, rise.beside)
        if not is_confirmed and (self._only_confirmed or (self._is_few() and span is not LONG)):
            return None
        is_clear = is_confirmed and len(self._members) > ENOUGH  # few members know less of their spread
        if rise.beside < self._strictness(rank, is_clear) * span.apart * max(spread, LEAST_SPREAD):
            return None
        confidence = 0.6 if self._is_few() else 0.9
        return _Case(rise.middle, usual, from_start=False, confidence=confidence)

    def _is_usual(self, usual: float) -> bool:
        """Whether it does more of that part in any case. Then still more of it does not say whom others wait for."""
        return self._only_confirmed and usual > LOW

    def _spread(self, member: ComparedMember, span: Span, blocks: int) -> float:
        """One that usually works less than its peers must be slower than they are, so what it does counts as much."""
        if span not in self._pooled:
            known = [each for each in islice(self._members.values(), POOLED) if len(each.past) - blocks >= FLOOR]
            self._pooled[span] = median(each.spread(span, blocks) for each in known or [member])
        own, pooled = member.spread(span, blocks), self._pooled[span]
        return own if own > WIDER * pooled else pooled

    def _is_few(self) -> bool:
        """Then one that becomes faster looks like another that becomes slower, but that nothing takes longer."""
        return len(self._members) < FEW

    def _strictness(self, rank: str, is_confirmed: bool) -> float:
        """How far from the noise it has to be, as a part of what is usual. For rank 0 the others wait in any case."""
        return self._confirmed_factor if is_confirmed and rank != FIRST else 1.0

    def _have_peers_slowed(self, rank: str, newest: Sequence[ShareWindow], rise: float) -> bool:
        """Whether the peers of *rank* show that they wait for it: they compute less than before."""
        return self._peers_slowed(rank, newest) >= SLOWED * rise

    def _peers_slowed(self, rank: str, newest: Sequence[ShareWindow]) -> float:
        """By what part the peers of *rank* compute less in the *newest* windows than before them."""
        before = [window for window in self._windows if window.end <= newest[0].begin]
        if len(before) < LEAST_WINDOWS:
            return 0.0
        peers = [name for name in islice(newest[-1].shares, POOLED) if name != rank]
        less = lasting_less if self._only_confirmed else mean_less  # where nothing else shows that they wait
        return less(before, newest, peers)

    def _age_pooled(self) -> None:
        """What is pooled is worked out anew when a further block may be over."""
        self._pooled_for += self._seconds
        if self._pooled_for >= BLOCK:
            self._pooled.clear()
            self._pooled_for = 0.0

    def _by_peers(self, rank: str, newest: _Newest) -> _Case | None:
        """Its past is too short to judge by, and it stands out from its peers."""
        member, blocks = self._members[rank], newest.blocks
        before = member.usual_before(blocks) if len(member.past) > blocks else member.just_before(newest.since)
        if before is not None and (before < LOW or rank == FIRST):
            return self._newly(rank, newest, max(0.0, before))
        return self._from_start(rank, newest)

    def _newly(self, rank: str, newest: _Newest, usual: float) -> _Case | None:
        """It changed more than its peers."""
        rise = rise_of(newest.excesses, usual, newest.pause)
        if not rise.is_lasting(LEAST_OF_FIRST if rank == FIRST else LEAST_FROM_START) or self._is_usual(usual):
            return None
        is_confirmed = self._have_peers_slowed(rank, newest.windows, rise.beside)
        if not is_confirmed and (self._only_confirmed or self._is_few()):
            return None
        changes = [
            newest.beside(each) - self._members[peer].usual_before(newest.blocks)
            for peer, each in newest.peers().items()
        ]
        if rise.beside < self._strictness(rank, is_confirmed) * self._distance(newest, APART_FROM_PEERS, changes):
            return None
        return _Case(rise.middle, usual, from_start=False, confidence=0.6 if self._is_few() else 0.8)

    def _from_start(self, rank: str, newest: _Newest) -> _Case | None:
        """It has worked more than its peers since its shares are known."""
        if not self._names_from_start or rank == FIRST or self._is_few():
            return None
        rise = rise_of(newest.excesses, 0.0, newest.pause)
        others = [newest.beside(each) for peer, each in newest.peers().items() if peer != FIRST]
        is_few = len(others) < ENOUGH
        if not rise.is_lasting(LEAST_FROM_FEW if is_few else LEAST_FROM_START):
            return None
        if rise.beside < self._distance(newest, APART_FROM_FEW if is_few else APART_FROM_PEERS, others):
            return None
        return _Case(rise.middle, 0.0, from_start=True, confidence=0.6)

    def _peers(self, rank: str, count: int) -> dict[str, Sequence[float]]:
        """The newest *count* excesses of those that were compared in as many windows."""
        peers = ((name, each) for name, each in islice(self._members.items(), POOLED) if name != rank)
        return {name: [*each.recent][-count:] for name, each in peers if len(each.recent) >= count}

    def _distance(self, newest: _Newest, apart: float, peers: Sequence[float]) -> float:
        """How far a rank is from its *peers* at least, which differ by as much as they do, and from the noise."""
        spread = max(stdev(peers) if len(peers) > 1 else 0.0, LEAST_SPREAD)
        return max(apart * spread, SHORT.apart * self._noise * sqrt(self._seconds / newest.left))

    def _straggler(self, rank: str, case: _Case, at: datetime, recent: _Recent) -> Straggler:
        since = _since(case, recent)
        windows = [window for window in recent.windows if window.end > since]
        length = windows[-1].end - windows[-1].begin
        own = _mean_share(window.shares[rank] for window in windows)
        peers = [_mean_share(window.shares[peer] for window in windows) for peer in windows[-1].shares if peer != rank]
        return Straggler(
            rank=rank,
            slower=self._slower(rank, case, windows),
            since=since,
            seen_at=at,
            ran=own.ran,
            starved=own.starved,
            peers_ran=median(peer.ran for peer in peers),
            peers_starved=median(peer.starved for peer in peers),
            stalled=own.stalled,
            peers_stalled=median(peer.stalled for peer in peers),
            own_waits=own.own_waits,
            peers_own_waits=median(peer.own_waits for peer in peers),
            stopped=own.stopped,
            from_start=case.from_start and since - recent.windows[0].begin <= LEAST_WINDOWS * length,
            confidence=case.confidence,
        )

    def _slower(self, rank: str, case: _Case, windows: Sequence[ShareWindow]) -> float:
        """
        How much longer its step takes. Where its peers hardly work any more, a small error of their share makes much of
        a difference: then by how much less they compute than before, which a longer step explains.
        """
        by_excess = case.excess / (1 - min(case.excess, 0.9))
        less = self._peers_slowed(rank, windows) if case.excess > MUCH else 0.0
        return min(by_excess, less / (1 - less)) if 0 < less < 1 else by_excess


def _since(case: _Case, recent: _Recent) -> datetime:
    """The begin of the newest windows that are most likely those of its rise: the change point."""
    middle = case.usual + case.excess / 2
    newest = [*recent.ends][-newest_above([*recent.excesses], middle) :]
    begins = {window.end: window.begin for window in recent.windows}
    return next((begins[end] for end in newest if end in begins), recent.windows[-1].begin)


def _seconds(window: ShareWindow) -> float:
    return max(1.0, (window.end - window.begin).total_seconds())


def _without(rank: str, of_all: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Of `POOLED` of its peers at most."""
    return {peer: each for peer, each in islice(of_all.items(), POOLED) if peer != rank}


def _mean_share(shares: Iterable[WorkShare]) -> WorkShare:
    return WorkShare(*map(fmean, zip(*shares, strict=True)))
