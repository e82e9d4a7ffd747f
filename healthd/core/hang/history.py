"""
What each member of a gang did in the last minutes before a hang, as a few signs for each: small enough to be stored.

A sign is the mean of some seconds: 1 (little) to 7 (its usual work), 0 (none), `w` (it uses a processor and does
nothing else), `.` (no sample). Pure.

A step may be so long that a rank computes for seconds without a wait or new memory. That looks as polling does, but
other work follows within the pauses that are usual for the rank. So it is drawn as the mean of its step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from math import ceil
from statistics import median_low
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from healthd.core.hang.rhythm import Activity, Rhythm, classify
from healthd.core.hang.samples import KEPT, Rates, SampleRing
from healthd.core.hang.silence import GangRhythm, Silence
from healthd.core.hang.suspects.evidence import Count
from healthd.core.untrusted import Moment

HIGHEST = 7
"""The usual work of a rank, or more."""
WAITS = "w"
UNSEEN = "."
MOST_SIGNS = 96
"""Of one rank."""
MOST_RANKS = 48
"""Stored: about 6 KB."""
FULL = 0.9
"""Share of the usual mean of all signals that counts as usual work: samples vary."""
SHORTEST = timedelta(minutes=2)
TIMES = 3
"""The picture is so many times as long as the silence, as far as there are samples: what was usual before shows."""

Signs = Annotated[str, Meta(max_length=MOST_SIGNS, pattern=r"^[0-7w.]*\Z")]


class RankHistory(Struct, frozen=True):
    """One rank, the oldest sign first."""

    rank: Count
    signs: Signs


class ActivityHistory(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """All ranks over the same time."""

    start: Moment
    interval: Annotated[int, Meta(ge=1, le=3600)]
    """Seconds that one sign covers."""
    ranks: Annotated[tuple[RankHistory, ...], Meta(max_length=MOST_RANKS)] = ()
    left_out: Count = 0
    """Ranks that had no room."""

    @property
    def end(self) -> datetime:
        """The end of the last sign."""
        return self.start + timedelta(seconds=self.interval * max((len(each.signs) for each in self.ranks), default=0))


def history_of(rhythm: GangRhythm, silence: Silence) -> ActivityHistory:
    """What the members of *rhythm* did until *silence* was seen. Members whose rank is no number are left out."""
    quiet = silence.seen_at - silence.since
    span = min(max(SHORTEST, TIMES * quiet), timedelta(seconds=KEPT)).total_seconds()
    interval = ceil(span / MOST_SIGNS)
    count = ceil(span / interval)
    start = silence.seen_at - timedelta(seconds=count * interval)
    ranks = [
        RankHistory(int(rank), _signs(member.ring, member.rhythm, start.timestamp(), interval, count))
        for rank, member in rhythm.members.items()
        if rank.isascii() and rank.isdecimal() and member.rhythm is not None
    ]
    return ActivityHistory(start=start, interval=interval, ranks=tuple(sorted(ranks, key=lambda each: each.rank)))


def most_telling(history: ActivityHistory, suspects: Collection[int], most: int = MOST_RANKS) -> ActivityHistory:
    """*history* with at most *most* ranks: *suspects*, the one that stopped first, and those that are like most."""
    if len(history.ranks) <= most:
        return history
    usual = [median_low(column) for column in zip(*(_levels(each) for each in history.ranks), strict=False)]
    first = min(history.ranks, key=_last_work)
    ordered = sorted(
        history.ranks,
        key=lambda each: (each.rank not in suspects, each is not first, _distance(_levels(each), usual), each.rank),
    )
    kept = tuple(sorted(ordered[:most], key=lambda each: each.rank))
    return replace(history, ranks=kept, left_out=history.left_out + len(history.ranks) - most)


def merged(signs: str, together: int) -> str:
    """*signs* with so many *together* in one."""
    return "".join(_sign(signs[at : at + together]) for at in range(0, len(signs), max(1, together)))


def level_of(sign: str) -> int:
    """The level of work that *sign* stands for, from 0 to `HIGHEST`."""
    return int(sign) if sign.isdecimal() else 0


def _signs(ring: SampleRing, rhythm: Rhythm, start: float, interval: int, count: int) -> str:
    """A sample covers the second before it."""
    columns: list[list[str]] = [[] for _ in range(count)]
    samples = [Rates(*each) for each in zip(*(ring.newest(name) for name in Rates._fields), strict=True)]
    for at, sign in zip(ring.times(), _signs_of_samples(samples, rhythm), strict=True):
        if 0 <= (column := ceil((at - start) / interval) - 1) < count:  # the clock may have been set back
            columns[column].append(sign)
    return "".join(_sign(column) for column in columns)


def _signs_of_samples(samples: Sequence[Rates], rhythm: Rhythm) -> list[str]:
    activities = [classify(sample, rhythm) for sample in samples]
    signs = [_sign_of_sample(*each, rhythm) for each in zip(samples, activities, strict=True)]
    for quiet, end in _parts_of_steps(activities, rhythm.gap + 1):
        if any(activities[at] is Activity.SPINNING for at in quiet):
            step = zip(*samples[quiet.start : end], strict=True)
            level = _level(Rates(*(sum(values) / (end - quiet.start) for values in step)), rhythm)
            signs[quiet.start : quiet.stop] = [level if signs[at] == WAITS else signs[at] for at in quiet]
    return signs


def _parts_of_steps(activities: Sequence[Activity], most: float) -> Iterator[tuple[range, int]]:
    """The stretches of at most *most* samples without work that work followed, each with the end of that work."""
    begin, runs = 0, list[tuple[bool, range]]()
    for is_work, run in groupby(activities, lambda each: each is Activity.WORKING):
        end = begin + sum(1 for _ in run)
        runs.append((is_work, range(begin, end)))
        begin = end
    for (is_work, run_), (_, after) in pairwise(runs):
        if not is_work and len(run_) <= most:
            yield run_, after.stop


def _sign_of_sample(sample: Rates, activity: Activity, rhythm: Rhythm) -> str:
    if activity is not Activity.WORKING:
        return WAITS if activity is Activity.SPINNING else "0"
    return _level(sample, rhythm)


def _level(sample: Rates, rhythm: Rhythm) -> str:
    return str(max(1, round(HIGHEST * min(1.0, _share_of_usual(sample, rhythm.means) / FULL))))


def _share_of_usual(sample: Rates, means: Mapping[str, float]) -> float:
    """Of 1, over all signals that tell something: what one does more does not make up for another."""
    shares: list[float] = [min(1.0, getattr(sample, name) / mean) for name, mean in means.items()]
    return sum(shares) / len(shares)


def _sign(signs: Sequence[str]) -> str:
    """One for several: any work shows."""
    seen = [sign for sign in signs if sign != UNSEEN]
    if not seen:
        return UNSEEN
    if work := sum(map(level_of, seen)):
        return str(max(1, round(work / len(seen))))
    return WAITS if WAITS in seen else "0"


def _levels(history: RankHistory) -> list[int]:
    return [level_of(sign) for sign in history.signs]


def _last_work(history: RankHistory) -> int:
    return max((number for number, sign in enumerate(history.signs) if level_of(sign)), default=-1)


def _distance(levels: Sequence[int], usual: Sequence[int]) -> int:
    return sum(abs(level - other) for level, other in zip(levels, usual, strict=False))
