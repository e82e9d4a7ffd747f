"""
What a fault would cost a gang now, or has cost it: in numbers, and in words for people.

Only computes, from what the pre-check wrote on the root (`core.checkpoint.precheck`) and from ended recoveries.
`healthd explain` and `healthd doctor` both use it; the metrics have the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from statistics import median

import msgspec

from healthd.core.api import GangRef, Recovery
from healthd.core.api.model import Phase
from healthd.core.api.save_stats import Concern
from healthd.core.checkpoint.precheck import (
    is_unchecked,
    is_unread,
    lost_work,
    named_save,
    newest_save,
    spoken,
    usual_interval,
)
from healthd.core.recovery.gang import Root
from healthd.core.recovery.terms import KUBERNETES, Terms


class Stake(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault would cost now. Durations are milliseconds; None for an unknown one."""

    lost_ms: float
    """Work since the newest checkpoint that the gang would resume from, or since the gang was started."""
    newest: str
    """The newest checkpoint on record, in words; empty: none was observed so far."""
    newest_step: int | None
    newest_at: datetime | None
    is_unchecked: bool
    """The newest one was seen after the last check, by its name alone."""
    good: str
    """The newest good checkpoint at the last check, in words; empty: none was good so far."""
    began_at: datetime | None
    """When the gang was started, if that is after the newest checkpoint: work before that is not lost."""
    interval_ms: float | None
    """How often a new checkpoint is usually seen. A gang that saves more often than it is read saves more often."""
    restart_ms: float | None
    """How long its recoveries took, from the fault to a new step; if it has none, those of other known gangs."""
    restarts: int
    """How many recoveries that value is from."""
    is_unread: bool
    """The store did not answer at the last check: whether the newest is still good is unknown."""
    holds: bool
    """No existing checkpoint is usable: a fault would hold the gang."""
    refused: str
    """The newest checkpoint, if it would be refused; else empty."""
    why_refused: str
    concerns: list[Concern]


def at_stake(root: Root, now: datetime, recoveries: Iterable[Recovery] = ()) -> Stake | None:
    """What a fault would cost *root* now; None when that is unknown. *recoveries* show how long restarts take."""
    lost, usual = lost_work(root, now), usual_interval(root)
    if lost is None:
        return None
    saves, took = root.saves, restarts(root.ref, recoveries)
    newest = newest_save(root)
    return Stake(
        lost_ms=_milliseconds(lost),
        newest=named_save(newest) if newest else "",
        newest_step=newest.step if newest and newest.step >= 0 else None,
        newest_at=newest.at if newest else None,
        is_unchecked=newest is not None and is_unchecked(root, newest),
        good=named_save(saves.good[-1]) if saves.good else "",
        began_at=root.started_at if newest and root.started_at and root.started_at > newest.at else None,
        interval_ms=_milliseconds(usual) if usual else None,
        restart_ms=median(took) if took else None,
        restarts=len(took),
        is_unread=is_unread(root),
        holds=saves.none_loads,
        refused=saves.refused,
        why_refused=saves.why_refused,
        concerns=list(saves.concerns),
    )


def restarts(gang: GangRef, recoveries: Iterable[Recovery]) -> list[float]:
    """Milliseconds that each successful recovery of *gang* took; if there is none, those of all gangs."""
    over = [each for each in recoveries if each.status.phase is Phase.RECOVERED and each.status.timeline]
    own = [each for each in over if each.spec.gang == gang]
    return [_took(each) for each in own or over]


def lost_before(recovery: Recovery, saved: datetime | None) -> float | None:
    """
    Milliseconds of work between *saved* and the first fault of *recovery*.

    *saved* is when the checkpoint to resume from was saved. If the gang was started later than that, work counts from
    the start. None when *saved* is unknown.
    """
    if saved is None:
        return None
    fault = min(cause.at for cause in recovery.status.causes or [recovery.spec.cause])
    began = [pod.since for pod in recovery.status.pods if pod.since and pod.since <= fault]
    return max(0.0, _milliseconds(fault - max([saved, *began])))


def cost_lines(stake: Stake, terms: Terms = KUBERNETES) -> Iterator[str]:
    """The cost in words, one fact per line."""
    yield cost_line(stake)
    if stake.holds:
        yield f"a fault now would hold the {terms.gang}: nothing that is there would be resumed from"
    if stake.is_unread:
        yield f"whether anything would be resumed from is not known now: {stake.why_refused}"
    elif stake.refused:
        yield f"{stake.refused} would be refused: {stake.why_refused}"


def cost_line(stake: Stake) -> str:
    """The cost in words: how much work, and since when."""
    return f"a fault now would cost {_spoken(stake.lost_ms)} of work: {'; '.join(_facts(stake))}"


def _facts(stake: Stake) -> Iterator[str]:
    good = f"the newest good checkpoint {'was' if stake.holds else 'is'} {stake.good}"
    if stake.is_unchecked:
        yield f"the newest checkpoint, {stake.newest}, has not been checked yet"
        good = f"the newest good one at the last check was {stake.good}"
    yield good if stake.good else "none was good so far"
    if stake.began_at is not None:
        yield f"it was set going after that, at {stake.began_at:%H:%M:%S}"
    if stake.interval_ms is not None:
        yield f"a new one is seen every {_spoken(stake.interval_ms)}"
    if stake.restart_ms is not None:
        took = _spoken(stake.restart_ms)
        yield (
            f"a restart took {took} (the middle of {stake.restarts})"
            if stake.restarts > 1
            else f"the last restart took {took}"
        )


def _took(recovery: Recovery) -> float:
    status = recovery.status
    return _milliseconds((status.ended_at or status.timeline[-1].at) - status.timeline[0].at)


def _spoken(ms: float) -> str:
    return spoken(timedelta(milliseconds=ms))


def _milliseconds(duration: timedelta) -> float:
    return round(duration / timedelta(milliseconds=1), 3)
