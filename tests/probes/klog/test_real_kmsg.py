"""The reader of the kernel log, on the machine's real one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from healthd.clock import SystemClock
from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.probes.klog.kmsg import Kmsg, open_kmsg, read_boot_id
from tests.kernel_log import RealLog

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
A_MINUTE = 60


def of_the_machine(**options: bool) -> Kmsg:
    return open_kmsg(clock=SystemClock(), boot_id=read_boot_id(), **options)  # type: ignore[arg-type]


async def wait_for(log: RealLog, reader: Kmsg, last: str) -> tuple[list[KernelRecord], int]:
    """Our records up to the one that begins so, and how many were lost on the way."""
    records: list[KernelRecord] = []
    lost = 0
    async with asyncio.timeout(A_MINUTE), aclosing(reader.batches()) as batches:
        async for batch in batches:
            lost += batch.lost
            records += [record for record in batch.records if log.wrote(record)]
            if any(record.text.startswith(last) for record in records):
                break
    return records, lost


@pytest.mark.kmsg
async def test_the_kernel_hands_our_records_over(real_log: RealLog) -> None:
    before = SystemClock().now()
    real_log.write(f"{XID} one\ttab")
    real_log.write("NVRM: end")
    records, _ = await wait_for(real_log, of_the_machine(trust_user_space=True), "NVRM: end")

    assert [record.text for record in records] == [f"{XID} one\ttab {real_log.tag}", f"NVRM: end {real_log.tag}"]
    assert [record.priority for record in records] == [11, 11]
    assert abs((records[0].at - before).total_seconds()) < A_MINUTE
    assert records[1].sequence > records[0].sequence


@pytest.mark.kmsg
async def test_the_kernel_says_that_a_process_wrote_it(real_log: RealLog) -> None:
    real_log.write(XID)
    strict = of_the_machine()
    async with asyncio.timeout(A_MINUTE), aclosing(strict.batches()) as batches:
        first = await anext(batches)

    assert first.count > 0
    assert not any(real_log.wrote(record) for record in first.records)


@pytest.mark.kmsg
async def test_an_overrun_of_the_real_ring_is_counted_exactly(real_log: RealLog) -> None:
    reader = of_the_machine(trust_user_space=True)
    real_log.write("NVRM: first")
    [first], _ = await wait_for(real_log, reader, "NVRM: first")
    for _ in range(20_000):
        real_log.write(f"filler {'x' * 60}", level=6)
    real_log.write("NVRM: last")
    cursor = KernelLogCursor(boot_id=reader.boot_id, sequence=first.sequence)
    again = open_kmsg(clock=SystemClock(), boot_id=reader.boot_id, cursor=cursor, trust_user_space=True)
    count = lost = 0
    async with asyncio.timeout(A_MINUTE), aclosing(again.batches()) as batches:
        async for batch in batches:
            count, lost = count + batch.count, lost + batch.lost
            if any(record.text.startswith("NVRM: last") for record in batch.records):
                break

    assert lost > 10_000
    assert count + lost >= 20_001
    assert batch.last_sequence - first.sequence == count + lost
