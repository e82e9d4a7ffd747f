"""
Which ranks of a gang have a GPU that runs slower than those of their peers. Pure.

Hosts of ranks whose GPUs wait look alike, whichever GPU is the slow one: mostly their main threads poll. But a slow GPU
shows its clock. It is compared with those of the other ranks while all of them work. It is only reported, as every
straggler: how much slower the steps of the gang are is not known by that, for not all of a step depends on this clock.

GPUs of one model differ by nature: at the same limit of power some run slower by a tenth. So one that is a bit slower
is named if it became so, or if its driver says that a fault keeps its clock down. Rank 0 evaluates for all, and other
work has another clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api.health import GpuClock, GpuClocks
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.excesses import NORMAL
from healthd.core.hang.work.gpus.gpu_clocks import KNOWN_FOR, WINDOW, WINDOWS
from healthd.core.hang.work.stragglers import AT_MOST, FEW, FIRST

BY_FAULT = 0.07
"""How much longer the same work takes by the clock, at least, where the driver shows a fault. One that is slower by
10 % is clear of it."""
BY_NATURE = 0.15
"""The same where neither its past nor its driver shows one."""
BY_CHANGE = 0.05
"""The same where its past shows it: it has to be clear of its peers, and clearer of its past."""
RISE = 0.06
"""By how much more than usual, at least."""
SPREADS = 5.0
"""The same in standard deviations of its own past."""
PAST_EVERY = timedelta(minutes=5)
PAST = 12
"""Values of the past: an hour."""
LEAST_PAST = 6
SHOWN = WINDOW * (WINDOWS // 2 + 1)
"""For how long it has been slow at least when the median window shows it."""
MARGIN = 0.03
"""By so much less than what is asked for to begin with, it is still slow."""
OVER = timedelta(minutes=1)
"""How long it keeps up before it is over."""
MANY = 16
"""Ranks. Among more of them one makes no difference to the median."""
MOST = 10.0
"""How much slower a GPU is said to be at most. Agents write what they like."""
FAULTS = ("hw-thermal", "sw-thermal", "power-brake", "hw-slowdown")
"""What keeps the clock of a GPU down that has a fault, or its cooling or its power supply has."""
SURE, LESS_SURE = 0.95, 0.75
"""An estimate. Without a reason the rank may just have more to do: what draws more power runs slower."""
_WHY = {
    "hw-thermal": "it is too hot",
    "sw-thermal": "it is too hot",
    "power-brake": "the power supply of its machine asks it to slow down",
    "hw-slowdown": "its hardware slows it down",
    "power-cap": "it is at its limit of power: that may be set lower, or it has more to do",
    "sync-boost": "it is set to run as slowly as another GPU",
    "setting": "its clock is set lower",
}


class _Seen(NamedTuple):
    """One GPU of a rank now."""

    rank: str
    clock: GpuClock
    peers: float
    """The usual clock of its peers."""
    slower: float
    """How much longer the same work takes than on its peers."""
    since: datetime
    """Its clock has been so for more than half of the windows, the last ones if it became so."""
    end: datetime
    """Of the newest window."""


class SlowGpus:
    """One gang, as long as it has the same pods."""

    def __init__(self, pods: Collection[str] = ()) -> None:
        """*pods*: the uids of its pods, where it has any. In others a rank has other GPUs, often of the same name."""
        self.pods = frozenset(pods)
        self._present: dict[str, Straggler] = {}
        """As they were reported, by rank."""
        self._newest: dict[str, tuple[datetime, float]] = {}
        """Of these ranks: how much slower the GPU is by its newest windows, and their end."""
        self._keeps_up_since: dict[str, datetime] = {}
        """Of these ranks: since when that is seen."""
        self._kept_up: dict[str, datetime] = {}
        """Of these ranks: since when they did, by the windows that showed it first."""
        self._past: dict[tuple[str, str], deque[float]] = {}
        """Of each GPU, by rank and address: how much slower it was."""
        self._learned_at: datetime | None = None

    @property
    def present(self) -> list[Straggler]:
        """Those that are slow now."""
        return list(self._present.values())

    def adopt(self, straggler: Straggler) -> None:
        """Take over one that was reported before, or what is known of it now."""
        self._present[straggler.rank] = straggler

    def observe(self, clocks: Mapping[str, GpuClocks], now: datetime) -> list[Straggler]:
        """
        *clocks*: those of the GPUs of each rank, by its name, as far as they are known. Returns what changes: those
        that begin to be slow, and with `ended_at` those that no longer are.
        """
        seen = _seen(clocks)
        changes = [*self._over(seen, now), *self._begun(seen, len(clocks), now)]
        self._learn(seen, now)
        return changes

    def slow_now(self, now: datetime) -> list[Straggler]:
        """
        Those that are slow, each by how much its clock is slower now. None at all unless the newest clocks show each of
        them to be slow: more is asked for than for a report.
        """
        shown = []
        for rank, straggler in self._present.items():
            at, slower = self._newest.get(rank, (straggler.seen_at, 0.0))
            if slower >= BY_CHANGE and now - at <= KNOWN_FOR:
                shown.append(replace(straggler, slower=slower, seen_at=at))
        return shown if len(shown) == len(self._present) else []

    def stopped(self, at: datetime) -> list[Straggler]:
        """Those that were slow, as ended: the ranks were stopped."""
        return [replace(each, ended_at=at, was_stopped=True) for each in self.present]

    def _over(self, seen: Collection[_Seen], now: datetime) -> list[Straggler]:
        named = [each for each in seen if self._is_named(each)]
        self._newest = {**self._newest, **{each.rank: (each.end, each.slower) for each in named}}
        known, still_there = {each.rank for each in seen}, {each.rank for each in named}
        gone = [rank for rank in self._present if rank in known and rank not in still_there]  # it does not work now
        keeps_up = [*gone, *(each.rank for each in named if self._keeps_up(each))]
        self._keeps_up_since = {rank: min(self._keeps_up_since.get(rank, now), now) for rank in keeps_up}
        shown = {each.rank: each.since for each in named}
        self._kept_up = {rank: self._kept_up.get(rank, shown.get(rank, now)) for rank in keeps_up}
        over = [rank for rank, since in self._keeps_up_since.items() if now - since >= OVER]
        ended = [(self._present.pop(rank), self._kept_up.pop(rank)) for rank in over]
        for rank in over:
            del self._keeps_up_since[rank]
        return [replace(each, ended_at=max(at, each.since)) for each, at in ended]

    def _begun(self, seen: Iterable[_Seen], ranks: int, now: datetime) -> list[Straggler]:
        """By the slowest GPU of each rank. Too many are none: they have another part in the job."""
        odd = [each for each in seen if each.rank not in self._present and self._is_odd(each)]
        worst = {each.rank: each for each in sorted(odd, key=lambda each: each.slower)}
        if len(worst) + len(self._present) > max(1, ranks // AT_MOST):
            return []
        begun = {rank: _straggler(seen, now) for rank, seen in sorted(worst.items())}
        self._present |= begun
        self._newest |= {rank: (seen.end, seen.slower) for rank, seen in worst.items()}
        return [*begun.values()]

    def _is_named(self, seen: _Seen) -> bool:
        named = self._present.get(seen.rank)
        return named is not None and named.gpu == seen.clock.pci

    def _keeps_up(self, seen: _Seen) -> bool:
        """A new leader does not know its past, but how slow it was when it was reported."""
        if self._is_known(seen):
            return not self._is_odd(seen, MARGIN)
        return seen.slower < max(BY_CHANGE, self._present[seen.rank].slower / 2)

    def _is_odd(self, seen: _Seen, margin: float = 0.0) -> bool:
        """Whether it is slower, and not by nature."""
        slower = seen.slower + margin
        if slower >= BY_NATURE or (slower >= BY_FAULT and has_fault(seen.clock)):
            return True
        if slower < BY_CHANGE or seen.rank == FIRST or not self._is_known(seen):
            return False
        return slower - self._usual(seen) >= self._least_rise(seen)

    def _least_rise(self, seen: _Seen) -> float:
        usual, past = self._usual(seen), self._past[seen.rank, seen.clock.pci]
        return max(RISE, SPREADS * NORMAL * median(abs(each - usual) for each in past))

    def _is_known(self, seen: _Seen) -> bool:
        return len(self._past.get((seen.rank, seen.clock.pci), ())) >= LEAST_PAST

    def _usual(self, seen: _Seen) -> float:
        """How much slower one that is known has been."""
        return median(self._past[seen.rank, seen.clock.pci])

    def _learn(self, seen: Iterable[_Seen], now: datetime) -> None:
        if self._learned_at is not None and timedelta(0) <= now - self._learned_at < PAST_EVERY:
            return
        self._learned_at = now
        for each in seen:
            if not self._is_named(each):
                self._past.setdefault((each.rank, each.clock.pci), deque(maxlen=PAST)).append(each.slower)


def has_fault(clock: GpuClock) -> bool:
    """Whether the driver says that a fault keeps this clock down."""
    return any(why in FAULTS for why in clock.limited_by)


def _seen(clocks: Mapping[str, GpuClocks]) -> list[_Seen]:
    """
    All GPUs beside those of their peers, which are of the same model. Of few nothing is usual, and a clock of 0 is
    none.
    """
    models = dict[float, list[GpuClocks]]()
    for each in clocks.values():
        models.setdefault(each.highest, []).append(each)
    found, of_many = list[_Seen](), {highest: median(each.usual for each in model) for highest, model in models.items()}
    for rank, own in clocks.items():
        model = models[own.highest]
        peers = of_many[own.highest] if len(model) > MANY else _usual_clock(own, model)
        for gpu in own.gpus if peers else ():
            if gpu.mhz > 0:
                found.append(_Seen(rank, gpu, peers, _slower(peers, gpu.mhz), max(own.begin, own.end - SHOWN), own.end))
    return found


def _slower(peers: float, mhz: float) -> float:
    """How much longer the same work takes."""
    return min(peers / mhz - 1, MOST)


def _usual_clock(own: GpuClocks, model: Iterable[GpuClocks]) -> float:
    """The clock of the median peer, where one more would make a difference. 0: not known."""
    others = [each for each in model if each is not own]
    if sum(len(each.gpus) for each in others) >= FEW - 1:
        return median(each.usual for each in others)
    return own.usual if len(own.gpus) >= FEW else 0.0


def _straggler(seen: _Seen, now: datetime) -> Straggler:
    """By the newest window, if that is slower: in the median one it may just have become slow."""
    mhz = min(seen.clock.mhz, seen.clock.newest or seen.clock.mhz)
    return Straggler(
        rank=seen.rank,
        slower=_slower(seen.peers, mhz),
        since=seen.since,
        seen_at=now,
        ran=0.0,
        starved=0.0,
        peers_ran=0.0,
        peers_starved=0.0,
        confidence=SURE if has_fault(seen.clock) else LESS_SURE,
        gpu=seen.clock.pci,
        reason=_reason(seen, mhz),
    )


def _reason(seen: _Seen, mhz: float) -> str:
    """Both clocks, and what the driver says: of several reasons a fault."""
    known = sorted((why for why in seen.clock.limited_by if why in _WHY), key=list(_WHY).index)
    why = _WHY[known[0]] if known else "its driver gives no reason"
    return f"{seen.clock.pci} runs at {mhz:,.0f} MHz while it works, those of its peers at {seen.peers:,.0f} MHz: {why}"
