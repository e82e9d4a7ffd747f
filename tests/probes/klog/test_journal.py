"""Kernel records from journald, with a child that prints what journalctl would."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.probes.errors import CannotRead
from healthd.probes.klog.journal import Journal, parse_entry
from healthd.probes.klog.record import KernelTime
from tests.fakes import START, ManualClock

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
BOOT = "boot-1"


def an_entry(**fields: object) -> str:
    """One line of `journalctl --output=json`; field names with a leading underscore are journald's own."""
    entry: dict[str, object] = {
        "MESSAGE": XID,
        "PRIORITY": "3",
        "SYSLOG_FACILITY": "0",
        "_TRANSPORT": "kernel",
        "_SOURCE_MONOTONIC_TIMESTAMP": "5678901",
        "_BOOT_ID": "0123",
    }
    return json.dumps(entry | fields)


def parse(line: str) -> KernelRecord | None:
    return parse_entry(line.encode(), boot_id=BOOT, time=KernelTime(ManualClock(START + timedelta(minutes=1)), START))


async def read(tmp_path: Path, *lines: str, cursor: KernelLogCursor | None = None) -> list[KernelRecord]:
    """All records of a journal that ends after these lines."""
    printed = tmp_path / "journal"
    printed.write_text("".join(f"{line}\n" for line in lines))
    time = KernelTime(ManualClock(), START)
    journal = Journal(boot_id=BOOT, kernel_time=time, cursor=cursor, command=["cat", str(printed)])
    records: list[KernelRecord] = []
    async with asyncio.timeout(60), aclosing(journal.batches()) as batches:
        while True:
            try:
                records += (await anext(batches)).records
            except OSError:
                return records


def test_an_entry_is_a_kernel_record() -> None:
    assert parse(an_entry()) == KernelRecord(
        sequence=5678901,
        at=START + timedelta(microseconds=5678901),
        text=XID,
        priority=3,
        source="journal",
        boot_id=BOOT,
    )


def test_a_message_of_bytes_is_text_all_the_same() -> None:
    record = parse(an_entry(MESSAGE=[*b"NVRM: \xc3\xa9", 255]))

    assert record is not None
    assert record.text == "NVRM: é�"


@pytest.mark.parametrize(
    "line",
    [
        an_entry(_TRANSPORT="syslog"),
        an_entry(SYSLOG_FACILITY="1"),
        an_entry(_SOURCE_MONOTONIC_TIMESTAMP="soon"),
        an_entry(MESSAGE=[-1]),
        "no JSON",
        "",
    ],
)
def test_what_the_kernel_did_not_write_is_left_out(line: str) -> None:
    assert parse(line) is None


async def test_records_of_one_microsecond_have_numbers_of_their_own(tmp_path: Path) -> None:
    records = await read(tmp_path, an_entry(MESSAGE="one"), an_entry(MESSAGE="two"))

    assert [(record.text, record.sequence) for record in records] == [("one", 5678901), ("two", 5678902)]


async def test_after_a_restart_no_record_comes_twice(tmp_path: Path) -> None:
    cursor = KernelLogCursor(boot_id=BOOT, sequence=5678901)

    assert [record.text for record in await read(tmp_path, an_entry(), an_entry(MESSAGE="two"), cursor=cursor)] == [
        "two"
    ]


async def test_who_stops_listening_leaves_no_child() -> None:
    time = KernelTime(ManualClock(), START)
    command = ["sh", "-c", f"echo '{an_entry()}'; exec sleep 600"]
    async with asyncio.timeout(60), aclosing(Journal(boot_id=BOOT, kernel_time=time, command=command).batches()) as b:
        first = await anext(b)

    assert [record.text for record in first.records] == [XID]


async def test_a_journal_that_ends_is_an_error() -> None:
    journal = Journal(boot_id=BOOT, kernel_time=KernelTime(ManualClock(), START), command=["true"])

    with pytest.raises(OSError, match="ended with status 0"):
        await anext(journal.batches())


def test_without_journalctl_there_is_a_way_out() -> None:
    with pytest.raises(CannotRead, match="name a log file"):
        Journal(boot_id=BOOT, kernel_time=KernelTime(ManualClock(), START), command=["/nowhere/journalctl"])
