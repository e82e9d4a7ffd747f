"""Spares: which to take, how to claim one, and when it goes back."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.api import ANNOTATION_CLAIM, Condition, Node, Taint
from healthd.core.api.model import CauseKind, Verdict
from healthd.core.api.names import ANNOTATION_FAILED_CHECK, ANNOTATION_REPAIRED
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import GangView, LastCheck
from healthd.core.recovery.nodes.foreign_signs import Effect, Sign
from healthd.core.recovery.nodes.spares import (
    Claim,
    KeepSpare,
    ReturnSpare,
    SettleSpare,
    choose,
    claim_patch,
    is_fit,
    is_spare,
    keep_patch,
    obstacles,
    origin,
    read_claim,
    reservation,
    return_patch,
    settle,
    settle_patch,
    unclaimed,
    unheld,
)
from tests.builders import a_node, a_nodehealth
from tests.core.gangs import a_root

HELD = Taint(key="healthd.dev/spare")
FOREIGN = Taint(key="nvidia.com/gpu")


def a_claim(instead_of: str = "bad", *, gang: str = "train", recovery: str = "train-1") -> Claim:
    """A claim of *gang*."""
    return Claim(recovery=recovery, namespace="default", gang=gang, gang_uid=f"uid-{gang}", instead_of=instead_of)


def claimed(name: str = "spare", claim: Claim | None = None) -> Node:
    """A spare that a recovery took."""
    notes = {ANNOTATION_CLAIM: msgspec.json.encode(claim or a_claim()).decode()}
    return a_node(
        name, annotations=notes, taints=[Taint(key="healthd.dev/reserved-for", value=reservation("train", "uid-train"))]
    )


def patched(node: Node, patch: dict[str, object]) -> Node:
    """*node* after a merge patch, far enough for these tests."""
    body = msgspec.to_builtins(node)
    for part, change in patch.items():
        assert isinstance(change, dict)
        body[part] = _merged(body.get(part, {}), change)
    return msgspec.convert(body, Node)


def _merged(old: dict[str, object], change: dict[str, object]) -> dict[str, object]:
    new = dict(old)
    for key, value in change.items():
        if isinstance(value, dict):
            before = new.get(key, {})
            assert isinstance(before, dict)
            new[key] = _merged(before, value)
        elif value is None:
            new.pop(key, None)
        else:
            new[key] = value
    return new


@pytest.mark.parametrize(
    ("node", "verdict", "fit"),
    [
        pytest.param(a_node(), Verdict.HEALTHY, True, id="healthy"),
        pytest.param(a_node(), Verdict.UNKNOWN, True, id="unknown is not unhealthy"),
        pytest.param(a_node(), None, True, id="no agent there"),
        pytest.param(a_node(), Verdict.UNHEALTHY, False, id="unhealthy"),
        pytest.param(a_node(unschedulable=True), Verdict.HEALTHY, False, id="cordoned"),
        pytest.param(a_node(conditions=[]), Verdict.HEALTHY, False, id="says nothing of itself"),
        pytest.param(a_node(conditions=[Condition(type="Ready", status="False")]), None, False, id="not ready"),
        pytest.param(None, None, False, id="gone"),
    ],
)
def test_a_gang_may_be_started_only_on_a_node_that_is_fit(
    node: Node | None, verdict: Verdict | None, fit: bool
) -> None:
    health = None if verdict is None else a_nodehealth(verdict=verdict)

    assert is_fit(node, health) is fit


def chosen(
    bad: list[str],
    *nodes: Node,
    kept: Mapping[str, str] | None = None,
    used: Collection[str] = (),
    busy: Collection[str] = (),
    signs: Mapping[str, Sign] | None = None,
) -> object:
    """What is chosen for the recovery `train-1`."""
    by_name = {node.metadata.name: node for node in nodes}
    view = GangView(root=a_root(), nodes=by_name, busy=busy, sign_on=(signs or {}).get)
    return choose(bad, view, kept=kept or {}, recovery="train-1", policy=RecoveryPolicy(), used=used)


def a_machine(
    name: str,
    *,
    gpus: int = 8,
    lost: int = 0,
    product: str = "H200",
    rack: str = "",
    zone: str = "",
    spare: bool = True,
) -> Node:
    """A node with GPUs of one product, of which some are *lost*, somewhere."""
    where = {
        "topology.kubernetes.io/rack": rack,
        "topology.kubernetes.io/zone": zone,
        "nvidia.com/gpu.product": product,
    }
    node = a_node(name, spare=spare, labels={label: value for label, value in where.items() if value})
    status = replace(
        node.status,
        capacity={"nvidia.com/gpu": str(gpus)},
        allocatable={"nvidia.com/gpu": str(gpus - lost), "cpu": "8"},
    )
    return replace(node, status=status)


BAD = a_machine("bad", lost=1, rack="r1", zone="z1", spare=False)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(a_machine("other", product="A100"), id="another product"),
        pytest.param(a_machine("other", product=""), id="an unknown product"),
        pytest.param(a_machine("other", gpus=4), id="fewer GPUs"),
        pytest.param(a_machine("other", lost=1), id="a lost GPU of its own"),
    ],
)
def test_a_spare_has_the_same_hardware_as_the_node_that_it_replaces(other: Node) -> None:
    assert chosen(["bad"], BAD, other) == {}
    assert chosen(["bad"], BAD, other, a_machine("same")) == {"bad": "same"}


def test_for_a_node_that_is_gone_another_one_of_the_gang_reports_what_it_had() -> None:
    good = a_machine("good", spare=False)

    assert chosen(["gone"], good, a_machine("a", gpus=4), a_machine("b"), used=["good"]) == {"gone": "b"}


def test_a_gang_without_gpus_takes_any_spare() -> None:
    assert chosen(["bad"], a_node("bad"), a_machine("a")) == {"bad": "a"}


def test_the_instance_type_counts_where_no_one_names_the_product() -> None:
    kind = "node.kubernetes.io/instance-type"
    bad, other, same = (
        a_node(n, spare=n != "bad", labels={kind: k}) for n, k in (("bad", "x"), ("a", "y"), ("b", "x"))
    )

    assert chosen(["bad"], bad, other, same) == {"bad": "b"}


def test_the_nearest_spare_is_preferred() -> None:
    far, in_zone, in_rack = a_machine("a"), a_machine("b", zone="z1"), a_machine("c", rack="r1", zone="z1")

    assert chosen(["bad"], BAD, far, in_zone, in_rack) == {"bad": "c"}
    assert chosen(["bad"], BAD, far, in_zone) == {"bad": "b"}
    assert chosen(["bad"], BAD, far) == {"bad": "a"}


def test_a_spare_with_pods_of_another_gang_is_taken_after_all_others() -> None:
    busy, free = a_node("a", spare=True), a_node("b", spare=True)

    assert chosen(["bad"], busy, free, busy=["a"]) == {"bad": "b"}
    assert chosen(["bad"], busy, busy=["a"]) == {"bad": "a"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LastCheck.RUNNING, LastCheck.NONE),
        (LastCheck.FAILED, LastCheck.NONE),
        (LastCheck.FAILED, LastCheck.RUNNING),
        (LastCheck.NONE, LastCheck.PASSED),
    ],
)
def test_the_last_check_of_a_spare_says_which_is_preferred_and_bans_none(first: LastCheck, second: LastCheck) -> None:
    def taken(*nodes: Node) -> object:
        view = GangView(root=a_root(), nodes={n.metadata.name: n for n in nodes}, last_checks={"a": first, "b": second})
        return choose(["bad"], view, kept={}, recovery="train-1", policy=RecoveryPolicy())

    assert taken(a_node("a", spare=True), a_node("b", spare=True)) == {"bad": "b"}
    assert taken(a_node("a", spare=True)) == {"bad": "a"}


def test_a_near_spare_is_taken_before_one_that_passed_its_check_lately() -> None:
    policy = RecoveryPolicy()
    label = policy.spare_near[0]
    bad, near = a_node("bad", labels={label: "here"}), a_node("near", spare=True, labels={label: "here"})
    far = a_node("a-far-one", spare=True, labels={label: "there"})
    view = GangView(
        root=a_root(),
        nodes={node.metadata.name: node for node in (bad, near, far)},
        last_checks={"a-far-one": LastCheck.PASSED},
    )

    assert choose(["bad"], view, kept={}, recovery="train-1", policy=policy) == {"bad": "near"}


def test_a_spare_that_failed_its_check_for_sure_is_no_spare_until_it_is_repaired() -> None:
    failed = {ANNOTATION_FAILED_CHECK: "2026-01-01T10:00:00+00:00 a word was wrong"}
    repaired = {**failed, ANNOTATION_REPAIRED: "2026-01-01T11:00:00+00:00"}

    assert chosen(["bad"], a_node("a", spare=True, annotations=failed)) == {}
    assert chosen(["bad"], a_node("a", spare=True, annotations=repaired)) == {"bad": "a"}
    assert chosen(["bad"], a_node("a", spare=True, annotations={ANNOTATION_FAILED_CHECK: "yes"})) == {"bad": "a"}


@pytest.mark.parametrize(
    ("spare", "why"),
    [
        pytest.param(a_node("a", spare=True, unschedulable=True), "cordoned", id="cordoned"),
        pytest.param(a_node("a", spare=True, conditions=[]), "not ready", id="not ready"),
        pytest.param(a_machine("a", product="A100"), "its hardware differs", id="other hardware"),
        pytest.param(
            a_node("a", spare=True, annotations={ANNOTATION_CLAIM: "bob"}),
            "its annotation healthd.dev/claim is none of healthd's",
            id="claimed by hand",
        ),
        pytest.param(a_machine("a"), "occupied by others/notebook", id="occupied"),
    ],
)
def test_each_spare_that_is_not_taken_has_a_reason(spare: Node, why: str) -> None:
    occupied = {"a": "others/notebook"} if "occupied" in why else {}
    view = GangView(root=a_root(), nodes={"a": spare, "bad": a_machine("bad", spare=False)}, occupied=occupied)

    assert obstacles("bad", view, RecoveryPolicy()) == {"a": why}


def a_sign(effect: Effect) -> Sign:
    """What another detector says of a node."""
    return Sign(row="a-row", node="a", effect=effect, cause=CauseKind.HARDWARE, message="a: it may break")


def test_a_node_whose_agent_is_blind_is_the_last_resort() -> None:
    def taken(*spares: str) -> dict[str, str]:
        nodes = {name: a_node(name, spare=True) for name in spares}
        view = GangView(root=a_root(), nodes=nodes, health={"a": a_nodehealth("a", verdict=Verdict.UNKNOWN)})
        return choose(["bad"], view, kept={}, recovery="train-1", policy=RecoveryPolicy())

    assert taken("a", "b") == {"bad": "b"}
    assert taken("a") == {"bad": "a"}


def test_a_spare_that_another_detector_advises_against_is_the_last_resort() -> None:
    nodes = (a_node("a", spare=True), a_node("b", spare=True))

    assert chosen(["bad"], *nodes, signs={"a": a_sign(Effect.AVOID)}) == {"bad": "b"}
    assert chosen(["bad"], nodes[0], signs={"a": a_sign(Effect.AVOID)}) == {"bad": "a"}
    assert chosen(["bad"], nodes[0], signs={"a": a_sign(Effect.RESTART)}) == {}


def test_the_first_free_spare_is_taken_and_no_ordinary_node() -> None:
    nodes = (a_node("a"), a_node("c", spare=True), a_node("b", spare=True))

    assert chosen(["bad"], *nodes) == {"bad": "b"}


def test_as_many_as_there_are() -> None:
    assert chosen(["bad", "worse"], a_node("a", spare=True)) == {"bad": "a"}


def test_a_spare_of_another_recovery_is_taboo_and_ones_own_is_not() -> None:
    other = claimed("a", a_claim(recovery="other-1"))

    assert chosen(["bad"], other) == {}
    assert chosen(["bad"], claimed("a")) == {"bad": "a"}


def test_a_choice_stands_while_it_is_fit() -> None:
    nodes = (a_node("a", spare=True), a_node("b", spare=True))

    assert chosen(["bad"], *nodes, kept={"bad": "b"}) == {"bad": "b"}
    assert chosen(["bad"], *nodes, kept={"bad": "gone"}) == {"bad": "a"}


def test_a_choice_stands_for_its_own_node_when_another_node_goes_bad_too() -> None:
    view = GangView(root=None, nodes={"one": a_node("one", spare=True), "two": a_node("two", spare=True)})

    chosen = choose(["another", "bad"], view, kept={"bad": "one"}, recovery="train-1", policy=RecoveryPolicy())

    assert chosen == {"another": "two", "bad": "one"}


def test_a_node_that_the_gang_uses_already_is_not_chosen() -> None:
    assert chosen(["bad"], claimed("a"), used=["a"]) == {}


def test_a_claim_takes_the_node_out_of_the_pool_and_leaves_foreign_taints() -> None:
    node = a_node(spare=True, taints=[FOREIGN, Taint(key="healthd.dev/spare")])

    after = patched(node, claim_patch(node, a_claim()))

    assert read_claim(after) == a_claim()
    assert not is_spare(after)
    assert [taint.key for taint in after.spec.taints] == ["nvidia.com/gpu", "healthd.dev/reserved-for"]


@pytest.mark.parametrize("gang", ["train", "a" * 253, "x.y-z", "a" * 53 + "." + "b"])
def test_a_reservation_is_a_label_value_unique_across_namespaces(gang: str) -> None:
    here, elsewhere = (reservation(gang, uid) for uid in ("3f2a9c10-77aa-4d2e-9b1c-0123456789ab", "4" * 36))

    assert here != elsewhere
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9._]{0,61}[a-z0-9])?", here)


def test_returning_puts_it_back_into_the_pool() -> None:
    node = claimed()

    after = patched(node, return_patch(node))

    assert is_spare(after)
    assert [taint.key for taint in after.spec.taints] == ["healthd.dev/spare"]


def test_settling_makes_it_an_ordinary_node() -> None:
    node = claimed()

    after = patched(node, settle_patch(node))

    assert read_claim(after) is None
    assert not is_spare(after)
    assert after.spec.taints == []


def test_a_claim_that_cannot_be_read_is_none_and_the_node_is_not_free_either() -> None:
    node = a_node(spare=True, annotations={ANNOTATION_CLAIM: "{"})

    assert read_claim(node) is None
    assert not is_spare(node)


def settled(
    *nodes: Node,
    placement: Collection[str] | None = ("spare",),
    recovering: Collection[str] = (),
    busy: Collection[str] = ("spare",),
) -> list[tuple[str, str]]:
    """What to do, as (act, node); a *placement* of None is a gang that is over."""
    by_name = {node.metadata.name: node for node in nodes}
    placements = {} if placement is None else {"uid-train": placement}
    steps = settle(by_name, {}, placements=placements, recovering=recovering, busy=busy)
    acts = {ReturnSpare: "return", SettleSpare: "settle", KeepSpare: "keep"}
    return [(acts[type(step)], step.node) for step in steps]


BROKEN = a_node("bad", unschedulable=True)


def test_a_spare_in_use_stays_claimed_while_the_node_is_broken_that_it_replaces() -> None:
    assert settled(claimed(), BROKEN) == []


def test_the_repaired_node_joins_the_pool_and_the_gang_is_not_disturbed() -> None:
    assert settled(claimed(), a_node("bad")) == [("return", "bad")]


def test_then_the_stand_in_becomes_ordinary() -> None:
    assert settled(claimed(), a_node("bad", spare=True)) == [("settle", "spare")]


def test_a_spare_that_has_only_the_label_gets_the_taint_that_keeps_others_off() -> None:
    held, labelled = a_node("a", spare=True, taints=[HELD]), a_node("b", spare=True)

    assert [step.node for step in unheld([a_node("c"), held, labelled, claimed("d")])] == ["b"]


def test_a_node_whose_claim_a_person_took_away_loses_the_taint_that_went_with_it() -> None:
    reserved = [Taint(key="healthd.dev/reserved-for", value=reservation("train", "uid-train"))]
    nodes = [claimed("a"), a_node("b", taints=reserved), a_node("c", taints=reserved, spare=True), a_node("d")]

    assert [step.node for step in unclaimed(nodes)] == ["b"]


def test_a_repaired_node_with_pods_on_it_waits() -> None:
    assert settled(claimed(), a_node("bad"), busy=["spare", "bad"]) == []


def test_a_spare_that_the_gang_was_not_started_on_goes_back() -> None:
    assert settled(claimed(), BROKEN, placement=["other"], busy=[]) == [("return", "spare")]


def test_a_spare_of_a_gang_that_is_over_goes_back_once_its_pods_are_gone() -> None:
    assert settled(claimed(), BROKEN, placement=None) == []
    assert settled(claimed(), BROKEN, placement=None, busy=[]) == [("return", "spare")]


def test_nothing_is_touched_while_a_recovery_may_change_its_plan() -> None:
    assert settled(claimed(), a_node("bad"), placement=["other"], recovering=["uid-train"], busy=[]) == []


@pytest.mark.parametrize(
    "bad", [a_node("bad"), BROKEN, a_node("bad", spare=True)], ids=["fit", "broken", "in the pool"]
)
def test_a_repaired_node_joins_the_pool_for_one_claim_alone(bad: Node) -> None:
    """As in seed 7200450: the gang used the repaired node again, and left it for a second spare later."""
    both = ("first", "second")
    steps = settled(claimed("first"), claimed("second"), bad, placement=both, busy=both)

    assert ("keep", "second") in steps
    assert all(node != "second" for act, node in steps if act != "keep")


def test_a_claim_of_a_gang_that_recovers_has_the_repaired_node_before_others() -> None:
    other = claimed("other", a_claim(gang="other"))

    steps = settled(claimed("spare"), other, a_node("bad"), recovering=["uid-other"])

    assert steps == [("keep", "spare")]


def test_a_claim_that_waits_for_no_node_ends_with_its_gang() -> None:
    kept = patched(claimed(), keep_patch(a_claim()))

    assert settled(kept, a_node("bad")) == []
    assert settled(kept, a_node("bad"), placement=None, busy=[]) == [("return", "spare")]


def test_a_spare_for_such_a_spare_waits_for_no_node_either() -> None:
    kept = patched(claimed("first"), keep_patch(a_claim()))

    assert origin("first", {"first": kept}, "uid-train") == ""


def test_a_spare_for_a_spare_stands_in_for_the_first_node() -> None:
    first = claimed("first", a_claim(instead_of="bad"))

    assert origin("first", {"first": first}, "uid-train") == "bad"
    assert origin("first", {"first": first}, "uid-other") == "first"
    assert origin("bad", {"bad": BROKEN}, "uid-train") == "bad"
