"""What the rules about DCGM say of readings, and what they leave alone."""

from __future__ import annotations

import pytest

from healthd.core.api.model import KernelRecord, Verdict
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.readings import Reading
from healthd.core.diagnosis.signals.gpus import dcgm, nvml
from healthd.core.diagnosis.signals.reconcile_findings import reconcile
from healthd.core.diagnosis.tiers import tier
from tests.core.diagnosis.signals.engine_driver import EngineDriver

GPU = "0000:53:00.0"


def reported_rules(name: str, *values: float | str, part: str = "") -> set[str]:
    """The rules that are bad after these values, one a minute."""
    bench = EngineDriver(*dcgm.RULES)
    bad = [bench.sample(Reading(GPU, f"dcgm.{name}", value, part)) for value in values]
    return {one.rule.name for one in bad[-1]}


def test_gpu_that_disappeared_is_reported_when_it_stays_away() -> None:
    assert reported_rules("listed", "yes", "no", "no") == set()
    assert reported_rules("listed", "yes", "no", "no", "no") == {"dcgm-gpu-missing"}


@pytest.mark.parametrize(
    ("reading", "rule"),
    [
        ("row_remap_failure", "dcgm-row-remap-failure"),
        ("row_remap_pending", "dcgm-row-remap-pending"),
        ("retired_pending", "dcgm-pages-pending"),
    ],
)
def test_memory_that_waits_for_a_repair(reading: str, rule: str) -> None:
    assert reported_rules(reading, 1) == {rule}
    assert reported_rules(reading, 0) == set()


def test_errors_of_memory_count_when_they_are_new() -> None:
    assert reported_rules("ecc_uncorrectable", 3, 4) == {"dcgm-ecc-uncorrectable"}
    assert reported_rules("ecc_uncorrectable", 3, 3) == set()
    assert reported_rules("remapped_uncorrectable", 3, 4) == {"dcgm-remapped-uncorrectable"}
    assert reported_rules("remapped_uncorrectable", 3, 3) == set()
    assert reported_rules("ecc_correctable", 0, 500, 1000) == {"dcgm-ecc-correctable"}
    assert reported_rules("ecc_correctable", 0, 500, 999) == set()


def test_gpu_whose_spare_rows_are_used_up() -> None:
    assert reported_rules("remapped_uncorrectable", 512) == {"dcgm-many-remapped-rows"}
    assert reported_rules("remapped_uncorrectable", 511) == set()


def test_pcie_link_that_repeats_packets() -> None:
    assert reported_rules("pcie_replays", 0, 200, 310) == {"dcgm-pcie-replays"}
    assert reported_rules("pcie_replays", *range(0, 600, 20)) == set()


@pytest.mark.parametrize("what", ["replays", "recoveries"])
def test_nvlink_that_is_retrained_all_the_time(what: str) -> None:
    assert reported_rules(f"nvlink_{what}", 0, 5, 10, part="nvlink 7") == {f"dcgm-nvlink-{what}"}
    assert reported_rules(f"nvlink_{what}", 0, 4, 4, 4, part="nvlink 7") == set()


@pytest.mark.parametrize("what", ["crc", "crc_data"])
def test_nvlink_that_drops_packets(what: str) -> None:
    assert reported_rules(f"nvlink_{what}", 0, 30_000, 60_000) == {f"dcgm-nvlink-{what.replace('_', '-')}"}
    assert reported_rules(f"nvlink_{what}", 0, 1000, 2000) == set()


@pytest.mark.parametrize(
    ("reading", "rule"), [("hw_thermal", "dcgm-thermal-slowdown"), ("power_brake", "dcgm-power-brake")]
)
def test_gpu_that_is_slowed_down_for_long(reading: str, rule: str) -> None:
    assert reported_rules(reading, *["yes"] * 7) == {rule}
    assert reported_rules(reading, *["yes"] * 6) == set()
    assert reported_rules(reading, *["no", "yes"] * 7) == set()


@pytest.mark.parametrize("unit", [1, 1000])
def test_time_of_throttling_in_either_unit(unit: int) -> None:
    half_of_each_minute = 30_000_000 * unit

    assert reported_rules("thermal_violation", *[half_of_each_minute * minute for minute in range(11)]) == {
        "dcgm-thermal-violation"
    }
    assert reported_rules("thermal_violation", *[0] * 11) == set()


def test_recovery_that_the_driver_asks_for() -> None:
    for number in (1, 2, 4, 6, 7):
        assert reported_rules("recovery_action", number) == {"dcgm-recovery-action"}
    for number in (0, 3, 5):
        assert reported_rules("recovery_action", number) == set()


def test_gpu_that_does_not_join_its_fabric() -> None:
    assert reported_rules("fabric_manager", 4, 4) == {"dcgm-fabric-manager"}
    assert reported_rules("fabric_manager", *[2] * 16) == {"dcgm-fabric-manager-absent"}
    assert reported_rules("fabric_manager", *[2] * 15, 3) == set()
    assert reported_rules("fabric_manager", *[0] * 16) == set()


WATCHES = sorted({rule.reads.rpartition(".")[2] for rule in dcgm.RULES if rule.reads.startswith("dcgm.health.")})


@pytest.mark.parametrize("watch", WATCHES)
def test_verdict_of_dcgms_own_health_check(watch: str) -> None:
    name = f"dcgm-health-{watch.replace('_', '-')}"

    assert reported_rules(f"health.{watch}", "fail", "fail") == {name}
    assert reported_rules(f"health.{watch}", "warn", "warn") == {f"{name}-warns"}
    assert reported_rules(f"health.{watch}", "pass", "pass") == set()
    assert reported_rules(f"health.{watch}", "unknown", "unknown") == set()
    assert reported_rules(f"health.{watch}", "history", "history") == set()


def test_verdict_that_is_over_is_no_longer_reported() -> None:
    bench = EngineDriver(*dcgm.RULES)
    code = "DCGM_FR_VOLATILE_DBE_DETECTED"
    for _ in range(2):
        bad = bench.sample(Reading(GPU, "dcgm.health.mem", "fail", code))

    assert [one.part for one in bad] == [code]
    assert bench.sample(Reading(GPU, "dcgm.health.mem", "pass")) == []
    assert bench.good_since("dcgm-health-mem", GPU) == bench.now


@pytest.mark.parametrize("code", nvml.XIDS)
def test_xid_that_dcgm_saw_is_reported_as_nvmls_would_be(code: int) -> None:
    assert reported_rules(f"xid.{code}", 0, 1) == {f"dcgm-xid-{code}"}
    assert reported_rules(f"xid.{code}", 1, 1) == set()


def test_health_is_watched_as_a_whole_and_in_parts() -> None:
    assert {"all", "mem", "nvlink", "pcie", "thermal", "power"} <= set(WATCHES)


def test_same_fault_has_the_same_name_as_at_nvml() -> None:
    by_nvml = {rule.same_as for rule in nvml.RULES}

    assert {rule.same_as for rule in dcgm.RULES} - {""} <= by_nvml


def test_dcgm_alone_takes_no_node_out_of_service() -> None:
    assert [rule.name for rule in dcgm.RULES if tier(rule.tier).quarantines] == []


def test_fault_that_dcgm_reported_first_takes_a_node_out_once_the_kernel_reports_it_too() -> None:
    bench = EngineDriver(*dcgm.RULES)
    for count in (0, 1):
        bench.sample(Reading(GPU, "dcgm.xid.79", count))
    ledger = reconcile(Ledger(), bench.engine, now=bench.now, boot_id="b")
    line = KernelRecord(sequence=1, at=bench.now, text="NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.")

    both = ledger.ingest_record(line, now=bench.now)

    assert ledger.verdict()[0] is Verdict.DEGRADED
    assert both.verdict()[0] is Verdict.UNHEALTHY
    assert [[seen.source for seen in finding.evidence] for finding in both.standing] == [["dcgm", "kmsg"]]
