"""
Who is behind in the sequence of collectives, over all communicators that are known. Pure.

A rank that waits in a collective waits for the members of that group which have not entered it. Such a member may wait
itself, in another group. The rank that holds up the others is behind in some group and waits for none that is behind.
So a rank is *blamed* by a group in which others wait for it, and *excused* by a group in which it waits for others, or
for a member of which nothing is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from healthd.core.hang.suspects.evidence import GroupProgress, RankEvidence, Source

_UNEQUAL = "; "
"""Between the words of several groups."""
_MOST_WORDS = 2
"""Groups that are named for one rank."""


class Behind(NamedTuple):
    """What the communicators say. Words by rank."""

    ranks: Mapping[int, Blame]
    without_record: Sequence[int]
    """Ranks of which a recorder has nothing, while most others wait in a collective."""
    is_circle: bool
    """Each rank that is waited for waits itself. The ranks call collectives in different orders."""
    is_split: bool
    """Ranks called different collectives at the same place of a group, and no majority called the same one."""
    waits_for_unknown: bool
    """Ranks wait in a group that has members of which nothing is known."""


class Blame(NamedTuple):
    """Why a rank holds up others."""

    source: Source
    words: str


class _Member(NamedTuple):
    rank: int
    progress: GroupProgress

    @property
    def may_wait(self) -> bool:
        """RAS counts what was entered, and not what has ended."""
        return self.progress.waits is not False


def find_behind(ranks: Sequence[RankEvidence]) -> Behind:
    """Who is behind in its communicators. Cost: linear in all entries of all ranks."""
    blamed: dict[int, list[Blame]] = defaultdict(list)
    excused: set[int] = set()
    for_unknown: set[int] = set()
    is_split = False
    for members in _groups(ranks):
        excused |= _excused(members)
        for_unknown |= _waiting_for_unknown(members)
        is_split |= _is_split(members)
        for rank, blame in _blamed(members):
            blamed[rank].append(blame)
    guilty = {rank: _joined(blames) for rank, blames in blamed.items() if rank not in excused | for_unknown}
    is_circle = bool(blamed) and not guilty and not for_unknown
    return Behind(guilty, _without_record(ranks), is_circle, is_split, waits_for_unknown=bool(for_unknown))


def _groups(ranks: Iterable[RankEvidence]) -> Iterable[Sequence[_Member]]:
    groups: dict[tuple[Source, str], list[_Member]] = defaultdict(list)
    for evidence in ranks:
        for progress in evidence.groups:
            groups[progress.source, progress.group].append(_Member(evidence.rank, progress))
    return groups.values()


def _excused(members: Sequence[_Member]) -> set[int]:
    """Those who wait for a member that is behind them."""
    low = min(member.progress.number for member in members)
    return {member.rank for member in members if member.may_wait and member.progress.number > low}


def _waiting_for_unknown(members: Sequence[_Member]) -> set[int]:
    """Those who are the furthest in a group with members of which nothing is known."""
    if all(len(members) >= member.progress.size for member in members):
        return set()
    front = max(member.progress.number for member in members)
    return {member.rank for member in members if member.may_wait and member.progress.number == front}


def _blamed(members: Sequence[_Member]) -> Iterator[tuple[int, Blame]]:
    waiting = [member for member in members if member.may_wait]
    if not waiting:
        return
    front = max(member.progress.number for member in waiting)
    behind = [member for member in members if member.progress.number < front]
    if behind:
        ahead = len(members) - len(behind)
        yield from ((member.rank, _is_behind(member, front, ahead)) for member in behind)
    else:
        yield from _mismatched(waiting)


def _is_behind(member: _Member, front: int, ahead: int) -> Blame:
    progress = member.progress
    others = "1 rank is" if ahead == 1 else f"{ahead:,} ranks are"
    words = f"entered {progress.number:,} collectives of {progress.group}; {others} in number {front:,}"
    return Blame(progress.source, words)


def _mismatched(waiting: Sequence[_Member]) -> Iterator[tuple[int, Blame]]:
    """Members that are in another operation than the majority, at the same place of the sequence."""
    number, called = _called(waiting)
    usual = _majority(called.values())
    count = sum(name == usual for name in called.values())
    group = waiting[0].progress
    for rank, name in called.items() if usual else ():
        if name != usual:
            words = f"called {name} as number {number:,} of {group.group}; {count:,} ranks called {usual}"
            yield rank, Blame(group.source, words)


def _is_split(members: Sequence[_Member]) -> bool:
    waiting = [member for member in members if member.may_wait]
    if not waiting:
        return False
    names = _called(waiting)[1].values()
    return len(set(names)) > 1 and not _majority(names)


def _called(waiting: Sequence[_Member]) -> tuple[int, dict[int, str]]:
    """The place in which the last of *waiting* is, and what each rank called there, where that is known."""
    number = min(member.progress.number for member in waiting)
    return number, {member.rank: name for member in waiting if (name := _name_at(member.progress, number))}


def _majority(names: Collection[str]) -> str:
    """What more than half of *names* are. Empty: nothing is."""
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    return name if 2 * count > len(names) else ""


def _name_at(progress: GroupProgress, number: int) -> str:
    return next((each.name for each in reversed(progress.recent) if each.number == number), "")


def _joined(blames: Sequence[Blame]) -> Blame:
    shown = _UNEQUAL.join(blame.words for blame in blames[:_MOST_WORDS])
    more = len(blames) - _MOST_WORDS
    return Blame(blames[0].source, f"{shown} (and in {more:,} more groups)" if more > 0 else shown)


def _without_record(ranks: Sequence[RankEvidence]) -> list[int]:
    """Nothing where fewer than half of the ranks have a record, or none of them waits."""
    silent = [each.rank for each in ranks if not any(g.source is Source.RECORDER for g in each.groups)]
    waits = any(g.waits for each in ranks for g in each.groups if g.source is Source.RECORDER)
    return silent if waits and 2 * len(silent) <= len(ranks) else []
