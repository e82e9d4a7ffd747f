"""What is stored of a hang, in which room, and what people read of it."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from healthd.core.hang.describe import who_holds_up
from healthd.core.hang.history import MOST_RANKS, MOST_SIGNS, ActivityHistory, RankHistory
from healthd.core.hang.silence import Silence
from healthd.core.hang.suspects.evidence import (
    LONGEST_LINE,
    LONGEST_WORD,
    MOST_CONNECTIONS,
    Collective,
    Connection,
    Frame,
    GroupProgress,
    NetworkEvidence,
    ProcessEvidence,
    RankEvidence,
    Source,
    Stack,
    TaskState,
)
from healthd.core.hang.suspects.vote import HangLocation, Suspect, Witness, vote
from healthd.local.hang.record import (
    ANNOTATION_HANG,
    LARGEST,
    HangRecord,
    encoded,
    picture_of,
    record_lines,
    record_of,
)
from tests.fakes import START

SILENCE = Silence(since=START, seen_at=START, allowed=12, period=2, members=())
EVIL = "\x1b]0;x\x07\u202e\n"


def ranks_with(count: int, stopped: int = 1, **fields: object) -> tuple[RankEvidence, ...]:
    states = {stopped: TaskState.STOPPED}
    ranks = [RankEvidence(n, process=ProcessEvidence(states.get(n, TaskState.SLEEPING))) for n in range(count)]
    return tuple(msgspec.structs.replace(each, **fields) for each in ranks)


def a_record(*ranks: RankEvidence, pictured: int = 0) -> HangRecord:
    """With the longest picture of so many ranks."""
    rows = tuple(RankHistory(rank, "7" * MOST_SIGNS) for rank in range(pictured))
    history = ActivityHistory(start=START, interval=2, ranks=rows) if pictured else None
    return HangRecord(since=START, location=vote(ranks), ranks=ranks, history=history)


def stored(record: HangRecord) -> HangRecord:
    found = record_of({ANNOTATION_HANG: encoded(record)}, SILENCE)
    assert found is not None
    return found


def the_most(letter: str) -> dict[str, object]:
    """All that one rank may bring, in text of *letter*."""
    word, line = letter * LONGEST_WORD, letter * LONGEST_LINE
    recent = tuple(Collective(n, word) for n in range(8))
    groups = tuple(GroupProgress(word, 9, waits=True, recent=recent) for _ in range(64))
    network = NetworkEvidence((Connection(word, word, 2**63 - 1),) * MOST_CONNECTIONS)
    texts = {"log": (line,) * 8, "troubles": (line,) * 8}
    return {"stack": Stack((Frame(word, word, 1),) * 24), "network": network, "groups": groups, **texts}


class TestRoom:
    def test_a_usual_record_is_kept_as_it_is(self) -> None:
        record = a_record(*ranks_with(8, log=("step 7",), troubles=("py-spy is not installed",)))
        assert stored(record) == record

    @pytest.mark.parametrize("letter", ["x", "\N{PILE OF POO}", '"'])
    @pytest.mark.parametrize("ranks", [8, 64, 300])
    def test_the_worst_that_ranks_may_bring_has_room_and_names_the_suspect(self, letter: str, ranks: int) -> None:
        record = a_record(*ranks_with(ranks, stopped=ranks - 1, **the_most(letter)), pictured=ranks)
        assert len(encoded(record).encode()) <= LARGEST
        kept = stored(record)
        assert kept.location == record.location
        assert len(kept.ranks) + kept.left_out == ranks
        assert {suspect.rank for suspect in kept.location.suspects} <= {each.rank for each in kept.ranks}

    def test_the_picture_of_a_gang_of_thousands_has_room_with_its_suspect(self) -> None:
        record = a_record(*ranks_with(4096, stopped=4000), pictured=4096)
        kept = stored(record)
        assert len(encoded(record).encode()) <= LARGEST
        assert kept.history is not None
        assert (len(kept.history.ranks), kept.history.left_out) == (MOST_RANKS, 4096 - MOST_RANKS)
        assert 4000 in [each.rank for each in kept.history.ranks]

    def test_the_line_of_the_program_is_kept_where_the_other_frames_have_no_room(self) -> None:
        reads, own = Frame("readinto", "python3.11/socket.py", 7), Frame("fetch", "train.py", 8, is_own=True)
        stack = Stack((reads, *[Frame("x" * LONGEST_WORD, "y" * LONGEST_WORD)] * 10, own))
        lines = record_lines(stored(a_record(*ranks_with(40, stack=stack))), None)
        assert any("in readinto (python3.11/socket.py:7), called by fetch (train.py:8)" in line for line in lines)


class TestPicture:
    def test_it_marks_the_suspects_and_names_their_nodes(self) -> None:
        picture = picture_of(stored(a_record(*ranks_with(4, node="slot-1"), pictured=4)))
        assert picture is not None
        assert (picture.suspects, picture.nodes[1], picture.last_work) == ({1}, "slot-1", START)

    def test_an_older_healthd_left_none(self) -> None:
        assert picture_of(stored(a_record(*ranks_with(4)))) is None


class TestReading:
    @pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"since": 1}', "{" * 9000, "x" * 300_000])
    def test_what_cannot_be_read_is_no_record(self, text: str) -> None:
        assert record_of({ANNOTATION_HANG: text}, SILENCE) is None

    def test_an_older_healthd_left_none(self) -> None:
        assert record_of({}, SILENCE) is None

    def test_the_record_of_another_silence_is_not_shown(self) -> None:
        other = msgspec.structs.replace(SILENCE, since=START + timedelta(minutes=1))
        notes = {ANNOTATION_HANG: encoded(a_record(*ranks_with(3)))}
        assert (record_of(notes, other), record_of(notes, None)) == (None, None)


class TestWords:
    def test_the_suspect_and_its_best_witness_are_named(self) -> None:
        assert who_holds_up(vote(ranks_with(4))) == "rank 1 holds up the others (90% sure): its process is stopped"

    def test_without_a_suspect_the_reason_is(self) -> None:
        location = HangLocation(ranks=0, reason="nothing is known of any rank")
        assert who_holds_up(location) == "no rank is named: nothing is known of any rank"

    def test_many_suspects_are_counted(self) -> None:
        words = (Witness(0, Source.PROCESS, "is stopped", 0.9),)
        suspects = tuple(Suspect(n, "", "", (), 0.9, words) for n in range(10))
        assert who_holds_up(HangLocation(ranks=40, suspects=suspects, more_suspects=3)) == (
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 5 more hold up the others; rank 0 (90% sure): is stopped"
        )

    def test_text_of_ranks_is_escaped(self) -> None:
        hostile = [
            RankEvidence(
                n, node=EVIL, process=ProcessEvidence(TaskState.STOPPED if n == 0 else TaskState.SLEEPING, EVIL, 7)
            )
            for n in range(4)
        ]
        hostile[3] = RankEvidence(3, stack=Stack((Frame(EVIL, EVIL),)), log=(EVIL,), troubles=(EVIL,))
        record = stored(a_record(*hostile))
        assert who_holds_up(record.location).isprintable()
        assert all(line.isprintable() for line in record_lines(record, 100))
