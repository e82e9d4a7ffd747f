"""
A gang's time as a line that is cut into intervals. Each interval begins where the one before it ended, and has one
part. So the parts never overlap, and their sum is the wall clock times the GPUs: by construction, to the millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api.gpu_time import KEPT_INTERVALS, GpuTime, Interval, LossCause, Part, key

SPLIT = frozenset({Part.PRODUCTIVE, Part.UNVERIFIED})
"""Parts in which the GPUs of members that are left out are lost apart from the others."""
TAKEN_BACK = frozenset({Part.PRODUCTIVE, Part.UNVERIFIED})
"""Parts that become redone work when a recovery goes back behind them."""


def milliseconds(at: datetime) -> int:
    """*at* as Unix time in whole milliseconds."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def moment(at: int) -> datetime:
    """The reverse of `milliseconds`."""
    return _EPOCH + timedelta(milliseconds=at)


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def extend(account: GpuTime, until: int, part: Part, cause: LossCause = LossCause.UNKNOWN) -> GpuTime:
    """*account* with all time up to *until* divided; what was not divided before is *part*, for *cause*."""
    if until <= account.until:
        return account
    if part in SPLIT:
        cause = account.shrunk_by if account.missing else LossCause.UNKNOWN
    return _with(account, Interval(until, part, cause, account.gpus, account.missing if part in SPLIT else 0))


def take_back(account: GpuTime, since: int, cause: LossCause) -> GpuTime:
    """*account* with the training after *since* as redone work. Other losses after *since* stay as they are."""
    cut: list[Interval] = []
    for began, interval in _with_beginnings(account):
        if interval.part not in TAKEN_BACK or interval.until <= since:
            cut.append(interval)
            continue
        if began < since:
            cut.append(replace(interval, until=since))
        cut.append(replace(interval, part=Part.REDONE, cause=cause, missing=0))
    return _folded(replace(account, recent=_merged(cut)))


def totals(account: GpuTime) -> Counter[str]:
    """GPU-milliseconds by `key`, over the whole account."""
    total = Counter(account.totals)
    for began, interval in _with_beginnings(account):
        _add(total, began, interval)
    return total


def counted(before: GpuTime | None, after: GpuTime) -> tuple[GpuTime, Counter[str]]:
    """
    What counters of GPU-milliseconds grow by, from *before* to *after*; and *after*, to be stored.

    Counters cannot go back. Where a part became smaller, because a recovery took work back, the difference is owed: the
    counter stands still until the part has grown by as much.
    """
    if before is not None and before.since != after.since:
        before = None  # it was begun anew
    grown = totals(after)
    grown.subtract(totals(before) if before is not None else {})
    owed, increments = Counter(before.owed if before is not None else {}), Counter[str]()
    for name, amount in grown.items():
        balance = amount - owed.pop(name, 0)
        if balance < 0:
            owed[name] = -balance
        elif balance > 0:
            increments[name] = balance
    return replace(after, owed=dict(owed)), increments


def _with(account: GpuTime, interval: Interval) -> GpuTime:
    return _folded(replace(account, recent=_merged([*account.recent, interval])))


def _merged(intervals: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for interval in intervals:
        if merged and replace(merged[-1], until=interval.until) == interval:
            merged.pop()
        merged.append(interval)
    return merged


def _folded(account: GpuTime) -> GpuTime:
    """*account* with the oldest intervals in its totals, if there are too many."""
    old = len(account.recent) - KEPT_INTERVALS
    if old <= 0:
        return account
    total = Counter(account.totals)
    for began, interval in list(_with_beginnings(account))[:old]:
        _add(total, began, interval)
    return replace(account, start=account.recent[old - 1].until, recent=account.recent[old:], totals=dict(total))


def _with_beginnings(account: GpuTime) -> Iterator[tuple[int, Interval]]:
    began = account.start
    for interval in account.recent:
        yield began, interval
        began = interval.until


def _add(total: Counter[str], began: int, interval: Interval) -> None:
    length = interval.until - began
    total[key(interval.part, interval.cause)] += length * (interval.gpus - interval.missing)
    if interval.missing:
        total[key(Part.SHRUNK, interval.cause)] += length * interval.missing
