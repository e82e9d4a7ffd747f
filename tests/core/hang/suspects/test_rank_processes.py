"""Which processes of a pod are its ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from healthd.core.hang.suspects.rank_processes import (
    MOST_RANKS,
    PodTask,
    launched_ranks,
    rank_numbers,
    rank_processes,
)


def pids(tasks: Sequence[PodTask]) -> list[int]:
    """Those of the ranks."""
    return [task.pid for task in rank_processes(tasks)]


def test_a_pod_of_one_program_is_one_rank() -> None:
    assert pids([PodTask(7, 1, 90.0)]) == [7]


def test_a_shell_that_starts_the_program_is_passed_over() -> None:
    assert pids([PodTask(7, 1, 0.01), PodTask(8, 7, 90.0)]) == [8]


def test_loaders_below_the_program_are_no_ranks_however_busy() -> None:
    loaders = [PodTask(pid, 8, 300.0) for pid in range(20, 28)]

    assert pids([PodTask(7, 1, 0.01), PodTask(8, 7, 90.0), *loaders]) == [8]


def test_each_process_that_a_launcher_gave_a_number_is_a_rank() -> None:
    launcher, sandbox = PodTask(7, 1, 2.0, "node 0"), PodTask(5, 1, 0.0)
    ranks = [PodTask(10 + number, 7, 90.0, f"node 0 rank {number}") for number in range(8)]
    loaders = [PodTask(100 + number, 10 + number % 8, 5.0, f"node 0 rank {number % 8}") for number in range(64)]

    assert pids([sandbox, launcher, *ranks, *loaders]) == list(range(10, 18))


def test_a_launcher_with_the_number_of_its_first_rank_is_not_taken_for_it() -> None:
    """As torchrun has, where what started it set RANK and LOCAL_RANK, too."""
    launcher, helper = PodTask(7, 1, 9.0, "0 0"), PodTask(8, 7, 0.1, "0 0")
    ranks = [PodTask(10 + number, 7, 90.0, f"{number} {number}") for number in range(4)]
    loaders = [PodTask(100 + number, 10 + number, 5.0, f"{number} {number}") for number in range(4)]

    assert pids([launcher, helper, *ranks, *loaders]) == [10, 11, 12, 13]


TORCHRUN = PodTask(7, 1, 9.0, "0 0", "29500")
LAUNCHED = [PodTask(10 + number, 7, 90.0, f"{number} {number}", "31007") for number in range(4)]


def launched(*tasks: PodTask, by_command: Collection[int] = ()) -> list[int] | None:
    """The processes of the ranks in the order of their numbers. *by_command*: those whose command is a launcher's."""
    found = launched_ranks(tasks, by_command.__contains__)
    return [found.ranks[number].pid for number in range(len(found.ranks))] if found else None


def test_ranks_below_a_launcher_have_the_numbers_that_it_gave_them() -> None:
    assert launched(TORCHRUN, *LAUNCHED) == [10, 11, 12, 13]


def test_a_launcher_that_has_used_as_much_as_its_ranks_is_known_by_its_command() -> None:
    shell, launcher = PodTask(6, 1, 0.01, "0 0"), TORCHRUN._replace(parent=6, cpu=500.0)

    assert launched(shell, launcher, *LAUNCHED) is None
    assert launched(shell, launcher, *LAUNCHED, by_command=[6, 7]) == [10, 11, 12, 13]


def test_the_only_rank_of_a_launcher_meets_at_another_port() -> None:
    loader = PodTask(20, 10, 300.0, "0 0", "31007")

    assert launched(TORCHRUN, LAUNCHED[0], loader, by_command=[7]) == [10]


def self_started(own: str, cpu: float, *marks: str) -> list[PodTask]:
    """A program with a shell before it, loaders, and ranks that it has started."""
    port = "29500" if own else ""
    program = [PodTask(6, 1, 0.01, own, port), PodTask(7, 6, cpu, own, port)]
    loaders = [PodTask(20 + number, 7, 60.0, own, port) for number in range(4)]
    return [*program, *loaders, *(PodTask(10 + at, 7, 90.0, mark, "31007") for at, mark in enumerate(marks))]


@pytest.mark.parametrize("own", ["", "0 0"], ids=["without a number", "with number 0"])
@pytest.mark.parametrize("cpu", [20.0, 90.0, 900.0])
def test_a_program_that_starts_the_ranks_from_one_on_is_the_first_rank(own: str, cpu: float) -> None:
    tasks = self_started(own, cpu, *(f"{'0' if own else '-'} {number}" for number in (1, 2, 3)))

    assert launched(*tasks) == [7, 10, 11, 12]
    assert pids(tasks) == [7, 10, 11, 12]


def test_what_it_starts_later_with_its_own_number_belongs_to_it() -> None:
    """As a program for a while, which gets what the first rank has set in its environment since."""
    tasks = [each._replace(started=100) for each in self_started("", 90.0, "- 1", "- 2", "- 3")]
    helper = PodTask(40, 7, 0.0, "- 0", "31007", started=9000)

    assert pids([*tasks, helper]) == [7, 10, 11, 12]
    assert launched(*tasks, helper) == [7, 10, 11, 12]


def test_a_launcher_that_has_worked_as_its_ranks_starts_number_0_first() -> None:
    ranks = [PodTask(10 + number, 7, 5.0, f"- {number}", "31007", started=100 + number) for number in range(4)]

    assert pids([PodTask(7, 1, 5.0), *ranks]) == [10, 11, 12, 13]


def test_so_is_one_that_starts_a_single_other_rank() -> None:
    assert launched(*self_started("0 0", 90.0, "0 1")) == [7, 10]


def test_the_only_rank_of_a_launcher_on_the_second_node_of_two_is_not_started_by_the_first_rank() -> None:
    assert pids([PodTask(7, 1, 4.0), PodTask(10, 7, 9.0, "1 0")]) == [10]
    assert pids([PodTask(7, 1, 4.0), PodTask(10, 7, 9.0, "1 -")]) == [10]


def test_one_that_has_hardly_worked_is_a_launcher_whose_ranks_are_numbered_from_one_on() -> None:
    tasks = self_started("", 9.0, "- 1", "- 2", "- 3")

    assert pids([task for task in tasks if task.pid < 20]) == [10, 11, 12]


@pytest.mark.parametrize("marks", [("0 2", "0 3"), ("0 1", "0 1"), ("0 0", "0 1")], ids=["from 2", "twice", "from 0"])
def test_a_program_whose_ranks_have_other_numbers_is_not_one_of_them(marks: tuple[str, ...]) -> None:
    assert launched(*self_started("0 0", 900.0, *marks)) is None


def test_a_program_that_trains_and_evaluates_for_long_in_numbered_processes_is_not_split() -> None:
    evaluation = [task._replace(cpu=90.0) for task in LAUNCHED]

    assert launched(TORCHRUN._replace(cpu=60.0), *evaluation) is None


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        [TORCHRUN],
        [TORCHRUN, LAUNCHED[0]],
        [PodTask(7, 1, 9.0), *(task._replace(mark="") for task in LAUNCHED)],
        [TORCHRUN._replace(cpu=500.0), *LAUNCHED],
    ],
    ids=["nothing", "a program", "one that meets elsewhere", "without numbers", "below a program that trains"],
)
def test_else_no_launcher_started_any(tasks: list[PodTask]) -> None:
    assert launched(*tasks) is None


def test_a_program_that_starts_a_launcher_is_none_though_the_launcher_is_known() -> None:
    """As one that trains and evaluates with torchrun now and then: it waits for that meanwhile."""
    trainer = PodTask(6, 1, 900.0, "0 0", "29500")
    evaluation = [task._replace(cpu=5.0) for task in LAUNCHED[:2]]

    assert launched(trainer, TORCHRUN._replace(parent=6), *evaluation, by_command=[7]) is None


@pytest.mark.parametrize(
    ("marks", "numbers"),
    [
        (["4 0 -", "5 1 -"], [4, 5]),
        (["0 0 3", "0 0 2"], [3, 2]),
        (["- 0", "- 1"], [0, 1]),
        (["1", "1"], [0, 1]),
        (["x 7", "y 8", "z 9"], [7, 8, 9]),
        (["", ""], [0, 1]),
        ([], []),
    ],
)
def test_the_number_of_a_rank_is_that_of_the_first_variable_that_tells_all_apart(
    marks: list[str], numbers: list[int]
) -> None:
    assert rank_numbers(marks) == numbers


def test_a_rank_that_runs_in_a_shell_of_its_own_is_the_program() -> None:
    tasks = [PodTask(7, 1, 0.01, "0"), PodTask(8, 7, 90.0, "0"), PodTask(9, 8, 80.0, "0")]

    assert pids(tasks) == [8]


def test_a_pod_without_processes_has_no_ranks() -> None:
    assert pids([]) == []


def test_numbers_that_make_a_circle_end() -> None:
    """Each was read at another moment, and a number may have been used again."""
    tasks = [PodTask(1, 2, 1.0), PodTask(2, 1, 1.0), PodTask(3, 3, 1.0), PodTask(4, 5, 1.0, "a"), PodTask(5, 4, 1.0)]

    assert set(pids(tasks)) <= {1, 2, 3, 4, 5}
    assert launched(*tasks) in (None, [])


def test_of_very_many_ranks_some_are_asked() -> None:
    assert len(pids([PodTask(pid, 1, 1.0, str(pid)) for pid in range(2, 5000)])) == MOST_RANKS
