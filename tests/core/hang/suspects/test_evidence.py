"""Records of what each rank was doing: safe to print, bounded, and checked again when they are decoded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from healthd.core.hang.suspects.evidence import LONGEST_WORD, Frame, RankEvidence, TaskState, bounded
from tests.core.hang.gangs import LOADING, Shape, evidence, stopped_gang

A_RANK = evidence(Shape(8), 3, state=TaskState.STOPPED, stack=LOADING, cpu=0.5, lost_by_ras="dead")


@pytest.mark.parametrize("text", ["plain", "\x1b[31m" * 50, "\u202e" * 64, "x" * 10_000_000, "\udcff", "", "ü" * 65])
def test_text_of_users_becomes_short_and_printable(text: str) -> None:
    assert len(bounded(text)) <= LONGEST_WORD
    assert bounded(text).isprintable()


def test_short_printable_text_stays_as_it_is() -> None:
    assert bounded("ü" * LONGEST_WORD) == "ü" * LONGEST_WORD


def test_a_record_is_the_same_after_it_was_sent() -> None:
    ranks = [A_RANK, *stopped_gang(Shape(8), [3], seed=1)]
    assert msgspec.json.decode(msgspec.json.encode(ranks), type=list[RankEvidence]) == ranks


def test_a_frame_of_an_older_healthd_is_not_known_to_be_the_program_s_own() -> None:
    frame = msgspec.json.decode(b'{"function":"f","file":"t.py","line":3}', type=Frame)
    assert frame == Frame("f", "t.py", 3, is_own=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"pod": "x" * 300},
        {"rank": -1},
        {"log": ["x"] * 9},
        {"log": ["x" * 1000]},
        {"gpus": ["GPU"] * 17},
        {"stack": {"frames": [{"function": "f"}] * 25}},
        {"groups": [{"group": "g", "number": 1}] * 65},
        {"groups": [{"group": "g", "number": 2**70}]},
        {"process": {"state": "dancing"}},
    ],
)
def test_a_record_beyond_its_limits_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"rank": 3} | fields), type=RankEvidence)
