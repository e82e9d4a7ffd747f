"""One bad port among many is seen from all of them; when a rail is congested, none is at fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest

from healthd.core.api import Nic, NodeHealth, NodeHealthStatus, ObjectMeta
from healthd.core.fabric.rail_comparison import Congestion, Fabric, Survey, Track
from healthd.core.node.reporting import SILENT_AFTER
from tests.fakes import START

LOST = "roce.packet_seq_err"
NOTICES = "roce.np_cnp_sent"

Powers = Mapping[str, int]
PowersOf = Callable[[int, int], Powers]
"""What counters of the port on a rail of a node grew by, given the numbers of node and rail."""


def a_port(rail: int | None, growth: Powers, *, rate: float = 400, family: str = "roce") -> Nic:
    pci = f"0000:{16 + (rail or 0):02x}:00.0"
    return Nic(pci=pci, port=1, family=family, rate_gbps=rate, rail=rail, growth=dict(growth))


def a_node(*nics: Nic, silent_for: timedelta = timedelta(0)) -> NodeHealth:
    status = NodeHealthStatus(nics=list(nics), seen_at=START - silent_for)
    return NodeHealth(metadata=ObjectMeta(), status=status)


def nodes(powers: PowersOf, *, count: int = 125, rails: int = 8) -> dict[str, NodeHealth]:
    """1,000 ports, unless a test says otherwise."""
    return {f"n{node}": a_node(*(a_port(rail, powers(node, rail)) for rail in range(rails))) for node in range(count)}


def seen(health: Mapping[str, NodeHealth]) -> Fabric:
    survey = Survey()
    for name, one in health.items():
        survey.enter(name, one, START)
    return survey.compare()


def who(fabric: Fabric) -> list[tuple[str, int, str]]:
    """Node, rail and counter of what stands out."""
    return [(one.node, one.track.rail, one.track.counter) for one in fabric.outliers]


def test_one_bad_port_among_a_thousand_stands_out() -> None:
    fabric = seen(nodes(lambda node, rail: {LOST: 16 if (node, rail) == (7, 3) else 0}))

    assert who(fabric) == [("n7", 3, LOST)]
    assert fabric.congested == []


def test_one_bad_port_stands_out_of_ports_that_all_count_a_little() -> None:
    fabric = seen(nodes(lambda node, rail: {LOST: 24 if (node, rail) == (7, 3) else 12 + (node + rail) % 3}))

    assert who(fabric) == [("n7", 3, LOST)]
    assert fabric.outliers[0].power == 24
    assert fabric.outliers[0].usual == 13


def test_the_message_names_the_port_and_how_far_out_it_is() -> None:
    lossy = seen(nodes(lambda node, rail: {LOST: 16 if (node, rail) == (7, 3) else 0}))
    crowded = seen(nodes(lambda node, rail: {NOTICES: 22 if (node, rail) == (7, 3) else 12}))

    assert lossy.outliers[0].message == (
        "Port 1 of 0000:13:00.0 (rail 3): roce.packet_seq_err grew by some 65,536 in an hour; less than 1,024 is usual "
        "on this rail. The rail as a whole is not congested: look at its cable, its modules and the switch port."
    )
    assert "some 4,096 is usual" in crowded.outliers[0].message
    assert crowded.outliers[0].message.endswith("look at what is sent to this port, and the switch port.")


def test_less_than_one_a_second_is_not_reported() -> None:
    assert who(seen(nodes(lambda node, _: {LOST: 11 if node == 7 else 0}, rails=1))) == []
    assert who(seen(nodes(lambda node, _: {LOST: 12 if node == 7 else 0}, rails=1))) == [("n7", 0, LOST)]


def test_four_times_what_is_usual_is_no_fault() -> None:
    assert who(seen(nodes(lambda node, rail: {LOST: 16 if (node, rail) == (7, 3) else 14}))) == []


def test_when_the_whole_fabric_is_congested_no_port_stands_out() -> None:
    fabric = seen(nodes(lambda node, rail: {LOST: 20 if (node, rail) == (7, 3) else 14, NOTICES: 20 + node % 2}))

    assert fabric.outliers == []
    assert fabric.congested == [Congestion(Track(rail, "roce", 400, NOTICES), 125) for rail in range(8)]


def test_when_half_of_the_fabric_is_congested_no_port_stands_out() -> None:
    fabric = seen(nodes(lambda node, _: {NOTICES: 22 if node < 63 else 0, LOST: 16 if node < 63 else 0}))

    assert fabric.outliers == []
    assert {crowd.nodes for crowd in fabric.congested} == {63}


def test_a_rail_whose_ports_are_bad_on_many_nodes_is_the_rails_own_trouble() -> None:
    fabric = seen(nodes(lambda node, rail: {LOST: 18 if rail == 3 and node < 20 else 0}))

    assert fabric.outliers == []
    assert fabric.congested == [Congestion(Track(3, "roce", 400, LOST), 20)]


def test_congestion_of_one_rail_hides_no_bad_port_of_another() -> None:
    def powers(node: int, rail: int) -> Powers:
        return {NOTICES: 22 if rail == 3 else 0, LOST: 18 if (node, rail) in {(7, 3), (9, 5)} else 0}

    fabric = seen(nodes(powers))

    assert who(fabric) == [("n9", 5, LOST)]
    assert [crowd.message for crowd in fabric.congested] == [
        "rail 3 is congested by roce.np_cnp_sent, 125 nodes: none of them is at fault"
    ]
    assert [fabric.ports_out()[rail] for rail in (3, 5)] == [0, 1]
    assert [fabric.nodes_congested()[rail] for rail in (3, 5)] == [125, 0]


def test_a_node_whose_ports_all_count_has_work_that_others_have_not() -> None:
    assert who(seen(nodes(lambda node, _: {LOST: 18 if node == 7 else 0}))) == []


def test_a_bad_port_stands_out_of_the_work_of_its_node() -> None:
    def powers(node: int, rail: int) -> Powers:
        return {LOST: (22 if rail == 3 else 16) if node == 7 else 0}

    assert who(seen(nodes(powers))) == [("n7", 3, LOST)]


def test_ports_of_other_rates_are_not_compared() -> None:
    fast = nodes(lambda *_: {LOST: 0}, count=50, rails=1)
    slow = {f"s{node}": a_node(a_port(0, {LOST: 15}, rate=100)) for node in range(50)}

    assert who(seen({**fast, **slow})) == []
    assert who(seen({**fast, "s0": a_node(a_port(0, {LOST: 15}))})) == [("s0", 0, LOST)]


def test_ports_of_other_families_are_not_compared() -> None:
    here = nodes(lambda *_: {LOST: 0}, count=50, rails=1)
    there = {f"i{node}": a_node(a_port(0, {LOST: 15}, family="ib")) for node in range(50)}

    assert who(seen({**here, **there})) == []


def test_a_bad_port_among_the_slow_ones_stands_out_of_these() -> None:
    fast = nodes(lambda *_: {LOST: 18}, count=50, rails=1)
    slow = {f"s{node}": a_node(a_port(0, {LOST: 18 if node == 7 else 0}, rate=100)) for node in range(50)}

    assert who(seen({**fast, **slow})) == [("s7", 0, LOST)]


@pytest.mark.parametrize(("count", "outliers"), [(7, 0), (8, 1)])
def test_few_ports_say_nothing_about_what_is_usual(count: int, outliers: int) -> None:
    fabric = seen(nodes(lambda node, _: {LOST: 18 if node == 0 else 0}, count=count, rails=1))

    assert len(fabric.outliers) == outliers


def test_what_a_silent_agent_said_counts_for_nothing() -> None:
    health = nodes(lambda *_: {LOST: 0}, rails=1)
    silent = a_node(a_port(0, {LOST: 18}), silent_for=SILENT_AFTER + timedelta(seconds=1))

    assert who(seen({**health, "n7": silent})) == []


def test_a_port_of_no_rail_is_compared_with_none() -> None:
    health = nodes(lambda *_: {LOST: 0}, rails=1)

    assert who(seen({**health, "n7": a_node(a_port(None, {LOST: 18}))})) == []


def test_a_number_that_no_counter_can_have_harms_nothing() -> None:
    fabric = seen(nodes(lambda node, _: {LOST: {7: 10**6, 8: -5}.get(node, 0)}, rails=1))

    assert who(fabric) == [("n7", 0, LOST)]


def test_without_reports_there_is_nothing_to_compare() -> None:
    assert seen({}) == Fabric([], [], frozenset())
