"""
Ranks that differ from the others: in what their main thread or their process does, and in how much they do. Pure.

In a gang that hangs, most ranks do the same: they wait for one that does something else. Nothing is said where no clear
majority does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import takewhile
from typing import NamedTuple

from healthd.core.hang.suspects.evidence import Activity, Frame, ProcessEvidence, RankEvidence, Stack, TaskState
from healthd.core.hang.suspects.places import function_of, spoken_place

_INNERMOST = 8
"""Frames that are searched for a wait."""
_ON_FILES = frozenset({"openat", "newfstatat", "fsync", "fdatasync", "pread64", "pwrite64"})
"""System calls that no other rank lets return. A lock or a pipe may be held by one, and a socket may be its own."""
_COMPARED = 3
"""Innermost functions by which stacks are compared."""
_WAITS_IN = ("torch/distributed/", "torch/autograd/", "torch/cuda/", "torch/nn/parallel/")
"""Parts of paths of files of torch whose functions wait for other ranks, directly or through the GPU."""
_JAX = "jax/_src/"
_JAX_WAITS = frozenset({"block_until_ready", "_value"})
"""The functions of JAX that do so. Others of the same files trace and compile."""
_NO_WAIT = ("torch/distributed/run", "torch/distributed/elastic/", "torch/distributed/launch")
"""They begin the stack of every rank that these programs start."""
MOST_SHOWN = 3
"""Ranks that are in different functions."""
FEWEST = 3
"""With fewer ranks there is no majority."""
POLLS = 0.0005
"""Cores. A rank of torch that waits uses 0.0015 or more: threads of it wake up a thousand times a second."""


class Odd(NamedTuple):
    """One rank that differs, and whether most others clearly wait for it."""

    rank: int
    words: str
    others_wait: bool


class _Measure(NamedTuple):
    """How one rate is compared: *step* is the least difference that means something."""

    title: str
    read: Callable[[Activity], float | None]
    step: float
    unit: str


_CPU = _Measure("CPU", lambda a: a.cpu, 0.3, " cores")
_MEASURES = (
    _CPU,
    _Measure("GPU utilisation", lambda a: a.gpu_utilisation, 40.0, " %"),
    _Measure("GPU power", lambda a: a.gpu_power, 60.0, " W"),
    _Measure("I/O", lambda a: a.io, 1e6, " bytes/s"),
    _Measure("network", lambda a: a.network, 1e6, " bytes/s"),
)
_TIMES = 3.0
"""The two sides of a gap differ by at least this factor."""


class _Stacks(NamedTuple):
    """The stacks that are known, by rank: of those that wait for others, and of those outside of such a wait."""

    waiting: Mapping[int, Stack]
    outside: Mapping[int, Stack]
    in_threads: bool = False
    """They wait with another thread than that of the stack."""


def _stacks(ranks: Iterable[RankEvidence]) -> _Stacks:
    """
    A thread beside the program counts only where no program itself waits: each may have one that waits for others to
    save, or to end.
    """
    known = {each.rank: each.stack for each in ranks if each.stack is not None and each.stack.frames}
    waiting = {rank: stack for rank, stack in known.items() if wait_of(stack) is not None}
    in_threads = not waiting
    if in_threads:
        waiting = {rank: stack for rank, stack in known.items() if stack.thread_waits}
    return _Stacks(waiting, {rank: stack for rank, stack in known.items() if rank not in waiting}, in_threads)


def odd_stacks(ranks: Sequence[RankEvidence]) -> list[Odd]:
    """Ranks that do not wait where others do; else ranks whose stack is like no other."""
    waiting, outside, in_threads = _stacks(ranks)
    if not waiting or not outside:
        return _unlike({**waiting, **outside})
    if len(outside) > len(waiting):
        return []
    others = _others_wait(len(waiting), in_threads=in_threads)
    return [
        Odd(rank, f"is in {spoken_place(stack)}; {others}", others_wait=not in_threads)
        for rank, stack in outside.items()
    ]


def that_wait(ranks: Sequence[RankEvidence]) -> set[int]:
    """
    Ranks that wait for others by their stacks, beside some that do not, or that are asleep beside some that compute:
    whatever else they do differently, they hold up none.
    """
    waiting, outside, _ = _stacks(ranks)
    compute, asleep = _awake_and_asleep(ranks)
    return {*(waiting if outside else ()), *(asleep if compute else ())}


def most_outside(ranks: Iterable[RankEvidence]) -> str:
    """That more than half of the ranks do not wait for others, where some do. Empty: it is not so."""
    waiting, outside, _ = _stacks(ranks)
    if not waiting or len(outside) <= len(waiting):
        return ""
    rank, stack = next(iter(outside.items()))
    place = spoken_place(stack)
    return (
        f"{len(outside):,} of {len(outside) + len(waiting):,} ranks do not wait for others: rank {rank} is in {place}"
    )


def unlike_each_other(ranks: Iterable[RankEvidence]) -> str:
    """That ranks are in different functions. Empty: they are not."""
    waiting, outside, _ = _stacks(ranks)
    stacks = dict(sorted({**waiting, **outside}.items()))
    kinds = {_key(stack): rank for rank, stack in reversed(stacks.items())}
    if len(kinds) < 2:
        return ""
    shown = sorted(kinds.values())[:MOST_SHOWN]
    return "; ".join(f"rank {rank} is in {spoken_place(stacks[rank])}" for rank in shown)


def wait_of(stack: Stack) -> Frame | None:
    """
    The innermost frame of *stack* in which a rank waits for others. None: it does not wait for others, or is in the
    program's own code, which torch has called (a hook, the forward pass of a module).
    """
    inside = takewhile(lambda frame: not frame.is_own, stack.frames[:_INNERMOST])
    return next(filter(_is_wait, inside), None)


def waits_for_others_alone(stack: Stack) -> bool:
    """Whether it waits for other ranks by its stack. In those of JAX a rank waits for what it computes itself, too."""
    frame = wait_of(stack)
    return frame is not None and _JAX not in frame.file


def _is_wait(frame: Frame) -> bool:
    if _JAX in frame.file and frame.function in _JAX_WAITS:
        return True
    return any(part in frame.file for part in _WAITS_IN) and not any(part in frame.file for part in _NO_WAIT)


def _others_wait(number: int, *, in_threads: bool) -> str:
    ranks = "1 rank waits" if number == 1 else f"{number:,} ranks wait"
    return f"{ranks} in a collective or for the GPU{', in another thread' if in_threads else ''}"


def _unlike(stacks: Mapping[int, Stack]) -> list[Odd]:
    """One in eight at most: the stages of a pipeline have stacks of their own."""
    keys = {rank: _key(stack) for rank, stack in stacks.items()}
    if len(keys) < FEWEST:
        return []
    ((usual, _),) = Counter(keys.values()).most_common(1)
    odd = [rank for rank, key in keys.items() if key != usual]
    if len(odd) > max(1, len(keys) // 8):
        return []
    words = f"{len(keys) - len(odd):,} ranks are in {usual[0][0]}"
    return [Odd(rank, f"is in {spoken_place(stacks[rank])}; {words}", others_wait=False) for rank in odd]


def _key(stack: Stack) -> tuple[tuple[str, str], ...]:
    """Equal for stacks that are alike."""
    return tuple(map(function_of, stack.frames[:_COMPARED]))


def odd_states(ranks: Sequence[RankEvidence]) -> list[Odd]:
    """Ranks whose process runs while most others sleep, or sleeps in another system call. One in four at most."""
    states = {each.rank: spoken_state(each.process) for each in ranks if each.process is not None}
    if len(states) < FEWEST:
        return []
    ((usual, count),) = Counter(states.values()).most_common(1)
    odd = [rank for rank, state in states.items() if state != usual]
    if not _are_few(odd, states):
        return []
    return [Odd(rank, f"is {states[rank]}; {count:,} ranks are {usual}", others_wait=False) for rank in odd]


def computing(ranks: Sequence[RankEvidence]) -> list[Odd]:
    """Ranks that compute while others do not, where they are known to sleep while they wait. Two ranks are enough."""
    compute, asleep = _awake_and_asleep(ranks)
    if not asleep:
        return []
    others = "the other one is asleep" if len(asleep) == 1 else f"{len(asleep):,} ranks are asleep"
    words = f"uses a processor, as it does not while it waits; {others}"
    return [Odd(rank, words, others_wait=False) for rank in compute]


def _awake_and_asleep(ranks: Sequence[RankEvidence]) -> tuple[list[int], list[int]]:
    """The ranks that compute, and the others of which that is known. One that waits by its stack is among neither."""
    activities = {each.rank: each.activity for each in ranks if each.activity is not None}
    waiting = {each.rank for each in ranks if each.stack is not None and wait_of(each.stack) is not None}
    compute = [rank for rank, activity in activities.items() if activity.computes and rank not in waiting]
    return compute, [rank for rank, activity in activities.items() if not activity.computes]


def in_files(ranks: Iterable[RankEvidence]) -> list[Odd]:
    """Ranks that wait for a file, where none of the others does. Two ranks are enough: no rank waits for another so."""
    calls = {each.rank: each.process.syscall for each in ranks if each.process is not None and each.process.syscall}
    inside = [rank for rank, call in calls.items() if call in _ON_FILES]
    waiting = len(calls) - len(inside)
    if not inside or not waiting:
        return []
    others = "the other one does not" if waiting == 1 else f"{waiting:,} ranks do not"
    return [Odd(rank, f"waits for a file, in {calls[rank]}; {others}", others_wait=False) for rank in inside]


def _are_few(odd: Sized, ranks: Sized) -> bool:
    """One in four at most."""
    return len(odd) <= max(1, len(ranks) // 4)


def spoken_state(process: ProcessEvidence) -> str:
    """What *process* does, without a subject: `sleeping in futex`."""
    where = process.syscall or process.wchan
    if process.state is TaskState.RUNNING:
        return "running"
    return f"{process.state} in {where}" if where else f"{process.state}"


def without_processor(ranks: Iterable[RankEvidence]) -> list[Odd]:
    """
    Ranks that use no processor at all, not even for a thread that looks now and then whether something has come, while
    each of the others does. So nothing of them runs: they are stopped, frozen or dead. One in four at most.
    """
    used = dict(_values(ranks, _CPU))
    without = [rank for rank, cores in used.items() if cores == 0]
    others = [cores for cores in used.values() if cores > 0]
    if len(used) < FEWEST or not _are_few(without, used) or min(others, default=0.0) < POLLS:
        return []
    words = f"uses no processor at all; each of the others uses {min(others):,.2g} cores or more"
    return [Odd(rank, words, others_wait=False) for rank in without]


def odd_activity(ranks: Sequence[RankEvidence]) -> list[Odd]:
    """Ranks that do much less than most others, else much more. The first measure that has such ranks decides."""
    for measure in _MEASURES:
        values = dict(_values(ranks, measure))
        if odd := [*_apart(values, measure)]:
            return odd
    return []


def _values(ranks: Iterable[RankEvidence], measure: _Measure) -> Iterator[tuple[int, float]]:
    for each in ranks:
        if each.activity is not None and (value := measure.read(each.activity)) is not None:
            yield each.rank, value


def _apart(values: Mapping[int, float], measure: _Measure) -> Iterator[Odd]:
    """The smaller side of the widest gap, where it is a small minority."""
    if len(values) < FEWEST:
        return
    ordered = sorted(values, key=lambda rank: (values[rank], rank))
    gap, cut = max((values[ordered[n]] - values[ordered[n - 1]], n) for n in range(1, len(ordered)))
    low, high = values[ordered[cut - 1]], values[ordered[cut]]
    if gap < measure.step or high < _TIMES * low:
        return
    below, above = ordered[:cut], ordered[cut:]
    few, many = (below, above) if len(below) <= len(above) else (above, below)
    if not _are_few(few, ordered):
        return
    usual = values[many[len(many) // 2]]
    for rank in few:
        words = f"{measure.title} {values[rank]:,.4g}{measure.unit}; most ranks have {usual:,.4g}"
        yield Odd(rank, words, others_wait=False)
