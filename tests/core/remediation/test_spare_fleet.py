"""Which idle spare is checked next, and what a failure means beside what the others say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.api import NodeRemediationStatus
from healthd.core.api.names import ANNOTATION_QUARANTINE, ANNOTATION_REPAIRED
from healthd.core.api.remediations import SpareCheck, SpareCheckOutcome
from healthd.core.node.quarantine import Record
from healthd.core.remediation.spare_fleet import (
    AGAIN,
    Spare,
    doubted,
    failures,
    is_taken_out,
    next_number,
    next_spare,
    note_of,
    spare_to_take_out,
)
from tests.builders import a_node, a_nodehealth
from tests.core.remediation.situations import NOW, a_finding

DAY = timedelta(days=1)
P, F, U, Y = (SpareCheckOutcome(word) for word in ("passed", "failed", "unchecked", "yielded"))


def a_spare(
    name: str,
    outcome: SpareCheckOutcome | None = None,
    number: int = 0,
    *,
    ago: timedelta = timedelta(hours=1),
    product: str = "H100",
    wanted_for: str = "",
    annotations: dict[str, str] | None = None,
    health: Any = None,
    status: dict[str, Any] | None = None,
    **fields: Any,
) -> Spare:
    """An idle spare whose check *number* ended so long *ago*; with the number 0 it was never checked."""
    node = a_node(
        name,
        spare=True,
        uid=f"uid-{name}",
        labels={"nvidia.com/gpu.product": product},
        annotations=annotations or {},
    )
    if outcome is P:
        fields = {"passed_number": number, **fields}
    check = SpareCheck(
        number=number, at=NOW - ago, ended_at=NOW - ago, node_uid=f"uid-{name}", outcome=outcome, **fields
    )
    record = NodeRemediationStatus(spare_check=check if number else None, **(status or {}))
    return Spare(node=node, status=record, wanted_for=wanted_for, health=health)


def chosen(*spares: Spare) -> str:
    """The spare that is checked next."""
    found = next_spare(spares, DAY, NOW)
    return found.name if found is not None else ""


def out(*spares: Spare) -> str:
    """The spare that is taken out now."""
    found = spare_to_take_out(spares, NOW)
    return found.name if found is not None else ""


def test_one_that_was_never_checked_comes_first_then_the_one_that_was_checked_longest_ago() -> None:
    old, older = a_spare("a", P, 8, ago=2 * DAY), a_spare("b", P, 7, ago=2 * DAY)

    assert chosen(old, older, a_spare("c")) == "c"
    assert chosen(old, older) == "b"
    assert chosen(a_spare("a", P, 8), a_spare("b", P, 7)) == ""


def test_after_a_check_that_was_given_up_for_something_else_it_is_tried_again_soon() -> None:
    assert chosen(a_spare("a", Y, 7, ago=AGAIN)) == "a"
    assert chosen(a_spare("a", Y, 7, ago=AGAIN / 2)) == ""
    assert chosen(a_spare("a", U, 7, ago=AGAIN)) == ""


def test_a_time_in_the_future_delays_no_check() -> None:
    assert chosen(a_spare("a", P, 7, ago=-timedelta(hours=5))) == "a"


def test_a_check_after_a_repair_counts_as_one() -> None:
    checked = {"checked_at": NOW - timedelta(hours=2)}

    assert chosen(a_spare("a", P, 7, ago=2 * DAY, status=checked)) == ""


def test_what_was_found_on_another_node_of_the_same_name_says_nothing() -> None:
    spare = a_spare("a", F, 7)
    other = replace(spare.node.metadata, uid="another")
    another = Spare(node=replace(spare.node, metadata=other), status=spare.status)

    assert failures([another], NOW) == []
    assert chosen(another) == "a"


def test_another_machine_under_the_same_node_is_checked_anew() -> None:
    spare = a_spare("a", F, 9, machine="m1")
    info = replace(spare.node.status, node_info=replace(spare.node.status.node_info, system_uuid="M2"))
    another = Spare(node=replace(spare.node, status=info), status=spare.status)

    assert failures([another], NOW) == []
    assert chosen(another) == "a"


@pytest.mark.parametrize("numbers", [(), (1,), (7, 2_000_000_000_000)])
def test_a_number_is_larger_than_all_before(numbers: tuple[int, ...]) -> None:
    spares = [a_spare(f"n-{number}", P, number) for number in numbers]

    assert next_number(spares, NOW) > max(numbers, default=0)
    assert next_number(spares, NOW) >= int(NOW.timestamp())


def test_after_a_failure_another_one_of_its_kind_is_checked_whatever_its_turn() -> None:
    failed, passed, other = a_spare("a", F, 9), a_spare("b", P, 8), a_spare("c", P, 2, ago=2 * DAY, product="B200")

    assert chosen(failed, passed) == "b"
    assert chosen(failed, passed, other) == "b"


def test_each_other_spare_is_tried_at_most_once_for_one_failure() -> None:
    failed = a_spare("a", F, 9)

    assert chosen(failed, a_spare("b", U, 10), a_spare("c", P, 8)) == "c"
    assert chosen(failed, a_spare("b", U, 10), a_spare("c", U, 11)) == ""


@pytest.mark.parametrize("other", [a_spare("b", P, 8), a_spare("b", U, 10), a_spare("b", P, 10, product="B200")])
def test_a_failure_is_not_believed_until_another_of_its_kind_has_passed_since(other: Spare) -> None:
    assert out(a_spare("a", F, 9), other) == ""


def test_it_is_believed_then() -> None:
    assert out(a_spare("a", F, 9), a_spare("b", P, 10)) == "a"


def test_its_own_later_pass_makes_it_well_and_its_own_earlier_one_proves_nothing() -> None:
    assert failures([a_spare("a", P, 9)], NOW) == []
    assert out(a_spare("a", F, 9, passed_at=NOW - DAY)) == ""


def test_what_another_one_passed_stays_true_while_it_is_checked_again() -> None:
    again = a_spare("b", None, 12, passed_number=10)

    assert out(a_spare("a", F, 9), again) == "a"
    assert doubted([a_spare("a", F, 9, taken_out_at=NOW), again, a_spare("c", F, 11)], NOW) == {}


def test_two_failures_in_a_row_are_a_doubt_about_the_check() -> None:
    failed = [a_spare("a", F, 9), a_spare("b", F, 10)]
    third, other = a_spare("c", P, 8, ago=2 * DAY), a_spare("d", product="B200")

    assert [each.name for group in doubted([*failed, third], NOW).values() for each in group] == ["a", "b"]
    assert (chosen(*failed, third), out(*failed, third)) == ("", "")
    assert chosen(*failed, third, other) == "d"


def test_a_fault_that_came_during_its_check_counts_for_the_doubt_while_it_is_out() -> None:
    record = Record(finding="0000:3b:00.0/xid-79", message="broken", since=NOW)
    note = {ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()}
    came: dict[str, Any] = {"taken_out_at": NOW, "reported_at": NOW}
    others = [a_spare("b", F, 10), a_spare("c", P, 8)]

    assert chosen(a_spare("a", F, 9, annotations=note, **came), *others) == ""
    assert chosen(a_spare("a", F, 9, annotations=note, **came), others[1]) == "c"
    assert chosen(a_spare("a", F, 9, **came), *others) == "c"


def test_a_doubt_comes_back_also_after_one_failure_was_confirmed() -> None:
    spares = [a_spare("a", F, 8), a_spare("b", P, 9), a_spare("c", F, 10), a_spare("d", F, 11)]

    assert out(*spares) == ""
    assert out(*spares[:3]) == "a"


@pytest.mark.parametrize("word", ["retry", "repaired"])
def test_a_person_ends_the_doubt(word: str) -> None:
    key = {"retry": "healthd.dev/remediation-retry", "repaired": ANNOTATION_REPAIRED}[word]
    spares = [a_spare("a", F, 9), a_spare("b", F, 10, annotations={key: NOW.isoformat()}), a_spare("c", P, 8)]

    assert doubted(spares, NOW) == {}
    assert chosen(*spares) == "c"


def test_one_is_out_at_a_time_until_it_is_repaired() -> None:
    first = a_spare("a", F, 8, taken_out_at=NOW)
    others = [a_spare("b", F, 9), a_spare("c", P, 10)]
    repaired = a_spare("a", F, 8, taken_out_at=NOW, annotations={ANNOTATION_REPAIRED: NOW.isoformat()})

    assert out(first, *others) == ""
    assert out(repaired, *others) == "b"


def test_one_that_is_needed_is_not_taken_out_meanwhile() -> None:
    assert out(a_spare("a", F, 9, wanted_for="recovery default/train-1 takes it"), a_spare("b", P, 10)) == ""


def test_its_node_says_that_it_failed_until_its_agent_has_reported_it() -> None:
    told = a_spare("a", F, 9, taken_out_at=NOW, message="gpu-memory: a word was wrong")
    heard = a_spare("a", F, 9, taken_out_at=NOW, reported_at=NOW, message="gpu-memory: a word was wrong")

    assert note_of(told, NOW).endswith(" gpu-memory: a word was wrong")
    assert note_of(heard, NOW) == ""
    assert note_of(a_spare("a", F, 9), NOW) == ""


def test_it_is_out_while_its_agent_says_so_and_is_checked_anew_after_that() -> None:
    finding = replace(a_finding("spare-check-failed"), id="node/spare-check-failed")
    says_so = a_spare("a", F, 9, taken_out_at=NOW, reported_at=NOW, health=a_nodehealth("a", findings=[finding]))
    is_back = a_spare("a", F, 9, taken_out_at=NOW, reported_at=NOW, health=a_nodehealth("a"))

    assert is_taken_out(says_so, NOW)
    assert chosen(says_so) == ""
    assert not is_taken_out(is_back, NOW)
    assert chosen(is_back) == "a"
