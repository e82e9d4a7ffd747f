"""Many sources at once: none waits for another, and none can hide another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta

import pytest

from healthd.checks.sampling import LogRead, Sampler, read_to_end
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import NODE, Reading, RecordBatch, Sample
from tests.checks.contexts import NOW

MOMENT = timedelta(seconds=0.5)


class Answers:
    """A source that is well."""

    source = "well"

    def sample(self, now: datetime) -> Sample:
        return Sample(source=self.source, at=now, readings=[Reading(NODE, "well.is", 1)])


class Hangs:
    """A source that answers when it is too late."""

    source = "hangs"

    def __init__(self) -> None:
        self.released = threading.Event()
        self.times = 0

    def sample(self, now: datetime) -> Sample:
        self.times += 1
        self.released.wait(60)
        return Sample(source=self.source, at=now)


class Breaks:
    """A source with a fault of ours."""

    source = "breaks"

    def sample(self, now: datetime) -> Sample:
        raise ZeroDivisionError("oops")


@pytest.mark.slow
def test_a_source_that_hangs_or_breaks_is_reported_as_trouble_and_hides_nothing() -> None:
    hangs = Hangs()

    samples = Sampler([hangs, Breaks(), Answers()], MOMENT).sample(NOW)

    hangs.released.set()
    assert [(sample.source, sample.trouble) for sample in samples] == [
        ("hangs", "it did not answer within 0.5 s"),
        ("breaks", "the probe failed: ZeroDivisionError('oops')"),
        ("well", ""),
    ]


@pytest.mark.slow
def test_a_source_that_has_not_come_back_is_not_asked_again() -> None:
    hangs = Hangs()
    sampler = Sampler([hangs, Answers()], MOMENT)

    samples = [*sampler.sample(NOW), *sampler.sample(NOW)]

    hangs.released.set()
    assert hangs.times == 1
    assert [bool(sample.trouble) for sample in samples] == [True, False, True, False]


def a_record(number: int) -> KernelRecord:
    return KernelRecord(sequence=number, at=NOW, text="text")


class Log:
    """A kernel log of a few batches, after which nothing comes, or the end."""

    source = "file"
    boot_id = "boot-1"

    def __init__(self, *batches: RecordBatch, ends: bool) -> None:
        self._batches = batches
        self._ends = ends

    def ask(self) -> int:
        return 0

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        for batch in self._batches:
            yield batch
        if not self._ends:
            await asyncio.Event().wait()


BATCHES = [RecordBatch(records=(a_record(number),), count=1, last_sequence=number) for number in (1, 2)]


@pytest.mark.slow
async def test_a_log_that_falls_silent_was_read_to_its_end() -> None:
    log_read = await read_to_end(Log(*BATCHES, ends=False), quiet=MOMENT)

    assert log_read == LogRead([a_record(1), a_record(2)], 0)


async def test_a_log_that_ends_was_read_to_its_end() -> None:
    log_read = await read_to_end(Log(*BATCHES, ends=True), quiet=timedelta(minutes=1))

    assert log_read == LogRead([a_record(1), a_record(2)], 0)


@pytest.mark.slow
async def test_an_empty_log_has_nothing_to_say() -> None:
    assert await read_to_end(Log(ends=False), quiet=MOMENT) == LogRead([], 0)
