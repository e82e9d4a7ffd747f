"""The slots of the budget."""

from __future__ import annotations

from healthd.core.config import QuarantinePolicy
from healthd.core.node.budget import slot_sets
from tests.builders import a_node

ZONE_A = a_node(labels={"zone": "a"})


def a_policy(budget: int = 2, per_domain: int = 0) -> QuarantinePolicy:
    """A budget by zones."""
    return QuarantinePolicy(budget=budget, per_domain=per_domain, domain_label="zone")


def test_there_are_as_many_slots_as_the_budget_says() -> None:
    (cluster,) = slot_sets(ZONE_A, a_policy(budget=3))

    assert len(set(cluster.names)) == 3


def test_every_node_competes_for_the_same_slots_in_an_order_of_its_own() -> None:
    (cluster,) = slot_sets(ZONE_A, a_policy(budget=40))

    orders = {tuple(cluster.by_preference(f"node-{number}")) for number in range(40)}
    assert {frozenset(order) for order in orders} == {frozenset(cluster.names)}
    assert len({order[0] for order in orders}) > 10


def test_a_budget_of_nothing_has_no_slot_to_take() -> None:
    (cluster,) = slot_sets(ZONE_A, a_policy(budget=0))

    assert list(cluster.by_preference("node-a")) == []


def test_a_domain_has_slots_of_its_own() -> None:
    names = {zone: slot_sets(a_node(labels={"zone": zone}), a_policy(per_domain=1))[1].names for zone in ("a", "b")}

    assert len(names["a"]) == len(names["b"]) == 1
    assert names["a"] != names["b"]


def test_domains_that_look_alike_once_cleaned_keep_their_budgets_apart() -> None:
    alike = [slot_sets(a_node(labels={"zone": zone}), a_policy(per_domain=1))[1].names for zone in ("rack 1", "rack-1")]

    assert alike[0] != alike[1]


def test_a_node_without_a_domain_needs_only_a_slot_of_the_cluster() -> None:
    assert len(slot_sets(a_node(), a_policy(per_domain=1))) == 1


def test_a_slot_that_is_held_is_found() -> None:
    (cluster,) = slot_sets(ZONE_A, a_policy())

    assert cluster.held([cluster.names[1], "another"]) == cluster.names[1]
    assert cluster.held(["another"]) is None
