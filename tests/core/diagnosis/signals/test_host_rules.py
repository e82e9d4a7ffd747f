"""What the rules about the machine itself say of readings, and what they leave alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import Blame
from healthd.core.diagnosis.readings import NODE, Reading
from healthd.core.diagnosis.signals.host import RULES
from healthd.core.diagnosis.tiers import tier
from tests.core.diagnosis.signals.engine_driver import MINUTE, EngineDriver

HOUR = timedelta(hours=1)


def reported_rules(
    name: str, *values: float | str, after: timedelta = MINUTE, beside: tuple[str, float] | None = None
) -> str:
    """The rule that is bad after these values of one reading, with a constant one beside it."""
    bench = EngineDriver(*RULES)
    others = [Reading(NODE, *beside)] if beside else []
    bad = [bench.sample(Reading(NODE, name, value), *others, after=after) for value in values]
    return ", ".join(one.rule.name for one in bad[-1])


def test_uncorrectable_error_of_memory_is_reported_and_stays() -> None:
    assert reported_rules("edac.uncorrected", 2, 3) == "memory-uncorrectable"
    assert reported_rules("edac.uncorrected", 2, 2) == ""
    assert next(rule for rule in RULES if rule.name == "memory-uncorrectable").clears_after is None


def test_corrected_errors_are_reported_when_there_are_many_in_a_day() -> None:
    assert reported_rules("edac.corrected", *range(0, 60, 10), after=HOUR) == "memory-correctable"
    assert reported_rules("edac.corrected", *range(60), after=HOUR) == ""


def test_memory_that_the_kernel_took_out_of_use() -> None:
    assert reported_rules("host.corrupted_memory_kb", 4) == "memory-corrupted"
    assert reported_rules("host.corrupted_memory_kb", 0) == ""


def test_machine_with_less_memory_than_before() -> None:
    least = ("host.memory_kb.before", 980.0)

    assert reported_rules("host.memory_kb", 900, 900, beside=least) == "memory-missing"
    assert reported_rules("host.memory_kb", 980, 980, beside=least) == ""


def test_machine_that_swaps() -> None:
    assert reported_rules("host.swapped_pages", 0, 200_000, 400_000) == "host-swaps"
    assert reported_rules("host.swapped_pages", 0, 1000, 2000) == ""


def test_virtual_machine_whose_processors_others_get() -> None:
    assert reported_rules("host.stolen_percent", 7, 9, 6) == "host-cpu-stolen"
    assert reported_rules("host.stolen_percent", 7, 1, 6) == "", "a moment of it slows nothing down for minutes"
    assert reported_rules("host.stolen_percent", 3, 4, 4) == ""


def test_swapping_is_the_applications_fault() -> None:
    assert next(rule for rule in RULES if rule.name == "host-swaps").blame is Blame.APPLICATION


@pytest.mark.parametrize("what", ["machine_check", "oops", "soft_lockup"])
def test_mishap_of_the_kernel_counts_only_when_it_is_new(what: str) -> None:
    assert reported_rules(f"host.taint_{what}", "no", "yes", "yes") == f"host-{what.replace('_', '-')}"
    assert reported_rules(f"host.taint_{what}", "yes", "yes") == ""
    assert reported_rules(f"host.taint_{what}", "no", "no") == ""


def test_clock_that_no_one_keeps_in_step() -> None:
    assert reported_rules("host.clock", *["free-running"] * 31) == "clock-free-running"
    assert reported_rules("host.clock", *["free-running"] * 30) == ""
    assert reported_rules("host.clock", *["synchronised"] * 31) == ""


def test_disk_that_answers_nothing() -> None:
    assert reported_rules("disk.silent_s", 60) == "disk-silent"
    assert reported_rules("disk.silent_s", 50) == ""


def test_disk_that_takes_seconds() -> None:
    assert reported_rules("disk.await_ms", *[6000] * 11) == "disk-slow"
    assert reported_rules("disk.await_ms", *[6000] * 10) == ""
    assert reported_rules("disk.await_ms", *[800] * 11) == ""


def test_disk_that_can_no_longer_be_written() -> None:
    assert reported_rules("disk.writable", 1, 0) == "disk-read-only"
    assert reported_rules("disk.writable", 0, 0) == ""


def test_file_system_that_became_read_only() -> None:
    assert reported_rules("filesystem.read_only", "no", "yes", "yes") == "filesystem-read-only"
    assert reported_rules("filesystem.read_only", "no", "no", "no") == ""


def test_file_system_that_is_full() -> None:
    assert reported_rules("filesystem.free_bytes", 1e6, 1e6) == "filesystem-full"
    assert reported_rules("filesystem.free_bytes", 1e9, 1e9) == ""
    assert reported_rules("filesystem.free_inodes_percent", 0.5, 0.5) == "filesystem-out-of-inodes"
    assert reported_rules("filesystem.free_inodes_percent", 5, 5) == ""


def test_part_that_is_too_hot() -> None:
    assert reported_rules("thermal.margin_c", 20, 0.5, 0.5) == "host-critical-heat"
    assert reported_rules("thermal.margin_c", 20, 0.5, 3) == ""


def test_fan_that_failed() -> None:
    assert reported_rules("thermal.fan_fault", "yes", "yes") == "host-fan-failed"
    assert reported_rules("thermal.fan_fault", "no", "no") == ""


def test_processor_that_is_slowed_down() -> None:
    assert reported_rules("thermal.throttled_ms", 0, 30_000, 60_000) == "host-cpu-throttled"
    assert reported_rules("thermal.throttled_ms", 0, 500, 1000) == ""


@pytest.mark.parametrize("name", ["persistenced", "fabric_manager"])
def test_daemon_that_died(name: str) -> None:
    assert reported_rules(f"services.{name}", "answers", *["dead"] * 3) == f"{name.replace('_', '-')}-dead"
    assert reported_rules(f"services.{name}", "answers", "dead", "dead") == ""
    assert reported_rules(f"services.{name}", *["answers"] * 3) == ""


def test_module_for_gpudirect_that_is_absent() -> None:
    assert reported_rules("services.peermem", *["absent"] * 31) == "peermem-absent"
    assert reported_rules("services.peermem", *["loaded"] * 31) == ""


def test_nothing_here_takes_a_node_out_of_service() -> None:
    assert [rule.name for rule in RULES if tier(rule.tier).quarantines] == []


def test_advice_leaves_a_node_healthy() -> None:
    reported = {rule.name for rule in RULES if tier(rule.tier).severity == "info"}

    assert reported == {"clock-free-running", "host-cpu-stolen", "peermem-absent"}
