"""The reader of the kernel log, on a device of the test's own."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.errors import CannotRead
from healthd.probes.klog.kmsg import Kmsg, open_kmsg, read_boot_id
from healthd.probes.klog.pipe import KernelLogPipe
from tests.fakes import START, ManualClock

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
BORING = "usb 1-1: new high-speed USB device"
BOOT = "boot-1"
A_MINUTE = 60


@pytest.fixture
def pipe() -> Iterator[KernelLogPipe]:
    """A kernel log of the test's own."""
    pipe = KernelLogPipe(ManualClock())
    yield pipe
    pipe.close()


def reading(pipe: KernelLogPipe) -> partial[Kmsg]:
    """The reader of this pipe, for further options."""
    return partial(open_kmsg, fd=pipe.fd, clock=ManualClock(), boot_id=BOOT, kernel_time=pipe.kernel_time)


async def read_to_end(reader: Kmsg) -> RecordBatch:
    """Everything until the log ends, as one batch."""
    whole = RecordBatch()
    async with asyncio.timeout(A_MINUTE), aclosing(reader.batches()) as batches:
        async for batch in batches:
            whole = whole.plus(batch)
    return whole


async def first_records(reader: Kmsg, number: int) -> list[KernelRecord]:
    records: list[KernelRecord] = []
    async with asyncio.timeout(A_MINUTE), aclosing(reader.batches()) as batches:
        async for batch in batches:
            records += batch.records
            if len(records) >= number:
                break
    return records


async def test_a_record_arrives_as_it_was_written(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)()
    pipe.write(XID, tags={"SUBSYSTEM": "pci"})

    assert await first_records(reader, 1) == [
        KernelRecord(sequence=0, at=START, text=XID, boot_id=BOOT, tags={"SUBSYSTEM": "pci"})
    ]


async def test_a_sleeping_reader_is_woken(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)()
    arrival = asyncio.create_task(first_records(reader, 1))
    await asyncio.sleep(0)
    pipe.write(XID)

    assert [record.text for record in await arrival] == [XID]


async def test_who_asks_is_answered_when_all_from_before_was_handed_over(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)()
    assert reader.ask() == 0
    pipe.write(BORING)
    async with asyncio.timeout(A_MINUTE), aclosing(reader.batches()) as batches:
        await anext(batches)
        pipe.write(XID)
        question = reader.ask()
        reported = []
        async for batch in batches:
            reported += [record.text for record in batch.records]
            if batch.answered >= question:
                break

    assert question > 0
    assert reported == [XID]


async def test_a_question_is_answered_though_nothing_happens(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)()
    pipe.write(BORING)
    async with asyncio.timeout(A_MINUTE), aclosing(reader.batches()) as batches:
        await anext(batches)
        answers = []
        for _ in range(2):
            question = reader.ask()
            answers.append((await anext(batches)).answered - question)

    assert answers == [0, 0]


async def test_boring_records_only_move_the_cursor(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)()
    for _ in range(3):
        pipe.write(BORING)
    pipe.close()

    assert await read_to_end(reader) == RecordBatch(count=3, last_sequence=2)


async def test_what_was_lost_is_counted(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)()
    pipe.write(BORING)
    pipe.lose(7)
    pipe.write(XID)
    pipe.close()
    whole = await read_to_end(reader)

    assert whole.lost == 7
    assert [record.sequence for record in whole.records] == [8]


async def test_after_a_restart_no_record_comes_twice(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)(cursor=KernelLogCursor(boot_id=BOOT, sequence=1))
    for number in range(4):
        pipe.write(f"{XID} {number}")
    pipe.close()

    assert [record.sequence for record in (await read_to_end(reader)).records] == [2, 3]


async def test_what_was_lost_without_a_reader_is_counted(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)(cursor=KernelLogCursor(boot_id=BOOT, sequence=1))
    pipe.lose(10)
    pipe.write(XID)
    pipe.close()

    assert (await read_to_end(reader)).lost == 8


async def test_after_a_reboot_the_whole_log_is_read(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)(cursor=KernelLogCursor(boot_id="boot-0", sequence=9000))
    pipe.write(XID)
    pipe.close()
    whole = await read_to_end(reader)

    assert [record.sequence for record in whole.records] == [0]
    assert whole.lost == 0


@pytest.mark.parametrize(("trust", "seen"), [(False, [0]), (True, [0, 1])])
async def test_a_line_that_a_process_wrote_counts_only_when_it_is_trusted(
    pipe: KernelLogPipe, trust: bool, seen: list[int]
) -> None:
    reader = reading(pipe)(trust_user_space=trust)
    pipe.write(XID, priority=3)
    pipe.write(XID, priority=11)
    pipe.close()
    whole = await read_to_end(reader)

    assert [record.sequence for record in whole.records] == seen
    assert whole.last_sequence == 1


async def test_another_prefilter_may_be_a_pattern(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)(wanted=re.compile(rb"usb \d"))
    pipe.write(XID)
    pipe.write(BORING)
    pipe.close()

    assert [record.text for record in (await read_to_end(reader)).records] == [BORING]


async def test_control_characters_and_other_scripts_survive(pipe: KernelLogPipe) -> None:
    reader = reading(pipe)()
    pipe.write("NVRM: one\ntwo \\ ärger\x1b[31m;,")
    pipe.close()

    assert [record.text for record in (await read_to_end(reader)).records] == ["NVRM: one\ntwo \\ ärger\x1b[31m;,"]


async def test_who_stops_listening_leaves_neither_thread_nor_descriptor(pipe: KernelLogPipe) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = reading(pipe)()
    pipe.write(XID)
    await first_records(reader, 1)

    assert "kernel-log" not in [thread.name for thread in threading.enumerate()]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_a_reader_that_breaks_says_so(pipe: KernelLogPipe) -> None:
    def read(fd: int, size: int) -> bytes:
        raise OSError(errno.EIO, "the device is gone")

    reader = Kmsg(
        pipe.fd,
        boot_id=BOOT,
        last_sequence=-1,
        wanted=bool,
        kernel_time=pipe.kernel_time,
        read=read,
    )
    with pytest.raises(OSError, match="the device is gone"):
        await read_to_end(reader)


def test_a_device_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match="No such file"):
        open_kmsg(str(tmp_path / "kmsg"), clock=ManualClock(), boot_id=BOOT)


def test_an_ordinary_file_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "kern.log").write_text("")

    with pytest.raises(CannotRead, match="source: file"):
        open_kmsg(str(tmp_path / "kern.log"), clock=ManualClock(), boot_id=BOOT)


async def test_who_stops_in_the_midst_of_a_burst_runs_as_before(pipe: KernelLogPipe) -> None:
    before = os.sched_getscheduler(0)
    reader = reading(pipe)()
    pipe.write(XID)
    async with asyncio.timeout(A_MINUTE), aclosing(reader.batches()) as batches:
        await anext(batches)
        for _ in range(200):
            pipe.write(XID)
        await anext(batches)

    assert os.sched_getscheduler(0) == before


def test_the_boot_id_is_read_without_its_newline(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("0f2c\n")

    assert read_boot_id(tmp_path / "boot_id") == "0f2c"
