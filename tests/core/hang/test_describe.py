"""A silence in words."""

from __future__ import annotations

from msgspec.structs import replace

from healthd.core.api.health import MemberState
from healthd.core.hang.describe import describe
from healthd.core.hang.samples import describe_states
from healthd.core.hang.silence import Silence, SilentMember
from tests.fakes import START


def silence(*members: tuple[MemberState, str]) -> Silence:
    """Ranks from 0 on with their states."""
    silent = [
        SilentMember(rank=str(rank), state=state, states=states, last_active=START)
        for rank, (state, states) in enumerate(members)
    ]
    return Silence(since=START, seen_at=START, allowed=12, period=2, members=tuple(silent))


def test_the_ranks_that_differ_come_first() -> None:
    asleep, stopped = (MemberState.SILENT, "SS"), (MemberState.SILENT, "TS")

    assert describe(silence(asleep, asleep, stopped)) == "rank 2 is stopped (SIGSTOP); ranks 0, 1 sleep"


def test_each_state_has_its_words() -> None:
    members = [(MemberState.WAITING, "R"), (MemberState.SILENT, "D"), (MemberState.SILENT, "S")]

    assert describe(silence(*members)) == (
        "rank 0 uses a processor and does nothing else; rank 1 waits for a device or a file system; rank 2 sleeps"
    )


def test_processes_that_are_dead_do_not_sleep() -> None:
    asleep, dead = (MemberState.SILENT, "SZ"), (MemberState.SILENT, "ZZ")

    assert describe(silence(asleep, asleep, dead)) == "rank 2 is dead (a zombie); ranks 0, 1 sleep"


def test_ranks_that_had_ended_come_first() -> None:
    asleep = (MemberState.SILENT, "S")

    assert describe(replace(silence(asleep), ended=("1", "2"))) == "ranks 1, 2 have ended; rank 0 sleeps"


def test_of_a_large_gang_some_ranks_are_named() -> None:
    assert describe(silence(*[(MemberState.SILENT, "S")] * 4096)) == (
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4088 more sleep"
    )


def test_ranks_that_are_not_listed_do_what_most_do() -> None:
    spins, asleep = (MemberState.WAITING, "R"), (MemberState.SILENT, "S")

    assert describe(silence(spins, asleep, asleep), 4096) == (
        "rank 0 uses a processor and does nothing else; ranks 1, 2 and 4093 more sleep"
    )


def test_states_of_processes_in_words() -> None:
    assert describe_states("SSR") == "2 sleeping, 1 running"
    assert describe_states("") == "no process"
