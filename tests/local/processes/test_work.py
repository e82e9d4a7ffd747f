"""When a rank was last seen at work."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import pytest

from healthd.local.processes.work import POLL_EVERY, WORKS, Work, processor_time
from tests.fakes import START

SECONDS = POLL_EVERY.total_seconds()


def last_of(*used: float) -> timedelta:
    """When a rank was last seen at work, since its start, of which each look showed so many seconds of a processor."""
    work = Work(START)
    for number, seconds in enumerate(used, start=1):
        work.poll(START + number * POLL_EVERY, lambda seconds=seconds: seconds)  # type: ignore[misc]
    return work.last - START


def test_its_start_counts() -> None:
    assert last_of() == timedelta(0)


def test_one_that_uses_a_processor_works() -> None:
    assert last_of(10, 10 + SECONDS * WORKS) == 2 * POLL_EVERY


def test_one_that_only_wakes_up_now_and_then_waits() -> None:
    assert last_of(10, 10 + SECONDS * WORKS / 2, 10 + SECONDS * WORKS) == POLL_EVERY


def test_the_end_of_one_of_its_processes_is_a_sign_of_life() -> None:
    assert last_of(10, 4) == 2 * POLL_EVERY


def test_it_is_read_now_and_then_alone() -> None:
    work = Work(START)
    work.poll(START + POLL_EVERY / 2, pytest.fail)

    assert work.last == START


@pytest.mark.slow
def test_what_the_children_of_a_process_use_counts() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        used = processor_time(os.getpid())
        child.communicate(b"\n")

    assert used >= 0.2
