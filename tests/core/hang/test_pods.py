"""Which pods of a node are sampled, and what is published of each."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api import PodRhythm
from healthd.core.api.health import MOST_PODS, MOST_WINDOWS, MemberState, PodActivity
from healthd.core.hang.pods import CHOOSE_EVERY, MOST_COMPARED, GpusOfNode, PodRhythms
from healthd.core.hang.samples import Stall, Usage
from healthd.core.hang.work.rank_time import RankTime
from tests.core.hang.sampled_pods import (
    SECOND,
    Node,
    Second,
    loops,
    serves,
    sleeps,
    spins,
    trains,
    trains_little,
    trains_without_the_kernel,
)
from tests.fakes import START


def trains_on_a_busy_node(dice: random.Random) -> Usage:
    """It gets a seventh of a core, as beside many others, or when it sleeps while its GPU works."""
    share = dice.uniform(0.12, 0.18)
    return Usage(cpu=share, faults=60 * share, system=0.08 * share)


@pytest.mark.parametrize("works", [trains, trains_on_a_busy_node])
def test_a_pod_that_uses_a_good_part_of_a_core_is_sampled_and_others_are_not(works: Second) -> None:
    node = Node()
    node.run(40, rank=works, web=serves)

    assert node.rhythms.sampled == ["rank"]


def test_a_pod_is_published_once_its_rhythm_is_known() -> None:
    node = Node()
    node.run(50, rank=trains)
    assert node.states() == {}

    node.run(30, rank=trains)
    known = PodRhythm(uid="rank", state=MemberState.WORKING, period=2.0, allowed=12.0, shows_polling=True)
    assert replace(node.only(), work=None) == known


def computes(dice: random.Random) -> Usage:
    """It uses a processor and nothing else, as one does that polls for its peers."""
    return Usage(cpu=dice.uniform(0.9, 1.1))


def test_that_a_pod_only_uses_a_processor_is_no_sign_that_it_does_not_poll() -> None:
    node = Node()
    node.run(80, rank=computes)

    assert (node.only().state, node.only().shows_polling) == (MemberState.WORKING, False)


def trains_lightly(dice: random.Random) -> Usage:
    """It uses so little that it is not sampled."""
    return Usage(cpu=dice.uniform(0.001, 0.004), faults=dice.uniform(0, 1))


def compiles(dice: random.Random) -> Usage:
    """For minutes, as steadily as others train."""
    return Usage(cpu=dice.uniform(2.4, 2.8), faults=1500 * dice.uniform(0.5, 1.5), system=0.13)


def test_a_pod_that_works_little_is_not_silent_after_it_has_compiled_for_minutes() -> None:
    node = Node()
    node.run(1800, rank=trains_lightly)
    for _ in range(3):
        node.run(240, rank=compiles)
        node.run(600, rank=trains_lightly)

        assert node.states() == {}


def test_a_pod_that_waited_for_others_is_judged_once_it_has_worked_for_longer() -> None:
    node = Node()
    node.run(300, rank=sleeps)
    node.run(290, rank=trains)
    assert node.states() == {}

    node.run(120, rank=trains)
    assert node.states() == {"rank": "working"}


def test_for_how_long_a_silent_pod_had_worked_by_its_rhythm_is_published() -> None:
    node = Node()
    node.run(300, rank=trains)
    assert node.only().worked is None

    node.run(30, rank=sleeps)
    silent = node.only()
    assert silent.state == MemberState.SILENT
    assert silent.worked is not None
    assert 200 < silent.worked < 300


def test_how_much_a_pod_works_is_published_in_windows_where_it_is_asked_for() -> None:
    node, without = Node(), Node(work=False)
    for each in (node, without):
        each.run(130, rank=trains)

    work = node.only().work
    assert work is not None
    assert work.end.timestamp() % work.seconds == 0
    assert all(0.8 <= cores <= 1.2 for cores in work.cores)
    assert len(work.cores) >= 2
    assert without.only().work is None


def test_the_newest_two_minutes_are_published_in_short_windows_while_they_are_asked_for() -> None:
    node, without = Node(), Node(work=False)
    for each in (node, without):
        each.run(240, rank=trains)
        assert each.only().recent is None
        each.finely = True
        each.run(7, rank=trains)

    recent = node.only().recent
    assert recent is not None
    assert (recent.seconds, len(recent.cores)) == (5, MOST_WINDOWS)
    assert timedelta(0) <= node.now - recent.end <= timedelta(seconds=6)
    assert all(0.8 <= cores <= 1.2 for cores in recent.cores)
    assert without.only().recent is None

    node.finely = False
    node.run(1, rank=trains)
    assert node.only().recent is None


def test_a_pod_that_does_nothing_for_longer_than_it_may_is_silent_since_its_last_work() -> None:
    node = Node()
    node.run(100, rank=trains)
    ended = node.now
    node.run(11, rank=sleeps)
    assert node.states() == {"rank": "working"}

    node.run(5, rank=sleeps)
    assert (node.only().state, node.only().since) == (MemberState.SILENT, ended)
    assert node.only().allowed == 12


def test_what_a_quiet_pod_has_used_since_its_last_work_is_published_with_what_its_group_says() -> None:
    node = Node()
    node.run(100, rank=trains)
    node.run(16, rank=spins)
    assert node.only().activity is None
    assert node.rhythms.to_look_at == ["rank"]

    node.rhythms.look_at({"rank": Stall(io_wait=0.25, frozen=True)})
    activity = node.only().activity
    assert activity is not None
    assert (activity.io_wait, activity.frozen) == (0.25, True)
    assert 0.95 <= activity.cpu <= 1
    node.run(60, rank=spins)
    assert (node.only().activity, node.rhythms.to_look_at) == (activity, [])


def test_a_quiet_pod_whose_group_says_nothing_is_published_by_what_it_used() -> None:
    node = Node()
    node.run(100, rank=trains)
    node.run(16, rank=lambda _: Usage(cpu=0.01, read=1000, written=24))
    node.rhythms.look_at({})

    assert (node.only().activity, node.rhythms.to_look_at) == (PodActivity(cpu=0.01, io=1024), [])


def test_a_pod_that_works_again_has_no_activity_and_is_looked_at_again_when_it_falls_quiet() -> None:
    node = Node()
    node.run(100, rank=trains)
    node.run(16, rank=sleeps)
    node.rhythms.look_at({"rank": Stall(frozen=True)})
    node.run(3, rank=trains)
    assert node.only().activity is None

    node.run(60, rank=sleeps)
    assert node.rhythms.to_look_at == ["rank"]


def test_a_pod_that_works_again_is_no_longer_silent_and_may_pause_for_longer() -> None:
    node = Node()
    node.run(100, rank=trains)
    node.run(40, rank=sleeps)
    node.run(3, rank=trains)

    assert (node.only().state, node.only().since, node.only().allowed) == (MemberState.WORKING, None, 80)


def test_a_pod_that_polls_in_user_space_waits() -> None:
    node = Node()
    node.run(100, rank=trains)
    node.run(20, rank=spins)

    assert node.states() == {"rank": "waiting"}


def test_so_does_one_in_a_loop_that_uses_far_more_than_is_usual() -> None:
    node = Node()
    node.run(90, rank=trains_little)
    node.run(15, rank=loops)

    assert node.only().state is MemberState.WAITING


def test_one_that_uses_far_more_than_is_usual_and_touches_memory_works() -> None:
    node = Node()
    node.run(90, rank=trains_little)
    node.run(60, rank=lambda dice: Usage(cpu=dice.uniform(0.7, 1.0), faults=500, system=0.02))

    assert node.only().state is MemberState.WORKING


def test_a_pod_of_which_only_the_processor_tells_something_is_never_seen_to_poll() -> None:
    node = Node()
    node.run(100, rank=trains_without_the_kernel)
    node.run(60, rank=spins)

    assert node.states() == {"rank": "working"}


def test_a_pod_that_fell_silent_is_sampled_until_it_is_gone() -> None:
    node = Node()
    node.run(100, rank=trains)
    node.run(600, rank=sleeps)
    assert node.states() == {"rank": "silent"}

    node.run(1)
    assert (node.states(), node.rhythms.sampled) == ({}, [])


def test_a_pod_that_pauses_before_its_rhythm_is_known_is_sampled_for_a_while_more() -> None:
    node = Node()
    node.run(40, rank=trains)
    node.run(25, rank=sleeps)
    assert node.rhythms.sampled == ["rank"]

    node.run(60, rank=sleeps)
    assert node.rhythms.sampled == []


def test_the_busiest_pods_are_sampled_where_there_are_too_many() -> None:
    def uses(cores: float) -> Second:
        return lambda _: Usage(cpu=cores, faults=50)

    node = Node(most=2)
    node.run(40, small=uses(0.3), large=uses(4), middle=uses(1))

    assert sorted(node.rhythms.sampled) == ["large", "middle"]


def test_a_silent_rank_keeps_its_place_among_busy_pods_that_are_smaller() -> None:
    node = Node(most=1)
    node.run(100, rank=trains, web=serves)
    node.run(120, rank=sleeps, web=lambda _: Usage(cpu=0.9, faults=50))

    assert node.states() == {"rank": "silent"}


def test_what_is_published_is_the_same_list_while_a_pod_works() -> None:
    node = Node(work=False)
    node.run(300, rank=trains)
    before = node.rhythms.published()
    node.run(300, rank=trains)

    assert node.rhythms.published() is before


def test_what_is_published_changes_only_with_a_further_window_of_work() -> None:
    node = Node()
    node.run(300, rank=trains)
    published = [node.rhythms.published()]
    for _ in range(60):
        node.run(1, rank=trains)
        if node.rhythms.published() is not published[-1]:
            published.append(node.rhythms.published())

    assert 2 <= len(published) <= 5


def test_a_pod_that_was_left_out_of_a_sample_starts_from_nothing() -> None:
    node = Node()
    node.run(100, rank=trains)
    node.rhythms.observe({}, node.now)
    assert node.states() == {}

    node.run(40, rank=trains)
    assert node.states() == {}
    node.run(60, rank=trains)
    assert node.states() == {"rank": "working"}


def test_a_clock_that_stands_still_chooses_no_pod() -> None:
    rhythms = PodRhythms()
    rhythms.choose({"rank": 0.0}, START)
    rhythms.choose({"rank": 100.0}, START)

    assert rhythms.sampled == []


def test_of_five_thousand_busy_pods_the_most_that_may_be_are_sampled() -> None:
    rhythms = PodRhythms()
    rhythms.choose({f"pod-{number}": 0.0 for number in range(5000)}, START)
    rhythms.choose({f"pod-{number}": 10.0 for number in range(5000)}, START + CHOOSE_EVERY)

    assert len(rhythms.sampled) == MOST_PODS


def known_node(second: Second) -> Node:
    """A node with one rank whose rhythm is known."""
    node = Node(work=False)
    node.run(120, rank=second)
    assert node.states() == {"rank": "working"}
    return node


def test_a_pod_that_would_not_be_seen_to_poll_is_looked_at_when_the_gpus_are_silent() -> None:
    node = known_node(computes)
    rested = node.now
    node.run(15, rank=computes)
    assert node.rhythms.to_look_at == []

    node.rhythms.observe_gpus(GpusOfNode(answering=1, silent_since=rested))
    assert node.rhythms.to_look_at == ["rank"]
    node.rhythms.look_at({"rank": Stall(io_wait=0.1)})

    activity = node.only().activity
    assert node.rhythms.to_look_at == []
    assert node.only().state is MemberState.WORKING
    assert activity is not None
    assert activity.io_wait == 0.1
    assert 0.9 <= activity.cpu <= 1.1


def test_it_is_looked_at_again_once_the_gpus_have_worked_meanwhile() -> None:
    node = known_node(computes)
    rest(node)
    node.rhythms.look_at({})
    assert node.only().activity is not None
    node.rhythms.observe_gpus(GpusOfNode(answering=1, silent_since=None))
    node.run(1, rank=computes)
    assert node.only().activity is None

    rest(node)
    assert node.rhythms.to_look_at == ["rank"]


def test_it_is_not_looked_at_before_it_was_sampled_since_for_that_looks_as_if_it_used_no_processor() -> None:
    node = known_node(computes)
    node.rhythms.observe_gpus(GpusOfNode(answering=1, silent_since=node.now))

    assert node.rhythms.to_look_at == []
    node.rhythms.look_at({"rank": Stall()})
    assert node.only().activity is None


def rest(node: Node) -> None:
    """Its GPUs fall silent, and the rank goes on to compute."""
    node.rhythms.observe_gpus(GpusOfNode(answering=1, silent_since=node.now))
    node.run(3, rank=computes)


def test_a_pod_that_is_seen_to_work_is_not_looked_at_because_of_the_gpus() -> None:
    node = known_node(trains)
    node.rhythms.observe_gpus(GpusOfNode(answering=1, silent_since=node.now))

    assert node.rhythms.to_look_at == []


def test_a_pod_that_fell_quiet_lately_is_distinguished_from_one_that_did_so_long_ago() -> None:
    node = known_node(trains)
    assert not node.rhythms.fell_quiet(node.now - timedelta(hours=1))

    stopped = node.now
    node.run(30, rank=sleeps)

    assert node.rhythms.fell_quiet(stopped - SECOND)
    assert not node.rhythms.fell_quiet(stopped + SECOND)


def test_of_a_node_with_many_ranks_only_some_pods_are_compared() -> None:
    node = Node()
    names = [f"pod{number}" for number in range(6)]
    asked = Counter[str]()
    for second in range(400):
        node.run(1, **dict.fromkeys(names, trains))
        due = node.rhythms.to_compare(node.now)
        asked.update(due)
        ranks = [RankTime(number=each, pid=each, ran=float(second), starved=0.0) for each in range(16)]
        node.rhythms.compare(dict.fromkeys(due, ranks), node.now)

    often = [name for name in names if asked[name] > 40]
    assert len(often) * 16 == MOST_COMPARED
    assert all(0 < asked[name] <= 7 for name in names if name not in often)
