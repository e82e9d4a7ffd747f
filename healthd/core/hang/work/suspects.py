"""
Which ranks of a gang on Kubernetes may have become slow, by the little that is published of them: a first sign.

Agents write every few minutes, and each at another time. So the newest windows are known of some ranks only. A rank is
compared with those of its peers of which the same windows are known. That names no rank: it is a reason to ask for more
(`questions`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from statistics import fmean, median
from typing import NamedTuple

from healthd.core.hang.work.excesses import NORMAL
from healthd.core.hang.work.stragglers import AT_MOST, FEW
from healthd.core.hang.work.work_windows import Window

NEWEST = 2
"""The newest windows of a rank, which are compared with those before."""
FEWEST = 6
"""Windows that have to be known."""
RISE = 0.04
"""Of its excess. One that is slower by 10 % shows 0.09 in the mean."""
CLEAR = 2.0
"""How many times the error of the mean of its newest windows."""
PEERS = 3
"""Ranks of which a window is known at least, or all of a smaller gang; else it compares nothing."""
PART = 4
"""The same of a large gang: one rank in so many."""
STEPPING = 0.6
"""Of its usual work that a gang does at least in a window: else one of its ranks evaluates or saves."""
BACK = 0.25
"""Peers that miss less than this part of the work that they missed in the windows that show it: it is over."""
MISSED = 0.02
"""The part of their work that they have to miss in those: else nothing shows that they miss less."""
LASTS = 8
"""Windows since its begin after which it is no pause."""
KNOWN_BEFORE = 4
"""Windows of a peer from before, by which that is judged."""
WITNESSES = 64
"""Ranks by which that is judged, those whose agents wrote last: in a large gang hundreds may be suspected at once."""

Published = Mapping[str, Mapping[int, Window]]
"""By rank and number of the window, such as `work_windows.by_number` has them."""


class Suspect(NamedTuple):
    """A rank that may be slow since the end of window *since*, shown until the end of window *until*."""

    rank: str
    since: int
    until: int
    usual: float
    """Its excess before, and how much more it is now."""
    rise: float


def suspects(published: Published, exempt: Collection[str], scale: float, usual: float) -> list[Suspect]:
    """
    A pod that works all the time uses *scale* cores, and the median pod of the gang *usually* so many. *exempt*: ranks
    that are not compared.
    """
    middles = _compared_with(published, usual)
    found = [
        suspect
        for rank, windows in published.items()
        if rank not in exempt and (suspect := _suspect(rank, windows, middles(rank), scale)) is not None
    ]
    witnesses = dict(nlargest(WITNESSES, published.items(), key=lambda each: max(each[1], default=0)))
    spans = {(each.since, each.until) for each in found}
    known = {span: _testimonies(*span, witnesses) for span in spans}
    found = [each for each in found if not _is_over(each.rank, known[each.since, each.until])]
    return found if len(found) <= max(1, len(published) // AT_MOST) else []


def still_slow(found: Collection[Suspect], published: Published, scale: float, usual: float) -> list[Suspect]:
    """Those of which the newest windows, minutes after those that showed it, show it as well."""
    if not found:
        return []
    middles = _compared_with(published, usual)
    return [
        each for each in found if _is_still_slow(each, published.get(each.rank, {}), middles(each.rank).known, scale)
    ]


def _is_still_slow(suspect: Suspect, windows: Mapping[int, Window], middles: Mapping[int, float], scale: float) -> bool:
    newest = [number for number in sorted(windows) if number in middles][-NEWEST:]
    if not newest or newest[-1] < suspect.since + LASTS:
        return False
    return fmean((windows[n].cores - middles[n]) / scale for n in newest) >= suspect.usual + suspect.rise / 2


class _Middles(NamedTuple):
    """Of each window in which the gang steps the cores of the median rank."""

    known: Mapping[int, float]
    """Where enough of them are known."""
    assumed: Mapping[int, float]
    """And where not, as of those before: agents of peers that hardly wait write as rarely as in quiet times."""


def _compared_with(published: Published, usual: float) -> Callable[[str], _Middles]:
    """What each rank is compared with: its peers. Where there are many, it makes no difference among them all."""
    if len(published) >= FEW:
        of_all = _middles(published, usual)
        return lambda _: of_all
    return lambda rank: _middles({peer: windows for peer, windows in published.items() if peer != rank}, usual)


def _middles(published: Published, usual: float) -> _Middles:
    cores: dict[int, list[float]] = {}
    for windows in published.values():
        for number, window in windows.items():
            cores.setdefault(number, []).append(window.cores)
    least = max(min(PEERS, len(published)), len(published) / PART)
    known = {number: median(each) for number, each in cores.items() if len(each) >= least}
    stepping = {number: middle for number, middle in known.items() if middle >= STEPPING * usual}
    if not stepping:
        return _Middles({}, {})
    newest, level = max(known), median(stepping.values())
    return _Middles(stepping, stepping | {number: level for number in cores if number > newest})


def _suspect(rank: str, windows: Mapping[int, Window], middles: _Middles, scale: float) -> Suspect | None:
    return _compared(rank, windows, middles.known, scale) or _compared(rank, windows, middles.assumed, scale)


def _compared(rank: str, windows: Mapping[int, Window], middles: Mapping[int, float], scale: float) -> Suspect | None:
    numbers = [number for number in sorted(windows) if number in middles]
    if len(numbers) < FEWEST:
        return None
    excess = [(windows[number].cores - middles[number]) / scale for number in numbers]
    before, newest = excess[:-NEWEST], excess[-NEWEST:]
    usual = median(before)
    noise = NORMAL * median(abs(each - usual) for each in before)
    rise = fmean(newest) - usual
    if rise < max(RISE, CLEAR * noise / NEWEST**0.5) or newest[-1] - usual < RISE / 2:
        return None
    return Suspect(rank, _began(numbers, [each - usual - rise / 2 for each in excess]), numbers[-1], usual, rise)


def _began(numbers: Sequence[int], beyond: Sequence[float]) -> int:
    """The window before those that are most likely *beyond* the middle between before and now."""
    best, total, since = 0.0, 0.0, numbers[-1] - 1
    for number, each in zip(reversed(numbers), reversed(beyond), strict=True):
        total += each
        if total > best:
            best, since = total, number - 1
    return since


class _Testimony(NamedTuple):
    """The part of its usual work that a rank did; a list is empty where it is not known."""

    during: list[float]
    """In the windows that show another rank to be slow."""
    after: list[float]


def _testimonies(since: int, until: int, witnesses: Published) -> dict[str, _Testimony]:
    """What the ranks know of one that may be slow since the end of a window, shown until the end of another one."""
    found = {}
    for rank, windows in witnesses.items():
        before = [window.cores for number, window in windows.items() if number <= since]
        usual = median(before) if len(before) >= KNOWN_BEFORE else 0.0
        if usual <= 0:
            continue
        newest = max(windows)
        found[rank] = _Testimony(
            _mean(w.cores / usual for n, w in windows.items() if since + 1 < n <= until),
            _mean(w.cores / usual for n, w in windows.items() if n > max(until, newest - NEWEST)),
        )
    return found


def _is_over(rank: str, testimonies: Mapping[str, _Testimony]) -> bool:
    """Whether its peers have done their usual work since. They are known to, if one of them is known to."""
    during = [part for peer, each in testimonies.items() if peer != rank for part in each.during]
    after = [part for peer, each in testimonies.items() if peer != rank for part in each.after]
    if len(during) < 2 or not after:
        return False
    missed, few = 1 - median(during), sorted(after)[len(after) // PART]  # rank 0 may work alone by then
    return missed >= MISSED and 1 - few < BACK * missed


def _mean(values: Iterable[float]) -> list[float]:
    """In a list, which is empty where there is none."""
    known = [*values]
    return [fmean(known)] if known else []
