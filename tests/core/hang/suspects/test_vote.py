"""Who holds up a gang: the vote over what each rank was doing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from time import process_time

import pytest
from msgspec.structs import replace

from healthd.core.api.recoveries import MOST_SUSPECTS
from healthd.core.hang.suspects.evidence import (
    Activity,
    Collective,
    Frame,
    GroupProgress,
    RankEvidence,
    Source,
    Stack,
    TaskState,
)
from healthd.core.hang.suspects.outliers import wait_of
from healthd.core.hang.suspects.stacks import NO_FUNCTION
from healthd.core.hang.suspects.vote import HangLocation, vote
from tests.core.hang.gangs import (
    LOADING,
    WAITING,
    Call,
    Played,
    Shape,
    evidence,
    pipeline_program,
    play,
    program,
    recorded,
    stopped_gang,
)

SMALL = Shape(ranks=16, tensor_parallel=4)
BACKWARD = (
    Frame("_engine_run_backward", "torch/autograd/graph.py", 869),
    Frame("backward", "torch/_tensor.py", 630),
    Frame("step", "job/train.py", 40, is_own=True),
)
"""Of a rank whose backward pass has called what is before it in the stack."""


def named(location: HangLocation) -> list[int]:
    return [suspect.rank for suspect in location.suspects]


class TestSequence:
    @pytest.mark.parametrize("seed", range(40))
    @pytest.mark.parametrize("source", [Source.RECORDER, Source.RAS])
    def test_the_rank_that_stopped_is_named_and_none_that_waits_for_it(self, seed: int, source: Source) -> None:
        culprit = random.Random(seed).randrange(SMALL.ranks)
        location = vote(stopped_gang(SMALL, [culprit], seed, source=source))
        assert named(location) == [culprit]
        assert location.suspects[0].node == SMALL.node_of(culprit)

    @pytest.mark.parametrize("seed", range(10))
    def test_all_ranks_of_a_node_that_stopped_are_named(self, seed: int) -> None:
        shape = Shape(ranks=64)
        location = vote(stopped_gang(shape, range(16, 24), seed))
        assert named(location) == list(range(16, 24))
        assert location.nodes == ["node-2"]

    def test_a_rank_that_calls_another_collective_is_named_with_both_names(self) -> None:
        programs = {rank: program(SMALL, rank) for rank in range(SMALL.ranks)}
        at = next(n for n, call in enumerate(programs[5]) if call.group == "world")
        programs[5][at] = Call("world", "all_gather")
        played = play(programs, {})
        stuck = play(programs, dict.fromkeys(programs, at + 1))
        assert played.entered != stuck.entered
        ranks = [evidence(SMALL, rank, groups=_all_wait(stuck, rank)) for rank in programs]
        location = vote(ranks)
        assert named(location) == [5]
        assert (
            "called all_gather as number 1 of world; 15 ranks called barrier" in location.suspects[0].witnesses[0].words
        )

    def test_two_ranks_that_call_different_collectives_have_no_culprit_but_a_reason(self) -> None:
        names = ["barrier", "all_reduce"]
        location = vote([evidence(SMALL, rank, groups=(_in(41, name),)) for rank, name in enumerate(names)])
        assert named(location) == []
        assert "different collectives at the same place" in location.reason

    def test_ranks_that_call_collectives_in_different_orders_have_no_culprit_but_a_reason(self) -> None:
        calls = [Call("a", "all_reduce"), Call("b", "all_reduce")]
        played = play({0: calls, 1: calls[::-1]}, {})
        location = vote([evidence(SMALL, rank, groups=recorded(played, rank)) for rank in (0, 1)])
        assert named(location) == []
        assert "in a circle" in location.reason

    def test_no_rank_is_named_when_all_are_in_the_same_collective(self) -> None:
        location = vote([evidence(SMALL, rank, groups=(_in(41, "all_reduce"),)) for rank in range(8)])
        assert named(location) == []
        assert location.reason == "no rank is behind another, none is stopped, and all do the same"

    def test_no_rank_is_named_when_one_is_ahead_of_all_others(self) -> None:
        numbers = [41, *[40] * 7]
        location = vote([evidence(SMALL, rank, groups=(_in(at, "all_reduce"),)) for rank, at in enumerate(numbers)])
        assert named(location) == []
        assert "more than half" in location.reason

    def test_a_rank_without_a_record_is_named_when_all_others_wait_together(self) -> None:
        ranks = [evidence(SMALL, rank, groups=(_in(41, "all_reduce"),) if rank != 3 else ()) for rank in range(8)]
        location = vote(ranks)
        assert named(location) == [3]
        assert location.suspects[0].confidence < 0.5


class TestRanksOfWhichNothingIsKnown:
    @pytest.mark.parametrize("seed", range(30))
    @pytest.mark.parametrize("source", [Source.RECORDER, Source.RAS])
    def test_none_of_those_who_wait_for_an_unknown_rank_is_named(self, seed: int, source: Source) -> None:
        culprit = random.Random(seed).randrange(SMALL.ranks)
        ranks = stopped_gang(SMALL, [culprit], seed, source=source)
        location = vote([each for each in ranks if each.rank != culprit])
        assert named(location) == []
        assert "of which nothing is known" in location.reason

    @pytest.mark.parametrize("seed", range(30))
    def test_the_right_rank_is_named_or_none_when_other_ranks_are_unknown(self, seed: int) -> None:
        chance = random.Random(seed)
        culprit = chance.randrange(SMALL.ranks)
        ranks = stopped_gang(SMALL, [culprit], seed)
        known = [each for each in ranks if each.rank == culprit or chance.random() < 0.7]
        assert named(vote(known)) in ([culprit], [])

    @pytest.mark.parametrize("seed", range(10))
    def test_a_rank_without_a_record_is_named_before_those_who_wait_for_it(self, seed: int) -> None:
        culprit = random.Random(seed).randrange(SMALL.ranks)
        ranks = stopped_gang(SMALL, [culprit], seed)
        ranks[culprit] = evidence(SMALL, culprit, state=TaskState.STOPPED)
        assert named(vote(ranks)) == [culprit]


class TestPipelines:
    """No record shows the transfers between stages, so all stages of a replica are behind alike."""

    @pytest.mark.parametrize("seed", range(20))
    def test_the_right_rank_is_the_first_where_stacks_are_known(self, seed: int) -> None:
        ranks, culprit = self._stopped(seed, with_stacks=True)
        location = vote(ranks)
        assert location.suspects[0].rank == culprit
        assert all(other.confidence < location.suspects[0].confidence for other in location.suspects[1:])

    @pytest.mark.parametrize("seed", range(20))
    def test_the_right_rank_is_among_the_stages_of_one_replica_without_stacks(self, seed: int) -> None:
        ranks, culprit = self._stopped(seed, with_stacks=False)
        suspects = named(vote(ranks))
        assert culprit in suspects
        assert {rank % 8 for rank in suspects} == {culprit % 8}

    def _stopped(self, seed: int, *, with_stacks: bool) -> tuple[list[RankEvidence], int]:
        programs = {rank: pipeline_program(4, 8, rank) for rank in range(32)}
        chance = random.Random(seed)
        culprit = chance.randrange(32)
        played = play(programs, {culprit: chance.randrange(len(programs[culprit]))})
        ranks = [
            evidence(
                Shape(32),
                rank,
                groups=recorded(played, rank),
                stack=(LOADING if rank == culprit else WAITING) if with_stacks else None,
            )
            for rank in programs
        ]
        return ranks, culprit


class TestProcesses:
    def test_a_stopped_process_is_named_without_any_record(self) -> None:
        states = [TaskState.SLEEPING] * 8
        states[6] = TaskState.STOPPED
        location = vote([evidence(SMALL, rank, state=state) for rank, state in enumerate(states)])
        assert named(location) == [6]
        assert location.suspects[0].witnesses[0].words == "process 1006 (python3) is stopped"

    def test_a_rank_that_is_behind_outranks_one_that_is_blocked_in_the_kernel(self) -> None:
        ranks = [
            evidence(SMALL, rank, groups=(_in(41 if rank != 2 else 40, "all_reduce"),), state=state)
            for rank, state in enumerate([TaskState.SLEEPING] * 7 + [TaskState.UNINTERRUPTIBLE])
        ]
        assert named(vote(ranks)) == [2]

    def test_ranks_that_are_all_blocked_by_one_file_system_have_no_culprit(self) -> None:
        location = vote([evidence(SMALL, rank, state=TaskState.UNINTERRUPTIBLE) for rank in range(8)])
        assert named(location) == []
        assert "in the same way" in location.reason

    def test_a_rank_that_the_ras_network_lost_is_named(self) -> None:
        ranks = [evidence(SMALL, rank, lost_by_ras="dead" if rank == 1 else "") for rank in range(8)]
        assert named(vote(ranks)) == [1]


class TestStacks:
    @pytest.mark.parametrize("ranks", [2, 4, 8])
    def test_the_rank_that_does_not_wait_is_named(self, ranks: int) -> None:
        location = vote([evidence(SMALL, rank, stack=LOADING if rank == 1 else WAITING) for rank in range(ranks)])
        assert named(location) == [1]
        assert "__getitem__ (dataset.py:12)" in location.suspects[0].witnesses[0].words

    @pytest.mark.parametrize("lock", [(), (Frame("wait", "python3.11/threading.py", 331),)])
    def test_a_rank_that_is_locked_in_its_own_code_below_torch_does_not_wait_for_others(
        self, lock: tuple[Frame, ...]
    ) -> None:
        locked = Stack((*lock, Frame("hook", "job/train.py", 52, is_own=True), *BACKWARD))
        ranks = [evidence(SMALL, rank, stack=locked if rank == 2 else WAITING) for rank in range(4)]
        (suspect,) = vote(ranks).suspects

        assert (suspect.rank, suspect.confidence) == (2, 0.6)
        assert "hook (job/train.py:52); 3 ranks wait" in suspect.witnesses[0].words

    def test_own_code_that_calls_a_collective_below_torch_waits(self) -> None:
        waits = Stack((WAITING.frames[0], Frame("hook", "job/train.py", 52, is_own=True), *BACKWARD))
        assert wait_of(waits) == WAITING.frames[0]

    def test_the_line_of_the_program_that_called_a_library_is_said(self) -> None:
        reads = Stack(
            (
                Frame("SocketIO.readinto", "python3.11/socket.py", 706),
                Frame("read", "python3.11/http/client.py", 4),
                Frame("fetch", "job/train.py", 88, is_own=True),
                Frame("main", "job/train.py", 9, is_own=True),
            )
        )
        location = vote([evidence(SMALL, rank, stack=reads if rank == 1 else WAITING) for rank in range(4)])
        assert location.suspects[0].witnesses[0].words == (
            "is in SocketIO.readinto (python3.11/socket.py:706), called by fetch (job/train.py:88); "
            "3 ranks wait in a collective or for the GPU"
        )

    def test_a_rank_whose_agent_names_files_of_the_standard_library_in_the_older_way_is_like_the_others(self) -> None:
        older, newer = (Stack((Frame("get", f"{lead}multiprocessing/queues.py", 103),)) for lead in ("", "python3.11/"))
        assert named(vote([evidence(SMALL, rank, stack=older if rank == 1 else newer) for rank in range(8)])) == []

    @pytest.mark.parametrize("function", ["block_until_ready", "_value"])
    def test_a_rank_that_waits_in_jax_holds_up_none(self, function: str) -> None:
        waits = Stack((Frame(function, "jax/_src/api.py", 2512), Frame("step", "train.py", 24, is_own=True)))
        location = vote([evidence(SMALL, 0, stack=waits), evidence(SMALL, 1, stack=LOADING)])
        assert named(location) == [1]

    def test_a_rank_that_compiles_in_jax_does_not_wait(self) -> None:
        compiles = Stack((Frame("backend_compile", "jax/_src/compiler.py", 300),))
        assert wait_of(compiles) is None

    def test_a_rank_that_waits_is_not_named_where_most_do_something_else(self) -> None:
        """Nor for its state or how much it does, which differ from those of the others."""
        loops = evidence(SMALL, 0, stack=LOADING, state=TaskState.RUNNING, cpu=1.0)
        location = vote(
            [
                loops,
                evidence(SMALL, 1, stack=WAITING, state=TaskState.SLEEPING, syscall="futex", cpu=0.0),
                evidence(SMALL, 2, stack=LOADING, state=TaskState.RUNNING, cpu=1.0),
            ]
        )
        assert named(location) == []
        assert location.reason == "2 of 3 ranks do not wait for others: rank 0 is in __getitem__ (dataset.py:12)"

    def test_of_programs_that_hand_over_to_a_thread_the_one_whose_thread_does_not_wait_is_named(self) -> None:
        """Nor is one of the others, which runs for another reason."""
        frames = (Frame("Queue.get", "python3.11/queue.py", 171), Frame("main", "train.py", 9, is_own=True))
        ranks = [
            evidence(SMALL, rank, stack=Stack(frames, thread_waits=rank != 1), state=TaskState.SLEEPING)
            for rank in range(3)
        ]
        (suspect,) = vote([*ranks, evidence(SMALL, 3, stack=Stack(frames, True), state=TaskState.RUNNING)]).suspects

        assert (suspect.rank, suspect.confidence) == (1, 0.4)
        assert suspect.witnesses[0].words.endswith("3 ranks wait in a collective or for the GPU, in another thread")

    def test_a_thread_that_waits_says_nothing_where_programs_wait_themselves(self) -> None:
        """It may be one that saves, of the rank that holds up the others."""
        loads = Stack(LOADING.frames, thread_waits=True)
        assert named(vote([evidence(SMALL, rank, stack=loads if rank == 1 else WAITING) for rank in range(4)])) == [1]

    def test_a_rank_that_is_in_no_python_function_does_not_wait_for_others(self) -> None:
        """As while its process ends."""
        (suspect,) = vote(
            [evidence(SMALL, rank, stack=NO_FUNCTION if rank == 1 else WAITING) for rank in range(3)]
        ).suspects

        assert suspect.rank == 1
        assert suspect.witnesses[0].words.startswith("is in no Python function; 2 ranks wait")

    def test_where_the_ranks_do_different_things_that_is_said(self) -> None:
        barrier = Stack((Frame("barrier", "torch/distributed/distributed_c10d.py", 1), *WAITING.frames[1:]))
        location = vote([evidence(SMALL, rank, stack=barrier if rank else WAITING) for rank in range(2)])

        assert location.suspects == ()
        assert location.reason == (
            "the ranks do different things, and nothing shows which of them the others wait for: "
            "rank 0 is in all_reduce (torch/distributed/distributed_c10d.py:3007); "
            "rank 1 is in barrier (torch/distributed/distributed_c10d.py:1)"
        )

    def test_of_many_ranks_that_do_different_things_a_few_are_said(self) -> None:
        stages = [Stack((Frame(f"stage_{number}", "train.py", 1),)) for number in range(4)]
        reason = vote([evidence(SMALL, rank, stack=stages[rank // 2]) for rank in range(8)]).reason

        assert reason.endswith(
            "rank 0 is in stage_0 (train.py:1); rank 2 is in stage_1 (train.py:1); rank 4 is in stage_2 (train.py:1)"
        )

    def test_ranks_that_all_load_have_no_culprit(self) -> None:
        assert named(vote([evidence(SMALL, rank, stack=LOADING) for rank in range(8)])) == []

    def test_most_ranks_load_while_few_wait_so_the_data_is_slow_and_not_a_rank(self) -> None:
        assert named(vote([evidence(SMALL, rank, stack=WAITING if rank < 2 else LOADING) for rank in range(8)])) == []


def computing(rank: int, stack: Stack | None = None) -> RankEvidence:
    """A rank that uses a processor, and sleeps while it waits for others."""
    return replace(evidence(SMALL, rank, stack=stack), activity=Activity(cpu=1.0, computes=True))


class TestActivity:
    def test_the_one_idle_rank_among_spinning_ones_is_named(self) -> None:
        assert named(vote([evidence(SMALL, rank, cpu=0.01 if rank == 4 else 1.0) for rank in range(8)])) == [4]

    def test_the_one_spinning_rank_among_idle_ones_is_named(self) -> None:
        assert named(vote([evidence(SMALL, rank, cpu=0.98 if rank == 4 else 0.01) for rank in range(8)])) == [4]

    def test_small_differences_name_no_rank(self) -> None:
        assert named(vote([evidence(SMALL, rank, cpu=0.01 + rank * 0.02) for rank in range(8)])) == []

    def test_two_ranks_have_no_majority(self) -> None:
        assert named(vote([evidence(SMALL, 0, cpu=1.0), evidence(SMALL, 1, cpu=0.0)])) == []

    def test_of_two_ranks_that_sleep_while_they_wait_the_one_that_computes_is_named(self) -> None:
        (suspect,) = vote([computing(0), evidence(SMALL, 1, cpu=0.0)]).suspects
        assert (suspect.rank, suspect.confidence) == (0, 0.5)
        assert suspect.witnesses[0].words == "uses a processor, as it does not while it waits; the other one is asleep"

    def test_where_all_compute_or_most_do_no_rank_is_named(self) -> None:
        assert named(vote([computing(0), computing(1)])) == []
        assert named(vote([computing(0), computing(1), evidence(SMALL, 2, cpu=0.0)])) == []

    def test_a_rank_that_is_awake_in_a_collective_holds_up_none(self) -> None:
        assert named(vote([computing(0, WAITING), evidence(SMALL, 1, cpu=0.0)])) == []


class TestStates:
    def test_the_one_running_process_among_sleeping_ones_is_named_on_a_machine_without_free_time(self) -> None:
        states = [TaskState.SLEEPING] * 7 + [TaskState.RUNNING]
        assert named(vote([evidence(SMALL, rank, state=state, cpu=0.01) for rank, state in enumerate(states)])) == [7]

    def test_states_of_two_halves_name_no_rank(self) -> None:
        states = [TaskState.SLEEPING] * 4 + [TaskState.RUNNING] * 4
        assert named(vote([evidence(SMALL, rank, state=state) for rank, state in enumerate(states)])) == []


class TestFiles:
    """One system call for each rank, all asleep."""

    def located(self, *calls: str) -> HangLocation:
        asleep = TaskState.SLEEPING
        return vote([evidence(SMALL, rank, state=asleep, syscall=call) for rank, call in enumerate(calls)])

    @pytest.mark.parametrize("call", ["openat", "fsync", "pread64"])
    def test_of_two_ranks_the_one_that_waits_for_a_file_is_named(self, call: str) -> None:
        location = self.located(call, "futex")
        assert named(location) == [0]
        assert location.suspects[0].witnesses[0].words == f"waits for a file, in {call}; the other one does not"
        assert location.suspects[0].confidence < 0.5

    @pytest.mark.parametrize(
        "calls",
        [("fsync", "fsync"), ("openat", "fsync", "futex"), ("read", "futex"), ("flock", "futex"), ("openat", "")],
        ids=["all", "most", "it may be a pipe", "another rank may hold the lock", "the other one is not known"],
    )
    def test_a_call_that_others_may_end_or_that_is_usual_names_no_rank(self, calls: Sequence[str]) -> None:
        assert named(self.located(*calls)) == []


class TestTogether:
    def test_independent_witnesses_of_one_rank_add_to_the_confidence(self) -> None:
        stack_only = [evidence(SMALL, rank, stack=LOADING if rank == 1 else WAITING) for rank in range(8)]
        both = [
            evidence(SMALL, rank, stack=LOADING if rank == 1 else WAITING, cpu=0.01 if rank == 1 else 1.0)
            for rank in range(8)
        ]
        assert vote(stack_only).suspects[0].confidence < vote(both).suspects[0].confidence < 1
        assert [each.source for each in vote(both).suspects[0].witnesses] == [Source.STACK, Source.ACTIVITY]

    def test_a_weaker_kind_names_no_further_rank(self) -> None:
        ranks = [
            evidence(SMALL, rank, stack=LOADING if rank == 1 else WAITING, cpu=0.01 if rank == 6 else 1.0)
            for rank in range(8)
        ]
        assert named(vote(ranks)) == [1]

    def test_one_source_counts_once_however_often_it_speaks(self) -> None:
        ranks = [evidence(SMALL, rank, groups=(_in(41 if rank != 3 else 40, "all_reduce"),)) for rank in range(8)]
        many = [
            evidence(SMALL, rank, groups=tuple(_in(41 if rank != 3 else 40, "all_reduce", f"g{n}") for n in range(30)))
            for rank in range(8)
        ]
        assert vote(ranks).suspects[0].confidence == vote(many).suspects[0].confidence
        assert len(vote(many).suspects[0].witnesses[0].words) < 250

    def test_where_nothing_is_known_no_rank_is_named_with_that_reason(self) -> None:
        assert vote([]).reason == "nothing is known of any rank"
        assert named(vote([evidence(SMALL, rank) for rank in range(8)])) == []

    @pytest.mark.parametrize("state", [TaskState.SLEEPING, TaskState.STOPPED])
    def test_of_a_single_rank_it_is_said_that_there_is_no_other(self, state: TaskState) -> None:
        location = vote([evidence(SMALL, 0, state=state)])
        assert named(location) == []
        assert location.reason == "only one rank is known, so there is no other to compare it with"

    def test_the_list_of_suspects_is_bounded_and_the_others_are_counted(self) -> None:
        shape = Shape(ranks=128)
        location = vote(stopped_gang(shape, range(64), seed=7))
        assert len(location.suspects) + location.more_suspects <= 64
        assert len(location.suspects) <= MOST_SUSPECTS

    def test_the_order_of_the_ranks_does_not_matter(self) -> None:
        ranks = stopped_gang(SMALL, [5], seed=1)
        assert vote(ranks) == vote(random.Random(2).sample(ranks, len(ranks)))


@pytest.mark.slow
@pytest.mark.parametrize("size", [128, 512, 1024, 4096])
def test_large_gangs_are_judged_right_and_within_a_second(size: int) -> None:
    shape = Shape(size)
    for seed in range(3):
        culprit = random.Random(seed).randrange(size)
        ranks = stopped_gang(shape, [culprit], seed)
        began = process_time()
        location = vote(ranks)
        assert process_time() - began < 1.0
        assert named(location) == [culprit]


def _in(number: int, name: str, group: str = "world") -> GroupProgress:
    return GroupProgress(group, number, Source.RECORDER, waits=True, recent=(Collective(number, name),))


def _all_wait(played: Played, rank: int) -> tuple[GroupProgress, ...]:
    return tuple(
        GroupProgress(each.group, each.number, each.source, waits=each.group == "world", recent=each.recent)
        for each in recorded(played, rank)
    )
