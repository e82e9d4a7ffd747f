"""What the rules about the machine itself say of readings, and what they leave alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import Blame
from healthd.core.diagnosis.readings import NODE, Reading
from healthd.core.diagnosis.signals.host import RULES
from healthd.core.diagnosis.tiers import tier
from tests.core.diagnosis.signals.stage import MINUTE, Bench

HOUR = timedelta(hours=1)


def told_of(name: str, *values: float | str, after: timedelta = MINUTE, beside: tuple[str, float] | None = None) -> str:
    """The rule that is bad after these values of one reading, with a constant one beside it."""
    bench = Bench(*RULES)
    others = [Reading(NODE, *beside)] if beside else []
    bad = [bench.sample(Reading(NODE, name, value), *others, after=after) for value in values]
    return ", ".join(one.rule.name for one in bad[-1])


def test_uncorrectable_error_of_memory_is_told_and_stays() -> None:
    assert told_of("edac.uncorrected", 2, 3) == "memory-uncorrectable"
    assert told_of("edac.uncorrected", 2, 2) == ""
    assert next(rule for rule in RULES if rule.name == "memory-uncorrectable").clears_after is None


def test_corrected_errors_are_told_when_there_are_many_in_a_day() -> None:
    assert told_of("edac.corrected", *range(0, 60, 10), after=HOUR) == "memory-correctable"
    assert told_of("edac.corrected", *range(60), after=HOUR) == ""


def test_memory_that_the_kernel_took_out_of_use() -> None:
    assert told_of("host.corrupted_memory_kb", 4) == "memory-corrupted"
    assert told_of("host.corrupted_memory_kb", 0) == ""


def test_machine_with_less_memory_than_before() -> None:
    least = ("host.memory_kb.before", 980.0)

    assert told_of("host.memory_kb", 900, 900, beside=least) == "memory-missing"
    assert told_of("host.memory_kb", 980, 980, beside=least) == ""


def test_machine_that_swaps() -> None:
    assert told_of("host.swapped_pages", 0, 200_000, 400_000) == "host-swaps"
    assert told_of("host.swapped_pages", 0, 1000, 2000) == ""


def test_swapping_is_the_applications_fault() -> None:
    assert next(rule for rule in RULES if rule.name == "host-swaps").blame is Blame.APPLICATION


@pytest.mark.parametrize("what", ["machine_check", "oops", "soft_lockup"])
def test_mishap_of_the_kernel_counts_only_when_it_is_new(what: str) -> None:
    assert told_of(f"host.taint_{what}", "no", "yes", "yes") == f"host-{what.replace('_', '-')}"
    assert told_of(f"host.taint_{what}", "yes", "yes") == ""
    assert told_of(f"host.taint_{what}", "no", "no") == ""


def test_clock_that_nobody_keeps_in_step() -> None:
    assert told_of("host.clock", *["free-running"] * 31) == "clock-free-running"
    assert told_of("host.clock", *["free-running"] * 30) == ""
    assert told_of("host.clock", *["synchronised"] * 31) == ""


def test_disk_that_answers_nothing() -> None:
    assert told_of("disk.silent_s", 60) == "disk-silent"
    assert told_of("disk.silent_s", 50) == ""


def test_disk_that_takes_seconds() -> None:
    assert told_of("disk.await_ms", *[6000] * 11) == "disk-slow"
    assert told_of("disk.await_ms", *[6000] * 10) == ""
    assert told_of("disk.await_ms", *[800] * 11) == ""


def test_disk_that_can_no_longer_be_written() -> None:
    assert told_of("disk.writable", 1, 0) == "disk-read-only"
    assert told_of("disk.writable", 0, 0) == ""


def test_file_system_that_became_read_only() -> None:
    assert told_of("filesystem.read_only", "no", "yes", "yes") == "filesystem-read-only"
    assert told_of("filesystem.read_only", "no", "no", "no") == ""


def test_file_system_that_is_full() -> None:
    assert told_of("filesystem.free_bytes", 1e6, 1e6) == "filesystem-full"
    assert told_of("filesystem.free_bytes", 1e9, 1e9) == ""
    assert told_of("filesystem.free_inodes_percent", 0.5, 0.5) == "filesystem-out-of-inodes"
    assert told_of("filesystem.free_inodes_percent", 5, 5) == ""


def test_part_that_is_too_hot() -> None:
    assert told_of("thermal.margin_c", 20, 0.5, 0.5) == "host-critical-heat"
    assert told_of("thermal.margin_c", 20, 0.5, 3) == ""


def test_fan_that_failed() -> None:
    assert told_of("thermal.fan_fault", "yes", "yes") == "host-fan-failed"
    assert told_of("thermal.fan_fault", "no", "no") == ""


def test_processor_that_is_slowed_down() -> None:
    assert told_of("thermal.throttled_ms", 0, 30_000, 60_000) == "host-cpu-throttled"
    assert told_of("thermal.throttled_ms", 0, 500, 1000) == ""


@pytest.mark.parametrize("name", ["persistenced", "fabric_manager"])
def test_daemon_that_died(name: str) -> None:
    assert told_of(f"services.{name}", "answers", *["dead"] * 3) == f"{name.replace('_', '-')}-dead"
    assert told_of(f"services.{name}", "answers", "dead", "dead") == ""
    assert told_of(f"services.{name}", *["answers"] * 3) == ""


def test_module_for_gpudirect_that_is_absent() -> None:
    assert told_of("services.peermem", *["absent"] * 31) == "peermem-absent"
    assert told_of("services.peermem", *["loaded"] * 31) == ""


def test_nothing_here_takes_a_node_out_of_service() -> None:
    assert [rule.name for rule in RULES if tier(rule.tier).quarantines] == []


def test_advice_leaves_a_node_healthy() -> None:
    told = {rule.name for rule in RULES if tier(rule.tier).severity == "info"}

    assert told == {"clock-free-running", "peermem-absent"}
