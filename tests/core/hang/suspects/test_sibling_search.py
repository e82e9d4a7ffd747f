"""The search for ranks among siblings, look by look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from healthd.core.hang.suspects.rank_processes import PodTask
from healthd.core.hang.suspects.sibling_ranks import Connected
from healthd.core.hang.suspects.sibling_search import MOST_MISSES, OFTEN, SiblingSearch
from tests.fakes import START

LAUNCHER = PodTask(7, 1, 0.0, started=70)


def gang(*pids: int) -> dict[int, float]:
    """Processes that work, by pid: the cores that each uses."""
    return dict.fromkeys(pids, 1.0)


class Looks:
    """A launcher with siblings below it, which is looked at each five seconds."""

    def __init__(self) -> None:
        self.search = SiblingSearch()
        self.number = 0
        self.reads = 0
        self.used: dict[int, float] = {}

    def look(self, cores: dict[int, float], connected: Collection[int] | None = None) -> dict[int, int]:
        """
        One more look, at children that use these *cores*. The pid of each rank by its number. None of *connected*: all.
        """
        self.number += 1
        now = START + timedelta(seconds=5 * self.number)
        self.used = {pid: self.used.get(pid, 5.0) + 5 * used for pid, used in cores.items()}
        tasks: Sequence[PodTask] = [LAUNCHER, *(PodTask(pid, 7, cpu, started=pid) for pid, cpu in self.used.items())]
        due = self.search.due(tasks)
        self.reads += len(due)
        group = frozenset(cores if connected is None else connected)
        found = self.search.observe(tasks, Connected(due[0], group) if due and group else None, now)
        return {number: task.pid for number, task in found.items()}


def test_two_looks_have_to_find_the_same_ones() -> None:
    """In a start, some are connected before the others are there."""
    looks = Looks()
    seen = [looks.look(gang(10, 12)), looks.look(gang(10, 11, 12)), looks.look(gang(10, 11, 12))]

    assert seen == [{}, {}, {0: 10, 1: 11, 2: 12}]


def test_no_connection_is_read_once_they_are_found() -> None:
    looks = Looks()
    for _ in range(100):
        looks.look(gang(10, 11))

    assert looks.reads == 2


def test_where_nothing_is_found_connections_are_read_more_and_more_rarely() -> None:
    looks = Looks()
    for _ in range(10 * OFTEN):
        looks.look(gang(10, 11), connected=[])

    assert OFTEN < looks.reads <= OFTEN + 10


def test_they_are_so_also_where_there_are_new_loaders_in_each_look() -> None:
    looks = Looks()
    for number in range(MOST_MISSES + 10 * OFTEN):
        looks.look(gang(100 + 2 * number, 101 + 2 * number), connected=[])

    assert MOST_MISSES <= looks.reads <= MOST_MISSES + OFTEN + 10


def test_ranks_that_come_after_a_long_preparation_are_found() -> None:
    looks = Looks()
    for _ in range(5 * OFTEN + 3):
        looks.look(gang(10, 11), connected=[])
    seen = [looks.look(gang(10, 11)) for _ in range(2 * OFTEN)]

    assert seen[-1] == {0: 10, 1: 11}


def test_those_that_are_left_keep_their_numbers() -> None:
    looks = Looks()
    looks.look(gang(10, 11, 12))
    looks.look(gang(10, 11, 12))

    assert looks.look(gang(10, 12)) == {0: 10, 2: 12}


def test_they_do_so_also_where_something_else_was_started_meanwhile() -> None:
    looks = Looks()
    looks.look(gang(10, 11, 12))
    looks.look(gang(10, 11, 12))
    seen = [looks.look(gang(10, 12, 30), connected=[10, 12]) for _ in range(4 * OFTEN)]

    assert all(each == {0: 10, 2: 12} for each in seen)


def test_the_ranks_of_the_next_gang_below_the_same_launcher_are_found() -> None:
    looks = Looks()
    looks.look(gang(10, 11))
    looks.look(gang(10, 11))
    seen = [looks.look({}), looks.look(gang(20, 21)), looks.look(gang(20, 21))]

    assert seen == [{}, {}, {0: 20, 1: 21}]


def test_the_ranks_of_each_of_many_gangs_are_found_at_once() -> None:
    """As where a search for parameters starts them one after another."""
    looks = Looks()
    for number in range(100, 100 + 2 * MOST_MISSES, 2):
        looks.look(gang(number, number + 1))

        assert looks.look(gang(number, number + 1)) == {0: number, 1: number + 1}


def test_new_loaders_below_a_rank_are_no_reason_to_read_connections() -> None:
    looks = Looks()
    looks.look(gang(10, 11))
    looks.look(gang(10, 11))
    ranks = [LAUNCHER, *(PodTask(pid, 7, 20.0, started=pid) for pid in (10, 11))]
    loaders = [PodTask(pid, 10, 90.0, started=pid) for pid in (30, 31)]

    assert looks.search.due([*ranks, *loaders]) == []


def test_one_more_rank_is_counted_with_the_others() -> None:
    looks = Looks()
    looks.look(gang(10, 12))
    looks.look(gang(10, 12))
    seen = [looks.look(gang(10, 12, 13)), looks.look(gang(10, 12, 13))]

    assert seen == [{0: 10, 1: 12}, {0: 10, 1: 12, 2: 13}]


def test_where_nothing_works_the_one_that_never_connected_is_a_rank() -> None:
    looks = Looks()
    idle = dict.fromkeys((10, 11, 12), 0.01)
    seen = [looks.look(idle, connected=[10, 12]) for _ in range(3)]

    assert seen == [{}, {}, {0: 10, 1: 11, 2: 12}]


def test_a_helper_that_was_taken_for_one_is_none_when_the_others_work_without_it() -> None:
    """As a manager, while the ranks that it was started before load data without a processor."""
    looks = Looks()
    for _ in range(3):
        looks.look(dict.fromkeys((9, 10, 11), 0.01), connected=[10, 11])
    seen = [looks.look({9: 0.0, 10: 1.0, 11: 1.0}, connected=[10, 11]) for _ in range(2)]

    assert seen[-1] == {0: 10, 1: 11}


def test_one_without_which_they_worked_is_none_either_when_they_hang() -> None:
    looks = Looks()
    for _ in range(3):
        looks.look({9: 0.0, 10: 1.0, 11: 1.0}, connected=[10, 11])
    seen = [looks.look(dict.fromkeys((9, 10, 11), 0.0), connected=[10, 11]) for _ in range(3 * OFTEN)]

    assert all(each == {0: 10, 1: 11} for each in seen)


def test_what_works_but_never_connects_is_waited_for_a_minute() -> None:
    looks = Looks()
    seen = [looks.look(gang(10, 11, 12), connected=[10, 12]) for _ in range(3 * OFTEN)]

    assert not any(seen[:OFTEN])
    assert seen[-1] == {0: 10, 1: 12}


def test_a_number_that_is_used_again_is_another_process() -> None:
    looks = Looks()
    looks.look(gang(10, 11))
    looks.look(gang(10, 11))
    other = [LAUNCHER, PodTask(10, 7, 9.0, started=999), PodTask(11, 7, 9.0, started=11)]
    looks.search.due(other)

    assert list(looks.search.observe(other, None, START)) == [1]
