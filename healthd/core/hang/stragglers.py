"""
Which member of a gang makes the others wait, by windows of work shares. It is only reported: nothing follows from it.

Of a member that is slower than its peers by 10 % the others wait for 9 % of the time. So its excess, the share of the
time in which it works beyond the median of its peers, is 0.09, whatever share of a step is work of the host.
A member is named in two ways: its excess has risen above its own usual one, or it has been high from the start and
stands out from the spread of its peers. Rank 0 legitimately does more, and is judged by its own history alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from math import sqrt
from statistics import fmean, median
from typing import Annotated, NamedTuple

import msgspec

from healthd.core.hang.work_share import ShareWindow, WorkShare
from healthd.core.untrusted import Moment

LEAST = 0.06
"""The median excess of a straggler: slower by 6.5 %. One that is slower by 10 % shows 0.09, or less while others are
slow, too, for a moment."""
STEADY = 0.75
"""Of its median excess that a straggler shows in each window without noise. What comes and goes is a pause."""
NOISE_ALLOWED = 2.5
"""How many times the noise of a single window it may be less, where that is more."""
LOW = LEAST / 2
"""An excess below it is none."""
IN_A_ROW = 6
IN_A_ROW_AT_MOST = 14
"""Windows, for few members, for rank 0, and for an excess that is not clear of the noise."""
LOW_ALLOWED = {IN_A_ROW: 0, 7: 1, IN_A_ROW_AT_MOST: 2}
"""In how many windows in a row a straggler is seen, and in how many of them it may be less."""
HIGH_ALLOWED = 3
"""One window in so many may be more."""
PAUSE = 5
"""Windows in a row that a pause of a minute touches."""
BESIDE_PAUSE = 0.5
"""Of its median excess that a straggler shows beside any such windows, in the mean."""
CLEAR_BESIDE_PAUSE = 5.0
"""How many times the noise of that mean it is."""
CLEAR = 3.5
"""How many times the noise of a single window a clear excess is."""
IN_NOISE = 2.5
"""The same for the most windows. Their median is clear of the noise then."""
FIRST = "0"
"""The rank that evaluates, saves and prints for all."""
FEW = 4
"""Fewer members have no spread, and one of them that is faster looks like another that is slower."""
APART = 5.0
"""How many standard deviations of its peers, or of its own past, a straggler stands apart."""
LEAST_SPREAD = 0.005
NORMAL = 1.4826
"""Standard deviations in a median deviation, of normal noise."""
FLOOR = 40
"""Windows of its own past that a member needs to be judged by it: ten minutes, where steps are short."""
PAST = 240
"""Windows of the past that are kept: an hour, where steps are short."""
PAUSED = 0.33
"""Of the usual share of all members: below it they do not step. One of them evaluates or saves, and the others wait."""
LEVEL = 0.05
"""Weight of a new window in the usual share of all members, and in the noise."""
OVER = 4
"""Windows with less than half of the least excess, after which it is over."""
AT_MOST = 4
"""One member in so many may be a straggler. More of them have another part in the job."""

LONGEST_NAME = 320
"""Characters of a rank, a pod or a node: an index has no more."""
LONGEST_REASON = 600
"""Characters."""
Amount = Annotated[float, msgspec.Meta(ge=0, le=1000)]
"""The record of a gang is on its root, where its owner can write it."""


class Straggler(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One member that the others wait for. Shares are of the time, from 0 to 1."""

    rank: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
    slower: Amount
    """How much longer a step takes for it, or because of it: 0.1 is 10 %."""
    since: Moment
    """The beginning of the first window that shows it."""
    seen_at: Moment
    ran: Amount
    starved: Amount
    peers_ran: Amount
    """The median of its peers."""
    peers_starved: Amount
    stalled: Amount = 0.0
    peers_stalled: Amount = 0.0
    from_start: bool = False
    """It has been so since its shares are known: the job itself may give it more to do."""
    confidence: Amount
    """An estimate."""
    pod: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    node: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=LONGEST_REASON)] = ""
    """Why, for a person. Empty: it follows from the shares. On Kubernetes shares are of cores, and no main thread's."""
    ended_at: Moment | None = None
    """When it was over. None: it is still slow, as far as is known."""
    was_stopped: bool = False
    """It ended because the ranks were stopped."""


class _Member:
    """The excess of one member: in the newest windows, and before them."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=IN_A_ROW_AT_MOST)
        self.past: deque[float] = deque(maxlen=PAST)
        self.named: Straggler | None = None
        self.usual = 0.0
        """The excess that it is judged by, while it is named."""

    def before(self, newest: int) -> list[float]:
        """The excesses before the *newest* windows."""
        return [*self.past, *[*self.recent][:-newest]]

    def add(self, excess: float) -> None:
        """A window of a straggler is no past to judge by."""
        if len(self.recent) == IN_A_ROW_AT_MOST and self.named is None:
            self.past.append(self.recent[0])
        self.recent.append(excess)


class _Case(NamedTuple):
    """Why a member is a straggler: the rise of its excess above *usual*."""

    excess: float
    usual: float
    from_start: bool
    confidence: float


class StragglerDetector:
    """
    One gang. Members are compared in the windows that all of them have.

    *from_start*: a member that has been slow since its shares are known is named, too.
    """

    def __init__(self, *, from_start: bool = True) -> None:
        self._names_from_start = from_start
        self._members: dict[str, _Member] = {}
        self._windows: deque[ShareWindow] = deque(maxlen=IN_A_ROW_AT_MOST)
        self._level = 0.0
        self._noise = 0.0

    @property
    def present(self) -> list[Straggler]:
        """Those that are slow now."""
        return [member.named for member in self._members.values() if member.named is not None]

    def restart(self, at: datetime) -> list[Straggler]:
        """Forget all: the ranks were stopped. Returns those that were slow, as ended."""
        ended = [msgspec.structs.replace(each, ended_at=at, was_stopped=True) for each in self.present]
        self._members.clear()
        self._windows.clear()
        self._level = self._noise = 0.0
        return ended

    def add(self, window: ShareWindow) -> list[Straggler]:
        """Returns what changes: those that begin to be slow, and with `ended_at` those that no longer are."""
        changes = self.restart(window.end) if window.shares.keys() != self._members.keys() else []
        if not self._members:
            self._members = {rank: _Member() for rank in window.shares}
        if len(self._members) < 2 or self._is_pause(window):
            return changes
        self._windows.append(window)
        present = excesses({rank: share.busy for rank, share in window.shares.items()})
        self._learn_noise(present)
        for rank, excess in present.items():
            self._members[rank].add(excess)
        return [*changes, *self._over(window.end), *self._begun(window.end)]

    def _is_pause(self, window: ShareWindow) -> bool:
        """What is usual is learned from pauses, too: a job whose work has become less for good makes no pause."""
        now = median(share.busy for share in window.shares.values())
        usual = self._level or now
        self._level = usual + LEVEL * (now - usual)
        return now < PAUSED * usual

    def _learn_noise(self, present: Mapping[str, float]) -> None:
        """By the median member: the noise is that of the job, not of a member that has become slow."""
        if len(self._windows) < 2:
            return
        steps = median(abs(present[rank] - member.recent[-1]) for rank, member in self._members.items())
        now = NORMAL * steps / sqrt(2)
        self._noise += LEVEL * (now - self._noise) if self._noise else now

    def _over(self, at: datetime) -> list[Straggler]:
        over = []
        for member in self._members.values():
            if member.named is not None and fmean([*member.recent][-OVER:]) - member.usual < LOW:
                over.append(msgspec.structs.replace(member.named, ended_at=at))
                member.named = None
        return over

    def _begun(self, at: datetime) -> list[Straggler]:
        cases = {rank: case for rank, member in self._members.items() if (case := self._case(rank, member))}
        slow = len(cases) + len(self.present)
        if not cases or slow > max(1, len(self._members) // AT_MOST):
            return []
        for rank, case in cases.items():
            self._members[rank].usual = case.usual
            self._members[rank].named = self._straggler(rank, case, at)
        return [straggler for rank in cases if (straggler := self._members[rank].named)]

    def _case(self, rank: str, member: _Member) -> _Case | None:
        if member.recent[-1] < LOW or member.named is not None:
            return None
        cases = (self._case_of(rank, member, count) for count in LOW_ALLOWED)
        return next((case for case in cases if case is not None), None)

    def _case_of(self, rank: str, member: _Member, count: int) -> _Case | None:
        """By the newest *count* windows."""
        needs_more = len(self._members) < FEW or rank == FIRST
        if len(member.recent) < count or (count < IN_A_ROW_AT_MOST and needs_more):
            return None
        newest = [*member.recent][-count:]
        if median(newest) < LEAST:
            return None  # first: most of the time no rank is slow, and the past is long
        before = member.before(count)
        if len(before) >= FLOOR:
            return self._by_own_past(newest, before)
        return self._by_peers(rank, newest, before)

    def _by_own_past(self, newest: Sequence[float], before: Sequence[float]) -> _Case | None:
        """Its excess has risen. One that usually works less than its peers must be slower than they are."""
        usual = max(0.0, median(before))
        if not self._is_high(newest, usual):
            return None
        rise, (_, spread) = median(newest) - usual, _centre(_moving_means(before, len(newest)))
        if rise < APART * spread:
            return None
        return _Case(rise, usual, from_start=False, confidence=0.9 if len(self._members) >= FEW else 0.6)

    def _is_high(self, newest: Sequence[float], usual: float) -> bool:
        """Whether windows show the steady excess of a straggler."""
        middle = median(newest) - usual
        if middle < LEAST:
            return False
        about = max((1 - STEADY) * middle, NOISE_ALLOWED * self._noise)
        low = sum(excess - usual < middle - about for excess in newest)
        high = sum(excess - usual > middle + about for excess in newest)
        clear = IN_NOISE if len(newest) == IN_A_ROW_AT_MOST else CLEAR
        is_steady = low <= LOW_ALLOWED[len(newest)] and high <= len(newest) // HIGH_ALLOWED
        return is_steady and middle >= clear * self._noise and self._lasts(newest, usual, middle)

    def _lasts(self, newest: Sequence[float], usual: float, middle: float) -> bool:
        """Whether it is high beside any pause, too: a pause and some noise before or after it look steady."""
        for begin in range(len(newest) - PAUSE + 1):
            beside = [*newest[:begin], *newest[begin + PAUSE :]]
            least = max(BESIDE_PAUSE * middle, CLEAR_BESIDE_PAUSE * self._noise / sqrt(len(beside)))
            if fmean(beside) - usual < least:
                return False
        return True

    def _by_peers(self, rank: str, newest: Sequence[float], before: Sequence[float]) -> _Case | None:
        """Its past is too short to judge by, and it stands out from its peers."""
        if len(self._members) < FEW or rank == FIRST or not self._is_high(newest, 0.0):
            return None
        usual = median(before or newest)
        is_new = usual < LOW
        from_start = self._names_from_start and median([*before, *newest]) >= LEAST
        windows = [*self._windows][-len(newest) :]
        _, spread = _centre([fmean(w.shares[peer].busy for w in windows) for peer in self._members if peer != rank])
        if not (is_new or from_start) or median(newest) < APART * spread:
            return None
        return _Case(median(newest), 0.0, from_start=not is_new, confidence=0.8 if is_new else 0.6)

    def _straggler(self, rank: str, case: _Case, at: datetime) -> Straggler:
        recent = [*self._windows][-IN_A_ROW:]
        own = _mean_share(window.shares[rank] for window in recent)
        peers = [_mean_share(window.shares[peer] for window in recent) for peer in self._members if peer != rank]
        return Straggler(
            rank=rank,
            slower=case.excess / (1 - min(case.excess, 0.9)),
            since=self._since(rank, case.usual),
            seen_at=at,
            ran=own.ran,
            starved=own.starved,
            peers_ran=median(peer.ran for peer in peers),
            peers_starved=median(peer.starved for peer in peers),
            stalled=own.stalled,
            peers_stalled=median(peer.stalled for peer in peers),
            from_start=case.from_start,
            confidence=case.confidence,
        )

    def _since(self, rank: str, usual: float) -> datetime:
        """The beginning of the first window of those in a row. One low window between high ones does not count."""
        since, low = self._windows[-1].begin, 0
        for window, excess in zip(reversed(self._windows), reversed(self._members[rank].recent), strict=True):
            low = 0 if excess - usual >= LOW else low + 1
            if low > 1:
                break
            since = since if low else window.begin
        return since


def _moving_means(values: Sequence[float], width: int) -> list[float]:
    """The means of all *width* values in a row."""
    sums = [0.0, *accumulate(values)]
    return [(after - before) / width for before, after in zip(sums, sums[width:], strict=False)]


def excesses(busy: Mapping[str, float]) -> dict[str, float]:
    """How much more of the time each member works than the median of its peers. Two members at least."""
    ordered = sorted(busy.values())
    lower, upper = (len(ordered) - 2) // 2, (len(ordered) - 1) // 2  # the middle of the peers of any member

    def excess(share: float) -> float:
        own = bisect_left(ordered, share)
        return share - (ordered[lower + (lower >= own)] + ordered[upper + (upper >= own)]) / 2

    return {rank: excess(share) for rank, share in busy.items()}


def _centre(values: Collection[float]) -> tuple[float, float]:
    """The median, and the standard deviation by the median of the deviations: few odd values change neither."""
    middle = median(values)
    return middle, max(LEAST_SPREAD, NORMAL * median(abs(value - middle) for value in values))


def _mean_share(shares: Iterable[WorkShare]) -> WorkShare:
    return WorkShare(*map(fmean, zip(*shares, strict=True)))
