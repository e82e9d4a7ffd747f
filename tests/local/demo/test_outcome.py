"""A showing is good only when everything went as expected; else it says what did not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    Attempt,
    ChosenCheckpoint,
    Node,
    Recovery,
    RecoveryStatus,
    RejectedCheckpoint,
)
from healthd.core.api.model import CauseKind, Phase
from healthd.core.node.quarantine import Record
from healthd.local.demo.outcome import DemoOutcome, differ, outcome_lines
from healthd.local.demo.play import DemoEnding
from healthd.local.demo.scene import ClusterSnapshot
from healthd.local.demo.script import Script
from tests.builders import a_cause, a_node, a_recovery
from tests.fakes import START

GOOD_END = DemoEnding(exit_code=0, broke_off="", undisturbed=timedelta(seconds=1))


def a_first(**fields: Any) -> Recovery:
    """The recovery from the lost GPU."""
    status = RecoveryStatus(
        phase=Phase.RECOVERED,
        causes=[a_cause(node="slot-1")],
        checkpoint=ChosenCheckpoint(path="/c/10", step=10),
        rejected=[RejectedCheckpoint(path="/c/20", step=20, reason="torn write")],
        replacements={"slot-1": "slot-4"},
        attempts=[Attempt(number=1, checkpoint=ChosenCheckpoint(path="/c/10", step=10))],
    )
    return a_recovery("demo-1", status=msgspec.structs.replace(status, **fields))


def a_second(**fields: Any) -> Recovery:
    """The recovery from the crash."""
    status = RecoveryStatus(
        phase=Phase.RECOVERED,
        causes=[a_cause(CauseKind.SOFTWARE)],
        checkpoint=ChosenCheckpoint(path="/c/40", step=40),
        attempts=[Attempt(number=2, checkpoint=ChosenCheckpoint(path="/c/40", step=40))],
    )
    return a_recovery("demo-2", status=msgspec.structs.replace(status, **fields))


def quarantined(*names: str) -> Mapping[str, Node]:
    record = msgspec.json.encode(Record(finding="f", message="m", since=START)).decode()
    return {name: a_node(name, annotations={ANNOTATION_QUARANTINE: record}) for name in names}


def differences(*recoveries: Recovery, ending: DemoEnding = GOOD_END, bad: tuple[str, ...] = ("slot-1",)) -> list[str]:
    return list(differ(Script(), ClusterSnapshot(nodes=quarantined(*bad), recoveries=recoveries), ending))


def test_the_expected_course_has_no_difference() -> None:
    assert differences(a_first(), a_second()) == []


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({"rejected": []}, {}, "the torn checkpoint of step 20 was not refused"),
        ({"checkpoint": ChosenCheckpoint(path="/c/20", step=20)}, {}, "expected step 10"),
        ({"replacements": {}}, {}, "replaced nothing, expected slot-1"),
        ({"causes": [a_cause(CauseKind.HANG)]}, {}, "taken for hang, expected hardware"),
        ({"phase": Phase.HELD, "message": "no spare"}, {}, "Held, no spare"),
        ({}, {"replacements": {"slot-3": "slot-5"}}, "used a spare for a fault of the software"),
        ({}, {"attempts": []}, "0 starts, expected one"),
    ],
)
def test_a_recovery_that_went_another_way_is_reported(first: dict[str, Any], second: dict[str, Any], says: str) -> None:
    found = differences(a_first(**first), a_second(**second))

    assert len(found) == 1
    assert says in found[0]


def test_a_demo_that_broke_off_says_where() -> None:
    ending = DemoEnding(exit_code=None, broke_off="the second recovery", undisturbed=timedelta(0))

    assert differences(a_first(), a_second(), ending=ending) == [
        "it ended while the story waited for the second recovery",
        "the training did not end",
    ]


def test_a_missing_recovery_and_a_wrong_quarantine_are_reported() -> None:
    assert differences(a_first(), bad=("slot-1", "slot-2")) == [
        "in quarantine: ['slot-1', 'slot-2'], expected slot-1 alone",
        "there were 1 recoveries, expected 2",
    ]


def an_outcome(*, equal: bool, differences: list[str]) -> DemoOutcome:
    return DemoOutcome(
        as_expected=not differences,
        differences=differences,
        weights_equal=equal,
        weights="abc",
        lost_steps=14,
        lost_ms=2700,
        seconds=9.6,
        undisturbed_seconds=0.4,
        recoveries=[],
    )


def test_the_last_line_reports_the_weights_and_the_price() -> None:
    *_, last = outcome_lines(an_outcome(equal=True, differences=[]))

    assert last == "Weights equal, bit for bit, to the undisturbed run (abc). Lost: 14 steps, 2.70 s."


@pytest.mark.parametrize(("equal", "differences"), [(False, []), (True, ["another way"])])
def test_only_equal_weights_and_the_expected_course_are_good(equal: bool, differences: list[str]) -> None:
    assert not an_outcome(equal=equal, differences=differences).is_good
