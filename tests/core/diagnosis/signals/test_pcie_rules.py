"""What the rules about PCI Express say of readings, and what they leave alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.diagnosis.readings import Reading
from healthd.core.diagnosis.signals.pcie import RULES
from healthd.core.diagnosis.tiers import tier
from tests.core.diagnosis.signals.engine_driver import MINUTE, EngineDriver

GPU = "0000:53:00.0"


def reported_rules(
    name: str, *values: float | str, part: str = "", after: timedelta = MINUTE, beside: tuple[str, float] | None = None
) -> set[str]:
    """The rules that are bad after these values of one reading, with a constant one beside it."""
    bench = EngineDriver(*RULES)
    bad = []
    for value in values:
        others = [Reading(GPU, f"pcie.{beside[0]}", beside[1], part)] if beside else []
        bad = bench.sample(Reading(GPU, f"pcie.{name}", value, part), *others, after=after)
    return {one.rule.name for one in bad}


@pytest.mark.parametrize("kind", ["gpu", "switch", "rdma", "nvme"])
def test_lost_device_is_reported_when_it_stays_away(kind: str) -> None:
    for state in ("gone", "silent"):
        assert reported_rules(f"{kind}_state", "present", *[state] * 3) == {f"pcie-{kind}-lost"}
        assert reported_rules(f"{kind}_state", "present", state, after=timedelta(seconds=10)) == set()
        assert reported_rules(f"{kind}_state", "present", state, state, state, "present") == set()


def test_gpu_is_without_a_driver_only_after_half_an_hour() -> None:
    assert reported_rules("gpu_driver", *["none"] * 30) == set()
    assert reported_rules("gpu_driver", *["none"] * 31) == {"pcie-gpu-without-driver"}


def test_gpu_that_comes_and_goes() -> None:
    assert reported_rules("gpu_state", *["present", "gone"] * 3, "present") == {"pcie-gpu-flaps"}
    assert reported_rules("gpu_driver", *["vfio-pci"] * 31) == set()


@pytest.mark.parametrize("kind", ["gpu", "rdma", "nvme", "uplink"])
def test_link_that_lost_lanes(kind: str) -> None:
    assert reported_rules(f"{kind}_width", 16, 8, 8) == {f"pcie-{kind}-width-fell"}
    assert reported_rules(f"{kind}_width", 16, 16, 16) == set()
    assert reported_rules(f"{kind}_width", 16, 8, 16) == set()


@pytest.mark.parametrize("kind", ["gpu", "rdma", "uplink"])
def test_link_that_was_narrow_from_the_beginning(kind: str) -> None:
    full = (f"{kind}_full_width", 16)

    assert reported_rules(f"{kind}_width", 8, 8, beside=full) == {f"pcie-{kind}-width"}
    assert reported_rules(f"{kind}_width", 16, 16, beside=full) == set()


def test_disk_with_two_ports_has_half_its_lanes_at_each() -> None:
    assert reported_rules("nvme_width", 2, 2, 2, beside=("nvme_full_width", 4)) == set()


@pytest.mark.parametrize("kind", ["rdma", "nvme", "uplink"])
def test_link_that_became_slower(kind: str) -> None:
    assert reported_rules(f"{kind}_speed", 32.0, *[16.0] * 6) == {f"pcie-{kind}-speed-fell"}
    assert reported_rules(f"{kind}_speed", 32.0, *[16.0] * 5) == set()


@pytest.mark.parametrize("kind", ["rdma", "uplink"])
def test_link_that_was_slow_from_the_beginning(kind: str) -> None:
    full = (f"{kind}_full_speed", 32.0)

    assert reported_rules(f"{kind}_speed", *[16.0] * 6, beside=full) == {f"pcie-{kind}-speed"}
    assert reported_rules(f"{kind}_speed", *[32.0] * 6, beside=full) == set()


def test_gpu_that_saves_power_by_a_slow_link_is_well() -> None:
    assert reported_rules("gpu_speed", 32.0, *[2.5] * 9, beside=("gpu_full_speed", 32.0)) == set()


@pytest.mark.parametrize("name", ["aer_fatal", "aer_nonfatal"])
def test_uncorrected_error_is_reported_at_once_and_what_came_before_the_agent_is_not(name: str) -> None:
    assert reported_rules(name, 4, 5) == {f"pcie-{name.replace('_', '-')}"}
    assert reported_rules(name, 4, 4) == set()


def test_corrected_errors_are_reported_when_there_are_many() -> None:
    assert reported_rules("aer_correctable", 0, 100, 200, 300, part="BadTLP") == {"pcie-aer-correctable"}
    assert reported_rules("aer_correctable", *range(0, 600, 25), part="BadTLP") == set()


def test_settings_that_slow_gpudirect_down_are_reported() -> None:
    assert reported_rules("iommu", "DMA-FQ") == {"pcie-iommu-translates"}
    assert reported_rules("iommu", "identity") == set()
    assert reported_rules("acs_redirect", "on") == {"pcie-acs-redirects"}
    assert reported_rules("acs_redirect", "off") == set()


def test_only_a_lost_gpu_takes_a_node_out_of_service() -> None:
    assert {rule.name for rule in RULES if tier(rule.tier).quarantines} == {"pcie-gpu-lost"}


def test_advice_about_settings_leaves_a_node_healthy() -> None:
    advice = [rule for rule in RULES if rule.reads in {"pcie.iommu", "pcie.acs_redirect"}]

    assert [tier(rule.tier).severity.value for rule in advice] == ["info", "info"]
