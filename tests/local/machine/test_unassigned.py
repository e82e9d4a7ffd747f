"""A fault of a GPU while slots are only numbers: none can be taken out of service, and that is said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from healthd.core.api.model import KernelRecord
from healthd.core.config import JudgePolicy
from healthd.local.machine.unassigned import UnassignedFaults
from healthd.local.reports.lines import sentence
from tests.fakes import START

OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


def a_record(text: str, at: datetime = START, **fields: Any) -> KernelRecord:
    return KernelRecord(sequence=1, at=at, text=text, boot_id="boot-1", **fields)


def logged(records: Sequence[KernelRecord], *, trust_user_space: bool = False) -> list[Any]:
    """What was logged of *records*, which come one by one."""
    faults = UnassignedFaults(JudgePolicy(), START, trust_user_space=trust_user_space)
    with capture_logs() as logs:
        for record in records:
            faults.ingest_records([record])
    return list(logs)


def test_a_fault_is_a_warning_with_its_record_and_that_no_slot_can_be_named() -> None:
    (event,) = logged([a_record(OFF_THE_BUS)])

    line = sentence({**event, "level": event["log_level"]})
    assert event["log_level"] == "warning"
    assert line.startswith("the kernel reports 0000:3b:00.0/xid-79: ")
    assert f"({OFF_THE_BUS})" in line
    assert "Reboot this server." in line
    assert "no slot can be named" in line


def test_a_fault_that_stands_is_reported_once_and_each_gpu_has_its_own() -> None:
    again, other = START + timedelta(minutes=1), OFF_THE_BUS.replace("3b", "4c")
    events = logged([a_record(OFF_THE_BUS), a_record(OFF_THE_BUS, again), a_record(other, again)])

    assert [event["finding"] for event in events] == ["0000:3b:00.0/xid-79", "0000:4c:00.0/xid-79"]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(a_record(OFF_THE_BUS, START - timedelta(seconds=1)), id="before the start of the run"),
        pytest.param(a_record(OFF_THE_BUS, priority=11), id="written by a program"),
        pytest.param(a_record(OFF_THE_BUS.replace("79", "31")), id="a fault that takes no slot out"),
        pytest.param(a_record("usb 1-1: new device"), id="no fault"),
    ],
)
def test_what_would_take_no_slot_out_of_service_is_not_reported(record: KernelRecord) -> None:
    assert logged([record]) == []


def test_in_a_drill_a_record_of_a_program_counts() -> None:
    assert len(logged([a_record(OFF_THE_BUS, priority=11)], trust_user_space=True)) == 1
