"""Memory, swapping, clock and mishaps of a kernel, read from a /proc laid into a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from healthd.probes.host.kernel_clock import is_clock_synchronised
from healthd.probes.host.machine import Host, KernelClock
from tests.fakes import START


class Proc:
    """A fake /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, name: str, text: str) -> None:
        """Write one file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """An empty one."""
    return Proc(tmp_path)


def seen(host: Host | KernelClock) -> dict[str, float | str]:
    """What a look says of the node."""
    look = host.sample(START)

    assert {reading.device for reading in look.readings} <= {"node"}
    return {reading.name: reading.value for reading in look.readings}


def named_by(proc: Proc) -> dict[str, float | str]:
    """What a new probe says."""
    return seen(Host(proc.root))


def test_machine_that_reports_nothing(proc: Proc) -> None:
    assert named_by(proc) == {}


def test_memory_is_reported(proc: Proc) -> None:
    proc.put("meminfo", "MemTotal:        1000000 kB\nMemFree:  5 kB\nHardwareCorrupted:     8 kB\n")

    assert named_by(proc) == {"host.memory_kb": 1_000_000, "host.corrupted_memory_kb": 8}


def test_pages_swapped_in_and_out_are_added(proc: Proc) -> None:
    proc.put("vmstat", "nr_free_pages 7\npswpin 3\npswpout 40\n")

    assert named_by(proc) == {"host.swapped_pages": 43}


def stolen_between(proc: Proc, *stats: str) -> list[float | str | None]:
    """What each look says, one after the other, of these contents of /proc/stat."""
    host, found = Host(proc.root), []
    for stat in stats:
        proc.put("stat", stat)
        found.append(seen(host).get("host.stolen_percent"))
    return found


def test_time_that_a_hypervisor_gave_to_others_counts_since_the_last_look(proc: Proc) -> None:
    first = "cpu  100 0 100 700 0 0 0 100 50 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n"
    second = "cpu  150 0 110 730 0 0 0 110 99 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n"

    assert stolen_between(proc, first, second, second) == [None, 10.0, None]


@pytest.mark.parametrize("odd", ["", "cpu  1 2 3\n", "cpu0 1 2 3 4 5 6 7 8 9 10\n", "cpu  1 2 3 x 5 6 7 8 9 10\n"])
def test_processor_times_that_make_no_sense_say_nothing(proc: Proc, odd: str) -> None:
    good = "cpu  100 0 100 700 0 0 0 100 50 0\n"

    assert stolen_between(proc, good, odd, good) == [None, None, None]


@pytest.mark.parametrize(
    ("bits", "reported"),
    [(0, set()), (1 << 4, {"machine_check"}), (1 << 7 | 1 << 12, {"oops"}), (1 << 14, {"soft_lockup"}), (4097, set())],
)
def test_mishaps_of_the_kernel(proc: Proc, bits: int, reported: set[str]) -> None:
    proc.put("sys/kernel/tainted", f"{bits}\n")

    assert {name for name, value in named_by(proc).items() if value == "yes"} == {
        f"host.taint_{what}" for what in reported
    }
    assert len(named_by(proc)) == 3


@pytest.mark.parametrize(("answer", "word"), [(True, "synchronised"), (False, "free-running")])
def test_clock(proc: Proc, answer: bool, word: str) -> None:
    assert seen(KernelClock(lambda: answer)) == {"host.clock": word}


def test_a_clock_that_could_not_be_read_is_read_again_soon_at_first() -> None:
    """A process that does not end in time on a busy machine must not leave its node unknown for ten minutes."""
    answers = iter([True, *[None] * 6, True, None])
    clock = KernelClock(lambda: next(answers))

    waits = [(seen(clock), int(clock.every.total_seconds()))[1] for _ in range(9)]

    assert waits == [600, 20, 40, 80, 160, 320, 600, 600, 20]


@pytest.mark.parametrize("text", ["", "MemTotal: lots", "MemTotal:", "\x00\xff"])
def test_files_that_make_no_sense_say_nothing(proc: Proc, text: str) -> None:
    for name in ("meminfo", "vmstat", "sys/kernel/tainted"):
        proc.put(name, text)

    assert named_by(proc) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="adjtimex is a call of Linux")
def test_kernel_of_this_machine_says_whether_its_clock_is_kept() -> None:
    assert isinstance(is_clock_synchronised(), bool)
