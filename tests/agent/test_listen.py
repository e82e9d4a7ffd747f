"""How lost kernel records are reported."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

from healthd.agent.listen import REPORT_EVERY, Listener, Losses
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import RecordBatch
from healthd.telemetry.metrics import Metrics
from tests.fakes import START, ManualClock


def test_a_flood_is_reported_at_once_and_then_in_sums() -> None:
    losses = Losses()

    reported = [losses.to_report(10, START + timedelta(milliseconds=100 * batch)) for batch in range(201)]

    assert reported[0] == 10
    assert [lost for lost in reported[1:] if lost] == [1000, 1000]


def test_the_rest_of_a_flood_is_reported_later() -> None:
    losses = Losses()
    losses.to_report(3, START)
    losses.to_report(4, START + timedelta(seconds=1))

    assert losses.to_report(0, START + timedelta(seconds=2)) == 0
    assert losses.to_report(0, START + REPORT_EVERY) == 4
    assert losses.to_report(0, START + 2 * REPORT_EVERY) == 0


def test_a_clock_that_was_set_back_silences_no_source() -> None:
    losses = Losses()
    losses.to_report(3, START)

    assert losses.to_report(1, START - timedelta(days=1)) == 1


class Backlog:
    """A kernel log with two records from before, and one of now."""

    source, boot_id = "kmsg", "boot-a"

    def __init__(self, *, breaks: bool = False) -> None:
        self._breaks = breaks

    def ask(self) -> int:
        return 0

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        for sequence in range(3):
            record = KernelRecord(sequence=sequence, at=START, text=str(sequence))
            yield RecordBatch(records=(record,), count=1, last_sequence=sequence, is_backlog=sequence < 2)
            if self._breaks and sequence:
                raise OSError("it broke")


async def ingested(kernel_log: Backlog) -> list[list[str]]:
    """What was handed over together."""
    reported: list[list[str]] = []
    also = lambda records: reported.append([record.text for record in records])  # noqa: E731
    await Listener([], ManualClock(), Metrics(), lambda: None, also).ingest_log(kernel_log)
    return reported


async def test_what_was_written_before_the_start_is_judged_as_a_whole() -> None:
    assert await ingested(Backlog()) == [["0", "1", "2"]]


async def test_a_log_that_breaks_in_its_backlog_still_reports_what_it_had() -> None:
    assert await ingested(Backlog(breaks=True)) == [["0", "1"]]
