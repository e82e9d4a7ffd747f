"""
Gangs that hang, played from a seed: ranks that run a training program over tensor-parallel and data-parallel groups.

Each rank has a program of collectives. It enters them in order, and goes on when all members of the group have entered.
A rank with a fault stops before one of them, or calls another one. The gang then stops by itself, as a real one does.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from healthd.core.hang.suspects.evidence import (
    MOST_RECENT,
    Activity,
    Collective,
    Frame,
    GroupProgress,
    ProcessEvidence,
    RankEvidence,
    Source,
    Stack,
    TaskState,
)

GPUS_A_NODE = 8
WAITING = Stack(
    (
        Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3007),
        Frame("step", "train.py", 40),
        Frame("main", "train.py", 71),
    )
)
LOADING = Stack(
    (Frame("__getitem__", "dataset.py", 12), Frame("fetch", "data/_utils/fetch.py", 52), WAITING.frames[-1])
)


class Call(NamedTuple):
    """One collective of a program. *blocks*: the rank waits for it before its next call."""

    group: str
    name: str
    blocks: bool = True


class Shape(NamedTuple):
    """The layout of a gang: ranks of one tensor-parallel group are on one node."""

    ranks: int
    tensor_parallel: int = GPUS_A_NODE

    def groups_of(self, rank: int) -> tuple[str, str]:
        """The tensor-parallel and the data-parallel group of *rank*."""
        return f"tp-{rank // self.tensor_parallel}", f"dp-{rank % self.tensor_parallel}"

    def node_of(self, rank: int) -> str:
        return f"node-{rank // GPUS_A_NODE}"


def program(shape: Shape, rank: int, *, steps: int = 2, layers: int = 4) -> list[Call]:
    """Forward and backward passes over tensor-parallel groups; gradients overlap; one barrier of all at the end."""
    tensor, data = shape.groups_of(rank)
    step = [Call(tensor, "all_reduce") for _ in range(2 * layers)]
    step += [call for _ in range(layers) for call in (Call(tensor, "all_reduce"), Call(data, "reduce_scatter", False))]
    return [*step, Call(data, "all_gather"), Call("world", "barrier")] * steps


TRANSFER = "transfer"
"""Begins the name of a group of two ranks of a pipeline. No record shows transfers."""


def pipeline_program(stages: int, replicas: int, rank: int, *, steps: int = 2, batches: int = 4) -> list[Call]:
    """Micro-batches go through the stages and back. Then the replicas of a stage reduce their gradients."""
    stage = rank // replicas
    before = [Call(f"{TRANSFER} {rank - replicas}-{rank}", "recv")] if stage else []
    after = [Call(f"{TRANSFER} {rank}-{rank + replicas}", "send")] if stage < stages - 1 else []
    step = (before + after) * batches + (after + before) * batches
    return [*step, Call(f"dp-{stage}", "all_reduce"), Call("world", "all_reduce")] * steps


class Played(NamedTuple):
    """How far each rank came: calls that it entered, by rank and group, and the groups where one has not ended."""

    entered: Mapping[int, Mapping[str, Sequence[str]]]
    pending: Mapping[int, frozenset[str]]
    sizes: Mapping[str, int]
    """Members of each group."""


def play(programs: Mapping[int, Sequence[Call]], stops_at: Mapping[int, int]) -> Played:
    """Run *programs* until no rank moves. A rank in *stops_at* never enters the call with that place in its program."""
    members: dict[str, set[int]] = defaultdict(set)
    for rank, calls in programs.items():
        for call in calls:
            members[call.group].add(rank)
    entered: dict[int, dict[str, list[str]]] = {
        rank: {call.group: [] for call in calls} for rank, calls in programs.items()
    }
    arrived: dict[tuple[str, int], int] = defaultdict(int)
    waiting_for: dict[tuple[str, int], list[int]] = defaultdict(list)
    at = dict.fromkeys(programs, 0)
    ready = list(programs)
    while ready:
        rank = ready.pop()
        while at[rank] < len(programs[rank]) and at[rank] != stops_at.get(rank):
            call = programs[rank][at[rank]]
            entered[rank][call.group].append(call.name)
            at[rank] += 1
            instance = (call.group, len(entered[rank][call.group]))
            arrived[instance] += 1
            if arrived[instance] == len(members[call.group]):
                ready += waiting_for.pop(instance, [])
            elif call.blocks:
                waiting_for[instance].append(rank)
                break
    pending = {rank: frozenset(_pending(mine, members, arrived)) for rank, mine in entered.items()}
    return Played(entered, pending, {group: len(ranks) for group, ranks in members.items()})


def _pending(
    mine: Mapping[str, Sequence[str]], members: Mapping[str, set[int]], arrived: Mapping[tuple[str, int], int]
) -> Iterator[str]:
    for group, names in mine.items():
        if arrived[group, len(names)] < len(members[group]):
            yield group


def recorded(played: Played, rank: int, *, source: Source = Source.RECORDER) -> tuple[GroupProgress, ...]:
    """What the flight recorder has of *rank*, or RAS, which sees counts alone."""
    is_recorder = source is Source.RECORDER
    return tuple(
        GroupProgress(
            group,
            len(names),
            source,
            waits=group in played.pending[rank] if is_recorder else None,
            size=played.sizes[group],
            recent=tuple(
                Collective(number, name) for number, name in list(enumerate(names, 1))[-MOST_RECENT:] if is_recorder
            ),
        )
        for group, names in played.entered[rank].items()
        if not group.startswith(TRANSFER)
    )


def evidence(
    shape: Shape,
    rank: int,
    *,
    groups: tuple[GroupProgress, ...] = (),
    state: TaskState | None = None,
    syscall: str = "",
    stack: Stack | None = None,
    cpu: float | None = None,
    lost_by_ras: str = "",
) -> RankEvidence:
    """What is known of *rank*; by default only where it is."""
    return RankEvidence(
        rank,
        pod=f"train-{rank // GPUS_A_NODE}",
        node=shape.node_of(rank),
        gpus=(f"GPU-{rank}",),
        groups=groups,
        process=None if state is None else ProcessEvidence(state, "python3", 1000 + rank, syscall),
        stack=stack,
        activity=None if cpu is None else Activity(cpu=cpu),
        lost_by_ras=lost_by_ras,
    )


def stopped_gang(
    shape: Shape, culprits: Sequence[int], seed: int, *, source: Source = Source.RECORDER
) -> list[RankEvidence]:
    """The culprits stop at one random place of their program, as the ranks of one tensor-parallel group would."""
    programs = {rank: program(shape, rank) for rank in range(shape.ranks)}
    place = random.Random(seed).randrange(len(programs[0]))
    played = play(programs, dict.fromkeys(culprits, place))
    return [evidence(shape, rank, groups=recorded(played, rank, source=source)) for rank in range(shape.ranks)]
