"""Gangs in which only some members may be fewer: a master or a head is always there."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from healthd.core.api import FencedPod, RecoveryStatus, Shrunk
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import Elastic, GangOptions, GangView, Numbered, Root
from healthd.core.recovery.nodes.placement import PlacementPlan, Shortage, place
from healthd.core.recovery.planned.growth import added_members, at_own_size, record_of, room
from tests.builders import a_cause, a_node, a_pod, a_recovery
from tests.core.gangs import a_root

OPTIONS = GangOptions(restart=True, checkpoint="/checkpoints", min_nodes=2, grow_back=True)
MASTER_AND_WORKERS = (Numbered("master", (1,)), Numbered("worker", (3,)))
ONE_LEFT = Shrunk(size=3, members=2, nodes=["d"])


def with_master(workers: int = 3, *, least: int = 1, most: int = 8, min_nodes: int = 2) -> Root:
    """A master and *workers*, by name."""
    return a_root(
        world=4,
        indexes=MASTER_AND_WORKERS,
        elastic=Elastic(3, "worker", least, most),
        options=replace(OPTIONS, min_nodes=min_nodes),
    ).resized(workers)


def alike(workers: int = 3) -> Root:
    """A head and *workers* that nothing tells apart."""
    return a_root(world=workers + 1, indexes=(), elastic=Elastic(workers), options=OPTIONS)


def planned(root: Root, *nodes: str, bad: str = "", shrunk: Shrunk | None = None) -> PlacementPlan | Shortage:
    """The plan for *root*, whose members were on *nodes*, the first member first. One of them is *bad*."""
    indexes = root.seats or [""] * len(nodes)
    pods = [FencedPod(name=f"p{i}", uid=f"u{i}", node=node, index=indexes[i]) for i, node in enumerate(nodes)]
    known = {name: a_node(name, unschedulable=name == bad) for name in (*nodes, *(shrunk.nodes if shrunk else ()))}
    view = GangView(root=root, nodes=known)
    return place(RecoveryStatus(pods=pods), view, root, "train-1", RecoveryPolicy(), shrunk)


def placement(plan: PlacementPlan | Shortage) -> dict[str, str]:
    """Of a plan that is none of a shortage."""
    assert isinstance(plan, PlacementPlan), plan
    return plan.placement


def test_a_worker_without_a_node_is_left_out_and_the_others_are_numbered_anew() -> None:
    plan = planned(with_master(), "a", "b", "c", "d", bad="b")

    assert placement(plan) == {"master-0": "a", "worker-0": "c", "worker-1": "d"}
    assert plan.message == "no spare for b: shrinks from 4 to 3 members"


def test_a_master_without_a_node_takes_that_of_the_last_worker() -> None:
    plan = planned(with_master(), "a", "b", "c", "d", bad="a")

    assert placement(plan) == {"master-0": "d", "worker-0": "b", "worker-1": "c"}


def test_a_master_that_shared_a_node_shares_one_again() -> None:
    plan = planned(with_master(), "b", "b", "c", "d", bad="b")

    assert placement(plan) == {"master-0": "d", "worker-0": "c", "worker-1": "d"}


def test_members_that_nothing_tells_apart_are_one_fewer() -> None:
    plan = planned(alike(), "a", "b", "c", "d", bad="b")

    assert placement(plan) == {"0": "a", "1": "c", "2": "d"}
    assert alike().elastic_members(placement(plan)) == 2


def test_a_head_alone_is_no_gang() -> None:
    assert isinstance(planned(alike(workers=1), "a", "b", bad="b"), Shortage)


def test_the_minimum_of_healthd_counts_all_members() -> None:
    plan = planned(with_master(min_nodes=4), "a", "b", "c", "d", bad="b")

    assert isinstance(plan, Shortage)
    assert plan.message.endswith("and 3 left are fewer than min-nodes 4")


def test_the_minimum_of_the_root_itself_counts_those_that_may_be_fewer() -> None:
    plan = planned(with_master(least=3), "a", "b", "c", "d", bad="b")

    assert isinstance(plan, Shortage)
    assert plan.message.endswith("and 3 left are fewer than the 4 that Job train allows")


def test_the_record_counts_workers_and_the_size_comes_back_with_the_node() -> None:
    left = record_of(placement(planned(with_master(), "a", "b", "c", "d", bad="d")), ["d"], with_master(), None)
    grown = planned(with_master(2), "a", "b", "c", shrunk=left)

    assert left == ONE_LEFT
    assert placement(grown) == {"master-0": "a", "worker-0": "b", "worker-1": "c", "worker-2": "d"}
    assert grown.message == "grows back from 3 to 4 members"
    assert record_of(placement(grown), [], with_master(2), left) is None


def test_members_that_nothing_tells_apart_grow_back() -> None:
    grown = planned(alike(2), "a", "b", "c", shrunk=ONE_LEFT)

    assert placement(grown) == {"0": "a", "1": "b", "2": "c", "3": "d"}


def test_it_grows_to_what_its_owner_allows_now() -> None:
    lower = with_master(2, most=2)
    view = GangView(root=lower, pods=(a_pod("p", node="a"),), nodes={name: a_node(name) for name in "ad"})

    assert at_own_size(lower, ONE_LEFT) == lower
    assert room(view, ONE_LEFT, RecoveryPolicy()) == []
    assert room(structs.replace(view, root=with_master(2)), ONE_LEFT, RecoveryPolicy()) == ["d"]


def test_the_members_that_came_back_are_workers() -> None:
    recovery = a_recovery(cause=a_cause())
    growing = structs.replace(recovery, spec=structs.replace(recovery.spec, shrunk=ONE_LEFT))

    assert added_members(growing, with_master()) == ("worker-2",)
