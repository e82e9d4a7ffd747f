"""Which processes of a pod are its ranks."""

from __future__ import annotations

from healthd.core.hang.suspects.rank_processes import MOST_RANKS, PodTask, rank_processes


def test_a_pod_of_one_program_is_one_rank() -> None:
    assert rank_processes([PodTask(7, 1, 90.0)]) == [7]


def test_a_shell_that_starts_the_program_is_passed_over() -> None:
    assert rank_processes([PodTask(7, 1, 0.01), PodTask(8, 7, 90.0)]) == [8]


def test_loaders_below_the_program_are_no_ranks_however_busy() -> None:
    loaders = [PodTask(pid, 8, 300.0) for pid in range(20, 28)]

    assert rank_processes([PodTask(7, 1, 0.01), PodTask(8, 7, 90.0), *loaders]) == [8]


def test_each_process_that_a_launcher_gave_a_number_is_a_rank() -> None:
    launcher, sandbox = PodTask(7, 1, 2.0, "node 0"), PodTask(5, 1, 0.0)
    ranks = [PodTask(10 + number, 7, 90.0, f"node 0 rank {number}") for number in range(8)]
    loaders = [PodTask(100 + number, 10 + number % 8, 5.0, f"node 0 rank {number % 8}") for number in range(64)]

    assert rank_processes([sandbox, launcher, *ranks, *loaders]) == list(range(10, 18))


def test_a_rank_that_runs_in_a_shell_of_its_own_is_the_program() -> None:
    tasks = [PodTask(7, 1, 0.01, "0"), PodTask(8, 7, 90.0, "0"), PodTask(9, 8, 80.0, "0")]

    assert rank_processes(tasks) == [8]


def test_a_pod_without_processes_has_no_ranks() -> None:
    assert rank_processes([]) == []


def test_numbers_that_make_a_circle_end() -> None:
    """Each was read at another moment, and a number may have been used again."""
    tasks = [PodTask(1, 2, 1.0), PodTask(2, 1, 1.0), PodTask(3, 3, 1.0), PodTask(4, 5, 1.0, "a"), PodTask(5, 4, 1.0)]

    assert set(rank_processes(tasks)) <= {1, 2, 3, 4, 5}


def test_of_very_many_ranks_some_are_asked() -> None:
    assert len(rank_processes([PodTask(pid, 1, 1.0, str(pid)) for pid in range(2, 5000)])) == MOST_RANKS
