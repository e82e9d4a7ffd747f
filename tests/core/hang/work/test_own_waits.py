"""Which lines of /proc/PID/syscall show that a thread waits for something of its own, and not for its peers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.hang.samples import Rates, SampleRing
from healthd.core.hang.work.own_waits import NEWEST, OFTEN, SELDOM, OwnWaits, seconds_between_looks
from tests.fakes import START

STACK = "0x7ffe2c7a1e40 0x7f3f01d08c4e"
"""Where its stack and its program are, which ends each line."""


class Opened:
    """One open file, 3, whose number is at one address of the memory."""

    def __init__(self, file: str = "") -> None:
        self._file = file

    def file(self, number: int) -> str:
        return self._file if number == 3 else ""

    def number_at(self, address: int) -> int:
        return 3 if address == 0x7FFD5 else -1


def is_own(line: str, file: str = "", machine: str = "x86_64") -> bool:
    """Whether a thread with that *line* waits for something of its own; the open file 3 is *file*."""
    return OwnWaits(machine).is_one(f"{line} {STACK}\n".encode(), Opened(file))


@pytest.mark.parametrize(
    ("line", "machine"),
    [
        ("230 0x1 0x1 0x7ffd5 0x0 0x0 0x0", "x86_64"),
        ("35 0x7ffd5 0x0 0x0 0x0 0x0 0x0", "x86_64"),
        ("115 0x1 0x1 0x7ffd5 0x0 0x0 0x0", "aarch64"),
        ("23 0x0 0x0 0x0 0x0 0x7ffd5 0x0", "x86_64"),
        ("7 0x7ffd5 0x0 0x64 0x0 0x0 0x0", "x86_64"),
    ],
    ids=["clock_nanosleep", "nanosleep", "clock_nanosleep on ARM", "select without a file", "poll without a file"],
)
def test_a_sleep_is_its_own(line: str, machine: str) -> None:
    assert is_own(line, machine=machine)


@pytest.mark.parametrize("number", [257, 262, 332, 74, 75])
def test_what_is_asked_of_a_file_system_is_its_own(number: int) -> None:
    assert is_own(f"{number} 0x3 0x7ffd5 0x0 0x0 0x0 0x0")


@pytest.mark.parametrize("number", [61, 247])
def test_a_process_that_it_has_started_is_its_own(number: int) -> None:
    assert is_own(f"{number} 0x1234 0x7ffd5 0x0 0x0 0x0 0x0")


def test_a_page_of_a_mapped_file_is_its_own() -> None:
    assert is_own("-1")


@pytest.mark.parametrize("number", [0, 1, 17, 18])
@pytest.mark.parametrize("file", ["/data/shard-17.tar", "/dev/shm/torch_12", "pipe:[4711]"])
def test_reads_and_writes_of_files_and_pipes_are_its_own(number: int, file: str) -> None:
    assert is_own(f"{number} 0x3 0x7ffd5 0x1000 0x0 0x0 0x0", file)


@pytest.mark.parametrize("line", ["7 0x7ffd5 0x1 0x1387", "271 0x7ffd5 0x1 0x7ffd6"])
@pytest.mark.parametrize(("file", "is_its_own"), [("pipe:[4711]", True), ("socket:[4711]", False), ("", False)])
def test_a_poll_for_one_file_is_its_own_where_that_is_the_pipe_of_its_loader(
    line: str, file: str, is_its_own: bool
) -> None:
    assert is_own(f"{line} 0x0 0x0 0x0", file) is is_its_own


def test_a_poll_whose_file_must_not_be_seen_is_not() -> None:
    assert not is_own("7 0x1 0x1 0x1387 0x0 0x0 0x0", "pipe:[4711]")


@pytest.mark.parametrize("file", ["socket:[4711]", "/dev/infiniband/uverbs0", "anon_inode:[eventpoll]", ""])
def test_what_may_lead_to_a_peer_is_not(file: str) -> None:
    assert not is_own("0 0x3 0x7ffd5 0x1000 0x0 0x0 0x0", file)


@pytest.mark.parametrize(
    "line",
    [
        "202 0x7f36be 0x189 0x0 0x0 0x0 0xffffffff",
        "45 0x3 0x7ffd5 0x1000 0x0 0x0 0x0",
        "7 0x7ffd5 0x2 0xffffffff 0x0 0x0 0x0",
        "23 0x4 0x7ffd5 0x0 0x0 0x0 0x0",
        "232 0x3 0x7ffd5 0x40 0xffffffff 0x0 0x0",
        "16 0x3 0x7ffd5 0x0 0x0 0x0 0x0",
        "73 0x3 0x2 0x0 0x0 0x0 0x0",
        "running",
    ],
    ids=["futex", "recvfrom", "poll", "select", "epoll_wait", "ioctl", "flock", "running"],
)
def test_a_wait_in_which_peers_may_be_waited_for_is_not(line: str) -> None:
    assert not is_own(line)


@pytest.mark.parametrize("line", ["", "0", "0 zz", "23", "7 0x1", "999 0x0", "\x00"])
def test_a_line_that_is_cut_off_or_unknown_shows_nothing(line: str) -> None:
    assert not OwnWaits("x86_64").is_one(line.encode(), Opened("/data"))


def test_on_a_machine_whose_calls_have_no_names_nothing_is_its_own() -> None:
    assert not is_own("230 0x1 0x1 0x7ffd5 0x0 0x0 0x0", machine="riscv64")


def ring(*own_waits: float) -> SampleRing:
    """What a rank did in the newest minute, the oldest first."""
    made = SampleRing()
    for second in range(60):
        at = START + timedelta(seconds=second)
        made.add(at, Rates(own_waits=own_waits[second * len(own_waits) // 60]))
    return made


@pytest.mark.parametrize(
    ("shares", "seconds"),
    [((0.0, 0.0, 0.0), SELDOM), ((0.02, 0.01, 0.0), SELDOM), ((0.0, 0.09, 0.0), OFTEN), ((0.5, 0.5, 0.5), OFTEN)],
)
def test_ranks_of_which_one_waits_for_its_own_are_looked_at_more_often(
    shares: tuple[float, ...], seconds: float
) -> None:
    assert seconds_between_looks(map(ring, shares)) == seconds


def test_what_it_did_before_half_a_minute_does_not_count() -> None:
    assert NEWEST == 30
    assert seconds_between_looks([ring(0.0), ring(0.5, 0.0), ring(0.0)]) == SELDOM
    assert seconds_between_looks([ring(0.0), ring(0.0, 0.5), ring(0.0)]) == OFTEN


def test_ranks_of_which_nothing_is_known_are_looked_at_seldom() -> None:
    assert seconds_between_looks([]) == seconds_between_looks([SampleRing(), SampleRing()]) == SELDOM
