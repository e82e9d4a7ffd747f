"""Which rank is behind a lost connection, and for whom others wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from healthd.core.hang.suspects.evidence import Connection, NetworkEvidence, ProcessEvidence, RankEvidence, TaskState
from healthd.core.hang.suspects.links import find_lost
from healthd.core.hang.suspects.vote import HangLocation, vote
from tests.core.hang.gangs import LOADING, WAITING

Direction = tuple[int, int]
"""Which rank sends to which."""


def star(ranks: int) -> list[Direction]:
    return [(0, rank) for rank in range(1, ranks)]


def ring(ranks: int) -> list[Direction]:
    return [(rank, (rank + 1) % ranks) for rank in range(ranks)]


def mesh(ranks: int) -> list[Direction]:
    return list(combinations(range(ranks), 2))


def gang(
    links: Sequence[Direction],
    *,
    lost: Iterable[Direction] = (),
    awaited: Mapping[int, int] | None = None,
    elsewhere: Collection[int] = (),
    a_node: int = 1,
) -> list[RankEvidence]:
    """
    Ranks with these connections. *lost*: what the first sends never arrives. *awaited*: whom a rank waits for.

    *a_node* ranks are on each node. Each rank has an address, which ends with its number, however large.
    """
    count, gone, waits, known = 1 + max(map(max, links)), set(lost), awaited or {}, set(links)
    assert all(pair in known or pair[::-1] in known for pair in [*gone, *waits.items()])

    def end(one: int, other: int) -> str:
        """The one that is listed first has connected."""
        return f"10.0.0.{one}:{40000 + other}" if (one, other) in known else f"10.0.0.{one}:29500"

    def connection(one: int, other: int) -> Connection:
        sent = 8116 if (one, other) in gone else 0
        return Connection(end(one, other), end(other, one), sent, is_awaited=waits.get(one) == other)

    ends: dict[int, list[Direction]] = defaultdict(list)
    for one, other in links:
        ends[one].append((one, other))
        ends[other].append((other, one))
    return [
        RankEvidence(
            rank,
            node=f"node-{rank // a_node}",
            process=ProcessEvidence(TaskState.SLEEPING, "python", 100 + rank, "recvfrom"),
            network=NetworkEvidence(tuple(connection(*each) for each in ends[rank]), rank in elsewhere),
        )
        for rank in range(count)
    ]


def named(ranks: Sequence[RankEvidence]) -> list[int]:
    return [suspect.rank for suspect in vote(ranks).suspects]


def both_ways(*pairs: Direction) -> list[Direction]:
    return [*pairs, *(pair[::-1] for pair in pairs)]


class TestLostConnections:
    def test_the_rank_that_is_an_end_of_all_of_them_is_named(self) -> None:
        location = vote(gang(ring(6), lost=[(2, 3), (3, 4)]))
        (suspect,) = location.suspects

        assert (suspect.rank, suspect.node) == (3, "node-3")
        assert suspect.witnesses[0].words == (
            "its connections with 2 of 2 peers are lost: what is sent is not acknowledged"
        )

    @pytest.mark.parametrize("ranks", [3, 4, 8])
    @pytest.mark.parametrize("lost", [[(0, 1), (0, 2)], [(1, 0), (2, 0)]])
    def test_the_middle_of_a_star_is_named_whichever_rank_sent(self, ranks: int, lost: list[Direction]) -> None:
        others = [(rank, 0) for rank in range(3, ranks)]

        assert named(gang(star(ranks), lost=[*lost, *others])) == [0]

    def test_of_a_mesh_the_one_with_two_lost_connections_is_named_also_where_others_are_idle(self) -> None:
        assert named(gang(mesh(8), lost=[(4, 5), (5, 6)])) == [5]

    def test_the_end_that_has_no_other_peer_is_named_where_its_peer_sent_to_it_in_vain(self) -> None:
        """The trainer of the demo: rank 0 has sent to all, and rank 2 alone did not acknowledge."""
        (suspect,) = vote(gang(star(4), lost=both_ways((0, 2)))).suspects

        assert suspect.rank == 2
        assert suspect.confidence == 0.5

    def test_what_the_only_rank_that_was_late_sent_in_vain_names_none(self) -> None:
        """Seen when rank 0 lost its link: rank 1 had sent before, and waits. It looks as if rank 2 had lost its."""
        location = vote(gang(star(3), lost=[(2, 0)]))

        assert location.suspects == ()
        assert location.reason == (
            "the connection of rank 0 and rank 2 is lost (8,116 bytes are not acknowledged); nothing says at which end"
        )

    @pytest.mark.parametrize("lost", [[(0, 1)], [(1, 0)], both_ways((0, 1))])
    def test_of_two_ranks_none_is_named(self, lost: list[Direction]) -> None:
        assert named(gang(star(2), lost=lost)) == []

    def test_of_two_neighbours_in_a_ring_none_is_named(self) -> None:
        assert named(gang(ring(6), lost=both_ways((2, 3)))) == []

    def test_two_halves_that_cannot_talk_have_no_suspect_but_a_reason(self) -> None:
        location = vote(gang(ring(6), lost=[(2, 3), (5, 0)]))

        assert location.suspects == ()
        assert location.reason == (
            "connections are lost, and no rank is at fault for all of them: rank 0 and rank 5, rank 2 and rank 3"
        )

    def test_few_of_the_peers_of_a_star_that_have_no_other_connection_name_none(self) -> None:
        """A switch that they share, say."""
        assert named(gang(star(8), lost=[(0, 1), (0, 2), (0, 3)])) == []

    def test_most_of_the_peers_of_a_star_name_its_middle_and_less_sure(self) -> None:
        sure, less = (vote(gang(star(8), lost=[(rank, 0) for rank in range(1, last)])).suspects[0] for last in (8, 6))

        assert (sure.rank, less.rank) == (0, 0)
        assert less.confidence < sure.confidence

    def test_no_lost_connection_says_nothing(self) -> None:
        assert find_lost(gang(mesh(4))) == find_lost([])

    def test_where_the_connections_of_one_rank_are_not_known_nothing_is_said(self) -> None:
        ranks = gang(ring(6), lost=[(2, 3), (3, 4)])
        ranks[5] = replace(ranks[5], network=None)

        assert named(ranks) == []

    def test_connections_with_others_than_ranks_do_not_count(self) -> None:
        ranks = gang(star(4))
        lost = Connection("10.0.0.1:40001", "192.0.2.9:443", unacknowledged=500)
        ranks[1] = replace(ranks[1], network=NetworkEvidence((lost, *network_of(ranks[1]).connections)))

        assert find_lost(ranks) == find_lost([])

    def test_a_rank_that_lists_a_part_of_its_connections_is_known_by_its_address(self) -> None:
        ranks = gang(star(4), lost=[(1, 0), (2, 0), (3, 0)])
        ranks[0] = replace(ranks[0], network=NetworkEvidence((Connection("10.0.0.0:22", "192.0.2.9:443"),)))

        assert named(ranks) == [0]


class TestNodes:
    """Ranks of a node share its ports. What does not leave the node says nothing of them."""

    def test_all_ranks_of_a_node_that_none_reaches_are_named(self) -> None:
        links = [*mesh(9)]
        location = vote(gang(links, lost=[(one, other) for one, other in links if other >= 6 > one], a_node=3))

        assert [suspect.rank for suspect in location.suspects] == [6, 7, 8]
        assert location.nodes == ["node-2"]

    def test_of_two_nodes_none_is_named(self) -> None:
        """Rank 0 alone talks to the other node, and has peers on its own that it reaches."""
        assert named(gang(star(8), lost=[(0, rank) for rank in range(4, 8)], a_node=4)) == []

    def test_the_node_with_all_the_lost_peers_of_rank_0_is_named(self) -> None:
        assert named(gang(star(12), lost=[(0, rank) for rank in range(8, 12)], a_node=4)) == [8, 9, 10, 11]

    def test_within_one_node_ranks_are_compared(self) -> None:
        assert named(gang(ring(4), lost=[(0, 1), (1, 2)], a_node=4)) == [1]


class TestOneMachine:
    def test_127_0_0_1_is_another_place_in_each_network_namespace(self) -> None:
        """Rank 1 has lost a connection within its own container, with the same ports as two ranks have elsewhere."""
        ranks = [
            RankEvidence(0, network=NetworkEvidence((Connection("127.0.0.1:1", "127.0.0.1:2"),), namespace=70)),
            RankEvidence(1, network=NetworkEvidence((Connection("127.0.0.1:2", "127.0.0.1:1", 99),), namespace=80)),
        ]

        assert find_lost(ranks) == find_lost([])

    def test_an_endpoint_that_two_ranks_inherited_is_of_neither(self) -> None:
        shared = Connection("127.0.0.1:1", "127.0.0.1:2", is_awaited=True)
        both = [RankEvidence(rank, network=NetworkEvidence((shared,), is_elsewhere=True)) for rank in (0, 1)]
        third = RankEvidence(2, network=NetworkEvidence((Connection("127.0.0.1:2", "127.0.0.1:1", 5, True),)))

        assert named([*both, third]) == []
        assert find_lost([*both, third]) == find_lost([])


class TestAwaited:
    def test_of_two_ranks_the_one_that_does_something_else_is_named(self) -> None:
        (suspect,) = vote(gang(star(2), awaited={0: 1}, elsewhere=[1])).suspects

        assert suspect.rank == 1
        assert suspect.witnesses[0].words == "is sleeping in recvfrom; 1 rank waits for it"

    def test_two_ranks_that_wait_for_each_other_name_none(self) -> None:
        assert named(gang(star(2), awaited={0: 1, 1: 0})) == []

    def test_one_that_may_wait_is_not_named(self) -> None:
        assert named(gang(star(2), awaited={0: 1})) == []

    def test_one_that_does_something_else_and_for_which_none_waits_is_not_named(self) -> None:
        assert named(gang(star(2), elsewhere=[1])) == []

    def test_the_end_of_a_chain_of_waits_is_named(self) -> None:
        waits = {**dict.fromkeys((1, 2, 4), 0), 0: 3}

        assert named(gang(star(5), awaited=waits, elsewhere=[3])) == [3]

    def test_where_the_connection_is_lost_the_rank_that_waits_may_wait_for_ever(self) -> None:
        location = vote(gang(star(2), awaited={0: 1}, elsewhere=[1], lost=[(1, 0)]))

        assert location.suspects == ()
        assert "is lost" in location.reason

    def test_it_is_the_view_of_the_kernel_and_counts_as_one_witness(self) -> None:
        (suspect,) = vote(gang(star(4), awaited=dict.fromkeys((1, 2, 3), 0), elsewhere=[0])).suspects

        assert (suspect.rank, suspect.strength) == (0, 1)


class TestVote:
    def test_a_stopped_rank_is_named_although_a_connection_is_lost(self) -> None:
        ranks = gang(star(4), lost=[(1, 0)])
        ranks[3] = replace(ranks[3], process=ProcessEvidence(TaskState.STOPPED))

        assert named(ranks) == [3]

    def test_a_stack_like_no_other_names_none_where_a_connection_is_lost(self) -> None:
        """The end of a lost connection may be where no other rank is."""
        ranks = [replace(each, stack=WAITING) for each in gang(ring(4), lost=[(2, 1)])]
        ranks[1] = replace(ranks[1], stack=LOADING)

        assert named(ranks) == []

    def test_a_lost_connection_and_a_stack_are_two_witnesses(self) -> None:
        ranks = [replace(each, stack=WAITING) for each in gang(ring(4), lost=[(0, 1), (1, 2)])]
        ranks[1] = replace(ranks[1], stack=LOADING)
        (suspect,) = vote(ranks).suspects

        assert (suspect.rank, suspect.strength) == (1, 2)

    def test_one_machine_of_five_hundred_is_found_in_a_ring(self) -> None:
        assert named(gang(ring(512), lost=[(332, 333), (333, 334)])) == [333]


def test_a_large_gang_of_which_one_rank_lost_nearly_all_is_judged_within_a_second() -> None:
    """Each of its peers is looked at, whether it has another connection that works."""
    links = [*star(4096), *((rank, rank + 1) for rank in range(1, 4095))]
    ranks = gang(links, lost=[(rank, 0) for rank in range(1, 4095)])
    began = process_time()
    location = vote(ranks)

    assert process_time() - began < 1.0
    assert [suspect.rank for suspect in location.suspects] == [0]


ENDPOINTS = st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "127.0.0.1:1", "[::1]:1", "", ":", "x", "10.0.0.1"])
NETWORKS = st.builds(
    NetworkEvidence,
    st.lists(st.builds(Connection, ENDPOINTS, ENDPOINTS, st.integers(0, 2), st.booleans()), max_size=4).map(tuple),
    st.booleans(),
    st.integers(0, 1),
)


@given(st.lists(st.none() | NETWORKS, max_size=6))
def test_connections_of_anything_name_half_of_the_ranks_at_most(networks: list[NetworkEvidence | None]) -> None:
    ranks = [RankEvidence(rank, network=network) for rank, network in enumerate(networks)]
    location = vote(ranks)

    assert 2 * len(location.suspects) <= len(ranks)
    assert isinstance(location, HangLocation)


def network_of(rank: RankEvidence) -> NetworkEvidence:
    assert rank.network is not None
    return rank.network
