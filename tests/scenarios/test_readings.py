"""Probes see what the kernel does not say, or says later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import CauseKind, Phase
from healthd.core.diagnosis.readings import Reading
from tests.scenarios.scenario import GPU, Scenario

pytestmark = pytest.mark.slow

NICS = [f"0000:{bus}:00.0" for bus in ("5d", "5e", "9a", "9b")]


def gpu_is(state: str) -> Reading:
    return Reading(GPU, "nvml.state", state)


def cable_is(link: str) -> Reading:
    return Reading(NICS[0], "ib.rail_link", link, "port 1")


def discarded(*packets: int) -> list[Reading]:
    return [Reading(nic, "eth.rx_discards_phy", count, "port 1") for nic, count in zip(NICS, packets, strict=True)]


async def pull_cable(scenario: Scenario) -> None:
    """For a minute, which is long enough to be taken for more than a hiccup."""
    scenario.shows("node-1", cable_is("down"))
    await scenario.run_for(minutes=1)
    scenario.shows("node-1", cable_is("up"))
    await scenario.run_for(seconds=15)


async def test_nvml_misses_the_gpu_before_the_kernel_says_so() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", gpu_is("ok"))
    await scenario.run_for(minutes=5)
    scenario.shows("node-1", gpu_is("lost"))
    recovery = await scenario.run_until(Phase.RECOVERED)
    assert recovery.spec.cause.kind is CauseKind.HARDWARE
    assert scenario.quarantined() == ["node-1"]

    scenario.fault("node-1")
    await scenario.run_for(minutes=1)
    (finding,) = scenario.standing("node-1")

    assert (finding.rule, finding.also) == ("nvml-gpu-lost", ["xid-79"])
    assert {seen.source for seen in finding.evidence} == {"nvml", "kmsg"}
    assert len(scenario.recoveries()) == 1


async def test_what_the_kernel_has_reported_too_waits_for_a_person() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", gpu_is("lost"))
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_for(minutes=1)
    scenario.shows("node-1", gpu_is("ok"))
    await scenario.run_for(hours=1)
    assert scenario.quarantined() == ["node-1"]

    scenario.repair("node-1")
    await scenario.run_for(minutes=1)

    assert scenario.quarantined() == []


async def test_what_was_read_before_a_repair_became_known_does_not_outlast_it() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", Reading(GPU, "nvml.xid.79", 0))
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_for(minutes=1)
    assert scenario.quarantined() == ["node-1"]

    scenario.shows("node-1", Reading(GPU, "nvml.xid.79", 1))
    scenario.repair("node-1")
    scenario.clock.advance(timedelta(seconds=1))
    await scenario.run_for(minutes=1)

    assert scenario.quarantined() == []


async def test_cable_that_is_plugged_again_brings_its_node_back_after_the_wait() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", cable_is("up"))
    await scenario.run_for(minutes=1)
    await pull_cable(scenario)
    await scenario.run_for(minutes=9)
    assert scenario.quarantined() == ["node-1"]

    await scenario.run_for(minutes=2)

    assert scenario.quarantined() == []
    assert scenario.pool() == ["node-1"]
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.root.attempt == 1


async def test_cable_that_was_only_touched_changes_nothing() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", cable_is("up"))
    await scenario.run_for(minutes=1)
    scenario.shows("node-1", cable_is("down"))
    await scenario.run_for(seconds=20)
    scenario.shows("node-1", cable_is("up"))
    await scenario.run_for(minutes=5)

    assert scenario.quarantined() == []
    assert scenario.recoveries() == []


async def test_link_that_flaps_keeps_its_node_out_for_longer_each_time() -> None:
    scenario = Scenario(ranks=1, spares=1)
    scenario.shows("node-1", cable_is("up"))
    for minutes_out in (10, 20, 40):
        await pull_cable(scenario)
        await scenario.run_for(minutes=minutes_out - 1)
        assert scenario.quarantined() == ["node-1"]

        await scenario.run_for(minutes=2)

        assert scenario.quarantined() == []


async def test_agent_that_restarts_holds_a_node_whose_cable_is_still_out() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", cable_is("down"))
    await scenario.run_for(minutes=2)
    scenario.restart_agent("node-1")
    await scenario.run_for(hours=1)
    assert scenario.quarantined() == ["node-1"]

    scenario.shows("node-1", cable_is("up"))
    await scenario.run_for(minutes=11)

    assert scenario.quarantined() == []


async def test_dcgm_that_dies_changes_nothing() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", Reading(GPU, "dcgm.xid.79", 3))
    await scenario.run_for(minutes=5)
    scenario.stop_source("node-1", "dcgm")
    await scenario.run_for(hours=1)
    scenario.restart_source("node-1", "dcgm")
    await scenario.run_for(minutes=5)

    assert scenario.standing("node-1") == []
    assert scenario.quarantined() == []
    assert scenario.recoveries() == []


async def test_nvml_that_dies_with_the_gpu_lost_does_not_bring_the_node_back() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.shows("node-1", gpu_is("lost"))
    await scenario.run_for(minutes=1)
    scenario.stop_source("node-1", "nvml")
    await scenario.run_for(hours=1)

    assert scenario.quarantined() == ["node-1"]


async def test_congestion_on_all_nics_is_no_fault_of_a_node() -> None:
    scenario = Scenario(ranks=2, spares=1)
    for minute in range(10):
        scenario.shows("node-1", *discarded(*[minute * 100_000] * 4))
        await scenario.run_for(minutes=1)

    assert scenario.standing("node-1") == []
    assert scenario.recoveries() == []


async def test_one_nic_that_discards_far_more_than_the_others_is_reported_and_work_goes_on() -> None:
    scenario = Scenario(ranks=2, spares=1)
    for minute in range(10):
        scenario.shows("node-1", *discarded(minute * 100_000, 0, 0, 0))
        await scenario.run_for(minutes=1)

    assert [finding.id for finding in scenario.standing("node-1")] == [f"{NICS[0]}/eth-receive-discards"]
    assert scenario.quarantined() == []
    assert scenario.recoveries() == []
