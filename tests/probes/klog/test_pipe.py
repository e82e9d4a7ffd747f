"""The kernel log of one's own behaves as the kernel's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta

import pytest

from healthd.core.api.model import KernelRecord
from healthd.probes.klog.kmsg import open_kmsg
from healthd.probes.klog.pipe import KernelLogPipe, escape
from healthd.probes.klog.record import may_matter, parse_record
from tests.fakes import START, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Stands at the pipe's boot."""
    return ManualClock()


@pytest.fixture
def pipe(clock: ManualClock) -> Iterator[KernelLogPipe]:
    pipe = KernelLogPipe(clock)
    yield pipe
    pipe.close()


def read_one(pipe: KernelLogPipe) -> KernelRecord | None:
    fd = pipe.fd
    raw = os.read(fd, 8192)
    os.close(fd)
    return parse_record(raw, boot_id="boot-1", time=pipe.kernel_time)


def test_records_are_numbered_and_stamped_as_they_come(pipe: KernelLogPipe, clock: ManualClock) -> None:
    pipe.write("one")
    clock.advance(timedelta(seconds=90))
    pipe.write("two", priority=6)
    one, two = read_one(pipe), read_one(pipe)

    assert one == KernelRecord(sequence=0, at=START, text="one", priority=3, boot_id="boot-1")
    assert two == KernelRecord(sequence=1, at=START + timedelta(seconds=90), text="two", priority=6, boot_id="boot-1")


def test_what_would_end_a_record_is_escaped() -> None:
    assert escape("a\nb\\c é") == r"a\x0ab\x5cc \xc3\xa9"


async def test_a_reader_that_is_too_slow_sees_how_much_it_missed(pipe: KernelLogPipe, clock: ManualClock) -> None:
    reader = open_kmsg(fd=pipe.fd, clock=clock, boot_id="boot-1", kernel_time=pipe.kernel_time, wanted=may_matter)
    for _ in range(5000):
        pipe.write("a boring line")
    async with asyncio.timeout(60), aclosing(reader.batches()) as batches:
        first = await anext(batches)
        pipe.write("and on it goes")
        second = await anext(batches)

    assert first.count < 5000
    assert (second.count, second.lost) == (1, 5000 - first.count)
