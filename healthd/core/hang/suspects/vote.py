"""
Which rank of a gang holds up the others, by everything that is known of each of them. Pure.

The strongest kind of evidence that names ranks decides: behind in the sequence of collectives, then a process that is
stopped or dead, then lost connections, then one that does something else while others wait for it, then a stack like
no other, then one that computes while others sleep, then one that uses no processor at all, then one that waits for a
file, then a state or an activity like no other. Weaker kinds that name the same rank add to the confidence; they name
no further rank. No suspect is a valid answer: the reason says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby
from math import prod

from msgspec import Struct

from healthd.core.api.recoveries import MOST_SUSPECTS
from healthd.core.hang.suspects.evidence import ProcessEvidence, RankEvidence, Source, TaskState
from healthd.core.hang.suspects.links import LostLinks, find_awaited, find_lost
from healthd.core.hang.suspects.outliers import (
    Odd,
    computing,
    in_files,
    most_outside,
    odd_activity,
    odd_stacks,
    odd_states,
    spoken_state,
    that_wait,
    unlike_each_other,
    without_processor,
)
from healthd.core.hang.suspects.sequence import Behind, find_behind

_SEES = {
    Source.RECORDER: "collectives",
    Source.RAS: "collectives",
    Source.PROCESS: "kernel",
    Source.ACTIVITY: "kernel",
    Source.CONNECTIONS: "network",
    Source.STACK: "program",
}
"""Witnesses that read the same thing in two ways err together: they are not independent."""


class Witness(Struct, frozen=True):
    """What one source says of one rank, in plain words."""

    rank: int
    source: Source
    words: str
    weight: float
    """The probability that the rank is the right one, if this were all that is known."""


class Suspect(Struct, frozen=True):
    """A rank that may hold up the others."""

    rank: int
    pod: str
    node: str
    gpus: tuple[str, ...]
    confidence: float
    witnesses: tuple[Witness, ...]
    """At most one of each source; the strongest first."""

    @property
    def strength(self) -> int:
        """How many of the witnesses are independent of each other."""
        return len({_SEES[witness.source] for witness in self.witnesses})


class HangLocation(Struct, frozen=True):
    """The result of the vote."""

    ranks: int
    """Of which anything was known."""
    suspects: tuple[Suspect, ...] = ()
    """The most probable first."""
    more_suspects: int = 0
    reason: str = ""
    """Why there is no suspect."""

    @property
    def nodes(self) -> list[str]:
        """The nodes of the suspects, each once, in their order."""
        return list(dict.fromkeys(suspect.node for suspect in self.suspects if suspect.node))


_BEHIND, _MISMATCH_OR_RAS = 0.9, 0.85
_STOPPED, _LOST, _BLOCKED, _WITHOUT_RECORD = 0.9, 0.8, 0.5, 0.35
_LINKS, _LINKS_MAYBE, _AWAITED = 0.8, 0.5, 0.6
_OUTSIDE, _COMPUTES, _NO_PROCESSOR, _UNLIKE, _ACTIVITY = 0.6, 0.5, 0.6, 0.4, 0.35
_NO_STACKS = "no Python stack was read, which would tell most (it needs py-spy)"


def vote(ranks: Sequence[RankEvidence]) -> HangLocation:
    """
    The suspects among *ranks*, which are all ranks of one gang; those of which nothing is known may be left out.

    Cost: linear in the size of the evidence, and n log n in the ranks.
    """
    behind, lost = find_behind(ranks), find_lost(ranks)
    strong: Sequence[list[Witness]] = (
        list(_sequence(behind)),
        list(_processes(ranks, behind)),
        list(_links(lost)),
    )
    waiting = that_wait(ranks)
    weak: Sequence[list[Witness]] = (
        list(_awaited(ranks)),
        list(_differ(odd_stacks(ranks), Source.STACK, _UNLIKE)),
        list(_differ(computing(ranks), Source.ACTIVITY, _COMPUTES)),
        list(_differ(without_processor(ranks), Source.ACTIVITY, _NO_PROCESSOR, but=waiting)),
        list(_differ(in_files(ranks), Source.PROCESS, _UNLIKE)),
        [
            *_differ(odd_states(ranks), Source.PROCESS, _UNLIKE, but=waiting),
            *_differ(odd_activity(ranks), Source.ACTIVITY, _ACTIVITY, but=waiting),
        ],
    )
    kinds = [*strong, *weak]
    deciding = strong if lost.reason else kinds  # two ranks that cannot talk explain the hang: others only wait
    named = next((named for kind in deciding if (named := _named(kind, len(ranks)))), None)
    if named is None:
        return HangLocation(ranks=len(ranks), reason=lost.reason or _why_none(ranks, behind, kinds))
    suspects = sorted(_suspects(ranks, named, kinds), key=lambda suspect: (-suspect.confidence, suspect.rank))
    more = max(0, len(suspects) - MOST_SUSPECTS)
    return HangLocation(ranks=len(ranks), suspects=tuple(suspects[:MOST_SUSPECTS]), more_suspects=more)


def _named(witnesses: Sequence[Witness], ranks: int) -> set[int]:
    """The ranks that one kind of evidence names. None where they are more than half: then they are no exception."""
    named = {witness.rank for witness in witnesses}
    return named if 2 * len(named) <= ranks else set()


def _sequence(behind: Behind) -> Iterator[Witness]:
    for rank, blame in behind.ranks.items():
        weight = _BEHIND if blame.source is Source.RECORDER else _MISMATCH_OR_RAS
        yield Witness(rank, blame.source, blame.words, weight)


def _processes(ranks: Iterable[RankEvidence], behind: Behind) -> Iterator[Witness]:
    for each in ranks:
        if each.process is not None and (weight := _state_weight(each.process)):
            yield Witness(each.rank, Source.PROCESS, spoken_process(each.process), weight)
        if each.lost_by_ras:
            yield Witness(each.rank, Source.RAS, f"does not answer over the RAS network: {each.lost_by_ras}", _LOST)
    for rank in behind.without_record:
        yield Witness(rank, Source.RECORDER, "has left no record, while others wait in a collective", _WITHOUT_RECORD)


def _state_weight(process: ProcessEvidence) -> float:
    match process.state:
        case TaskState.STOPPED | TaskState.FROZEN | TaskState.ZOMBIE | TaskState.GONE:
            return _STOPPED
        case TaskState.UNINTERRUPTIBLE:
            return _BLOCKED
        case _:
            return 0.0


def spoken_process(process: ProcessEvidence) -> str:
    """*process* in a sentence, without a subject."""
    which = f"process {process.pid} ({process.name})" if process.pid else "its process"
    where = process.syscall or process.wchan
    match process.state:
        case TaskState.UNINTERRUPTIBLE:
            return f"{which} is in the kernel and cannot be interrupted" + (f", in {where}" if where else "")
        case TaskState.GONE:
            return f"{which} is gone"
        case state:
            return f"{which} is {state}" + (f" in {where}" if where else "")


def _links(lost: LostLinks) -> Iterator[Witness]:
    for rank, suspicion in lost.suspects.items():
        weight = _LINKS if suspicion.is_clear else _LINKS_MAYBE
        yield Witness(rank, Source.CONNECTIONS, suspicion.words, weight)


def _awaited(ranks: Sequence[RankEvidence]) -> Iterator[Witness]:
    """The kernel says for which peer a thread waits, so this needs no majority."""
    waiting = find_awaited(ranks)
    for each in ranks:
        if each.rank in waiting and each.process is not None:
            number = waiting[each.rank]
            others = "1 rank waits" if number == 1 else f"{number:,} ranks wait"
            words = f"is {spoken_state(each.process)}; {others} for it"
            yield Witness(each.rank, Source.PROCESS, words, _AWAITED)


def _differ(odd: Iterable[Odd], source: Source, weight: float, *, but: Container[int] = ()) -> Iterator[Witness]:
    for each in odd:
        if each.rank not in but:
            yield Witness(each.rank, source, each.words, _OUTSIDE if each.others_wait else weight)


def _suspects(ranks: Iterable[RankEvidence], named: set[int], kinds: Iterable[Iterable[Witness]]) -> Iterator[Suspect]:
    heard: dict[int, list[Witness]] = defaultdict(list)
    for witness in (witness for kind in kinds for witness in kind):
        heard[witness.rank].append(witness)
    for each in ranks:
        if each.rank in named:
            words = _one_of_each(heard[each.rank], lambda witness: witness.source)
            doubt = prod(1 - witness.weight for witness in words)
            yield Suspect(each.rank, each.pod, each.node, each.gpus, round(1 - doubt, 3), words)


def _one_of_each(witnesses: Iterable[Witness], source: Callable[[Witness], Source]) -> tuple[Witness, ...]:
    """The strongest of each source: a source that speaks twice is still one."""
    ordered = sorted(witnesses, key=lambda witness: (source(witness), -witness.weight))
    strongest = [next(same) for _, same in groupby(ordered, key=source)]
    return tuple(sorted(strongest, key=lambda witness: -witness.weight))


def _why_none(ranks: Sequence[RankEvidence], behind: Behind, kinds: Iterable[Iterable[Witness]]) -> str:
    if not ranks:
        return "nothing is known of any rank"
    if len(ranks) == 1:
        return "only one rank is known, so there is no other to compare it with"
    if behind.is_circle:
        return "the ranks wait for each other in a circle: they call their collectives in different orders"
    if behind.is_split:
        return "the ranks called different collectives at the same place, and no majority called the same"
    if behind.waits_for_unknown:
        return "ranks wait for members of their groups of which nothing is known"
    if why := most_outside(ranks):
        return why
    if any(True for kind in kinds for _ in kind):
        return "more than half of the ranks differ from the others in the same way"
    if why := unlike_each_other(ranks):
        return f"the ranks do different things, and nothing shows which of them the others wait for: {why}"
    if all(each.groups for each in ranks):
        return "no rank is behind another, none is stopped, and all do the same"
    why = "no rank differs from the others in what is known of them"
    return why if any(each.stack for each in ranks) else f"{why}; {_NO_STACKS}"
