"""Following a kernel-log file through everything that log daemons do to it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.probes.errors import CannotRead
from healthd.probes.klog.log_file import LONGEST_LINE, POLL, FileLog, LogTail
from tests.fakes import START, ManualClock, settle

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
BOOTED = START - timedelta(hours=1)
BOOT = "boot-1"


def a_log(path: Path, clock: ManualClock | None = None, **options: object) -> FileLog:
    return FileLog(path, clock=clock or ManualClock(), boot_id=BOOT, booted_at=BOOTED, **options)  # type: ignore[arg-type]  # options of one test


async def backlog(log: FileLog) -> list[KernelRecord]:
    """What stands in the file already."""
    async with asyncio.timeout(60), aclosing(log.batches()) as batches:
        return list((await anext(batches)).records)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kern.log"


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (f"3,77,1800000000,-;{XID}", BOOTED + timedelta(minutes=30)),
        (f"[ 1800.000000] {XID}", BOOTED + timedelta(minutes=30)),
        (f"Dec 31 23:30:00 gpu-7 kernel: [ 1800.000000] {XID}", BOOTED + timedelta(minutes=30)),
        (f"2025-12-31T23:45:00.250000+00:00 gpu-7 kernel: {XID}", datetime(2025, 12, 31, 23, 45, 0, 250000, UTC)),
        (f"2025-12-31T23:59:60+00:00 gpu-7 kernel: {XID}", datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
async def test_a_line_is_a_record_with_its_own_time(path: Path, line: str, at: datetime) -> None:
    [record] = await backlog(a_log(write(path, line)))

    assert (record.text, record.at, record.facility, record.boot_id) == (XID, at, 0, BOOT)


async def test_lines_of_an_earlier_boot_are_left_out(path: Path) -> None:
    write(path, f"2025-12-31T22:59:59+00:00 gpu-7 kernel: {XID}", f"2025-12-31T23:00:01+00:00 gpu-7 kernel: {XID}")

    assert [record.at.minute for record in await backlog(a_log(path))] == [0]


async def test_after_a_restart_no_record_comes_twice(path: Path) -> None:
    write(path, f"[ 10.000000] {XID}", f"[ 10.000000] {XID} again", f"[ 11.000000] {XID}")
    first = await backlog(a_log(path))
    cursor = KernelLogCursor(boot_id=BOOT, sequence=first[1].sequence)

    assert [record.sequence for record in await backlog(a_log(path, cursor=cursor))] == [first[2].sequence]
    assert first[0].sequence < first[1].sequence


async def test_a_line_that_quotes_the_kernel_is_not_believed(path: Path) -> None:
    write(path, f"2025-12-31T23:45:00+00:00 gpu-7 sudo: {XID}")

    assert XID not in [record.text for record in await backlog(a_log(path))]


@pytest.mark.parametrize(("trust", "number"), [(False, 0), (True, 1)])
async def test_a_raw_record_of_a_process_counts_only_when_trusted(path: Path, trust: bool, number: int) -> None:
    write(path, f"11,77,1800000000,-;{XID}")

    assert len(await backlog(a_log(path, trust_user_space=trust))) == number


async def test_an_old_line_without_a_time_is_of_unknown_age_and_left_out(path: Path) -> None:
    write(path, f"Dec 31 23:30:00 gpu-7 kernel: {XID}")

    assert await backlog(a_log(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "2025-13-31T23:45:00+00:00 gpu-7 kernel: {}",
        "2025-12-31T23:45:00+99:00 gpu-7 kernel: {}",
        "[999999999999.000000] {}",
        "2025-12-31 gpu-7 joe: [999999999999.000000] {}",
        "3,77,99999999999999999999999,-;{}",
    ],
)
async def test_a_time_that_there_is_not_ends_nothing(path: Path, line: str) -> None:
    write(path, line.format(XID), f"[ 10.000000] {XID}")

    assert [record.at for record in await backlog(a_log(path))] == [BOOTED + timedelta(seconds=10)]


async def test_a_new_line_without_a_time_is_of_now(path: Path) -> None:
    clock = ManualClock()
    write(path)
    log = a_log(path, clock)
    async with asyncio.timeout(60), aclosing(log.batches()) as batches:
        arrival = asyncio.ensure_future(anext(batches))
        await settle()
        write(path, f"Jan  1 00:00:00 gpu-7 kernel: {XID}")
        await clock.run_for(POLL)
        [record] = (await arrival).records

    assert (record.text, record.at) == (XID, START + POLL)


def test_a_line_is_complete_only_with_its_newline(path: Path) -> None:
    path.write_text("one\ntw")
    tail = LogTail(path)
    first = tail.read()
    with path.open("a") as log:
        log.write("o\n")
    second = tail.read()
    tail.close()

    assert (first, second) == (["one"], ["two"])


def test_a_truncated_file_is_read_from_its_start(path: Path) -> None:
    tail = LogTail(write(path, "a long first line", "another"))
    tail.read()
    write(path, "new")
    lines = tail.read()
    tail.close()

    assert lines == ["new"]


def test_a_rotated_file_is_read_to_its_end_before_the_next_one(path: Path) -> None:
    tail = LogTail(write(path, "one"))
    tail.read()
    with path.open("a") as log:
        log.write("last words\n")
    path.rename(path.with_suffix(".1"))
    while_missing = tail.read(), tail.read()
    write(path, "new")
    lines = tail.read()
    tail.close()

    assert while_missing == (["last words"], [])
    assert lines == ["new"]


def test_of_a_huge_file_only_the_end_is_read(path: Path) -> None:
    tail = LogTail(write(path, "x" * 100, "one", "two"), backlog=10)
    lines = tail.read()
    tail.close()

    assert lines == ["one", "two"]


def test_a_line_without_end_does_not_fill_the_memory(path: Path) -> None:
    path.write_bytes(b"x" * (LONGEST_LINE + 1))
    tail = LogTail(path)
    lines = tail.read()
    tail.close()

    assert [len(line) for line in lines] == [LONGEST_LINE + 1]


def test_a_file_that_is_not_there_is_a_refusal(path: Path) -> None:
    with pytest.raises(CannotRead, match="name the file that your log daemon writes"):
        LogTail(path)
