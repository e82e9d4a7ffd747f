"""Raw records of /dev/kmsg and what they say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import KernelRecord
from healthd.probes.klog.record import (
    DRIFT,
    KernelTime,
    may_matter,
    microseconds_of,
    parse_record,
    sequence_of,
)
from tests.fakes import START, ManualClock


def parse(raw: bytes) -> KernelRecord | None:
    return parse_record(raw, boot_id="boot-1", time=KernelTime(ManualClock(START + timedelta(minutes=1)), START))


def test_a_record_has_number_time_priority_and_text() -> None:
    record = parse(b"3,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")

    assert record == KernelRecord(
        sequence=1234,
        at=START + timedelta(microseconds=5678901),
        text="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        priority=3,
        boot_id="boot-1",
    )


def test_continuation_lines_are_tags() -> None:
    record = parse(b"4,7,9,-;pcieport 0000:00:01.0: AER\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:01.0\n")

    assert record is not None
    assert record.text == "pcieport 0000:00:01.0: AER"
    assert record.tags == {"SUBSYSTEM": "pci", "DEVICE": "+pci:0000:00:01.0"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rb"one\x0atwo", "one\ntwo"),
        (rb"back\x5cslash", "back\\slash"),
        (rb"a \xc3\xa9 b", "a é b"),
        (rb"broken \xff utf-8", "broken � utf-8"),
        (rb"not an escape \xzz", r"not an escape \xzz"),
        (b"semi;colon, comma", "semi;colon, comma"),
        (b"", ""),
    ],
)
def test_escapes_are_undone(written: bytes, read: str) -> None:
    record = parse(b"3,1,1,-;" + written + b"\n")

    assert record is not None
    assert record.text == read


def test_fields_that_a_newer_kernel_adds_are_skipped() -> None:
    record = parse(b"6,1,2,-,caller=T1234;hello\n")

    assert record is not None
    assert record.text == "hello"


@pytest.mark.parametrize("priority", [3, 11, 191])
def test_the_facility_distinguishes_the_kernel_from_a_process(priority: int) -> None:
    record = parse(f"{priority},1,2,-;hello\n".encode())

    assert record is not None
    assert (record.facility == 0) == (priority < 8)


@pytest.mark.parametrize("raw", [b"", b"hello\n", b"3,1;x\n", b"3,x,1,-;x\n", b"3,1,1,-", b"-1,1,1,-;x", b"\xff\x00,;"])
def test_what_is_no_record_is_none(raw: bytes) -> None:
    assert parse(raw) is None


def test_number_and_time_are_read_without_parsing_the_rest() -> None:
    raw = b"3,1234,5678901,-;text, with, commas\n"

    assert (sequence_of(raw), microseconds_of(raw)) == (1234, 5678901)


@pytest.mark.parametrize("raw", [b"", b"noise", b"3,;", b"3,abc,1,-;x"])
def test_no_number_says_what_was_found_instead(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a kernel record"):
        sequence_of(raw)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 28 sourcetrack timeout",
        "nvidia-modeset: ERROR: GPU:0: Failed to query display engine channel state",
        "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Uncorrected (Fatal)",
        "igen6_edac 0000:ed:01.0: AER: device recovery failed",
        "mlx5_core 0000:0d:00.0: device's health compromised - reached miss count",
        "mlx4_core 0000:0d:00.0: Internal error detected",
        "efa 0000:a0:1a.0 rdmap160s26: Failed to process command",
        "infiniband mlx5_1: mlx5_ib_post_send",
        "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 5: bea0000000000108",
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 2",
        "EDAC MC3: 1 UE memory read error on CPU_SrcID#1",
        "CMCI storm detected: switching to poll mode",
        "Out of memory: Killed process 123 (python)",
        "Memory cgroup out of memory: Killed process 123 (python)",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)",
        "postgres invoked oom-killer: gfp_mask=0x280da",
        "Killed process 9876 (apache2)",
    ],
)
def test_nothing_that_a_judge_reads_is_overlooked(text: str) -> None:
    boring = b"6,1,1,-;usb 1-1: new device\n"

    assert may_matter(boring + f"3,2,2,-;{text}\n".encode() + boring)
    assert not may_matter(boring)


def test_a_record_from_the_future_corrects_the_clock() -> None:
    clock = ManualClock()
    time = KernelTime(clock, START - timedelta(seconds=10))

    time.fit(12_000_000)

    assert time.at(12_000_000) == clock.now()


def test_a_stamp_that_fell_behind_corrects_the_clock() -> None:
    clock = ManualClock()
    time = KernelTime(clock, START - timedelta(hours=9))

    time.fit(3_600_000_000)

    assert time.at(3_600_000_000) == clock.now()


def test_no_record_is_later_than_now() -> None:
    clock = ManualClock()
    time = KernelTime(clock, START - timedelta(seconds=10))

    time.fit(10_000_000)

    assert time.at(10_000_001) == clock.now()
    assert time.at(9_000_000) == clock.now() - timedelta(seconds=1)


def test_a_stamp_that_is_read_before_the_fit_is_learnt_is_not_later_than_now() -> None:
    clock = ManualClock()
    time = KernelTime(clock, START)

    assert time.at(5_000_000) == clock.now()

    time.fit(5_000_000)
    assert time.at(4_000_000) == clock.now() - timedelta(seconds=1)


def test_ordinary_lateness_is_not_drift() -> None:
    booted_at = START - timedelta(seconds=10)
    time = KernelTime(ManualClock(), booted_at)

    time.fit(round(10_000_000 - DRIFT / timedelta(microseconds=1) / 2))

    assert time.at(0) == booted_at
