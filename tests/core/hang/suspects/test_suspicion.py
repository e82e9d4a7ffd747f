"""How strong the suspicion against a rank is, and what of it goes into the cause of a restart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from healthd.core.hang.suspects.evidence import Frame, RankEvidence, Source, Stack
from healthd.core.hang.suspects.suspicion import suspects_of
from healthd.core.hang.suspects.vote import HangLocation, Suspect, Witness

LOADS = Stack((Frame("__getitem__", "data/rows.py", 33), Frame("main", "train.py", 7)))


def a_suspect(*sources: Source, rank: int = 2) -> Suspect:
    witnesses = tuple(Witness(rank, source, "differs", 0.5) for source in sources)
    return Suspect(rank, "", f"slot-{rank}", (), 0.9, witnesses)


@pytest.mark.parametrize(
    ("sources", "independent"),
    [
        ([Source.PROCESS], 1),
        ([Source.RECORDER, Source.RAS], 1),
        ([Source.PROCESS, Source.ACTIVITY], 1),
        ([Source.PROCESS, Source.STACK], 2),
        ([Source.RECORDER, Source.PROCESS], 2),
        ([Source.RAS, Source.STACK, Source.ACTIVITY], 3),
        ([Source.CONNECTIONS, Source.PROCESS, Source.ACTIVITY], 2),
    ],
)
def test_witnesses_that_read_the_same_thing_count_once(sources: list[Source], independent: int) -> None:
    assert a_suspect(*sources).strength == independent


def test_a_suspect_keeps_its_node_and_the_place_in_its_program() -> None:
    location = HangLocation(ranks=4, suspects=(a_suspect(Source.STACK, Source.PROCESS),))
    (suspect,) = suspects_of(location, [RankEvidence(2, stack=LOADS)])

    assert (suspect.member, suspect.node, suspect.witnesses) == ("2", "slot-2", 2)
    assert suspect.doing == "__getitem__ (data/rows.py:33)"


def test_the_same_functions_are_the_same_place_whatever_their_lines() -> None:
    location = HangLocation(ranks=4, suspects=(a_suspect(Source.STACK),))
    elsewhere = Stack((Frame("__getitem__", "data/rows.py", 35), Frame("main", "train.py", 9)))
    others = [elsewhere, Stack(LOADS.frames[:1]), Stack((Frame("__len__", "data/rows.py", 33), LOADS.frames[1]))]
    first, same, shorter, other = (
        suspects_of(location, [RankEvidence(2, stack=stack)])[0].stack for stack in (LOADS, *others)
    )

    assert first == same
    assert len({first, shorter, other}) == 3


def test_a_record_of_an_older_healthd_names_the_same_place() -> None:
    """It kept the last two parts of the path of any file that is in no package, and did not know whose code it is."""
    location = HangLocation(ranks=4, suspects=(a_suspect(Source.STACK),))
    older = Stack((Frame("submit", "futures/thread.py", 1), Frame("wait", "python3.11/queue.py"), *LOADS.frames))
    newer = Stack(
        (
            Frame("submit", "python3.11/concurrent/futures/thread.py", 1),
            Frame("wait", "python3.11/queue.py"),
            *(replace(frame, is_own=True) for frame in LOADS.frames),
        )
    )
    before, after = (suspects_of(location, [RankEvidence(2, stack=stack)])[0] for stack in (older, newer))

    assert before.stack == after.stack == "01ca224fff6c2661"
    assert before.doing == "submit (futures/thread.py:1)"
    assert after.doing == "submit (python3.11/concurrent/futures/thread.py:1), called by __getitem__ (data/rows.py:33)"


@pytest.mark.parametrize("stack", [None, Stack(())])
def test_without_a_stack_the_place_is_unknown(stack: Stack | None) -> None:
    location = HangLocation(ranks=4, suspects=(a_suspect(Source.PROCESS),))
    (suspect,) = suspects_of(location, [RankEvidence(2, stack=stack)])

    assert (suspect.doing, suspect.stack) == ("", "")


def test_more_suspects_than_can_be_listed_are_no_suspicion() -> None:
    location = HangLocation(ranks=99, suspects=(a_suspect(Source.STACK),), more_suspects=1)

    assert suspects_of(location, []) == ()


def test_text_of_a_program_is_escaped() -> None:
    evil = Stack((Frame("\x1b[2J\ud800", "\u202e", 1),))
    location = HangLocation(ranks=4, suspects=(a_suspect(Source.STACK),))

    assert suspects_of(location, [RankEvidence(2, stack=evil)])[0].doing.isprintable()


def test_a_rank_that_lost_its_network_is_at_no_place_of_its_program() -> None:
    """Where it waits says nothing: if it is lost again it will wait there again, and the program is not at fault."""
    location = HangLocation(ranks=4, suspects=(a_suspect(Source.CONNECTIONS, Source.STACK),))
    (suspect,) = suspects_of(location, [RankEvidence(2, stack=LOADS)])

    assert suspect.stack == ""
    assert suspect.doing == "__getitem__ (data/rows.py:33)"
