"""The line that the kernel keeps of each process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from healthd.probes.process_stat import ProcessStat, parse_stat, read_stat

NUMBERS = "S 41 42 42 0 -1 4194304 7 0 0 0 150 50 30 20 20 0 1 0 99 0 0"


@pytest.mark.parametrize("name", ["python", "a) S 1 1 (b", "", "\n", "naïve"])
def test_a_name_may_have_parentheses_spaces_and_lines(name: str) -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")

    assert parse_stat(f"7 ({name}) {NUMBERS}\n".encode()) == ProcessStat(
        name=name, state="S", parent=41, faults=7, cpu=200 * tick, reaped_cpu=50 * tick, started=99, in_kernel=50 * tick
    )


@pytest.mark.parametrize("line", ["", "7 (python)", "7 (python) S x", f"7 (python) {NUMBERS[:20]}", "7 python"])
def test_what_the_kernel_does_not_write_says_nothing(line: str) -> None:
    assert parse_stat(line.encode()) is None


def test_the_kernel_writes_what_is_read() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        stat = read_stat(child.pid)
    finally:
        child.communicate(b"\n")

    assert stat is not None
    assert (stat.parent, stat.cpu >= 0, stat.started > 0) == (os.getpid(), True, True)
    assert read_stat(child.pid) is None, "it has ended"
