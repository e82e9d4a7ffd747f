"""Which children of one process are ranks, though none of them has a number."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from healthd.core.hang.suspects.rank_processes import MOST_RANKS, PodTask
from healthd.core.hang.suspects.sibling_ranks import (
    IDLE_CORES,
    MOST_SETS,
    MOST_SIBLINGS,
    Siblings,
    connected_siblings,
    held_by_one,
    ranks_among,
    sibling_sets,
)
from healthd.core.hang.suspects.sockets import TcpSocket

LAUNCHER = PodTask(7, 1, 5.0, started=70)
RANKS = [PodTask(10 + number, 7, 90.0, started=100) for number in range(4)]
GANG = Siblings(LAUNCHER, tuple(RANKS))
TRACKER = PodTask(8, 7, 0.02, started=99)
Links = Iterable[tuple[int, int]]


def sets(*tasks: PodTask) -> list[tuple[int, list[int]]]:
    """The parent and the children of each set."""
    return [(each.parent.pid, [child.pid for child in each.children]) for each in sibling_sets(tasks)]


def own(links: Links) -> dict[int, list[TcpSocket]]:
    """Both ends of each connection; the second process listens at a port of its own."""
    sockets: dict[int, list[TcpSocket]] = {}
    for number, (pid, server) in enumerate(links):
        here, there = f"127.0.0.1:{50000 + number}", f"127.0.0.1:{20000 + server}"
        sockets.setdefault(pid, []).append(TcpSocket(here, there, 0))
        sockets.setdefault(server, []).append(TcpSocket(there, here, 0))
    return sockets


def connected(*links: tuple[int, int], siblings: Siblings = GANG) -> list[int]:
    return sorted(connected_siblings(siblings, own(links)))


STORE = [(10, 10), (11, 10), (12, 10), (13, 10)]
"""Each rank asks the store of the first one, which asks itself."""


class TestSets:
    def test_children_of_one_process_that_only_waits_are_worth_a_look(self) -> None:
        assert sets(PodTask(5, 1, 0.0), LAUNCHER, TRACKER, *RANKS) == [(7, [8, 10, 11, 12, 13])]

    def test_the_oldest_is_the_first_though_numbers_have_begun_again(self) -> None:
        late, early = PodTask(9, 7, 90.0, started=101), PodTask(32000, 7, 90.0, started=100)

        assert sets(LAUNCHER, late, early) == [(7, [32000, 9])]

    @pytest.mark.parametrize(
        "tasks",
        [
            [],
            [LAUNCHER],
            [LAUNCHER, RANKS[0]],
            [LAUNCHER, TRACKER, RANKS[0]],
            [LAUNCHER._replace(cpu=180.0), *RANKS],
            RANKS,
            [LAUNCHER, *(PodTask(100 + n, 7, 9.0) for n in range(MOST_SIBLINGS + 1))],
            [LAUNCHER, *(task._replace(cpu=0.0) for task in RANKS)],
            [PodTask(3, 3, 0.0), PodTask(4, 3, 9.0)],
        ],
        ids=[
            "nothing",
            "one program",
            "one child",
            "one that works",
            "below one that trains",
            "below nothing",
            "very many",
            "nothing has worked",
            "its own parent",
        ],
    )
    def test_others_are_not(self, tasks: list[PodTask]) -> None:
        assert sets(*tasks) == []

    def test_a_launcher_is_looked_at_before_its_ranks_however_much_their_loaders_work(self) -> None:
        loaders = [PodTask(100 + 10 * n + k, 10 + n % 4, 900.0) for n in range(4) for k in range(8)]

        assert [parent for parent, _ in sets(*loaders, *RANKS, LAUNCHER)] == [7, 10, 11, 12]

    def test_of_many_parents_those_are_looked_at_whose_children_have_worked_most(self) -> None:
        many = [
            PodTask(100 * n + child, 100 * n if child else 1, float(n if child else 0))
            for n in range(1, 20)
            for child in range(3)
        ]

        assert [parent for parent, _ in sets(*many)] == [100 * n for n in range(19, 19 - MOST_SETS, -1)]

    def test_numbers_that_make_a_circle_end(self) -> None:
        """Each was read at another moment, and a number may have been used again."""
        assert len(sets(PodTask(1, 2, 0.0), PodTask(2, 1, 0.0), PodTask(3, 1, 9.0), PodTask(4, 1, 9.0))) == 1


class TestConnected:
    def test_ranks_are_connected_by_the_store_of_the_first_one(self) -> None:
        assert connected(*STORE) == [10, 11, 12, 13]

    def test_so_are_those_of_which_each_knows_only_the_next(self) -> None:
        assert connected((10, 11), (11, 12), (12, 13)) == [10, 11, 12, 13]

    def test_what_has_no_connection_is_no_rank(self) -> None:
        assert connected((10, 12), (12, 10)) == [10, 12]

    @pytest.mark.parametrize(
        "links",
        [[], [(10, 99), (11, 99)], [(10, 7), (11, 7)]],
        ids=["none", "with another machine", "with their parent"],
    )
    def test_connections_with_others_connect_no_siblings(self, links: list[tuple[int, int]]) -> None:
        found = {pid: sockets for pid, sockets in own(links).items() if pid != 99}

        assert not connected_siblings(GANG, found)

    def test_a_first_rank_that_waits_for_all_others_is_connected_with_its_store(self) -> None:
        assert connected((10, 10)) == [10]
        assert connected((11, 7), (10, 10), (12, 7)) == [10]

    def test_a_launcher_that_keeps_the_store_is_no_rank_and_they_are(self) -> None:
        assert connected((10, 7), (11, 7), (10, 11)) == [10, 11]

    def test_below_a_first_rank_that_started_the_others_there_are_none(self) -> None:
        """That process is a rank itself."""
        main = LAUNCHER._replace(cpu=90.0)

        assert connected((10, 7), (11, 7), (12, 7), (10, 11), siblings=Siblings(main, tuple(RANKS))) == []

    def test_a_server_and_its_client_beside_a_larger_gang_are_none(self) -> None:
        beside = tuple(PodTask(pid, 7, 90.0) for pid in (20, 21))

        assert connected(*STORE, (21, 20), siblings=Siblings(LAUNCHER, (*beside, *RANKS))) == [10, 11, 12, 13]


def test_a_connection_that_was_forked_off_is_of_none_of_those_that_have_it() -> None:
    """As all of a rank with a store, whose loaders have both ends of what it has with itself."""
    assert held_by_one({7: {1, 2}, 10: {1, 2, 3}, 11: {1, 2}, 12: set()}) == {7: set(), 10: {3}, 11: set(), 12: set()}


IDLE = {task.pid: 0.9 * IDLE_CORES for task in RANKS}


def ranks(group: Collection[int], busy: Collection[int] = (), *, waits: bool = False, cpu: float = 90.0) -> list[int]:
    """*busy*: what works now. *cpu*: what the first of the four has used so far."""
    siblings = Siblings(LAUNCHER, (RANKS[0]._replace(cpu=cpu), *RANKS[1:]))
    cores = IDLE | dict.fromkeys(busy, IDLE_CORES)
    return [task.pid for task in ranks_among(siblings, frozenset(group), cores, waits=waits)]


class TestRanks:
    def test_where_all_are_connected_all_are_ranks(self) -> None:
        assert ranks([10, 11, 12, 13], busy=[10], waits=True) == [10, 11, 12, 13]

    def test_one_that_may_come_yet_is_waited_for_a_while(self) -> None:
        assert ranks([10, 11, 13], busy=[12], waits=True) == []
        assert ranks([10, 11, 13], busy=[12]) == [10, 11, 13]

    def test_where_nothing_works_the_one_that_never_came_is_a_rank(self) -> None:
        assert ranks([10, 11, 13], waits=True) == [10, 11, 12, 13]

    def test_what_sleeps_while_the_connected_ones_work_is_none(self) -> None:
        """As a manager that has used as much as they have, in a start."""
        assert ranks([11, 12, 13], busy=[12], waits=True) == [11, 12, 13]

    def test_what_was_seen_to_be_none_stays_so_when_nothing_works(self) -> None:
        assert [task.pid for task in ranks_among(GANG, {10, 11, 13}, IDLE, {12})] == [10, 11, 13]

    def test_a_server_and_its_client_are_none_beside_loaders_that_work_more(self) -> None:
        """Their parent may train on a GPU."""
        loaders = [PodTask(20 + number, 7, 90.0) for number in range(2)]

        assert ranks_among(Siblings(LAUNCHER, (*RANKS[:2], *loaders)), {10, 11}) == ()

    def test_what_has_hardly_worked_is_none_though_nothing_works_now(self) -> None:
        assert ranks([11, 12, 13], cpu=1.0, waits=True) == [11, 12, 13]

    def test_where_it_is_not_known_what_works_only_the_connected_ones_are(self) -> None:
        assert [task.pid for task in ranks_among(GANG, {10, 11, 12})] == [10, 11, 12]

    def test_the_first_one_is_a_rank_with_the_others_only_where_nothing_works(self) -> None:
        assert ranks([10], waits=True) == [10, 11, 12, 13]
        assert ranks([10], busy=[10]) == []
        assert ranks([10], busy=[11]) == []
        assert ranks_among(GANG, {10}) == ()

    def test_without_connections_there_are_none(self) -> None:
        assert ranks([]) == []

    def test_of_very_many_the_oldest_are(self) -> None:
        many = Siblings(LAUNCHER, tuple(PodTask(100 + n, 7, 9.0) for n in range(MOST_SIBLINGS)))
        found = ranks_among(many, {child.pid for child in many.children})

        assert [rank.pid for rank in found] == list(range(100, 100 + MOST_RANKS))
