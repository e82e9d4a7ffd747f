"""What `healthd explain` says of the last silence of a gang."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec

from healthd.core.api import HangSuspect
from healthd.core.api.health import MemberState
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.recovery.gang import Root
from healthd.core.report.silence_text import silence_lines
from tests.core.gangs import a_root
from tests.fakes import START

SEEN = START + timedelta(seconds=20)
SUSPECT = HangSuspect(
    member="2", pod="train-2", node="gpu-12", witnesses=1, confidence=0.35, words=["activity: CPU 0 cores"]
)


def hanging(*suspects: HangSuspect, located: str = "") -> Root:
    members = tuple(SilentMember(rank=str(n), state=MemberState.SILENT, last_active=START) for n in range(3))
    return a_root(
        silence=Silence(
            since=START, seen_at=SEEN, allowed=12, period=2, members=members, suspects=suspects, located=located
        )
    )


BEFORE = ["from 2026-01-01 00:00:00 UTC on no rank worked; the gang's own rhythm allows 12 s of that"]
AFTER = ["it still hangs, as far as is known: for 1 min 0 s"]


def test_each_suspect_is_named_with_its_place_and_what_each_witness_says() -> None:
    lines = silence_lines(hanging(SUSPECT, located="rank 2 holds up the others"), START + timedelta(minutes=1))

    assert lines == [
        *BEFORE,
        "ranks 0, 1, 2 sleep",
        "rank 2 (pod train-2, node gpu-12) holds up the others (35% sure): activity: CPU 0 cores",
        *AFTER,
    ]


def test_without_a_suspect_the_reason_is_said() -> None:
    lines = silence_lines(hanging(located="no rank is named: all do the same"), START + timedelta(minutes=1))

    assert lines[2] == "no rank is named: all do the same"


def test_a_run_on_this_machine_keeps_its_suspects_elsewhere() -> None:
    assert len(silence_lines(hanging(SUSPECT), START + timedelta(minutes=1))) == 3


def test_of_a_start_it_is_said_that_no_rhythm_is_known() -> None:
    root = hanging()
    assert root.silence
    start = replace(root, silence=msgspec.structs.replace(root.silence, is_start=True))

    assert silence_lines(start, SEEN)[0] == (
        "from 2026-01-01 00:00:00 UTC on no rank did anything, before the rhythm of every rank was known"
    )


def test_what_the_owner_of_the_gang_wrote_is_escaped_and_cut() -> None:
    evil = HangSuspect(member="\x1b[2J" * 999, pod="\u202e", node="\n", confidence=1, words=["\x07" * 9999] * 8)
    lines = silence_lines(hanging(*[evil] * 500, located="\x1b"), START + timedelta(minutes=1))

    assert all(line.isprintable() for line in lines)
    assert len(lines) < 25
    assert max(map(len, lines)) < 4000
