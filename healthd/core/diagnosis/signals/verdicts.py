"""Why a reading is bad by a test, in words for a person. Empty where it is good, None where that is unknown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from healthd.core.diagnosis.signals.rule import (
    AtLeast,
    Below,
    Changes,
    FellBelowBest,
    Grows,
    Is,
    IsNot,
    OutOfLine,
    Test,
)
from healthd.core.diagnosis.signals.series import Series

PEERS = 3
"""Fewer peers do not show what is usual."""
SPREAD = 1.4826
"""Times the median absolute deviation is the standard deviation of a normal distribution."""
LEAST_SPREAD = 1.0
"""Where all peers grew by the same amount, one more event is no reason."""


def why_bad(test: Test, series: Series, others: Mapping[str, float | str], now: datetime) -> str | None:
    """By any test but `OutOfLine`. *others*: the readings of the same device and part to compare with."""
    value = series.value
    match test:
        case Is(values):
            return f"is {show(value)}" if show(value) in values else ""
        case IsNot(values):
            return f"is {show(value)}, not {' or '.join(sorted(values))}" if show(value) not in values else ""
        case Grows():
            return _grows(test, series, now)
        case Changes(times, within):
            changed = series.changed(now - within)
            return f"changed {changed} times in {_span(within)}, and is now {show(value)}" if changed >= times else ""
    return _gauge(test, series, others) if isinstance(value, int | float) else None


def out_of_line(test: OutOfLine, everybody: Sequence[Series], now: datetime) -> list[str | None]:
    """The same for each of *everybody*, the same counter of all devices of a node, compared with the others."""
    grown = [series.grown(now - test.within) for series in everybody]
    return [_stands_out(test, amount, [*grown[:at], *grown[at + 1 :]]) for at, amount in enumerate(grown)]


def show(value: float | str) -> str:
    """A value as a person writes it: whole numbers without a fraction."""
    if isinstance(value, str):
        return value
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


def _grows(test: Grows, series: Series, now: datetime) -> str:
    since = now - test.within
    grown = series.grown(since)
    if grown >= test.by or (test.by <= 1 and series.has_grown(since)):
        return f"grew by {show(max(grown, 1))} in {_span(test.within)} (limit {show(test.by)}), to {show(series.value)}"
    return ""


def _gauge(test: Test, series: Series, others: Mapping[str, float | str]) -> str | None:
    value = float(series.value)
    match test:
        case AtLeast(limit):
            return f"is {show(value)} (limit {show(limit)})" if value >= limit else ""
        case FellBelowBest():
            return f"is {show(value)}, and was {show(series.best)}" if value < series.best else ""
        case Below(limit, other):
            least = others.get(other) if other else limit
            if not isinstance(least, int | float):
                return None
            return f"is {show(value)}, below {show(least)}" + (f" ({other})" if other else "") if value < least else ""
    return ""


def _stands_out(test: OutOfLine, amount: float, peers: Sequence[float]) -> str | None:
    if amount < test.floor:
        return ""
    if len(peers) < PEERS:
        return None
    usual = _median(peers)
    spread = max(SPREAD * _median([abs(peer - usual) for peer in peers]), LEAST_SPREAD)
    if (amount - usual) / spread < test.score:
        return ""
    return f"grew by {show(amount)} in {_span(test.within)}; its {len(peers)} peers by about {show(usual)}"


def _median(values: Sequence[float]) -> float:
    """The standard library's median is not used: its module would cost every agent a megabyte."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _span(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
