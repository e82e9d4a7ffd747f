"""Where a reader goes on, and how records get from its thread to the event loop."""

from __future__ import annotations

import asyncio

import pytest

from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.klog.log import MOST_UNDELIVERED, Mailbox, known_sequence
from tests.fakes import START

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
A_MINUTE = 60


def test_a_reader_goes_on_after_its_own_cursor() -> None:
    cursor = KernelLogCursor(boot_id="boot-1", sequence=7, source="kmsg")

    assert known_sequence(cursor, boot_id="boot-1", source="kmsg") == 7


@pytest.mark.parametrize(
    "cursor",
    [
        None,
        KernelLogCursor(),
        KernelLogCursor(boot_id="boot-0", sequence=7, source="kmsg"),
        KernelLogCursor(boot_id="boot-1", sequence=10**12, source="journal"),
    ],
    ids=["none", "empty", "another boot", "another source"],
)
def test_a_cursor_that_says_nothing_here_means_from_the_start(cursor: KernelLogCursor | None) -> None:
    assert known_sequence(cursor, boot_id="boot-1", source="kmsg") == -1


async def test_a_loop_that_is_busy_gets_one_merged_batch() -> None:
    mailbox = Mailbox(asyncio.get_running_loop())
    record = KernelRecord(sequence=4, at=START, text=XID)

    mailbox.ingest(RecordBatch(count=3, last_sequence=2))
    mailbox.ingest(RecordBatch(records=[record], count=1, lost=1, last_sequence=4))
    mailbox.ingest(RecordBatch(count=2, last_sequence=6))

    assert await mailbox.take() == RecordBatch(records=(record,), count=6, lost=1, last_sequence=6)


async def test_in_a_flood_without_end_losses_are_reported_all_the_same() -> None:
    mailbox = Mailbox(asyncio.get_running_loop())
    mailbox.ingest(RecordBatch(count=MOST_UNDELIVERED, lost=9, last_sequence=90_000))

    async with asyncio.timeout(A_MINUTE):
        batch = await mailbox.take()

    assert batch == RecordBatch(count=MOST_UNDELIVERED, lost=9, last_sequence=90_000)


async def test_a_full_mailbox_makes_the_reader_wait() -> None:
    mailbox = Mailbox(asyncio.get_running_loop(), most_pending=1)
    record = KernelRecord(sequence=0, at=START, text=XID)
    mailbox.ingest(RecordBatch(records=[record], count=1, last_sequence=0))

    second = asyncio.create_task(
        asyncio.to_thread(mailbox.ingest, RecordBatch(records=[record], count=1, last_sequence=1))
    )
    first_batch = await mailbox.take()
    await second

    assert [first_batch, await mailbox.take()] == [
        RecordBatch(records=(record,), count=1, last_sequence=0),
        RecordBatch(records=(record,), count=1, last_sequence=1),
    ]
